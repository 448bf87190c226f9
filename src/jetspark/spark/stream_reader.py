"""The `jetstream` source in streaming queries.

Spark asks for the latest offsets about eighty times a second when nothing happens. So when nothing
has, a consumer waits for the next message of each stream, and the answer is the same until it
comes. For a while each answer is given only after a word with the server, so that a query which
has been busy a moment ago is never told less than there is; then the consumers alone are trusted,
and a question costs nothing. The reader lives in one process on the driver as long as the query
runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, ParamSpec, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from jetspark.errors import CheckpointError, InvalidOptionError, JetSparkError
from jetspark.jetstream import RetentionPolicy, Stream

from .boundary import plain_errors
from .connection import persist, run
from .positions import first_offset, last_matching, open_streams, start_offsets
from .range_reader import ReadPlan, check_identity, leader_info
from .ranges import Range, divide, limit_offsets
from .stream_options import ReadSettings
from .stream_source import RangePartition, read_partition
from .watch import Watch

__all__ = ["StreamReader"]

NEW_STREAMS = 10.0  # seconds between two looks for more streams of a pattern
ALL = 2**62  # more than a stream has
SETTLED = 1.0  # seconds of quiet after which the watches are trusted
CATCH_UP = 2.0  # seconds for a new leader to know of everything that the old one has stored

Offsets = dict[str, int]
P = ParamSpec("P")
T = TypeVar("T")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows streams."""

    what = "stream"
    """What the offsets are of, for the user."""

    def __init__(self, settings: ReadSettings, schema: StructType) -> None:
        self._settings = settings
        self._columns = schema.fieldNames()
        self._streams: dict[str, Stream] = {}
        self._listed = 0.0
        self._latest: Offsets = {}
        self._looked_from: Offsets = {}  # up to there the query was when it last looked
        self._watches: dict[str, Watch] = {}  # of the streams to which nothing has been added
        self._waiting_since: float | None = None  # for enough messages
        self._goal: Offsets | None = None  # the end of an AvailableNow run

    def __getstate__(self) -> dict[str, Any]:
        # To the executors goes only what reading needs.
        return {"_settings": self._settings, "_columns": self._columns}

    # -- offsets --------------------------------------------------------------------------------

    @plain_errors
    def initialOffset(self) -> Offsets:
        """Where a query begins that has no checkpoint."""
        return run(self._initial())

    async def _initial(self) -> Offsets:
        await self._open()
        return await start_offsets(self._streams, self._settings)

    def getDefaultReadLimit(self) -> ReadLimit:
        """How much a batch may have."""
        settings = self._settings
        if settings.max_offsets is None and settings.max_bytes is None is settings.min_offsets:
            return ReadAllAvailable()
        return ReadMaxRows(settings.max_offsets or ALL)

    @plain_errors
    def prepareForTriggerAvailableNow(self) -> None:
        """Note how far this run goes."""
        run(self._ask())
        self._goal = dict(self._latest)

    @plain_errors
    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """How far the next batch goes."""
        is_known = start == self._looked_from and self._is_settled()
        latest = self._latest if is_known else run(self._look(start))
        # A stream that joined the query later begins with its first message.
        begin = {name: start.get(name, first_offset(self._streams[name])) for name in latest}
        latest = {name: max(begin[name], latest[name]) for name in latest}
        if isinstance(limit, ReadAllAvailable):
            return latest
        if self._shall_wait(begin, latest, time.monotonic()):
            return begin
        if isinstance(limit, ReadMaxRows):
            latest = limit_offsets(begin, latest, limit.max_rows)
        return self._within_bytes(begin, latest)

    def reportLatestOffset(self) -> Offsets:
        """What the streams have, for the progress of the query."""
        return self._latest

    async def _look(self, start: Offsets) -> Offsets:
        """What there is to read, of the streams that have been read so far."""
        if self._goal is None:
            if self._is_quiet():
                await self._catch_up()
            if not self._is_quiet():
                await self._ask()
        latest = self._goal or self._latest
        self._check_streams(start, latest)
        await self._check_ends(start)
        self._looked_from = start
        return latest

    def _is_open(self) -> bool:
        """Whether it is known which streams there are."""
        if self._settings.pattern is None:
            return bool(self._streams)
        return bool(self._streams) and time.monotonic() - self._listed <= NEW_STREAMS

    async def _open(self) -> None:
        if self._is_open():
            return
        js = await self._settings.access.jetstream()
        for name, stream in (await open_streams(js, self._settings)).items():
            if name not in self._streams:
                await self._admit(stream)
                self._streams[name] = stream
        self._listed = time.monotonic()

    async def _admit(self, stream: Stream) -> None:
        """Begin with a stream."""
        retention = stream.config.retention
        if retention != RetentionPolicy.LIMITS:
            raise InvalidOptionError(
                f"jetstream: stream {stream.name!r} has retention {retention!s}: it forgets what "
                "its consumers have acknowledged. Name the consumer that is to do so for this "
                "query in option 'consumer'"
            )

    def _plan(self, name: str) -> ReadPlan:
        """How a stream is read."""
        del name  # all alike
        return self._settings.plan

    def _is_quiet(self) -> bool:
        """Whether the latest offsets are still what they were."""
        return (
            self._is_open()
            and bool(self._latest)
            and all(name in self._watches and self._watches[name].quiet for name in self._latest)
        )

    def _is_settled(self) -> bool:
        """Whether it has been quiet for so long that the server need not be asked."""
        latest_start = time.monotonic() - SETTLED
        return (
            self._goal is None
            and self._is_quiet()
            and all(watch.since <= latest_start for watch in self._watches.values())
        )

    async def _catch_up(self) -> None:
        """Let the watches see what the server has sent: something may be there since just now."""
        with contextlib.suppress(JetSparkError):  # what is wrong will show itself
            await (await self._settings.access.jetstream()).client.flush()
            await asyncio.sleep(0)  # they are woken up

    async def _ask(self) -> None:
        """Look at the streams to which something may have been added."""
        await self._open()
        for name, stream in self._streams.items():
            watch = self._watches.pop(name, None)
            if watch is not None and watch.quiet:
                self._watches[name] = watch
                continue
            subjects = self._plan(name).subjects
            created = stream.cached_info.created
            info = await self._persist(leader_info, stream)
            check_identity(name, created, info)
            before = self._latest.get(name)
            latest = await self._persist(last_matching, stream, subjects)
            self._latest[name] = latest
            if latest == before and self._goal is None:
                following = max(info.state.last_seq, latest) + 1
                self._watches[name] = await Watch.start(stream, following, subjects)

    async def _persist(
        self, call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await persist(self._settings.plan.stall_timeout, call, *args, **kwargs)

    def _check_streams(self, start: Offsets, latest: Offsets) -> None:
        unknown = sorted(set(start) - set(latest))
        if unknown:
            raise CheckpointError(
                f"the checkpoint is of {self.what} {', '.join(unknown)}, and the query reads "
                f"{', '.join(sorted(latest))}; use another checkpoint, or read the same ones"
            )

    async def _check_ends(self, start: Offsets) -> None:
        """Raise if more of a stream has been read than it ever had."""
        patience = CATCH_UP
        for name, offset in start.items():
            stream = self._streams[name]
            while offset > (last := stream.cached_info.state.last_seq):
                if patience <= 0:
                    raise CheckpointError(
                        f"stream {name!r} ends at sequence {last}, and the query has read it up to "
                        f"{offset}; was it deleted and created again? Start the query with a new "
                        "checkpoint"
                    )
                await asyncio.sleep(CATCH_UP / 4)
                patience -= CATCH_UP / 4
                await self._persist(leader_info, stream)

    def _shall_wait(self, start: Mapping[str, int], latest: Mapping[str, int], now: float) -> bool:
        """Whether there are too few messages yet, and it is too early to go on without more."""
        least = self._settings.min_offsets
        there = sum(latest[name] - start[name] for name in latest)
        if least is None or self._goal is not None or there >= least or not there:
            self._waiting_since = None
            return False
        if self._waiting_since is None:
            self._waiting_since = now
        if now - self._waiting_since >= self._settings.max_delay:
            self._waiting_since = None
            return False
        return True

    def _within_bytes(self, start: Mapping[str, int], latest: Offsets) -> Offsets:
        """As many as make up about so many bytes, going by the average of the streams."""
        most = self._settings.max_bytes
        if most is None:
            return latest
        states = [self._streams[name].cached_info.state for name in latest]
        messages = sum(state.messages for state in states)
        average = max(sum(state.bytes for state in states) // max(messages, 1), 1)
        return limit_offsets(start, latest, max(most // average, 1))

    # -- rows -----------------------------------------------------------------------------------

    @plain_errors
    def partitions(self, start: Offsets, end: Offsets) -> list[RangePartition]:
        """The tasks of a batch; the same whenever it is asked for."""
        if not self._is_open():  # a batch of before a restart comes without any other question
            run(self._open())
        parts = divide(
            [Range(name, start.get(name, 0) + 1, end[name]) for name in sorted(end)],
            min_partitions=self._settings.min_partitions,
            max_records=self._settings.max_records,
        )
        self._check_streams(end, dict.fromkeys(self._streams, 0))
        return [
            RangePartition(
                part,
                self._plan(part.stream),
                self._streams[part.stream].cached_info,
                joined=part.stream not in start,
            )
            for part in parts
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        return read_partition(self._settings, self._columns, partition)

    def commit(self, end: Offsets) -> None:
        """Nothing: the checkpoint says how far the query is."""

    def stop(self) -> None:
        """Stop waiting for messages; the connection is shared by all queries of the process."""
        run(self._stop())

    async def _stop(self) -> None:
        while self._watches:
            await self._watches.popitem()[1].stop()
