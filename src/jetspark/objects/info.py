"""What an object store keeps about an object besides its data.

Fields have their names on the wire, where this is the JSON of a message of its own (ADR-20).
Nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

import msgspec

from jetspark.errors import BadObjectError, InvalidResponseError
from jetspark.jetstream.codec import NOT_JSON, Config, encode

__all__ = ["ObjectInfo", "ObjectLink", "ObjectMeta", "ObjectOptions", "decode_info"]

_NO_TIME = datetime.min.replace(tzinfo=UTC)


class ObjectLink(Config, frozen=True, kw_only=True):
    """What a link leads to: an object, or a whole store if there is no name."""

    bucket: str
    name: str = ""


class ObjectOptions(Config, frozen=True, kw_only=True):
    """How an object is stored."""

    max_chunk_size: int = 0  # bytes; 0: not known
    link: ObjectLink | None = None  # the object is no data, but a link


class ObjectMeta(Config, frozen=True, kw_only=True):
    """What the owner of an object says about it."""

    name: str
    description: str = ""
    headers: Mapping[str, Sequence[str]] = {}
    metadata: Mapping[str, str] = {}
    options: ObjectOptions | None = None

    @property
    def link(self) -> ObjectLink | None:
        """What it is a link to, if it is one."""
        return None if self.options is None else self.options.link

    @property
    def chunk_size(self) -> int:
        """How many bytes a chunk has at most; 0 if that is not known."""
        return 0 if self.options is None else self.options.max_chunk_size


class ObjectInfo(ObjectMeta, frozen=True, kw_only=True):
    """An object in a store: its name and description, its size and its digest."""

    bucket: str = ""
    nuid: str = ""  # names the chunks of this version
    size: int = 0  # bytes
    chunks: int = 0
    digest: str = ""  # SHA-256=...; links and deleted objects have none
    deleted: bool = False

    # Not on the wire: they are those of the message.
    modified: datetime = _NO_TIME
    """When it was stored, or changed or deleted."""
    sequence: int = 0
    """The sequence of this description in the stream of the store."""

    _local: ClassVar[frozenset[str]] = frozenset({"modified", "sequence"})
    _always: ClassVar[frozenset[str]] = frozenset({"bucket", "nuid", "size", "chunks"})

    def encode(self) -> bytes:
        """The JSON to store."""
        return encode(self)


def decode_info(
    data: bytes, subject: str, context: str, *, bucket: str, modified: datetime, sequence: int
) -> ObjectInfo:
    """The description in a message of a store; raises `BadObjectError` if it is damaged.

    Clients differ in what they write where nothing is to be said, and `mtime` in particular means
    nothing: the time is that of the message. Nor is it believed in which store it is.
    """
    try:
        raw: Any = msgspec.json.decode(data)
        if isinstance(raw, dict):
            raw.pop("mtime", None)
        info = ObjectInfo.from_wire(raw)
        if not info.name or info.size < 0 or info.chunks < 0:
            raise InvalidResponseError("no name, or a negative size")
    except (*NOT_JSON, InvalidResponseError) as error:
        raise BadObjectError(
            f"{context}: its description is damaged: {error}; to be rid of it, purge the subject "
            f"{subject} of the stream"
        ) from error
    return info.replace(bucket=bucket, modified=modified, sequence=sequence)
