"""The authentication options and the CONNECT fields they give."""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nkeys
import pytest

from jetspark.auth import Authenticator, Creds
from jetspark.errors import AuthenticationError, InvalidOptionError, MissingExtraError

NONCE = "uvrWkYe9Z5-Hq1M"
JWT = "eyJ0eXAiOiJKV1QifQ.eyJzdWIiOiJVQSJ9.c2lnbmF0dXJl"


def make_seed() -> str:
    seed: bytes = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
    return seed.decode()


SEED = make_seed()


def creds_text(jwt: str = JWT, seed: str = SEED) -> str:
    return (
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )


def public(seed: str) -> str:
    key: bytes = nkeys.from_seed(seed.encode()).public_key
    return key.decode()


def assert_signed(signature: str, seed: str = SEED, nonce: str = NONCE) -> None:
    raw = base64.urlsafe_b64decode(signature + "==")
    assert nkeys.from_seed(seed.encode()).verify(nonce.encode(), raw)


async def fields(
    authenticator: Authenticator,
    *,
    nonce: str | None = NONCE,
    url_user: str | None = None,
    url_password: str | None = None,
    url_token: str | None = None,
) -> dict[str, str]:
    return await authenticator.connect_fields(
        nonce=nonce, url_user=url_user, url_password=url_password, url_token=url_token
    )


class TestPlain:
    async def test_nothing(self) -> None:
        authenticator = Authenticator()
        assert not authenticator.has_credentials
        assert await fields(authenticator) == {}

    async def test_from_the_url(self) -> None:
        authenticator = Authenticator()
        assert await fields(authenticator, url_user="bob", url_password="pw") == {
            "user": "bob",
            "pass": "pw",
        }
        assert await fields(authenticator, url_user="bob", url_password="") == {
            "user": "bob",
            "pass": "",
        }
        assert await fields(authenticator, url_token="t") == {"auth_token": "t"}

    @pytest.mark.parametrize("nonce", [None, NONCE])
    async def test_from_options(self, nonce: str | None) -> None:
        user = Authenticator(user="bob", password="pw")
        assert user.has_credentials
        assert await fields(user, nonce=nonce) == {"user": "bob", "pass": "pw"}
        assert await fields(Authenticator(user="bob"), nonce=nonce) == {"user": "bob"}
        assert await fields(Authenticator(token="t"), nonce=nonce) == {"auth_token": "t"}
        empty = Authenticator(user="bob", password="")
        assert await fields(empty, nonce=nonce) == {"user": "bob", "pass": ""}

    @pytest.mark.parametrize(
        "options", [{"user": "al", "password": "x"}, {"token": "t"}, {"nkey_seed": SEED}]
    )
    async def test_options_override_the_url_altogether(self, options: dict[str, Any]) -> None:
        authenticator = Authenticator(**options)
        alone = await fields(authenticator)
        assert await fields(authenticator, url_user="bob", url_password="pw") == alone
        assert await fields(authenticator, url_token="other") == alone


class TestKeys:
    async def test_nkey(self) -> None:
        result = await fields(Authenticator(nkey_seed=SEED))
        assert set(result) == {"nkey", "sig"}
        assert result["nkey"] == public(SEED)
        assert_signed(result["sig"])

    async def test_nkey_from_a_file(self, tmp_path: Path) -> None:
        path = tmp_path / "seed.nk"
        path.write_text(SEED + "\n")
        for option in (path, str(path)):
            assert (await fields(Authenticator(nkey_seed=option)))["nkey"] == public(SEED)

    async def test_nkey_from_the_text_of_a_file(self) -> None:
        armoured = f"---BEGIN USER NKEY SEED---\n{SEED}\n---END USER NKEY SEED---"
        for text in (f" {SEED} \n", armoured):
            assert (await fields(Authenticator(nkey_seed=text)))["nkey"] == public(SEED)

    async def test_jwt_with_seed(self) -> None:
        result = await fields(Authenticator(jwt=JWT, nkey_seed=SEED))
        assert set(result) == {"jwt", "sig"}
        assert result["jwt"] == JWT
        assert_signed(result["sig"])

    async def test_bearer_jwt(self) -> None:
        assert await fields(Authenticator(jwt=JWT)) == {"jwt": JWT}

    async def test_creds_file(self, tmp_path: Path) -> None:
        path = tmp_path / "user.creds"
        path.write_text(creds_text())
        for option in (path, str(path), creds_text(), Creds(JWT, SEED)):
            result = await fields(Authenticator(creds=option))
            assert set(result) == {"jwt", "sig"}
            assert result["jwt"] == JWT
            assert_signed(result["sig"])

    async def test_creds_file_is_read_again(self, tmp_path: Path) -> None:
        path = tmp_path / "user.creds"
        authenticator = Authenticator(creds=path)
        with pytest.raises(InvalidOptionError, match="cannot be read"):
            await fields(authenticator)
        path.write_text(creds_text())
        assert (await fields(authenticator))["jwt"] == JWT
        other = make_seed()
        path.write_text(creds_text("eyJ9.e.x", other))
        result = await fields(authenticator, nonce="second")
        assert result["jwt"] == "eyJ9.e.x"
        assert_signed(result["sig"], other, "second")

    @pytest.mark.parametrize("nonce", [None, ""])
    @pytest.mark.parametrize(
        "options",
        [
            {"nkey_seed": SEED},
            {"jwt": JWT},
            {"jwt": JWT, "nkey_seed": SEED},
            {"creds": Creds(JWT, SEED)},
        ],
    )
    async def test_without_a_nonce(self, options: dict[str, Any], nonce: str | None) -> None:
        with pytest.raises(AuthenticationError, match="server has no nkey support") as caught:
            await fields(Authenticator(**options), nonce=nonce)
        assert not caught.value.retryable


class TestCallables:
    @pytest.mark.parametrize("asynchronous", [False, True])
    async def test_called_anew_for_every_connect(self, asynchronous: bool) -> None:
        def rotating(name: str) -> Callable[[], Any]:
            values = (f"{name}{n}" for n in itertools.count())

            async def later() -> str:
                await asyncio.sleep(0)
                return next(values)

            return later if asynchronous else lambda: next(values)

        authenticator = Authenticator(user=rotating("u"), password=rotating("p"))
        assert await fields(authenticator) == {"user": "u0", "pass": "p0"}
        assert await fields(authenticator) == {"user": "u1", "pass": "p1"}
        authenticator = Authenticator(token=rotating("t"))
        assert await fields(authenticator) == {"auth_token": "t0"}
        assert await fields(authenticator) == {"auth_token": "t1"}

    def test_not_called_by_the_constructor(self) -> None:
        def provide() -> str:
            raise AssertionError

        assert Authenticator(creds=provide).has_credentials

    async def test_creds(self, tmp_path: Path) -> None:
        path = tmp_path / "user.creds"
        path.write_text(creds_text())

        async def later() -> Creds:
            return Creds(JWT, SEED)

        providers: list[Callable[[], Any]] = [
            lambda: path,
            lambda: str(path),
            creds_text,
            lambda: Creds(JWT, SEED),
            later,
        ]
        for provider in providers:
            result = await fields(Authenticator(creds=provider))
            assert result["jwt"] == JWT
            assert_signed(result["sig"])

    async def test_seed_and_jwt(self, tmp_path: Path) -> None:
        path = tmp_path / "seed.nk"
        path.write_text(SEED)
        for provider in (lambda: SEED, lambda: path):
            assert (await fields(Authenticator(nkey_seed=provider)))["nkey"] == public(SEED)
        result = await fields(Authenticator(nkey_seed=SEED, jwt=lambda: JWT))
        assert result["jwt"] == JWT

    @pytest.mark.parametrize("name", ["user", "token", "creds", "nkey_seed", "jwt"])
    @pytest.mark.parametrize("asynchronous", [False, True])
    async def test_failure(self, name: str, asynchronous: bool) -> None:
        def fail() -> str:
            raise RuntimeError("vault said hunter2")

        async def fail_later() -> str:
            return fail()

        authenticator = Authenticator(**{name: fail_later if asynchronous else fail})
        with pytest.raises(AuthenticationError) as caught:
            await fields(authenticator)
        assert str(caught.value) == f"option '{name}': the callable failed with RuntimeError"
        assert isinstance(caught.value.__cause__, RuntimeError)
        assert caught.value.retryable

    async def test_cancellation_passes_through(self) -> None:
        async def cancelled() -> str:
            raise asyncio.CancelledError

        with pytest.raises(asyncio.CancelledError):
            await fields(Authenticator(token=cancelled))

    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            ("token", None, "returned NoneType, not str"),
            ("user", b"bob", "returned bytes, not str"),
            ("jwt", 1, "returned int, not str"),
            ("creds", b"x", "returned bytes, not str or PathLike or Creds"),
            ("nkey_seed", None, "returned NoneType, not str or PathLike"),
        ],
    )
    async def test_wrong_type(self, name: str, value: Any, message: str) -> None:
        authenticator = Authenticator(**{name: lambda: value})
        with pytest.raises(AuthenticationError, match=f"option '{name}': .*{message}$") as caught:
            await fields(authenticator)
        assert not caught.value.retryable


class TestRefusals:
    @pytest.mark.parametrize(
        ("first", "second"),
        [
            ("user", "token"),
            ("user", "creds"),
            ("user", "jwt"),
            ("user", "nkey_seed"),
            ("token", "creds"),
            ("token", "jwt"),
            ("token", "nkey_seed"),
            ("creds", "jwt"),
            ("creds", "nkey_seed"),
        ],
    )
    def test_conflicts_name_both(self, first: str, second: str) -> None:
        options: dict[str, Any] = {
            "user": "u",
            "token": "hunter2",
            "creds": "x.creds",
            "jwt": JWT,
            "nkey_seed": SEED,
        }
        with pytest.raises(
            InvalidOptionError, match=f"^options '{first}' and '{second}' exclude each other"
        ):
            Authenticator(**{first: options[first], second: options[second]})

    def test_password_without_user(self) -> None:
        with pytest.raises(InvalidOptionError, match="'password' needs option 'user'"):
            Authenticator(password="hunter2")
        with pytest.raises(InvalidOptionError, match="'password' needs option 'user'"):
            Authenticator(password="hunter2", token="t")

    @pytest.mark.parametrize("name", ["user", "token", "creds", "nkey_seed", "jwt"])
    def test_empty(self, name: str) -> None:
        options: dict[str, Any] = {name: ""}
        with pytest.raises(InvalidOptionError, match=f"option '{name}' is empty"):
            Authenticator(**options)

    @pytest.mark.parametrize(
        "seed",
        [SEED[:-1], SEED + "A", SEED[:-4] + "1111", SEED[:9] + SEED[9:].lower()],
        ids=["shorter", "longer", "other", "lower case"],
    )
    def test_damaged_seed_is_refused_at_once(self, seed: str) -> None:
        with pytest.raises(InvalidOptionError, match=r"^option 'nkey_seed': ") as caught:
            Authenticator(nkey_seed=seed)
        assert seed[2:9] not in str(caught.value)

    @pytest.mark.parametrize(
        ("name", "value"), [("creds", JWT), ("creds", SEED)], ids=["jwt", "seed"]
    )
    async def test_a_secret_in_place_of_a_path_is_not_shown(self, name: str, value: str) -> None:
        options: dict[str, Any] = {name: value}
        with pytest.raises(InvalidOptionError, match="takes the path or the content") as caught:
            await fields(Authenticator(**options))
        assert value[2:9] not in str(caught.value)

    async def test_a_jwt_in_place_of_a_seed_is_not_shown(self) -> None:
        with pytest.raises(InvalidOptionError, match="belongs in the option 'jwt'") as caught:
            await fields(Authenticator(nkey_seed=JWT))
        assert JWT[2:9] not in str(caught.value)

    async def test_damaged_creds_text(self) -> None:
        with pytest.raises(InvalidOptionError, match=r"^option 'creds': no user JWT"):
            await fields(Authenticator(creds="hello\n"))

    @pytest.mark.parametrize("options", [{"creds": "x.creds"}, {"nkey_seed": SEED}])
    def test_missing_extra(self, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "nkeys", None)
        with pytest.raises(MissingExtraError, match=r"jetspark\[nkeys\]"):
            Authenticator(**options)
        Authenticator(user="bob")
        Authenticator(token="t")


def test_the_repr_names_options_only() -> None:
    authenticator = Authenticator(user="bob", password="hunter2")
    assert repr(authenticator) == "Authenticator(user, password)"
    assert repr(Authenticator()) == "Authenticator()"
