"""Archives for tests: made in this process, by the code that Spark's workers run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds

from jetspark.pipeline.archive import Archived, ArchiveOptions, archive
from jetspark.spark.connection import CONNECTION_OPTIONS, Access
from jetspark.spark.options import parse

__all__ = ["access_to", "archive_here", "read_all"]

Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class _Row(NamedTuple):
    result: bytes


class _Frame:
    """The numbers of tasks, one after the other."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._rows: list[_Row] = []

    def mapInArrow(self, work: Work, schema: str) -> _Frame:
        for number in range(self._count):
            numbers = pa.RecordBatch.from_pydict({"id": [number]})
            for batch in work(iter([numbers])):
                self._rows += [_Row(result) for result in batch.column("result").to_pylist()]
        return self

    def collect(self) -> list[_Row]:
        return self._rows


class _Here:
    """Runs tasks in this process, which spares the seconds that Spark takes."""

    def range(self, start: int, end: int, step: int, partitions: int) -> _Frame:
        assert (start, step, partitions) == (0, 1, end)
        return _Frame(end)


def access_to(url: str) -> Access:
    """How to get to a server."""
    return Access.of(parse(CONNECTION_OPTIONS, {"servers": url}, "test"))


def archive_here(access: Access, stream: str, directory: Path, **options: Any) -> Archived:
    """Archive a stream without Spark; returns what was done."""
    wanted = ArchiveOptions(access=access, stream=stream, directory=directory, **options)
    *_, last = archive(wanted, _Here)  # type: ignore[arg-type]
    return last


def read_all(directory: Path) -> list[dict[str, Any]]:
    """What any reader of Parquet finds in an archive, by sequence."""
    table = ds.dataset(directory, partitioning="hive").to_table()
    found: list[dict[str, Any]] = table.sort_by("sequence").to_pylist()
    return found
