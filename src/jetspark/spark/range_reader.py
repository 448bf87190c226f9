"""Reads a range of sequences completely, or says what is missing.

Messages come from an ordered consumer, or, where a stream allows no such consumer, by asking for
them. Either way it may be a server that answers which lags behind the leader of the stream: that it
has nothing more proves nothing. So the end of a range is reached when a message behind it comes, or
when the leader says that no message of the range is left.

Retention may remove messages before they are read. Whatever it takes lies before the first sequence
of the stream, so that is looked at again and again: as long as it is not ahead of what has been
read, nothing was lost. (Messages that are deleted one by one, or because a subject has newer ones,
are not looked for: they are meant to be gone.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import ParamSpec, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc

from jetspark.errors import (
    CheckpointError,
    DataLossError,
    JetSparkError,
    MessageNotFoundError,
    ServiceUnavailableError,
    StalledReadError,
)
from jetspark.jetstream import StoredMessage, Stream, StreamInfo
from jetspark.jetstream.consumer.arrow import SCHEMA, ArrowStream
from jetspark.protocol import subject_matches

from .connection import persist
from .ranges import Range

__all__ = [
    "AT_A_TIME",
    "RangeReader",
    "ReadPlan",
    "check_identity",
    "leader_info",
    "next_sequence",
    "record_batch",
]

logger = logging.getLogger("jetspark.spark")

P = ParamSpec("P")
T = TypeVar("T")

CHECK_INTERVAL = 0.5  # seconds between two looks at the first sequence of the stream
PATIENCE = 1.0  # seconds without a message before the leader is asked
BATCH_BYTES = 16 * 1024 * 1024  # of messages that are asked for
AT_A_TIME = 64  # messages, of a leader that gives them only one by one
SMALL = 1000  # sequences of a range that is read without asking first whether anything is there


@dataclass(frozen=True)
class ReadPlan:
    """How ranges are read; travels to the executors."""

    subjects: tuple[str, ...] = ()
    headers_only: bool = False
    rows: int = 10_000
    fail_on_data_loss: bool = True
    stall_timeout: float = 60.0
    asking: bool = False
    """Ask for the messages: a consumer of our own would be refused, or take them from others."""
    count_losses: bool = True
    """Whether what the stream no longer has was lost, and not done."""


async def next_sequence(stream: Stream, subjects: tuple[str, ...], first: int) -> int | None:
    """The first sequence from there on that holds a message of the subjects, by the leader."""
    found = []
    for subject in subjects or (">",):
        try:
            found.append((await stream.get_next_message(subject, seq=first)).sequence)
        except MessageNotFoundError:
            pass
    return min(found, default=None)


async def leader_info(stream: Stream) -> StreamInfo:
    """The state of a stream, by its leader; an error that passes while there is none."""
    info = await stream.info()
    if info.cluster is not None and not info.cluster.leader:
        raise ServiceUnavailableError(
            f"stream {stream.name!r} has no leader at the moment", code=503
        )
    return info


def check_identity(name: str, created: datetime | None, info: StreamInfo) -> None:
    """Raise if a stream is not the one that was created then."""
    if created is not None and info.created != created:
        raise CheckpointError(
            f"stream {name!r} was deleted and created again at {info.created}; the offsets of this "
            "query mean other messages there. Start the query with a new checkpoint"
        )


class RangeReader:
    """The messages of one range, as record batches."""

    def __init__(
        self,
        stream: Stream,
        part: Range,
        plan: ReadPlan,
        *,
        created: datetime | None = None,
        joined: bool = False,
    ) -> None:
        self._stream = stream
        self._part = part
        self._plan = plan
        self._created = created  # of the stream that is meant
        self._joined = joined  # the stream came late to the query: its past does not count
        self._position = part.first - 1  # the last sequence that was read or is known to be empty
        self._safe = part.first - 1  # up to here, nothing was removed before it was read
        self._unread = 0  # sequences behind that, which held nothing for us when we came
        self._checked = 0.0
        self.lost = 0
        """How many messages, at most, were removed before they were read; known in the end."""

    async def batches(self) -> AsyncGenerator[pa.RecordBatch, None]:
        """Read the range; raises if it cannot be read completely."""
        if self._joined:
            first = (await self._info()).state.first_seq
            self._position = self._safe = max(self._position, min(first - 1, self._part.last))
        if 0 < self._part.size <= SMALL or not await self._is_complete():
            source = self._ask() if self._plan.asking else self._consume()
            async with aclosing(source):
                async for batch in source:
                    yield batch
        await self._check_loss()

    # -- with a consumer ------------------------------------------------------------------------

    async def _consume(self) -> AsyncGenerator[pa.RecordBatch, None]:
        part, plan = self._part, self._plan
        try:
            consumer = await self._persist(
                self._stream.ordered_consumer,
                filter_subjects=plan.subjects,
                opt_start_seq=self._position + 1,
                headers_only=plan.headers_only,
                inactive_threshold=30.0,
                max_reset_attempts=10,
            )
        except JetSparkError:
            if await self._is_complete():
                return  # for subjects that the stream cannot have, there is no consumer
            raise
        async with consumer.arrow_batches(
            rows=plan.rows, stop_after=part.size, on_warning=self._on_warning
        ) as batches:  # which deletes the consumer in the end
            async for batch in self._until_complete(batches):
                yield batch

    async def _until_complete(self, batches: ArrowStream) -> AsyncGenerator[pa.RecordBatch, None]:
        part = self._part
        waited = 0.0
        while self._position < part.last:
            if not batches.pending and await self._is_complete():
                return
            try:
                async with asyncio.timeout(PATIENCE):
                    batch = await anext(batches, None)
            except TimeoutError:
                waited += PATIENCE
                if await self._is_complete():
                    return
                self._check_patience(waited)
                continue
            if batch is None:
                return  # as many messages as the range can have
            waited = 0.0
            sequences = batch.column("sequence")
            last = sequences[-1].as_py()
            if last > part.last:
                batch = batch.filter(pc.less_equal(sequences, part.last))
            if batch.num_rows:
                yield batch
            self._note(last, len(sequences))
            if self._position < part.last:
                await self._look_at_the_first()

    # -- without one ----------------------------------------------------------------------------

    async def _ask(self) -> AsyncGenerator[pa.RecordBatch, None]:
        part, plan = self._part, self._plan
        waited = 0.0
        while self._position < part.last:
            messages = await self._persist(self._portion)
            if messages:
                waited = 0.0
                found = [message for message in messages if self._is_wanted(message)]
                if found:
                    yield record_batch(found, data=not plan.headers_only)
                self._note(messages[-1].sequence, len(messages))
                if self._position < part.last:
                    await self._look_at_the_first()
            elif await self._is_complete():
                return
            else:  # a server that lags behind has answered
                self._check_patience(waited)
                await asyncio.sleep(PATIENCE / 4)
                waited += PATIENCE / 4

    def _is_wanted(self, message: StoredMessage) -> bool:
        subjects = self._plan.subjects
        return message.sequence <= self._part.last and (
            not subjects or any(subject_matches(each, message.subject) for each in subjects)
        )

    async def _portion(self) -> list[StoredMessage]:
        """The next messages, as many as make up a batch."""
        if not self._stream.config.allow_direct:
            return await self._portion_of_leader()
        subjects = self._plan.subjects
        source = self._stream.direct_get_batch(
            batch=min(self._plan.rows, self._part.last - self._position),
            subject=subjects[0] if len(subjects) == 1 else ">",  # it can be only one
            seq=self._position + 1,
        )
        found: list[StoredMessage] = []
        size = 0
        async with aclosing(cast(AsyncGenerator[StoredMessage, None], source)):
            async for message in source:
                found.append(message)
                size += len(message.data)
                if size >= BATCH_BYTES or message.sequence >= self._part.last:
                    break
        return found

    async def _portion_of_leader(self) -> list[StoredMessage]:
        first = await next_sequence(self._stream, self._plan.subjects, self._position + 1)
        if first is None or first > self._part.last:
            return []
        wanted = range(first, min(first + AT_A_TIME, self._part.last + 1))
        found = await asyncio.gather(*[self._one(sequence) for sequence in wanted])
        return [message for message in found if message is not None]

    async def _one(self, sequence: int) -> StoredMessage | None:
        try:
            return await self._stream.get_message(sequence)
        except MessageNotFoundError:
            return None

    # -- completeness ---------------------------------------------------------------------------

    async def _is_complete(self) -> bool:
        """Whether the leader knows of no more messages in the range."""
        following = await self._persist(
            next_sequence, self._stream, self._plan.subjects, self._position + 1
        )
        if following is not None:
            return following > self._part.last
        # One that has just become the leader may not know of the last messages yet.
        return (await self._info()).state.last_seq >= self._part.last

    def _check_patience(self, waited: float) -> None:
        if waited >= self._plan.stall_timeout:
            raise StalledReadError(
                f"stream {self._part.stream!r}: after sequence {self._position} nothing came for "
                f"{waited:g} s, although the stream has messages up to {self._part.last}; is a "
                "replica out of step? Option 'stallTimeout' says how long to wait"
            )

    async def _info(self) -> StreamInfo:
        info = await self._persist(leader_info, self._stream)
        check_identity(self._part.stream, self._created, info)
        return info

    async def _persist(
        self, call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await persist(self._plan.stall_timeout, call, *args, **kwargs)

    def _on_warning(self, error: BaseException) -> None:
        logger.info("stream %r: %s", self._part.stream, error)

    # -- what retention has removed -------------------------------------------------------------

    def _note(self, last: int, count: int) -> None:
        """Note that so many messages up to a sequence came."""
        self._unread += last - self._position - count
        self._position = last

    async def _look_at_the_first(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._checked < CHECK_INTERVAL:
            return
        self._checked = now
        first = (await self._info()).state.first_seq
        # What was there when we last looked, and could be read until now, was not removed.
        if first <= self._safe + 1 or not self._unread:
            self._safe, self._unread = self._position, 0

    async def _check_loss(self) -> None:
        """Compare what was read with what is there in the end."""
        part = self._part
        first = (await self._info()).state.first_seq
        gone = min(first - 1, part.last)  # the last one that is
        unread = self._unread + max(gone - self._position, 0)
        missing = min(unread, gone - self._safe)
        if missing <= 0 or not self._plan.count_losses:
            return
        self.lost = missing
        message = (
            f"stream {part.stream!r}: up to {missing} messages between sequences {self._safe + 1} "
            f"and {gone} were removed before they were read; the stream begins at {first} now"
        )
        if self._plan.fail_on_data_loss:
            raise DataLossError(
                f"{message}. Read more often or keep messages longer; with "
                "failOnDataLoss=false the query goes on without them"
            )
        logger.warning("%s", message)


def record_batch(messages: list[StoredMessage], *, data: bool = True) -> pa.RecordBatch:
    """The columns of messages that were asked for."""
    headers = [
        None if message.raw_headers is None else list(message.headers.to_dict().items())
        for message in messages
    ]
    columns = [
        [message.stream for message in messages],
        [
            message.subject.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            for message in messages
        ],
        [message.sequence for message in messages],
        [message.timestamp for message in messages],
        headers,
        [message.data if data else None for message in messages],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
