"""Creds files and seed files."""

from __future__ import annotations

from pathlib import Path

import nkeys
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetspark.auth.creds import Creds, load_creds, load_seed, parse_creds, parse_seed
from jetspark.errors import InvalidOptionError

SEED: str = nkeys.encode_seed(bytes(range(32)), nkeys.PREFIX_BYTE_USER).decode()
ACCOUNT_SEED: str = nkeys.encode_seed(bytes(32), nkeys.PREFIX_BYTE_ACCOUNT).decode()
JWT = "eyJ0eXAiOiJKV1QifQ.eyJzdWIiOiJVQSJ9.c2ln-bmF0_dXJl"

JWT_BLOCK = f"-----BEGIN NATS USER JWT-----\n{JWT}\n------END NATS USER JWT------\n"
SEED_BLOCK = f"-----BEGIN USER NKEY SEED-----\n{SEED}\n------END USER NKEY SEED------\n"
WARNING = """
************************* IMPORTANT *************************
NKEY Seed printed below can be used to sign and prove identity.
Sxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx

"""
CREDS = (
    f"{JWT_BLOCK}{WARNING}{SEED_BLOCK}\n"
    "*************************************************************\n"
)


@pytest.mark.parametrize(
    "text",
    [
        CREDS,
        CREDS.replace("\n", "\r\n"),
        CREDS.strip(),
        JWT_BLOCK + SEED_BLOCK,
        SEED_BLOCK + JWT_BLOCK,
        CREDS.replace("-----BEGIN", "---BEGIN").replace("------END", "---END"),
        CREDS.replace("-----BEGIN ", "-------- BEGIN "),
        "\n".join(f"  {line}  " for line in CREDS.splitlines()),
        CREDS.replace(JWT, f"{JWT[:20]}\n{JWT[20:]}"),
        CREDS.replace(JWT, f"\n{JWT}\n"),
        f"-----BEGIN NOTE-----\nhello\n-----END NOTE-----\n{CREDS}",
    ],
)
def test_parses(text: str) -> None:
    assert parse_creds(text, source="x") == Creds(JWT, SEED)
    assert parse_seed(text, source="x") == SEED


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no user JWT"),
        (SEED, "no user JWT"),
        (SEED_BLOCK, "no user JWT"),
        (JWT_BLOCK, "no nkey seed"),
        (JWT_BLOCK + SEED_BLOCK.replace(SEED, ""), "no nkey seed"),
        (CREDS.replace(JWT, "eyJh.onlytwo"), "no user JWT"),
        (CREDS.replace(SEED, SEED[:-1]), "58 letters"),
        (CREDS.replace(SEED, "SU" + "A" * 56), "checksum"),
        (CREDS.replace(SEED, ACCOUNT_SEED), "seed of an account"),
        (JWT_BLOCK + SEED_BLOCK.partition("------END")[0], "'USER NKEY SEED' has no END"),
        (f"-----BEGIN NATS USER JWT-----\n{JWT}", "'NATS USER JWT' has no END"),
    ],
)
def test_refuses(text: str, reason: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        parse_creds(text, source="creds file 'x'")
    message = str(caught.value)
    assert message.startswith("creds file 'x': ")
    assert reason in message
    assert SEED[5:] not in message
    assert JWT[5:] not in message


@pytest.mark.parametrize("text", [SEED, f"  {SEED}\r\n", f"# my key\n{SEED}\n", SEED_BLOCK, CREDS])
def test_parses_a_seed(text: str) -> None:
    assert parse_seed(text, source="x") == SEED


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no nkey seed"),
        ("hello", "no nkey seed"),
        (JWT_BLOCK, "no nkey seed"),
        (SEED[:-3], "58 letters"),
        (ACCOUNT_SEED, "seed of an account"),
        (f"-----BEGIN USER NKEY SEED-----\n{SEED}", "no END line"),
    ],
)
def test_refuses_a_seed(text: str, reason: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        parse_seed(text, source="seed file 'x'")
    assert str(caught.value).startswith("seed file 'x': ")
    assert reason in str(caught.value)
    assert SEED[5:-3] not in str(caught.value)


def test_no_secret_in_the_repr() -> None:
    assert repr(Creds(JWT, SEED)) == "Creds()"
    assert str(Creds(JWT, SEED)) == "Creds()"


def test_loads_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "user.creds"
    path.write_text(CREDS)
    assert load_creds(path) == load_creds(str(path)) == Creds(JWT, SEED)
    assert load_seed(path) == SEED
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load_creds("~/user.creds") == load_creds(Path("~/user.creds")) == Creds(JWT, SEED)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "missing.creds"
    with pytest.raises(InvalidOptionError, match=f"creds file '{missing}' cannot be read: No such"):
        load_creds(missing)
    with pytest.raises(InvalidOptionError, match=f"seed file '{missing}' cannot be read: No such"):
        load_seed(str(missing))
    with pytest.raises(InvalidOptionError, match="cannot be read: Is a directory"):
        load_creds(tmp_path)
    with pytest.raises(InvalidOptionError, match="cannot be read: it is not a valid path"):
        load_creds("a\0b")
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidOptionError, match="it is not a text file") as caught:
        load_creds(binary)
    assert caught.value.__context__ is None


def test_errors_in_files_name_them(tmp_path: Path) -> None:
    path = tmp_path / "user.creds"
    path.write_text(JWT_BLOCK)
    with pytest.raises(InvalidOptionError, match=f"creds file '{path}': no nkey seed"):
        load_creds(path)
    with pytest.raises(InvalidOptionError, match=f"seed file '{path}': no nkey seed"):
        load_seed(path)


@given(st.one_of(st.text(), st.integers(0, len(CREDS)).map(lambda cut: CREDS[:cut])))
def test_any_text_parses_or_is_refused(text: str) -> None:
    for parse in (parse_creds, parse_seed):
        message = ""
        try:
            parse(text, source="x")
        except InvalidOptionError as error:
            message = str(error)
        assert SEED[5:30] not in message
        assert JWT[5:30] not in message
