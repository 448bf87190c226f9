"""The `jetstream-kv` source in batch: what a bucket has now, or had at a revision.

What it has now is the last entry of each key, which a consumer delivers while others go on writing.
A key that changes meanwhile comes in its old place, or later in its new one, or in both: the first
one counts. Those that are replaced before their turn are asked for in the end. So each row was true
at some moment of the read, and no key is missing or there twice.

What it had at a revision must be found among everything that is left. First only the headers are
read, which tell the last entry of each key up to there, and then those entries.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from typing import ParamSpec, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from jetspark.errors import (
    DataLossError,
    InvalidOptionError,
    MessageNotFoundError,
    StalledReadError,
)
from jetspark.jetstream import DeliverPolicy, OrderedConsumer, StoredMessage, Stream
from jetspark.jetstream.stream import subjects_since
from jetspark.kv import KeyValue
from jetspark.kv.names import stream_of

from .boundary import plain_errors, plain_errors_in
from .connection import iterate, persist, run
from .kv_entries import entries, keys_of
from .kv_options import SOURCE, KvReadSettings, open_bucket
from .positions import last_matching
from .range_reader import (
    AT_A_TIME,
    RangeReader,
    ReadPlan,
    leader_info,
    next_sequence,
    record_batch,
)
from .ranges import Range

__all__ = ["KvBatchReader"]

logger = logging.getLogger("jetspark.spark")

P = ParamSpec("P")
T = TypeVar("T")

PATIENCE = 1.0  # seconds without an entry before the leader is asked
PLACES = 30  # consumers that are created until one is where it should be
PASSES = 10  # times that a read is begun again because its consumer was lost


class KvBatchReader(DataSourceReader):
    """Reads a bucket once."""

    def __init__(self, settings: KvReadSettings, schema: StructType) -> None:
        self._settings = settings
        self._columns = schema.fieldNames()

    @plain_errors
    def partitions(self) -> list[InputPartition]:
        """One task: only one reader can know which keys have been read."""
        run(self._check())
        return [InputPartition(self._settings.bucket)]

    async def _check(self) -> None:
        settings = self._settings
        _, stream = await self._open()
        last = stream.cached_info.state.last_seq
        if settings.as_of is not None and settings.as_of > last:
            raise InvalidOptionError(
                f"{SOURCE}: option 'asOfRevision': bucket {settings.bucket!r} is at revision "
                f"{last}, not yet at {settings.as_of}"
            )

    async def _open(self) -> tuple[KeyValue[bytes], Stream]:
        bucket = await open_bucket(self._settings.access, self._settings.bucket)
        js = await self._settings.access.jetstream()
        return bucket, await js.get_stream(stream_of(bucket.name))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows, as of now and not of when it was planned: a plan may be used again."""
        return plain_errors_in(iterate(self._batches))

    async def _batches(self) -> AsyncGenerator[pa.RecordBatch, None]:
        settings = self._settings
        bucket, stream = await persist(settings.stall_timeout, self._open)
        prefix = bucket._prefix
        if settings.as_of is None:
            found = Present(stream, settings, prefix).batches()
        else:
            found = Past(stream, settings, prefix, bucket.config.history).batches()
        async with aclosing(found):
            async for batch in found:
                rows = entries(batch, prefix)
                if not settings.deletes:
                    rows = rows.filter(pc.equal(rows.column("operation"), "PUT"))
                if rows.num_rows:
                    yield rows.select(self._columns)


class Present:
    """The last entry of each key."""

    def __init__(self, stream: Stream, settings: KvReadSettings, prefix: str) -> None:
        self._stream = stream
        self._settings = settings
        self._subjects = settings.subjects(prefix)
        self._prefix = prefix
        self._last = 0  # revision of all that is wanted, when the read began
        self._position = 0
        self._seen: list[pa.Array] = []  # keys

    async def batches(self) -> AsyncGenerator[pa.RecordBatch, None]:
        """Read all of them."""
        self._last = await self._persist(last_matching, self._stream, self._subjects)
        if not self._last:
            return
        for number in range(PASSES):
            async with aclosing(self._read_once(again=number > 0)) as batches:
                async for batch in batches:
                    self._seen.append(keys_of(batch, self._prefix))
                    yield batch
            if self._position >= 0:
                if passed_over := await self._persist(self._passed_over):
                    yield record_batch(passed_over)
                self._check_keys()
                return
        raise StalledReadError(
            f"bucket {self._settings.bucket!r}: the read broke off {PASSES} times; is a server "
            "going up and down?"
        )

    async def _read_once(self, *, again: bool) -> AsyncGenerator[pa.RecordBatch, None]:
        """Read with one consumer; if that is lost, the position becomes -1.

        One that takes its place would deliver older entries of the keys, too.
        """
        self._position = 0
        consumer = await self._persist(self._consumer)
        name = consumer.name
        async with consumer.arrow_batches(rows=self._settings.rows) as batches:
            waited = 0.0
            while batches.pending or not await self._is_complete():
                try:
                    async with asyncio.timeout(PATIENCE):
                        batch = await anext(batches)
                except TimeoutError:
                    batch = None
                if consumer.name != name:
                    self._position = -1
                    return
                if batch is None:
                    waited += PATIENCE
                    self._check_patience(waited)
                    continue
                waited = 0.0
                self._position = batch.column("sequence")[-1].as_py()
                if again or self._position > self._last:
                    batch = self._new(batch, always=again)
                if batch.num_rows:
                    yield batch

    async def _consumer(self) -> OrderedConsumer:
        """A consumer on the leader of the stream: another server might deliver what is outdated.

        Where it is created is up to the server, so it is tried until it is there.
        """
        info = await leader_info(self._stream)
        for left in reversed(range(PLACES)):
            consumer = await self._stream.ordered_consumer(
                filter_subjects=self._subjects,
                deliver_policy=DeliverPolicy.LAST_PER_SUBJECT,
                inactive_threshold=30.0,
                max_reset_attempts=10,
            )
            here = consumer.cached_info.cluster
            if info.config.num_replicas == 1 or info.cluster is None or here is None or not left:
                break
            if here.leader == info.cluster.leader:
                break
            await consumer.delete()
        return consumer

    async def _persist(
        self, call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await persist(self._settings.stall_timeout, call, *args, **kwargs)

    async def _is_complete(self) -> bool:
        """Whether everything that the leader still has of what is wanted was delivered."""
        if self._position >= self._last:
            return True
        following = await self._persist(
            next_sequence, self._stream, self._subjects, self._position + 1
        )
        if following is not None:
            return following > self._last
        # One that has just become the leader may not know of the last entries yet.
        info = await self._persist(leader_info, self._stream)
        return info.state.last_seq >= self._last

    async def _passed_over(self) -> list[StoredMessage]:
        """The last entries of keys that were replaced before their turn, or are new."""
        stream = self._stream
        await leader_info(stream)
        subjects = await subjects_since(stream, self._subjects or (">",), self._position)
        for keys in self._seen if subjects else ():
            subjects.difference_update([self._prefix + key for key in keys.to_pylist()])
        found: list[StoredMessage | None] = []
        wanted = sorted(subjects)
        for start in range(0, len(wanted), AT_A_TIME):
            portion = wanted[start : start + AT_A_TIME]
            found += await asyncio.gather(*map(self._last_of, portion))
        return [message for message in found if message is not None]

    async def _last_of(self, subject: str) -> StoredMessage | None:
        try:
            return await self._stream.get_last_message(subject)
        except MessageNotFoundError:  # removed meanwhile
            return None

    def _check_patience(self, waited: float) -> None:
        if waited >= self._settings.stall_timeout:
            raise StalledReadError(
                f"bucket {self._settings.bucket!r}: after revision {self._position} nothing came "
                f"for {waited:g} s, although there are entries up to {self._last}; is "
                "a replica out of step?"
            )

    def _new(self, batch: pa.RecordBatch, *, always: bool) -> pa.RecordBatch:
        """What is of keys that were not read yet; before the end at the beginning, all is."""
        keys = keys_of(batch, self._prefix)
        known = pa.chunked_array(self._seen, pa.string()).combine_chunks()
        late = pc.greater(batch.column("sequence"), 0 if always else self._last)
        # Of a key that changes again and again, the first row counts here, too.
        first = pa.array(_first_ones(keys.to_pylist()), pa.bool_())
        fresh = pc.and_(pc.invert(pc.is_in(keys, value_set=known)), first)
        return batch.filter(pc.or_(pc.invert(late), fresh))

    def _check_keys(self) -> None:
        """Make sure that no key is there twice, as it may be if the leader has changed."""
        keys = pa.chunked_array(self._seen, pa.string())
        if pc.count_distinct(keys).as_py() < len(keys):
            raise StalledReadError(
                f"bucket {self._settings.bucket!r}: a replica that lags behind has delivered "
                "entries that were replaced before the read began; read it again"
            )


def _first_ones(keys: list[str]) -> list[bool]:
    seen: set[str] = set()
    found = []
    for key in keys:
        found.append(key not in seen)
        seen.add(key)
    return found


class Past:
    """The last entry of each key up to a revision."""

    def __init__(self, stream: Stream, settings: KvReadSettings, prefix: str, history: int) -> None:
        assert settings.as_of is not None
        self._stream = stream
        self._settings = settings
        self._prefix = prefix
        self._as_of = settings.as_of
        self._history = history

    async def batches(self) -> AsyncGenerator[pa.RecordBatch, None]:
        """Read all of them."""
        wanted = await self._wanted()
        found = 0
        if len(wanted):
            async with aclosing(self._read(self._as_of, headers_only=False)) as batches:
                async for batch in batches:
                    batch = batch.filter(pc.is_in(batch.column("sequence"), value_set=wanted))
                    found += batch.num_rows
                    if batch.num_rows:
                        yield batch
        if found < len(wanted):
            self._lost(f"{len(wanted) - found} entries were replaced while they were read")

    async def _wanted(self) -> pa.Array:
        """The revisions to read."""
        keys, revisions = [pa.array([], pa.string())], [pa.array([], pa.int64())]
        async for batch in self._read(self._stream.cached_info.state.last_seq, headers_only=True):
            keys.append(keys_of(batch, self._prefix))
            revisions.append(batch.column("sequence"))
        table = pa.table({"key": pa.concat_arrays(keys), "revision": pa.concat_arrays(revisions)})
        kept = table.group_by("key").aggregate([("revision", "min"), ("revision", "count")])
        # As many as the bucket keeps, and all are later: there may have been more before.
        unknown = kept.filter(
            pc.and_(
                pc.greater(kept["revision_min"], self._as_of),
                pc.greater_equal(kept["revision_count"], self._history),
            )
        )
        if unknown.num_rows:
            example = unknown["key"][0].as_py()
            self._lost(
                f"whether {unknown.num_rows} keys, such as {example!r}, were there cannot be told: "
                f"the bucket keeps the last {self._history} entries of a key, and theirs are later"
            )
        before = table.filter(pc.less_equal(table["revision"], self._as_of))
        return before.group_by("key").aggregate([("revision", "max")])["revision_max"]

    async def _read(self, last: int, *, headers_only: bool) -> AsyncGenerator[pa.RecordBatch, None]:
        settings = self._settings
        first = max(self._stream.cached_info.state.first_seq, 1)
        if first > last:
            return
        plan = ReadPlan(
            subjects=settings.subjects(self._prefix),
            headers_only=headers_only,
            rows=settings.rows,
            stall_timeout=settings.stall_timeout,
            count_losses=False,  # what is gone was replaced
        )
        source = RangeReader(self._stream, Range(self._stream.name, first, last), plan).batches()
        async with aclosing(source):
            async for batch in source:
                yield batch

    def _lost(self, what: str) -> None:
        message = f"bucket {self._settings.bucket!r} as of revision {self._as_of}: {what}"
        if self._settings.fail_on_data_loss:
            raise DataLossError(
                f"{message}. Give the bucket more history; with failOnDataLoss=false these are "
                "left out"
            )
        logger.warning("%s", message)
