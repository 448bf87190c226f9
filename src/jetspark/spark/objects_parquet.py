"""Rows in Parquet files, which are objects of a store (layout `parquet`).

Tasks write files under names that begin with a dot, which are not read. When all tasks are done,
the files of those that succeeded get their final names, and the others are removed.
"""

from __future__ import annotations

import fnmatch
import io
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from jetspark.errors import BadObjectError, ObjectNotFoundError
from jetspark.objects import ObjectInfo, ObjectStore

from .boundary import plain_errors, plain_errors_in
from .connection import run
from .objects_options import (
    SOURCE,
    ObjectReadSettings,
    ObjectWriteSettings,
    open_store,
    wanted_objects,
)
from .objects_plan import divide_objects, is_hidden
from .objects_sink import put
from .objects_source import ObjectPartition

__all__ = ["ParquetReader", "ParquetWriter", "parquet_schema"]

FOOTER = 64 * 1024  # bytes at the end of a file that are read to learn its columns
ROW_GROUP_BYTES = 16 * 1024 * 1024  # in memory
SUFFIX = ".parquet"


# -- reading ------------------------------------------------------------------------------------


def parquet_schema(settings: ObjectReadSettings) -> StructType:
    """The columns of the first file."""
    return run(_schema(settings))


async def _schema(settings: ObjectReadSettings) -> StructType:
    files = await wanted_objects(settings)
    if not files:
        raise ObjectNotFoundError(
            f"{SOURCE}: store {settings.bucket!r} has no such Parquet files, and so there are no "
            "columns; correct options 'namePrefix' and 'names', or give a schema",
            code=404,
        )
    info = min(files, key=lambda info: info.name)
    store = await open_store(settings.access, settings.bucket)
    size = FOOTER
    while True:
        reader = await store.get(info.name, offset=max(info.size - size, 0))
        end = await reader.read()
        needed = int.from_bytes(end[-8:-4], "little") + 8
        if needed <= len(end) or len(end) >= info.size:
            break
        size = needed
    try:
        return from_arrow_schema(pq.read_schema(pa.BufferReader(end)))
    except pa.ArrowException as error:
        raise _no_parquet(info.name, settings.bucket, error) from None


def _no_parquet(name: str, bucket: str, error: Exception) -> BadObjectError:
    return BadObjectError(
        f"object {name!r} in store {bucket!r} cannot be read as a Parquet file with these "
        f"columns: {error}"
    )


class ParquetReader(DataSourceReader):
    """Reads the rows of Parquet files."""

    def __init__(self, settings: ObjectReadSettings, schema: StructType) -> None:
        self._settings = settings
        self._schema = schema

    @plain_errors
    def partitions(self) -> list[ObjectPartition]:
        """The tasks."""
        groups = divide_objects(
            run(wanted_objects(self._settings)), self._settings.max_partition_bytes
        )
        return [ObjectPartition(group) for group in groups] or [ObjectPartition([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        assert isinstance(partition, ObjectPartition)
        return plain_errors_in(self._rows(partition.objects))

    def _rows(self, files: list[ObjectInfo]) -> Iterator[pa.RecordBatch]:
        schema = to_arrow_schema(self._schema, timezone="UTC")
        with tempfile.TemporaryDirectory(prefix="jetspark-") as directory:
            path = Path(directory, "part" + SUFFIX)
            for info in files:
                run(self._get(info.name, path))
                try:
                    with pq.ParquetFile(path) as file:
                        for batch in file.iter_batches(self._settings.rows, columns=schema.names):
                            yield batch.select(schema.names).cast(schema)
                except (pa.ArrowException, KeyError) as error:
                    raise _no_parquet(info.name, self._settings.bucket, error) from None

    async def _get(self, name: str, path: Path) -> None:
        store = await open_store(self._settings.access, self._settings.bucket)
        await store.get_file(name, path)


# -- writing ------------------------------------------------------------------------------------


@dataclass
class Files(WriterCommitMessage):
    """What a task tells the driver."""

    names: list[str]


class ParquetWriter(DataSourceArrowWriter):
    """Writes the rows of a DataFrame into Parquet files."""

    def __init__(self, settings: ObjectWriteSettings, schema: StructType, overwrite: bool) -> None:
        self._settings = settings
        self._schema = schema
        self._overwrite = overwrite
        self._job = uuid.uuid4().hex

    @plain_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Files:
        """Write the rows of a task."""
        context = TaskContext.get()
        assert context is not None
        schema = to_arrow_schema(self._schema, timezone="UTC")
        begin = f"{self._settings.prefix}/.{self._job}-{context.taskAttemptId()}"
        names: list[str] = []
        with tempfile.TemporaryDirectory(prefix="jetspark-") as directory:
            part: _Part | None = None
            for batch in iterator:
                if not batch.num_rows:
                    continue
                part = part or _Part(Path(directory, "part" + SUFFIX), schema)
                if part.write(batch) >= self._settings.max_object_size:
                    names.append(self._store(part, f"{begin}-{len(names):04d}{SUFFIX}"))
                    part = None
            if part is None and not names and context.partitionId() == 0:
                # So that there are columns to read, even if there are no rows.
                part = _Part(Path(directory, "part" + SUFFIX), schema)
            if part is not None:
                names.append(self._store(part, f"{begin}-{len(names):04d}{SUFFIX}"))
        return Files(names)

    def _store(self, part: _Part, name: str) -> str:
        part.close()
        with part.path.open("rb") as file:
            run(self._put(name, file))
        return name

    async def _put(self, name: str, file: io.BufferedReader) -> None:
        await put(await open_store(self._settings.access, self._settings.bucket), name, file)

    @plain_errors
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Give the files their names; if they replace others, these go."""
        run(self._commit([files.names for files in messages if isinstance(files, Files)]))

    async def _commit(self, tasks: list[list[str]]) -> None:
        store = await open_store(self._settings.access, self._settings.bucket)
        prefix = self._settings.prefix
        old = await self._files(store, "*" + SUFFIX) if self._overwrite else []
        for task, names in enumerate(tasks):
            for number, name in enumerate(names):
                final = f"{prefix}/part-{task:05d}-{self._job}-{number:04d}{SUFFIX}"
                await store.update_meta(name, name=final)
        for name in [*old, *await self._files(store, f".{self._job}-*")]:
            await _delete(store, name)

    @plain_errors
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what was written, as far as it is there yet."""
        run(self._abort())

    async def _abort(self) -> None:
        store = await open_store(self._settings.access, self._settings.bucket)
        for name in await self._files(store, f".{self._job}-*"):
            await _delete(store, name)

    async def _files(self, store: ObjectStore, pattern: str) -> list[str]:
        """What is under the prefix."""
        begin = f"{self._settings.prefix}/"
        hidden = pattern.startswith(".")
        return [
            info.name
            async for info in store.list()
            if info.name.startswith(begin)
            and is_hidden(info.name) is hidden
            and fnmatch.fnmatchcase(info.name[len(begin) :], pattern)
        ]


async def _delete(store: ObjectStore, name: str) -> None:
    try:
        await store.delete(name)
    except ObjectNotFoundError:
        pass  # someone else was faster


class _Part:
    """A Parquet file in the making."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self._schema = schema
        self._file = path.open("wb")
        self._writer = pq.ParquetWriter(self._file, schema)
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> int:
        """Add rows; returns how many bytes the file has so far."""
        self._waiting.append(batch.cast(self._schema))
        self._bytes += batch.nbytes
        if self._bytes >= ROW_GROUP_BYTES:
            self._flush()
        return self._file.tell()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema))
            self._waiting, self._bytes = [], 0

    def close(self) -> None:
        """Write the rest."""
        self._flush()
        self._writer.close()
        self._file.close()
