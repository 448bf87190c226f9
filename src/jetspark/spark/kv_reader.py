"""The `jetstream-kv` source in streaming queries: the changes of a bucket.

A bucket is a stream, and so its changes are read as one is; the offsets in a checkpoint have the
name of the bucket: `{"settings": 1234}`. An entry that is replaced before it is read is not seen,
and neither is it when a batch is read again after it was.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from jetspark.jetstream.consumer.arrow import SCHEMA
from jetspark.kv.names import STREAM_PREFIX

from .kv_entries import entries
from .range_reader import ReadPlan
from .stream_options import ReadSettings
from .stream_reader import Offsets, StreamReader
from .stream_source import RangePartition, read_partition

__all__ = ["KvStreamReader"]


class KvStreamReader(StreamReader):
    """Follows a bucket."""

    what = "bucket"

    def __init__(self, settings: ReadSettings, prefix: str, schema: StructType) -> None:
        super().__init__(settings, schema)
        self._prefix = prefix

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_prefix": self._prefix}

    def initialOffset(self) -> Offsets:
        """Where a query begins that has no checkpoint."""
        return _by_bucket(super().initialOffset())

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """How far the next batch goes."""
        return _by_bucket(super().latestOffset(_by_stream(start), limit))

    def reportLatestOffset(self) -> Offsets:
        """What the bucket has, for the progress of the query."""
        return _by_bucket(super().reportLatestOffset())

    def partitions(self, start: Offsets, end: Offsets) -> list[RangePartition]:
        """The tasks of a batch."""
        return super().partitions(_by_stream(start), _by_stream(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        for batch in read_partition(self._settings, SCHEMA.names, partition):
            yield entries(batch, self._prefix).select(self._columns)

    def _check_streams(self, start: Offsets, latest: Offsets) -> None:
        super()._check_streams(_by_bucket(start), _by_bucket(latest))

    def _plan(self, name: str) -> ReadPlan:
        # What is gone was replaced, which is the way of a bucket.
        return dataclasses.replace(super()._plan(name), count_losses=False)


def _by_bucket(offsets: Offsets) -> Offsets:
    return {stream.removeprefix(STREAM_PREFIX): offset for stream, offset in offsets.items()}


def _by_stream(offsets: Offsets) -> Offsets:
    return {STREAM_PREFIX + bucket: offset for bucket, offset in offsets.items()}
