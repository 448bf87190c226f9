"""The `jetstream` source in batch: what is in streams now, or between two places in them."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from jetspark.jetstream import RetentionPolicy, Stream, StreamInfo

from .boundary import plain_errors, plain_errors_in
from .connection import iterate, persist, run
from .filters import narrow
from .positions import end_offsets, narrowed, open_streams, start_offsets
from .range_reader import RangeReader, ReadPlan
from .ranges import Range, divide
from .schema import arrow_columns
from .stream_options import ReadSettings

__all__ = [
    "FilteringReader",
    "RangePartition",
    "StreamBatchReader",
    "is_filtering",
    "read_partition",
]

PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


class RangePartition(InputPartition):
    """The sequences that one task reads."""

    def __init__(
        self,
        part: Range,
        plan: ReadPlan,
        stream: StreamInfo,
        *,
        joined: bool = False,
    ) -> None:
        super().__init__(tuple(part))
        self.part = part
        self.plan = plan
        self.stream = stream  # as the driver knows it: one request less for each task
        self.joined = joined  # the stream came late to the query


def read_partition(
    settings: ReadSettings, columns: list[str], partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    """Read the sequences of a task, in the worker."""
    assert isinstance(partition, RangePartition)
    part, plan = partition.part, partition.plan

    async def batches() -> AsyncIterator[pa.RecordBatch]:
        js = await persist(plan.stall_timeout, settings.access.jetstream)
        stream, created = Stream(js, partition.stream), partition.stream.created
        reader = RangeReader(stream, part, plan, created=created, joined=partition.joined)
        source = reader.batches()
        async with aclosing(source):
            async for batch in source:
                yield arrow_columns(batch, columns, data=not plan.headers_only)

    return plain_errors_in(iterate(batches))


class StreamBatchReader(DataSourceReader):
    """Reads what is there once."""

    def __init__(self, settings: ReadSettings, schema: StructType) -> None:
        self._settings = settings
        self._columns = schema.fieldNames()
        self._narrowing = narrow([], settings.plan.subjects)

    @plain_errors
    def partitions(self) -> list[InputPartition]:
        """The tasks."""
        return [*run(self._partitions())] or [InputPartition(None)]

    async def _partitions(self) -> list[RangePartition]:
        settings = self._settings
        streams = await open_streams(await settings.access.jetstream(), settings)
        parts = divide(
            await self._ranges(streams),
            min_partitions=settings.min_partitions,
            max_records=settings.max_records,
        )
        plans = {name: self._plan(stream) for name, stream in streams.items()}
        return [
            RangePartition(part, plans[part.stream], streams[part.stream].cached_info)
            for part in parts
        ]

    async def _ranges(self, streams: dict[str, Stream]) -> list[Range]:
        start = await start_offsets(streams, self._settings)
        end = await end_offsets(streams, self._settings)
        return [
            await narrowed(stream, Range(name, start[name] + 1, end[name]), self._narrowing)
            for name, stream in streams.items()
            if self._narrowing.has_stream(name)
        ]

    def _plan(self, stream: Stream) -> ReadPlan:
        """How a stream is read."""
        queue = stream.config.retention != RetentionPolicy.LIMITS
        return dataclasses.replace(
            self._settings.plan,
            subjects=self._narrowing.filter_subjects,
            # A look into a queue takes nothing from it, and what others have done is not lost.
            asking=queue,
            count_losses=not queue,
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        if partition.value is None:
            return iter(())  # nothing is there
        return read_partition(self._settings, self._columns, partition)


class FilteringReader(StreamBatchReader):
    """The same, for Spark with `spark.sql.python.filterPushdown.enabled`.

    Without that setting, Spark refuses any reader that has this method: see `is_filtering`.
    """

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        """Read less, if that can be; Spark applies all filters nevertheless."""
        self._narrowing = narrow(filters, self._settings.plan.subjects)
        return filters


def is_filtering() -> bool:
    """Whether Spark is about to push filters.

    It does so in a worker process of its own. Elsewhere nobody would ask for it.
    """
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return PUSHDOWN_WORKER in sys.modules or getattr(main, "name", None) == PUSHDOWN_WORKER
