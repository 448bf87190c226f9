"""The `jetstream-objects` source: a row for each object of a store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from jetspark.errors import InvalidOptionError, ObjectNotFoundError
from jetspark.objects import ObjectInfo, ObjectStore

from .boundary import plain_errors, plain_errors_in
from .connection import iterate, run
from .objects_options import SOURCE, ObjectReadSettings, open_store, wanted_objects
from .objects_plan import divide_objects

__all__ = ["OBJECT_SCHEMA", "ObjectPartition", "ObjectReader"]

logger = logging.getLogger("jetspark.spark")

OBJECT_SCHEMA = StructType(
    [
        StructField("name", StringType()),
        StructField("size", LongType()),
        StructField("chunks", LongType()),
        StructField("digest", StringType()),
        StructField("mtime", TimestampType()),
        StructField("description", StringType()),
        StructField("metadata", MapType(StringType(), StringType())),
        StructField("headers", MapType(StringType(), ArrayType(StringType()))),
        StructField("content", BinaryType()),
    ]
)

BATCH_BYTES = 16 * 1024 * 1024  # of content in an Arrow batch, unless one object has more
AT_A_TIME = 16  # objects that are read side by side
BATCH_ROWS = 10_000  # without content


class ObjectPartition(InputPartition):
    """The objects that one task reads."""

    def __init__(self, objects: list[ObjectInfo]) -> None:
        super().__init__([info.name for info in objects])
        self.objects = objects


class ObjectReader(DataSourceReader):
    """Reads what is in a store."""

    def __init__(self, settings: ObjectReadSettings, schema: StructType) -> None:
        self._settings = settings
        self._schema = schema

    @plain_errors
    def partitions(self) -> list[ObjectPartition]:
        """The tasks."""
        settings = self._settings
        objects = run(wanted_objects(settings))
        if not settings.content:
            return [ObjectPartition(objects)]
        for info in objects:
            if info.size > settings.max_object_size:
                raise InvalidOptionError(
                    f"{SOURCE}: object {info.name!r} has {info.size} bytes, over option "
                    f"'maxObjectSize' ({settings.max_object_size}); leave it out with 'names', or "
                    "read without content (includeContent=false)"
                )
        groups = divide_objects(objects, settings.max_partition_bytes)
        return [ObjectPartition(group) for group in groups] or [ObjectPartition([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        assert isinstance(partition, ObjectPartition)
        if not self._settings.content:
            return self._without_content(partition.objects)
        return plain_errors_in(iterate(lambda: self._with_content(partition.objects), ahead=1))

    def _without_content(self, objects: list[ObjectInfo]) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(objects), BATCH_ROWS):
            yield self._batch([(info, None) for info in objects[start : start + BATCH_ROWS]])

    async def _with_content(self, objects: list[ObjectInfo]) -> AsyncIterator[pa.RecordBatch]:
        store = await open_store(self._settings.access, self._settings.bucket)
        start = 0
        while start < len(objects):
            end, size = start + 1, objects[start].size
            while end < len(objects) and end - start < AT_A_TIME:
                size += objects[end].size
                if size > BATCH_BYTES:
                    break
                end += 1
            found = await asyncio.gather(
                *(_content(store, info.name) for info in objects[start:end]),
                return_exceptions=True,
            )
            for outcome in found:
                if isinstance(outcome, BaseException):
                    raise outcome
            rows = [row for row in found if isinstance(row, tuple)]
            if rows:
                yield self._batch(rows)
            start = end

    def _batch(self, rows: Sequence[tuple[ObjectInfo, bytes | None]]) -> pa.RecordBatch:
        schema = to_arrow_schema(self._schema, timezone="UTC")
        columns = {
            "name": [info.name for info, _ in rows],
            "size": [info.size for info, _ in rows],
            "chunks": [info.chunks for info, _ in rows],
            "digest": [info.digest for info, _ in rows],
            "mtime": [info.modified for info, _ in rows],
            "description": [info.description or None for info, _ in rows],
            "metadata": [list(info.metadata.items()) for info, _ in rows],
            "headers": [
                [(name, list(values)) for name, values in info.headers.items()] for info, _ in rows
            ],
            "content": [content for _, content in rows],
        }
        return pa.RecordBatch.from_arrays(
            [pa.array(columns[field.name], field.type) for field in schema], schema=schema
        )


async def _content(store: ObjectStore, name: str) -> tuple[ObjectInfo, bytes] | None:
    """An object as it is now; none if it was deleted meanwhile."""
    try:
        async with await store.get(name) as reader:
            return reader.info, await reader.read()
    except ObjectNotFoundError as error:
        logger.info("left out: %s", error)
        return None
