"""What is in a bucket under a key: a value, or the marker of one that is gone.

An entry is made from a message as it is, and decodes only what somebody asks for.
"""

from __future__ import annotations

import enum
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from jetspark.errors import InvalidArgumentError
from jetspark.jetstream.codec import decode_time
from jetspark.jetstream.message import parse_metadata
from jetspark.protocol import parse_headers

from .codecs import KeyCodec, ValueCodec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jetspark.jetstream import StoredMessage
    from jetspark.protocol import Frame

__all__ = ["ADDED", "NO_HEADERS", "EntryForm", "KeyValueEntry", "KeyValueOperation", "operation_of"]

T = TypeVar("T")

_SIZE = b"\r\nNats-Msg-Size:"
NO_HEADERS = b"NATS/1.0"
ADDED = b"\r\nNats-Stream: "  # begins what the server adds to the headers of a direct get
_CONSUMER = b"$JS.ACK."


class KeyValueOperation(enum.StrEnum):
    """What was done with a key; the value is that of the header `KV-Operation`."""

    PUT = "PUT"
    DELETE = "DEL"
    PURGE = "PURGE"  # with its history; also what has expired


_MARKER_REASONS = {
    "MaxAge": KeyValueOperation.PURGE,
    "Purge": KeyValueOperation.PURGE,
    "Remove": KeyValueOperation.DELETE,
}


def operation_of(header: bytes | None) -> KeyValueOperation:
    """What a message did, by its headers: a client says it in one, a server in another."""
    if header is None or (b"KV-Operation" not in header and b"Nats-Marker-Reason" not in header):
        return KeyValueOperation.PUT
    headers = parse_headers(header)
    operation = headers.get("KV-Operation")
    if operation:
        try:
            return KeyValueOperation(operation)
        except ValueError:  # of a newer client, and no value in any case (ADR-8)
            return KeyValueOperation.DELETE
    reason = headers.get("Nats-Marker-Reason")
    return (
        _MARKER_REASONS.get(reason, KeyValueOperation.DELETE) if reason else KeyValueOperation.PUT
    )


class EntryForm(Generic[T]):
    """How the entries of a bucket are read."""

    def __init__(
        self,
        bucket: str,
        prefix: str,
        codec: ValueCodec[T] | None,
        key_codec: KeyCodec | None,
    ) -> None:
        self.bucket = bucket
        self.start = len(prefix)  # of the key in a subject
        self.codec = codec
        self.key_codec = key_codec

    def of_frames(self, frames: Sequence[Frame]) -> list[KeyValueEntry[T]]:
        """The entries that a consumer delivered."""
        return [
            KeyValueEntry(self, subject, header, data, reply or b"")
            for subject, reply, header, data in frames
        ]

    def of_direct(self, key: str, block: bytes, data: bytes) -> KeyValueEntry[T] | None:
        """The entry in the answer to a direct get; None if that is a status.

        The server adds its headers behind those that are stored.
        """
        start = block.rfind(ADDED)
        if start < 0:
            return None
        header = None if start == len(NO_HEADERS) else block[:start] + b"\r\n\r\n"
        return KeyValueEntry(self, key, header, data, block)

    def of_stored(self, message: StoredMessage) -> KeyValueEntry[T]:
        """The entry that was read in another way."""
        return KeyValueEntry(
            self,
            message.subject[self.start :],
            message.raw_headers,
            message.data,
            b"",
            message.sequence,
            message.raw_time,
        )


# gc=False: nothing that it refers to leads back to it.
class KeyValueEntry(msgspec.Struct, Generic[T], gc=False, eq=False):
    """A revision of a key."""

    _form: EntryForm[T]
    _name: str | bytes  # the key as it is stored, or the subject that ends with it
    _headers: bytes | None
    _data: bytes
    _place: bytes  # the reply subject of a consumer, or the headers that a direct get adds
    _revision: int = 0  # 0: to be read from there
    _time: str = ""
    _value: T | msgspec.UnsetType = msgspec.UNSET

    @property
    def bucket(self) -> str:
        """The name of the bucket."""
        return self._form.bucket

    @property
    def key(self) -> str:
        """The key."""
        codec = self._form.key_codec
        return self._key if codec is None else codec.decode(self._key)

    @property
    def _key(self) -> str:
        """The key as it is stored."""
        name = self._name
        if isinstance(name, bytes):
            # No client should write a key that is not UTF-8.
            name = name[self._form.start :].decode(errors="surrogateescape")
            self._name = name
        return name

    @property
    def value(self) -> T:
        """The value, as the codec of the bucket reads it.

        Without a codec it is bytes: empty for the marker of a deleted key and with `meta_only`.
        With a codec these have no value, and asking for it is an `InvalidArgumentError`.
        """
        codec = self._form.codec
        if codec is None:
            return self._data  # type: ignore[return-value]  # T is bytes then
        if isinstance(self._value, msgspec.UnsetType):
            if self.deleted or (not self._data and self.size):
                raise InvalidArgumentError(
                    f"{self!r} has no value: look at its `operation` first, and do not watch with "
                    "meta_only what you want to read"
                )
            try:
                self._value = codec.decode(self._data)
            except Exception as error:
                error.add_note(f"in the value of {self!r}")
                raise
        return self._value

    @property
    def raw_value(self) -> bytes:
        """The bytes that are stored."""
        return self._data

    @property
    def size(self) -> int:
        """How many bytes the value has, also if it was left out (`meta_only`)."""
        header = self._headers
        if self._data or header is None or (start := header.rfind(_SIZE)) < 0:
            return len(self._data)
        start += len(_SIZE)
        return int(header[start : header.index(b"\r\n", start)])

    @property
    def revision(self) -> int:
        """The sequence in the stream of the bucket; greater than those of all before it."""
        if not self._revision:
            if self._from_consumer:
                self._revision = parse_metadata(self._place).stream_sequence
            else:
                self._read_added()
        return self._revision

    @property
    def created(self) -> datetime:
        """When it was stored, cut to microseconds."""
        if self._from_consumer:
            return parse_metadata(self._place).timestamp
        if not self._time:
            self._read_added()
        return decode_time(self._time) or datetime.min.replace(tzinfo=UTC)

    @property
    def delta(self) -> int:
        """How many entries were to follow this one, in a watch or a history; else 0."""
        return parse_metadata(self._place).num_pending if self._from_consumer else 0

    @property
    def _from_consumer(self) -> bool:
        return self._place.startswith(_CONSUMER)

    def _read_added(self) -> None:
        headers = parse_headers(NO_HEADERS + self._place[self._place.rfind(ADDED) :])
        self._revision = int(headers["Nats-Sequence"])
        self._time = headers["Nats-Time-Stamp"]

    @property
    def operation(self) -> KeyValueOperation:
        """What was done with the key."""
        return operation_of(self._headers)

    @property
    def deleted(self) -> bool:
        """Whether this marks a key that was deleted or purged, or has expired."""
        return self._headers is not None and self.operation is not KeyValueOperation.PUT

    def __repr__(self) -> str:
        data = self._data if len(self._data) <= 32 else self._data[:32] + b"..."
        try:
            key = self.key
        except Exception:  # the codec does not know it
            key = self._key
        return (
            f"<KeyValueEntry {key!r} revision {self.revision} of bucket {self.bucket!r} "
            f"{self.operation.value} {data!r}>"
        )
