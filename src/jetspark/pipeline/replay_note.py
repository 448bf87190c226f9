"""What a replay has stored: a note in a bucket, and what the target has behind it.

The server forgets the ids of messages after its duplicate window, and a replay may be run again
much later. So as it goes, it notes up to which message of the archive everything is stored, and
where the target ended then. What the target has behind that is looked through for messages of the
archive. Each of them tells its origin: its id, `ORDERS:17`, or, if it came with an id of its own, a
header.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from jetspark.context import JetStream
from jetspark.errors import (
    ArchiveError,
    BucketNotFoundError,
    KeyExistsError,
    MessageNotFoundError,
    RevisionMismatchError,
)
from jetspark.jetstream import RetentionPolicy, Stream
from jetspark.kv import KeyValue
from jetspark.spark.connection import persist
from jetspark.spark.ledger import LEDGER, MESSAGE_ID
from jetspark.spark.range_reader import RangeReader, ReadPlan, leader_info
from jetspark.spark.ranges import Range

from .manifest import Head

__all__ = ["ORIGIN", "Note", "Notebook", "origin_of", "stored_origins"]

ORIGIN = "Jetspark-Origin"
PATIENCE = 60.0


@dataclass(frozen=True)
class Note:
    """How far a replay is."""

    archive: str
    began: int
    """The end of the target before the first replay of this archive."""
    selection: str
    through: int
    """Everything of the selection up to this sequence of the archive is stored..."""
    end: int
    """... and anything behind it, behind this sequence of the target."""


class Notebook:
    """The note about an archive and a target."""

    def __init__(self, bucket: KeyValue[bytes], stream: Stream, key: str, name: str) -> None:
        self._bucket = bucket
        self._stream = stream  # of the bucket
        self._key = key
        self._name = name
        self._revision = 0

    @classmethod
    async def open(
        cls, js: JetStream, head: Head, target: Stream, *, create: bool
    ) -> Notebook | None:
        """In the bucket of the Spark sinks; None if there is none, and it shall not be created."""
        name = str(LEDGER.default)
        try:
            bucket = await js.key_value(name)
        except BucketNotFoundError:
            if not create:
                return None
            bucket = await js.create_or_update_key_value(
                bucket=name,
                description="Where writers began, so that nothing is stored twice",
                replicas=target.config.num_replicas,
            )
        created = (head.created, target.cached_info.created)  # one created again is another one
        digest = hashlib.sha256(repr((head.stream, *created)).encode()).hexdigest()[:24]
        stream = await js.get_stream(f"KV_{name}")
        return cls(bucket, stream, f"replay.{target.name}.{digest}", target.name)

    async def read(self) -> Note | None:
        """The note, if there is one."""
        try:
            # By the leader: another server might not have heard of it yet.
            found = await self._stream.get_last_message(f"$KV.{self._bucket.name}.{self._key}")
        except MessageNotFoundError:
            return None
        self._revision = found.sequence
        return Note(**json.loads(found.data))

    async def write(self, note: Note) -> None:
        """Change the note; raises if another process does the same replay."""
        value = json.dumps(dataclasses.asdict(note)).encode()
        try:
            self._revision = await persist(PATIENCE, self._put, value)
        except (KeyExistsError, RevisionMismatchError):
            if await persist(PATIENCE, self.read) == note:
                return  # it was us, and the answer was lost
            raise ArchiveError(
                f"another process replays this archive into stream {self._name!r}; wait for it, or "
                "stop it first"
            ) from None

    async def _put(self, value: bytes) -> int:
        if self._revision:
            return await self._bucket.update(self._key, value, self._revision)
        return await self._bucket.create(self._key, value)


def origin_of(headers: Mapping[str, Any] | Iterable[tuple[str, list[str]]] | None) -> str | None:
    """What a message says it is a copy of; of the headers, only the right ones count."""
    found = dict(headers or ())
    values = found.get(ORIGIN) or found.get(MESSAGE_ID)
    return values[0] if values else None


async def stored_origins(target: Stream, origin: str, after: int) -> set[int]:
    """The sequences of a stream whose messages a target has, behind a sequence of its own."""
    last = (await persist(PATIENCE, leader_info, target)).state.last_seq
    plan = ReadPlan(
        headers_only=True,
        stall_timeout=PATIENCE,
        asking=target.config.retention != RetentionPolicy.LIMITS,
        count_losses=False,  # what is gone cannot be found
    )
    prefix, found = f"{origin}:", set[int]()
    if last <= after:
        return found
    reader = RangeReader(target, Range(target.name, after + 1, last), plan)
    async with aclosing(reader.batches()) as batches:
        async for batch in batches:
            for headers in batch.column("headers").to_pylist():
                text = origin_of(headers) or ""
                if text.startswith(prefix) and text[len(prefix) :].isdecimal():
                    found.add(int(text[len(prefix) :]))
    return found
