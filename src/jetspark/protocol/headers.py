"""Message headers: the block that begins with `NATS/1.0`.

Names are case-sensitive on the wire and keep their order; a name may come several times. Reading
tolerates anything, because the server relays header bytes unchecked; writing refuses what would
break the block or smuggle another header into it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from jetspark.errors import InvalidHeaderError

__all__ = ["Headers", "HeadersLike", "encode_headers", "parse_headers", "parse_status"]

_VERSION = b"NATS/1.0"
_NAME = re.compile(r"[!-9;-~]+")  # printable ASCII without the colon
_MAPPINGS = (dict, Mapping)  # dict by itself, because asking an abstract class is slow


class Headers:
    """Ordered, multi-value headers of a message.

    >>> headers = Headers({"Trace": "a", "Tag": ["x", "y"]})
    >>> headers["Trace"], headers.get_all("Tag"), headers.get("trace")
    ('a', ['x', 'y'], None)

    `status` and `description` are those of the inline status line (`NATS/1.0 503`), which only
    servers write.
    """

    __slots__ = ("_pairs", "description", "status")

    def __init__(
        self,
        headers: HeadersLike | Iterable[tuple[str, str]] = (),
        *,
        status: int | None = None,
        description: str = "",
    ) -> None:
        self.status = status
        self.description = description
        self._pairs: list[tuple[str, str]] = []
        if isinstance(headers, Headers):
            self._pairs.extend(headers._pairs)
        elif isinstance(headers, _MAPPINGS):
            for name, value in headers.items():
                if isinstance(value, str):
                    self._pairs.append((name, value))
                elif isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
                    self._pairs.extend((name, item) for item in value)
                else:
                    raise InvalidHeaderError(
                        f"header {name!r} must be a str or a list of str, "
                        f"not {type(value).__name__}"
                    )
        else:
            self._pairs.extend((name, value) for name, value in headers)

    def __getitem__(self, name: str) -> str:
        """The first value of a header."""
        for key, value in self._pairs:
            if key == name:
                return value
        raise KeyError(name)

    def get(self, name: str, default: str | None = None) -> str | None:
        """The first value of a header, or the default."""
        for key, value in self._pairs:
            if key == name:
                return value
        return default

    def get_all(self, name: str, *, ignore_case: bool = False) -> list[str]:
        """All values of a header, in order."""
        if ignore_case:
            folded = name.lower()
            return [value for key, value in self._pairs if key.lower() == folded]
        return [value for key, value in self._pairs if key == name]

    def add(self, name: str, value: str) -> None:
        """Append one more value."""
        self._pairs.append((name, value))

    def __setitem__(self, name: str, value: str) -> None:
        """Replace all values of a header by one."""
        self._pairs = [pair for pair in self._pairs if pair[0] != name]
        self._pairs.append((name, value))

    def __delitem__(self, name: str) -> None:
        kept = [pair for pair in self._pairs if pair[0] != name]
        if len(kept) == len(self._pairs):
            raise KeyError(name)
        self._pairs = kept

    def __contains__(self, name: object) -> bool:
        return any(key == name for key, _ in self._pairs)

    def __iter__(self) -> Iterator[str]:
        """The distinct names, in order."""
        return iter(dict.fromkeys(key for key, _ in self._pairs))

    def __len__(self) -> int:
        """The number of header lines."""
        return len(self._pairs)

    def items(self) -> list[tuple[str, str]]:
        """Every header line as a pair of name and value."""
        return list(self._pairs)

    def to_dict(self) -> dict[str, list[str]]:
        """A plain dictionary of lists."""
        result: dict[str, list[str]] = {}
        for name, value in self._pairs:
            result.setdefault(name, []).append(value)
        return result

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Headers):
            return (
                self._pairs == other._pairs
                and self.status == other.status
                and self.description == other.description
            )
        if isinstance(other, Mapping):
            try:
                return self.status is None and self.to_dict() == Headers(other).to_dict()
            except InvalidHeaderError:
                return False
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        status = "" if self.status is None else f", status={self.status}"
        text = f", description={self.description!r}" if self.description else ""
        return f"Headers({self.to_dict()!r}{status}{text})"


HeadersLike: TypeAlias = Headers | Mapping[str, str | Sequence[str]]


def parse_status(raw: bytes) -> tuple[int | None, str]:
    """The inline status of a header block and its description, without the other headers."""
    end = raw.find(b"\r\n")
    line = raw[: end if end >= 0 else len(raw)]
    if not line.startswith(_VERSION):
        return None, ""
    text = line[len(_VERSION) :].strip()
    code = text[:3]
    if len(code) != 3 or not code.isdigit():
        return None, ""
    return int(code), text[3:].strip().decode("utf-8", "surrogateescape")


def parse_headers(raw: bytes) -> Headers:
    """Read a header block; lines that are no headers are passed over."""
    if not raw.startswith(_VERSION):
        return Headers()
    status, description = parse_status(raw)
    lines = raw.decode("utf-8", "surrogateescape").split("\r\n")
    pairs = []
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if colon and name:
            pairs.append((name, value.strip(" \t")))
    return Headers(pairs, status=status, description=description)


def encode_headers(headers: HeadersLike) -> bytes:
    """The header block to send, with the blank line that ends it."""
    if not isinstance(headers, Headers):
        if not isinstance(headers, _MAPPINGS):
            raise InvalidHeaderError(
                f"headers must be a dict or Headers, not {type(headers).__name__}"
            )
        headers = Headers(headers)
    lines = ["NATS/1.0"]
    for name, value in headers.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidHeaderError(
                f"header name {name!r} must be printable ASCII without blanks and ':'"
            )
        if not isinstance(value, str):
            raise InvalidHeaderError(
                f"header {name!r} must have str values, not {type(value).__name__}"
            )
        if "\r" in value or "\n" in value:
            raise InvalidHeaderError(f"the value of header {name!r} contains a line break")
        lines.append(f"{name}: {value}")
    lines.append("\r\n")
    try:
        return "\r\n".join(lines).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise InvalidHeaderError(f"headers cannot be encoded as UTF-8: {error}") from error
