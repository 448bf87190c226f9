"""What a task of an archive does: it reads a range of sequences and writes it to Parquet files.

The messages go from the connection into Arrow columns and from there into files, all in the Python
worker; Spark only says which task has which range. The files are written to a temporary place, and
what the task tells the driver of them is small.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jetspark.errors import ArchiveError, JetSparkError
from jetspark.jetstream.consumer.arrow import SCHEMA
from jetspark.spark.boundary import plain_errors_in
from jetspark.spark.connection import Access, iterate, persist
from jetspark.spark.positions import open_stream
from jetspark.spark.range_reader import RangeReader, ReadPlan
from jetspark.spark.ranges import Range

from .archive_check import Check
from .archive_split import split
from .manifest import ArchivedFile

__all__ = ["ArchiveTask", "PartWriter", "WrittenPart", "run_tasks", "write_part"]

GROUP_ROWS = 100_000
GROUP_BYTES = 64 * 1024 * 1024  # of a row group, before compression
BUFFERED_BYTES = 256 * 1024 * 1024  # of all files of a task
FILE_BYTES = 1024 * 1024 * 1024  # before compression; then another file is begun
MOST_OPEN = 200  # files of a task at a time


@dataclass(frozen=True)
class ArchiveTask:
    """What the tasks of a job are told; travels to the executors."""

    access: Access
    plan: ReadPlan
    created: datetime  # the stream
    directory: str
    temporary: str  # below the directory
    by_token: int
    parts: tuple[Range, ...]


class WrittenPart(NamedTuple):
    """What a task tells the driver."""

    files: tuple[ArchivedFile, ...]
    lost: int  # messages, at most


def run_tasks(task: ArchiveTask, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the parts with these numbers, in a worker; gives a pickled result for each.

    A failure is a result, too: raised here, it would reach the driver only as text.
    """
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            result: WrittenPart | Exception
            try:
                result = write_part(task, task.parts[number])
            except JetSparkError as error:
                error.__cause__ = error.__context__ = None
                result = error.with_traceback(None)
            except OSError as error:
                result = ArchiveError(f"cannot write to {task.directory}: {_reason(error)}")
            yield pa.RecordBatch.from_pydict({"result": [pickle.dumps(result)]})


def _reason(error: OSError) -> str:
    reason = os.strerror(error.errno) if error.errno else str(error).partition("\n")[0]
    return f"{reason}; make room, or see to the permissions, and start again"


def write_part(task: ArchiveTask, part: Range) -> WrittenPart:
    """Write the messages of a range to files."""
    lost = 0

    async def batches() -> AsyncIterator[pa.RecordBatch]:
        nonlocal lost
        stream = await persist(task.plan.stall_timeout, open_stream, task.access, part.stream)
        reader = RangeReader(stream, part, task.plan, created=task.created)
        async with aclosing(reader.batches()) as source:
            async for batch in source:
                yield batch
        lost = reader.lost

    with PartWriter(Path(task.directory), task.temporary, part, task.by_token) as writer:
        for batch in plain_errors_in(iterate(batches)):
            writer.add(batch)
        return WrittenPart(tuple(writer.finish()), lost)


class PartWriter:
    """Writes rows, which come in their order, to the files of their directories."""

    def __init__(self, directory: Path, temporary: str, part: Range, by_token: int) -> None:
        self._directory = directory
        # Another attempt of the same task may be writing at the same time.
        self._temporary = f"{temporary}/{uuid.uuid4().hex}"
        self._part = part
        self._by_token = by_token
        self._open: dict[str, _OpenFile] = {}  # by directory
        self._done: list[ArchivedFile] = []

    def __enter__(self) -> PartWriter:
        (self._directory / self._temporary).mkdir(parents=True)
        return self

    def __exit__(self, *exc_info: object) -> None:
        for file in self._open.values():
            file.abandon()

    def add(self, rows: pa.RecordBatch) -> None:
        """Write some rows."""
        for folder, some in split(rows, self._by_token):
            file = self._open.get(folder)
            if file is None:
                if len(self._open) >= MOST_OPEN:
                    self._close_all()
                file = self._open[folder] = self._begin(folder)
            file.add(some)
            if file.size > FILE_BYTES:
                self._close(folder)
        if sum([file.buffered for file in self._open.values()]) > BUFFERED_BYTES:
            for file in self._open.values():
                file.write()

    def _begin(self, folder: str) -> _OpenFile:
        part = self._part
        name = f"{part.stream}-{part.first:020d}-{part.last:020d}"
        written = f"{self._temporary}/{len(self._done) + len(self._open)}.part"
        earlier = sum(file.path.startswith(f"{folder}/{name}") for file in self._done)
        path = f"{folder}/{name}{f'-{earlier}' if earlier else ''}.parquet"
        return _OpenFile(self._directory, path, written)

    def _close_all(self) -> None:
        for folder in list(self._open):
            self._close(folder)

    def _close(self, folder: str) -> None:
        self._done.append(self._open[folder].close())
        del self._open[folder]

    def finish(self) -> list[ArchivedFile]:
        """Complete all files, on disk; returns what there is to know of them."""
        self._close_all()
        return self._done


class _OpenFile:
    """A Parquet file in the making."""

    def __init__(self, directory: Path, path: str, written: str) -> None:
        self.path = path
        self.size = 0  # before compression
        self.buffered = 0  # of that, not in a row group yet
        self._written = written
        self._file = directory / written
        self._check = Check()
        self._rows = 0
        self._buffer: list[pa.RecordBatch] = []
        self._buffered_rows = 0
        self._first = self._last = 0
        self._times: list[datetime] = []
        self._writer = pq.ParquetWriter(
            self._file,
            SCHEMA,
            compression="zstd",
            use_dictionary=["stream", "subject"],
            write_statistics=["subject", "sequence", "timestamp"],
            write_page_checksum=True,
        )

    def add(self, rows: pa.RecordBatch) -> None:
        self._check.add(rows)
        sequences, times = rows.column("sequence"), pc.min_max(rows.column("timestamp")).as_py()
        self._first = self._first or sequences[0].as_py()
        self._last = sequences[-1].as_py()
        self._times += times.values()
        self._buffer.append(rows)
        self._rows += rows.num_rows
        self._buffered_rows += rows.num_rows
        self.size += rows.nbytes
        self.buffered += rows.nbytes
        if self._buffered_rows >= GROUP_ROWS or self.buffered >= GROUP_BYTES:
            self.write()

    def write(self) -> None:
        """Make what is buffered a row group."""
        if self._buffer:
            self._writer.write_table(pa.Table.from_batches(self._buffer), GROUP_ROWS * 2)
            self._buffer, self._buffered_rows, self.buffered = [], 0, 0

    def close(self) -> ArchivedFile:
        self.write()
        self._writer.close()
        with self._file.open("rb") as file:
            os.fsync(file.fileno())
        return ArchivedFile(
            path=self.path,
            written=self._written,
            rows=self._rows,
            bytes=self._file.stat().st_size,
            first=self._first,
            last=self._last,
            since=min(self._times),
            until=max(self._times),
            check=self._check.text(),
        )

    def abandon(self) -> None:
        """Leave it; the driver removes what is left of it."""
        with contextlib.suppress(OSError, pa.ArrowException):
            self._writer.close()
        self._file.unlink(missing_ok=True)
