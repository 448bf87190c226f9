"""Replays an archive into a stream: the same messages in the same order, each of them once.

One process publishes, because only one can keep the order. Up to a window of messages are under way
at a time; while one portion is published, the acknowledgements of the one before come in.
"""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from jetspark.context import JetStream
from jetspark.errors import (
    ArchiveError,
    MessageNotFoundError,
    NoMatchingStreamError,
    StreamNotFoundError,
    SubjectOverlapError,
)
from jetspark.jetstream import PublishAckFuture, Stream
from jetspark.protocol import check_subject, subject_matches
from jetspark.spark.connection import Access, iterate, persist
from jetspark.spark.ledger import MESSAGE_ID
from jetspark.spark.publishing import publisher
from jetspark.spark.range_reader import leader_info

from .archive_directory import read_archive
from .replay_note import ORIGIN, PATIENCE, Note, Notebook, origin_of, stored_origins
from .replay_read import Selection, Survey, in_order, survey

__all__ = ["ReplayOptions", "Replayed", "replay"]

NOTE_EVERY = 1.0  # seconds
LONGEST_SLEEP = 0.2  # seconds
MOST_SUBJECTS = 1000  # of a stream that is created

Headers = dict[str, list[str]]

# What was asked of the server when the message was published, and is not part of it.
_INSTRUCTIONS = ("nats-expected-", "nats-batch-", "nats-rollup")


@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """What is replayed, and where to."""

    access: Access
    directory: Path
    stream: str
    selection: Selection = field(default_factory=Selection)
    prefix: str = ""
    """What subjects get in front, with a dot behind it."""
    speed: float | None = None
    """As fast as at first (1), or so many times faster; None: as fast as it can be."""
    create: bool = False
    dry_run: bool = False
    stop: threading.Event = field(default_factory=threading.Event)
    """Set to end with the messages that are under way."""


@dataclass(frozen=True)
class Replayed:
    """How far a replay is."""

    total: int
    """Messages that are to be stored in this run."""
    published: int = 0
    found: int = 0
    """Messages of an earlier run that were stored already."""
    renamed: int = 0
    """Messages whose id the target had seen with another one: they are stored under a new id."""
    through: int = 0
    """The last sequence of the archive that is stored."""
    subjects: int = 0


def replay(options: ReplayOptions) -> Iterator[Replayed]:
    """Replay an archive; gives how far it is now and then, and in the end."""
    return iterate(lambda: _Replay(options).run())


@dataclass
class _Portion:
    """Messages that are published, and their acknowledgements."""

    through: int  # the last sequence
    origins: list[str]
    subjects: list[str]
    payloads: list[bytes]
    messages: list[tuple[str, Headers | None]]  # ids, and headers
    futures: list[PublishAckFuture] = field(default_factory=list)


class _Replay:
    def __init__(self, options: ReplayOptions) -> None:
        self._options = options
        self._directory = read_archive(options.directory)
        head = self._directory.manifest.head
        assert head is not None
        self._head = head
        self._stored: set[int] = set()
        self._underway: _Portion | None = None
        self._clock: tuple[float, int] | None = None  # ours, and the time of the messages then
        self._noted: Note | None = None
        self._noted_at = 0.0
        self._done = Replayed(0)
        self._js: JetStream
        self._target: Stream
        self._notebook: Notebook
        self._note: Note

    async def run(self) -> AsyncIterator[Replayed]:
        options = self._options
        self._js = await publisher(options.access, PATIENCE)
        whole = await asyncio.to_thread(survey, self._directory, options.selection, 0)
        self._target = await self._open_target(whole)
        await self._look_back()
        rest = await asyncio.to_thread(
            survey, self._directory, options.selection, self._note.through, self._stored
        )
        total = rest.rows
        self._done = Replayed(
            total,
            found=whole.rows - total,
            through=self._note.through,
            subjects=len(whole.subjects),
        )
        yield self._done
        if options.dry_run or not total:
            return
        source = in_order(self._directory, options.selection, self._note.through)
        following = asyncio.create_task(asyncio.to_thread(next, source, None))
        try:
            while (batch := await following) is not None and not options.stop.is_set():
                following = asyncio.create_task(asyncio.to_thread(next, source, None))
                await self._publish(batch)
                yield self._done
        finally:
            await asyncio.wait([following])
        await self._settle()
        await self._write_note()
        yield self._done

    # -- before the first message ---------------------------------------------------------------

    async def _open_target(self, whole: Survey) -> Stream:
        options, name = self._options, self._options.stream
        try:
            target = await persist(PATIENCE, self._js.get_stream, name)
        except StreamNotFoundError as error:
            if options.create and not options.dry_run:
                return await self._create(whole)
            raise StreamNotFoundError(
                f"there is no stream {name!r} on {options.access.servers}; correct the name, or "
                "let --create make it",
                code=error.code,
                err_code=error.err_code,
            ) from None
        patterns = target.cached_info.config.subjects or ()
        for subject in sorted(whole.subjects):
            renamed = self._renamed(subject)
            check_subject(renamed)
            if not any(subject_matches(pattern, renamed) for pattern in patterns):
                raise NoMatchingStreamError(
                    f"nothing was written: stream {name!r} does not store subject {renamed!r}; "
                    "add it to the subjects of the stream, or choose with --subjects"
                )
        state = target.cached_info.state
        if (
            target.cached_info.created == self._head.created
            and state.messages
            and state.first_seq < self._directory.manifest.next
        ):
            raise ArchiveError(
                f"stream {name!r} is the one that was archived, and still has messages of the "
                "archive; replay into another one"
            )
        return target

    async def _create(self, whole: Survey) -> Stream:
        subjects = list(self._head.captured) or sorted(whole.subjects)
        if len(subjects) > MOST_SUBJECTS:
            raise ArchiveError(
                f"stream {self._options.stream!r} cannot be created, for {len(subjects)} subjects; "
                "create it with wildcards first"
            )
        subjects = [self._renamed(subject) for subject in subjects]
        try:
            return await self._js.create_stream(
                name=self._options.stream, subjects=subjects, allow_direct=True
            )
        except SubjectOverlapError as error:
            raise SubjectOverlapError(
                f"stream {self._options.stream!r} cannot be created: another stream has the "
                f"subjects {', '.join(subjects)}; put something in front with --subject-prefix",
                code=error.code,
                err_code=error.err_code,
            ) from None

    def _renamed(self, subject: str) -> str:
        return f"{self._options.prefix}.{subject}" if self._options.prefix else subject

    async def _look_back(self) -> None:
        """Find out what earlier runs have stored."""
        real = not self._options.dry_run
        book = await persist(
            PATIENCE, Notebook.open, self._js, self._head, self._target, create=real
        )
        note = await persist(PATIENCE, book.read) if book is not None else None
        selection = self._options.selection.describe()
        if note is None:
            end = (await persist(PATIENCE, leader_info, self._target)).state.last_seq
            note = Note(self._head.stream, end, selection, 0, end)
        else:
            if note.selection != selection:  # what that one has stored says little about this one
                note = dataclasses.replace(note, selection=selection, through=0, end=note.began)
            self._stored = {
                sequence
                for sequence in await stored_origins(self._target, self._head.stream, note.end)
                if sequence > note.through
            }
        self._note = note
        if book is not None and real:
            self._notebook = book
            await self._write_note()

    # -- publishing -----------------------------------------------------------------------------

    async def _publish(self, batch: pa.RecordBatch) -> None:
        """Publish rows, in their time; the last ones are not acknowledged yet."""
        if self._options.speed is None:
            await self._send(batch)
            return
        times = np.maximum.accumulate(batch.column("timestamp").cast(pa.int64()).to_numpy())
        start = 0
        while start < batch.num_rows and not self._options.stop.is_set():
            end = int(np.searchsorted(times, self._now(int(times[start])), side="right"))
            if end > start:
                await self._send(batch.slice(start, end - start))
                start = end
            else:
                await self._settle()
                await asyncio.sleep(min(self._seconds_until(int(times[start])), LONGEST_SLEEP))

    def _now(self, first: int) -> int:
        """The moment up to which messages are due, if the clock began with the first one."""
        assert self._options.speed is not None
        now = asyncio.get_running_loop().time()
        if self._clock is None:
            self._clock = (now, first)
        began, moment = self._clock
        return moment + int((now - began) * 1e6 * self._options.speed)

    def _seconds_until(self, moment: int) -> float:
        assert self._options.speed is not None
        return max(moment - self._now(moment), 0) / 1e6 / self._options.speed

    async def _send(self, batch: pa.RecordBatch) -> None:
        """Publish rows, as far as they are not stored, and wait for those before them."""
        portion = self._portion(batch)
        publish = self._js.publish_async
        for subject, data, (message_id, headers) in zip(
            portion.subjects, portion.payloads, portion.messages, strict=True
        ):
            if headers is None:
                future = await publish(subject, data, msg_id=message_id)
            else:
                future = await publish(subject, data, msg_id=message_id, headers=headers)
            portion.futures.append(future)
        await self._settle()
        self._underway = portion

    def _portion(self, batch: pa.RecordBatch) -> _Portion:
        sequences: list[int] = batch.column("sequence").to_pylist()
        through = sequences[-1]
        if not self._stored.isdisjoint(sequences):
            fresh = [sequence not in self._stored for sequence in sequences]
            batch = batch.filter(pa.array(fresh, pa.bool_()))
            sequences = batch.column("sequence").to_pylist()
        subjects: list[str] = batch.column("subject").to_pylist()
        if self._options.prefix:
            subjects = [self._renamed(subject) for subject in subjects]
        origins = [f"{self._head.stream}:{sequence}" for sequence in sequences]
        return _Portion(
            through,
            origins,
            subjects,
            batch.column("data").to_pylist(),
            _messages(batch.column("headers"), origins),
        )

    async def _settle(self) -> None:
        """Wait until what is under way is stored, and note it."""
        portion, self._underway = self._underway, None
        if portion is not None:
            end, renamed = self._note.end, 0
            for number, future in enumerate(portion.futures):
                ack = await future
                if ack.duplicate:
                    renamed += not await self._is_ours(portion, number, ack.sequence)
                else:
                    end = max(end, ack.sequence)
            self._note = dataclasses.replace(self._note, through=portion.through, end=end)
            self._done = dataclasses.replace(
                self._done,
                published=self._done.published + len(portion.futures),
                renamed=self._done.renamed + renamed,
                through=portion.through,
            )
        now = asyncio.get_running_loop().time()
        if self._note != self._noted and now - self._noted_at >= NOTE_EVERY:
            await self._write_note()

    async def _write_note(self) -> None:
        await self._notebook.write(self._note)
        self._noted, self._noted_at = self._note, asyncio.get_running_loop().time()

    async def _is_ours(self, portion: _Portion, number: int, sequence: int) -> bool:
        """Whether the target has the message; if it is another one with its id, it is renamed."""
        origin, data = portion.origins[number], portion.payloads[number]
        try:
            stored = await persist(PATIENCE, self._target.get_message, sequence)
        except MessageNotFoundError:
            return True  # it was stored, and is gone since
        other = origin_of(stored.headers.to_dict()) or ""
        message_id, headers = portion.messages[number]
        if stored.data == data and (
            other == origin or not other.startswith(f"{self._head.stream}:")
        ):
            return True  # if not by us, it was stored by whoever publishes there, too
        if message_id == origin:
            raise ArchiveError(
                f"stream {self._target.name!r} has another message with the id {origin!r}, from "
                "another stream of that name; wait until its duplicate window is over"
            )
        subject = portion.subjects[number]
        await self._js.publish(
            subject, data, msg_id=origin, headers=headers, timeout=PATIENCE, retries=-1
        )
        return False


def _messages(column: pa.Array, origins: list[str]) -> list[tuple[str, Headers | None]]:
    """For each message its id, and its headers if there are others."""
    if column.null_count == len(column):
        return [(origin, None) for origin in origins]
    found = zip(column.to_pylist(), origins, strict=True)
    return [_message(dict(pairs or ()), origin) for pairs, origin in found]


def _message(headers: Headers, origin: str) -> tuple[str, Headers | None]:
    own = headers.pop(MESSAGE_ID, None)
    headers.pop(ORIGIN, None)
    for name in [name for name in headers if name.lower().startswith(_INSTRUCTIONS)]:
        del headers[name]
    if own:
        headers[ORIGIN] = [origin]
    return own[0] if own else origin, headers or None
