"""NKey seeds: validation and signatures, against keys that the nkeys package makes."""

from __future__ import annotations

import base64
import os
import sys

import nkeys
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetspark.auth.nkeys import public_key, sign, validate_seed
from jetspark.errors import InvalidOptionError, MissingExtraError

KINDS = {
    "account": nkeys.PREFIX_BYTE_ACCOUNT,
    "cluster": nkeys.PREFIX_BYTE_CLUSTER,
    "operator": nkeys.PREFIX_BYTE_OPERATOR,
    "server": nkeys.PREFIX_BYTE_SERVER,
}


def make_seed(kind: int = nkeys.PREFIX_BYTE_USER, raw: bytes | None = None) -> str:
    encoded: bytes = nkeys.encode_seed(raw or os.urandom(32), kind)
    return encoded.decode()


@given(raw=st.binary(min_size=32, max_size=32), nonce=st.text(max_size=40))
def test_signature_verifies(raw: bytes, nonce: str) -> None:
    seed = make_seed(raw=raw)
    signature = sign(seed, nonce)
    assert "=" not in signature
    decoded = base64.urlsafe_b64decode(signature + "==")
    assert len(decoded) == 64
    assert nkeys.from_seed(seed.encode()).verify(nonce.encode(), decoded)


def test_signature_is_that_of_exactly_this_nonce() -> None:
    seed = make_seed()
    decoded = base64.urlsafe_b64decode(sign(seed, "nonce") + "==")
    with pytest.raises(nkeys.ErrInvalidSignature):
        nkeys.from_seed(seed.encode()).verify(b"other", decoded)


def test_signature_is_url_safe() -> None:
    seed = make_seed(raw=bytes(range(32)))
    signatures = "".join(sign(seed, str(n)) for n in range(50))
    assert not set(signatures) & set("+/")
    assert set(signatures) & set("-_")


def test_public_key() -> None:
    seed = make_seed()
    assert public_key(seed) == nkeys.from_seed(seed.encode()).public_key.decode()
    assert public_key(seed).startswith("U")
    assert len(public_key(seed)) == 56


@given(st.binary(min_size=32, max_size=32))
def test_every_user_seed_is_valid(raw: bytes) -> None:
    validate_seed(make_seed(raw=raw))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_seeds_of_others_are_refused_by_name(kind: str) -> None:
    seed = make_seed(KINDS[kind])
    with pytest.raises(InvalidOptionError, match=f"seed of an? {kind}") as caught:
        validate_seed(seed, source="file 'x'")
    assert str(caught.value).startswith("file 'x': ")
    assert seed not in str(caught.value)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda seed: "", "begins with SU"),
        (lambda seed: "UABC", "begins with SU"),
        (lambda seed: seed.lower(), "begins with SU"),
        (lambda seed: seed[:-1], "58 letters, this one has 57"),
        (lambda seed: seed + "A", "58 letters, this one has 59"),
        (lambda seed: seed + "\n", "58 letters, this one has 59"),
        (lambda seed: seed[:-1] + "1", "other characters"),
        (lambda seed: seed[:-1] + "é", "other characters"),
        (lambda seed: seed[:30] + ("A" if seed[30] != "A" else "B") + seed[31:], "checksum"),
        (lambda seed: "SU" + "A" * 56, "checksum"),
        (lambda seed: "SUB" + seed[3:], "checksum"),
    ],
)
def test_damaged_seeds_are_refused(damage: object, reason: str) -> None:
    assert callable(damage)
    damaged = damage(make_seed())
    for call in (validate_seed, public_key, lambda seed: sign(seed, "nonce")):
        with pytest.raises(InvalidOptionError, match=reason) as caught:
            call(damaged)
        assert damaged[2:] == "" or damaged[2:] not in str(caught.value)
        assert caught.value.__cause__ is None


def test_any_single_mistyped_letter_is_noticed() -> None:
    seed = make_seed()
    # The last letter holds two bits that belong to nothing.
    for position in range(len(seed) - 1):
        wrong = "A" if seed[position] != "A" else "B"
        with pytest.raises(InvalidOptionError):
            validate_seed(seed[:position] + wrong + seed[position + 1 :])


def test_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    seed = make_seed()
    monkeypatch.setitem(sys.modules, "nkeys", None)
    validate_seed(seed)
    with pytest.raises(MissingExtraError, match=r'pip install "jetspark\[nkeys\]"'):
        sign(seed, "nonce")
    with pytest.raises(MissingExtraError):
        public_key(seed)
