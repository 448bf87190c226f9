"""How values and keys are written: between what an application has and what a bucket stores.

Without a codec values are bytes and keys are stored as they are. The key codecs are those of
ADR-54.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Generic, Protocol, TypeVar, cast, overload

import msgspec

from jetspark.errors import InvalidKeyError, InvalidOptionError

__all__ = [
    "Base64KeyCodec",
    "JSONCodec",
    "KeyCodec",
    "KeyCodecChain",
    "PathKeyCodec",
    "ValueCodec",
    "check_codecs",
]

T = TypeVar("T")


def check_codecs(codec: object, key_codec: object) -> None:
    """Refuse what is no codec, such as the class of one."""
    methods = ("encode", "decode")
    _check("codec", codec, methods)
    _check("key_codec", key_codec, (*methods, "encode_filter"))


def _check(option: str, codec: object, methods: tuple[str, ...]) -> None:
    if codec is not None and (
        isinstance(codec, type) or not all(callable(getattr(codec, each, None)) for each in methods)
    ):
        raise InvalidOptionError(
            f"{option} must be an object with the methods {', '.join(methods)}, not {codec!r}"
        )


class ValueCodec(Protocol[T]):
    """Turns values into bytes and back; any object with these two methods is one."""

    def encode(self, value: T, /) -> bytes:
        """The bytes to store."""

    def decode(self, data: bytes, /) -> T:
        """The value of stored bytes."""


class JSONCodec(Generic[T]):
    """Values as JSON.

    With a type, what is read is checked and becomes an object of that type: a dataclass, a
    `msgspec.Struct`, a `TypedDict`, `list[int]` and so on.

    >>> JSONCodec(dict[str, int]).decode(b'{"a": 1}')
    {'a': 1}
    """

    @overload
    def __init__(self: JSONCodec[Any]) -> None: ...

    @overload
    def __init__(self, kind: type[T]) -> None: ...

    def __init__(self, kind: Any = Any) -> None:
        self.kind = kind
        self._decoder = msgspec.json.Decoder(kind)

    def encode(self, value: T, /) -> bytes:
        """The bytes to store."""
        return msgspec.json.encode(value)

    def decode(self, data: bytes, /) -> T:
        """The value of stored bytes; raises `msgspec.DecodeError` if they are not of the type."""
        return cast(T, self._decoder.decode(data))

    def __reduce__(self) -> tuple[Any, ...]:
        return JSONCodec, (self.kind,)

    def __repr__(self) -> str:
        return f"JSONCodec({getattr(self.kind, '__name__', self.kind)})"


class KeyCodec(Protocol):
    """Turns keys of the application into keys of a bucket and back.

    What `encode` gives must be a valid key. `encode_filter` does the same for a pattern, whose
    wildcards have to stay.
    """

    def encode(self, key: str, /) -> str:
        """The key to store."""

    def decode(self, key: str, /) -> str:
        """The key of a stored one."""

    def encode_filter(self, pattern: str, /) -> str:
        """The pattern to ask the server for."""


class Base64KeyCodec:
    """Stores each token of a key in base64 (URL alphabet, no padding), so it may have anything.

    >>> Base64KeyCodec().encode("users.josé@example")
    'dXNlcnM.am9zw6lAZXhhbXBsZQ'
    """

    def encode(self, key: str, /) -> str:
        """The key to store."""
        return ".".join(map(self._encode, key.split(".")))

    def decode(self, key: str, /) -> str:
        """The key of a stored one."""
        return ".".join(map(self._decode, key.split(".")))

    def encode_filter(self, pattern: str, /) -> str:
        """The pattern to ask the server for."""
        *tokens, last = pattern.split(".")
        stored = [token if token == "*" else self._encode(token) for token in tokens]
        stored.append(last if last in ("*", ">") else self._encode(last))
        return ".".join(stored)

    def _encode(self, token: str) -> str:
        return base64.urlsafe_b64encode(token.encode()).rstrip(b"=").decode()

    def _decode(self, token: str) -> str:
        text = token.rstrip("=")
        try:
            return base64.b64decode(
                text + "=" * (-len(text) % 4), altchars="-_", validate=True
            ).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise InvalidKeyError(
                f"key token {token!r} was not written by this codec: {error}"
            ) from error


class PathKeyCodec:
    """Stores keys that are paths, `/` as `.`; a slash at the end is dropped.

    >>> PathKeyCodec().encode("/etc/hosts")
    '_root_.etc.hosts'
    """

    def encode(self, key: str, /) -> str:
        """The key to store."""
        if key.startswith("/"):
            key = "_root_" + key
        return key.rstrip("/").replace("/", ".")

    def decode(self, key: str, /) -> str:
        """The key of a stored one."""
        if key == "_root_":
            return "/"
        return key.removeprefix("_root_" if key.startswith("_root_.") else "").replace(".", "/")

    def encode_filter(self, pattern: str, /) -> str:
        """The pattern to ask the server for."""
        return self.encode(pattern)


class KeyCodecChain:
    """Several key codecs, one after the other; what is read goes through them in reverse.

    >>> KeyCodecChain(PathKeyCodec(), Base64KeyCodec()).encode("a/ö")
    'YQ.w7Y'
    """

    def __init__(self, *codecs: KeyCodec) -> None:
        self.codecs = codecs

    def encode(self, key: str, /) -> str:
        """The key to store."""
        for codec in self.codecs:
            key = codec.encode(key)
        return key

    def decode(self, key: str, /) -> str:
        """The key of a stored one."""
        for codec in reversed(self.codecs):
            key = codec.decode(key)
        return key

    def encode_filter(self, pattern: str, /) -> str:
        """The pattern to ask the server for."""
        for codec in self.codecs:
            pattern = codec.encode_filter(pattern)
        return pattern
