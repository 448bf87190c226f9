"""What tells rows that are written again from those that are written first.

The server forgets the ids of messages after its duplicate window, two minutes by default, and a
query may be restarted later than that. So before a task writes its first row, it notes in a bucket
where the streams end at that moment. If the note is there already, another attempt of the same task
may have written something, or may be writing now: everything behind the places noted is looked
through for its ids, and again as often as it takes for what is newer to be in the window of the
server. An attempt that was alone at first learns of the other one by the note, which that changes.

A note is needed until Spark has committed the batch, which it surely has when a later batch is
committed. Then it is removed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import NamedTuple

from jetspark.context import JetStream
from jetspark.errors import (
    BucketNotFoundError,
    KeyExistsError,
    RevisionMismatchError,
    StreamNotFoundError,
)
from jetspark.jetstream import RetentionPolicy, Stream
from jetspark.kv import KeyValue

from .options import Option, text
from .range_reader import RangeReader, ReadPlan, leader_info
from .ranges import Range

__all__ = ["LEDGER", "MESSAGE_ID", "Ledger", "StoredIds"]

MESSAGE_ID = "Nats-Msg-Id"
LEDGER = Option(
    "ledger",
    text(),
    "The bucket in which tasks note where they began to write; it is created.",
    "jetspark_ledger",
    "jetspark_ledger",
)


class Note(NamedTuple):
    """What a task finds when it begins."""

    attempts: int  # to begin, this one included
    ends: dict[str, int]  # of its streams, before any of them


class Ledger:
    """The notes of the tasks that write."""

    def __init__(self, js: JetStream, bucket: KeyValue[bytes]) -> None:
        self._js = js
        self._bucket = bucket
        self._stream: Stream | None = None  # of the bucket

    @classmethod
    async def open(cls, js: JetStream, name: str, replicas: int = 1) -> Ledger:
        """The bucket of that name, which is created if there is none."""
        try:
            return cls(js, await js.key_value(name))
        except BucketNotFoundError:
            description = "Where Spark tasks began to write, see jetspark.spark"
            bucket = await js.create_or_update_key_value(
                bucket=name, description=description, replicas=replicas
            )
            return cls(js, bucket)

    async def begin(self, task: str, ends: dict[str, int]) -> Note:
        """Note where streams end now, unless it was noted before."""
        note = Note(1, ends)
        try:
            await self._bucket.create(task, _encode(note))
            return note
        except KeyExistsError:
            pass
        while True:
            found, revision = await self._read(task)
            note = Note(found.attempts + 1, ends | found.ends)
            try:
                await self._bucket.update(task, _encode(note), revision)
                return note
            except RevisionMismatchError:
                continue  # another attempt was faster

    async def attempts(self, task: str) -> int:
        """How often it was tried to begin a task until now."""
        return (await self._read(task))[0].attempts

    async def _read(self, task: str) -> tuple[Note, int]:
        name = self._bucket.name
        if self._stream is None:
            self._stream = await self._js.get_stream(f"KV_{name}")
        # By its leader: another server might not have heard of the note yet.
        message = await self._stream.get_last_message(f"$KV.{name}.{task}")
        return Note(*json.loads(message.data)), message.sequence

    @staticmethod
    async def forget(js: JetStream, name: str, tasks: str) -> None:
        """Remove the notes of the tasks whose names begin so, if there are any."""
        try:
            await js.purge_stream(f"KV_{name}", subject=f"$KV.{name}.{tasks}.>")
        except StreamNotFoundError:
            pass


def _encode(note: Note) -> bytes:
    return json.dumps(note).encode()


class StoredIds:
    """The ids of a task that are stored, as far as the server may have forgotten them."""

    def __init__(self, ledger: Ledger, task: str, prefix: str, patience: float) -> None:
        self.found: set[str] = set()
        self._ledger = ledger
        self._task = task
        self._prefix = prefix
        self._patience = patience
        self._attempts = 0  # to begin, all of them by this one as long as it is alone
        self._alone = True
        self._streams: dict[str, tuple[Stream, int]] = {}  # and how far they were looked through
        self._window = float("inf")
        self._looked = 0.0

    async def add(self, streams: Iterable[Stream]) -> None:
        """Begin to write to streams."""
        now = asyncio.get_running_loop().time()
        streams = list(streams)
        ends = {stream.name: (await leader_info(stream)).state.last_seq for stream in streams}
        note = await self._ledger.begin(self._task, ends)
        self._attempts += 1
        if note.attempts != self._attempts:
            self._alone = False
        for stream in streams:
            self._streams[stream.name] = (stream, note.ends[stream.name])
            window = stream.cached_info.config.duplicate_window
            self._window = min(self._window, window.total_seconds() if window else 120.0)
        await self._look(now)

    async def refresh(self) -> None:
        """Look again if the last time is long ago."""
        now = asyncio.get_running_loop().time()
        # What the look does not see must be in the window for a while yet.
        if now - self._looked < self._window / 2:
            return
        if self._alone and await self._ledger.attempts(self._task) != self._attempts:
            self._alone = False
        await self._look(now)

    async def look(self) -> None:
        """Look now, whether there seems to be another attempt or not."""
        self._alone = False
        await self._look(asyncio.get_running_loop().time())

    async def _look(self, now: float) -> None:
        if not self._alone:
            for name, (stream, position) in self._streams.items():
                last = (await leader_info(stream)).state.last_seq
                if last > position:
                    await self._look_through(stream, Range(name, position + 1, last))
                    self._streams[name] = (stream, last)
        self._looked = now

    async def _look_through(self, stream: Stream, part: Range) -> None:
        plan = ReadPlan(
            headers_only=True,
            stall_timeout=self._patience,
            asking=stream.config.retention != RetentionPolicy.LIMITS,
            count_losses=False,  # what is gone cannot be found
        )
        async for batch in RangeReader(stream, part, plan).batches():
            for headers in batch.column("headers").to_pylist():
                for name, values in headers or ():
                    if name == MESSAGE_ID and values[0].startswith(self._prefix):
                        self.found.add(values[0])
