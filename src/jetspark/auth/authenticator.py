"""The authentication options, and the CONNECT fields they become.

Values are fetched anew for every connect and reconnect: files are read again and callables called
again, because the nonce changes and credentials rotate.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar, cast

from jetspark.errors import AuthenticationError, InvalidOptionError

from .creds import Creds, load_creds, load_seed, parse_creds, parse_seed
from .nkeys import public_key, require_library, sign, validate_seed

__all__ = ["Authenticator", "CredsOption", "SecretOption", "SeedOption"]

T = TypeVar("T")

_Path: TypeAlias = str | os.PathLike[str]
_Provider: TypeAlias = Callable[[], T | Awaitable[T]]

SecretOption: TypeAlias = str | _Provider[str]
"""A value, or a callable (sync or async) that returns it."""

SeedOption: TypeAlias = _Path | _Provider[_Path]
"""A seed or the path of a seed file, or a callable that returns one of them."""

CredsOption: TypeAlias = _Path | Creds | _Provider[_Path | Creds]
"""The path of a creds file, the content of one, `Creds`, or a callable that returns one."""


class Authenticator:
    """Turns the authentication options into CONNECT fields.

    There are four ways, which exclude each other: `user` (with `password`), `token`, `creds`, and
    `nkey_seed`. `jwt` goes with `nkey_seed`, or stands alone when it is a bearer JWT.
    """

    def __init__(
        self,
        *,
        user: SecretOption | None = None,
        password: SecretOption | None = None,
        token: SecretOption | None = None,
        nkey_seed: SeedOption | None = None,
        creds: CredsOption | None = None,
        jwt: SecretOption | None = None,
    ) -> None:
        self._user = user
        self._password = password
        self._token = token
        self._nkey_seed = nkey_seed
        self._creds = creds
        self._jwt = jwt
        self._check()

    def _check(self) -> None:
        given = {name: value for name, value in self._options().items() if value is not None}
        for name, value in given.items():
            if value == "" and name != "password":
                raise InvalidOptionError(f"option {name!r} is empty")
        if "password" in given and "user" not in given:
            raise InvalidOptionError("option 'password' needs option 'user'")
        companions = {"password": "user", "nkey_seed": "jwt"}
        ways = [name for name in given if companions.get(name) not in given]
        if len(ways) > 1:
            raise InvalidOptionError(
                f"options {ways[0]!r} and {ways[1]!r} exclude each other; set only one of them"
            )
        if self._nkey_seed is not None or self._creds is not None:
            require_library()
        if isinstance(self._nkey_seed, str) and _looks_like_seed(self._nkey_seed):
            validate_seed(self._nkey_seed.strip(), source="option 'nkey_seed'")

    def __repr__(self) -> str:
        given = (name for name, value in self._options().items() if value is not None)
        return f"Authenticator({', '.join(given)})"

    @property
    def has_credentials(self) -> bool:
        """Whether any option is set, so that credentials in URLs do not count."""
        return any(value is not None for value in self._options().values())

    def _options(self) -> dict[str, object]:
        return {
            "user": self._user,
            "password": self._password,
            "token": self._token,
            "creds": self._creds,
            "jwt": self._jwt,
            "nkey_seed": self._nkey_seed,
        }

    async def connect_fields(
        self,
        *,
        nonce: str | None,
        url_user: str | None,
        url_password: str | None,
        url_token: str | None,
    ) -> dict[str, str]:
        """Return the fields that CONNECT needs, from the options or else from the URL.

        An `AuthenticationError` is retryable when it was the application's callable that failed.
        """
        if not self.has_credentials:
            return _present(user=url_user, password=url_password, token=url_token)
        if self._user is not None or self._token is not None:
            return _present(
                user=await _secret("user", self._user),
                password=await _secret("password", self._password),
                token=await _secret("token", self._token),
            )
        if not nonce:
            raise AuthenticationError(
                "server has no nkey support: it sent no nonce to sign, and the client is "
                "configured with an nkey, a JWT or a creds file"
            )
        if self._creds is not None:
            creds = _to_creds(await _value("creds", self._creds, (str, os.PathLike, Creds)))
            return {"jwt": creds.jwt, "sig": sign(creds.seed, nonce)}
        fields: dict[str, str] = {}
        if self._nkey_seed is not None:
            seed = _to_seed(await _value("nkey_seed", self._nkey_seed, (str, os.PathLike)))
            fields["sig"] = sign(seed, nonce)
            if self._jwt is None:
                fields["nkey"] = public_key(seed)
        if (jwt := await _secret("jwt", self._jwt)) is not None:
            fields["jwt"] = jwt
        return fields


def _present(*, user: str | None, password: str | None, token: str | None) -> dict[str, str]:
    fields = {"user": user, "pass": password, "auth_token": token}
    return {name: value for name, value in fields.items() if value is not None}


async def _secret(name: str, option: SecretOption | None) -> str | None:
    return None if option is None else await _value(name, option, (str,))


async def _value(name: str, option: T | _Provider[T], types: tuple[type, ...]) -> T:
    """Resolve an option; only the type of what went wrong is told, for it may hold secrets."""
    if not callable(option):
        return option
    try:
        value = option()
        if inspect.isawaitable(value):
            value = await value
    except Exception as error:
        raise AuthenticationError(
            f"option {name!r}: the callable failed with {type(error).__name__}", retryable=True
        ) from error
    if not isinstance(value, types):
        raise AuthenticationError(
            f"option {name!r}: the callable returned {type(value).__name__}, not "
            + " or ".join(kind.__name__ for kind in types)
        )
    return cast("T", value)


def _to_creds(value: _Path | Creds) -> Creds:
    if isinstance(value, Creds):
        return value
    if not isinstance(value, str):
        return load_creds(value)
    if _looks_like_text(value):
        return parse_creds(value, source="option 'creds'")
    # Errors about paths quote them, so that no secret may pass for a path.
    if _looks_like_seed(value) or value.startswith("eyJ"):
        raise InvalidOptionError(
            "option 'creds' takes the path or the content of a creds file; "
            "for a JWT and a seed use the options 'jwt' and 'nkey_seed'"
        )
    return load_creds(value)


def _to_seed(value: _Path) -> str:
    if not isinstance(value, str):
        return load_seed(value)
    if _looks_like_text(value) or _looks_like_seed(value):
        return parse_seed(value, source="option 'nkey_seed'")
    if value.startswith("eyJ"):
        raise InvalidOptionError(
            "option 'nkey_seed' takes a seed or the path of a seed file, and this is a JWT; "
            "it belongs in the option 'jwt'"
        )
    return load_seed(value)


def _looks_like_text(value: str) -> bool:
    return "\n" in value or "-BEGIN" in value


def _looks_like_seed(value: str) -> bool:
    """Tell a seed, even a damaged one, from a path: a long word without dots and slashes."""
    value = value.strip()
    return value.startswith("S") and value.isalnum() and len(value) >= 32
