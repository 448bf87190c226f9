"""Reads an archive in the order of the stream, whatever directories its messages are in."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jetspark.errors import ArchiveError
from jetspark.protocol import subject_matches

from .archive_directory import ArchiveDirectory
from .manifest import ArchivedFile

__all__ = ["Selection", "Survey", "in_order", "survey"]

ROWS = 10_000  # at a time


@dataclass(frozen=True)
class Selection:
    """Which messages of an archive are meant."""

    subjects: tuple[str, ...] = ()
    """All if there are none."""
    since: datetime | None = None
    until: datetime | None = None
    """Which is not included."""

    def describe(self) -> str:
        """The same text for the same messages."""
        times = [moment.isoformat() if moment else "" for moment in (self.since, self.until)]
        return "|".join([",".join(sorted(self.subjects)), *times])

    def has(self, file: ArchivedFile) -> bool:
        """Whether a file can have such messages."""
        return (self.since is None or file.until >= self.since) and (
            self.until is None or file.since < self.until
        )

    def of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Those of some rows."""
        times = rows.column("timestamp")
        if self.since is not None:
            rows = rows.filter(pc.greater_equal(times, pa.scalar(self.since, times.type)))
        if self.until is not None:
            times = rows.column("timestamp")
            rows = rows.filter(pc.less(times, pa.scalar(self.until, times.type)))
        if self.subjects:
            encoded = rows.column("subject").dictionary_encode()
            wanted = [
                any(subject_matches(pattern, subject) for pattern in self.subjects)
                for subject in encoded.dictionary.to_pylist()
            ]
            rows = rows.filter(pa.array(wanted, pa.bool_()).take(encoded.indices))
        return rows


class Survey(NamedTuple):
    """What a selection of an archive has."""

    rows: int
    subjects: set[str]
    first: int
    last: int


def survey(
    directory: ArchiveDirectory,
    selection: Selection,
    after: int,
    stored: Collection[int] = (),
) -> Survey:
    """Count the messages behind a sequence, without those stored, and collect their subjects."""
    rows, subjects, first, last = 0, set(), 0, 0
    known = pa.array(stored, pa.int64())
    for file in _chosen(directory, selection, after):
        columns = ["subject", "sequence", "timestamp"]
        for batch in _batches(directory, file, columns, selection, after):
            if known:
                fresh = pc.invert(pc.is_in(batch.column("sequence"), known))
                if not (batch := batch.filter(fresh)).num_rows:
                    continue
            rows += batch.num_rows
            subjects.update(batch.column("subject").unique().to_pylist())
            bounds = pc.min_max(batch.column("sequence")).as_py()
            first, last = min(first or bounds["min"], bounds["min"]), max(last, bounds["max"])
    return Survey(rows, subjects, first, last)


def in_order(
    directory: ArchiveDirectory, selection: Selection, after: int
) -> Iterator[pa.RecordBatch]:
    """The messages behind a sequence, in the order of the stream."""
    waiting = deque(sorted(_chosen(directory, selection, after), key=lambda file: file.first))
    active: list[_Cursor] = []
    while waiting or active:
        while waiting and (not active or waiting[0].first <= _bound(active)):
            cursor = _Cursor(_batches(directory, waiting.popleft(), None, selection, after))
            if cursor.fill():
                active.append(cursor)
        if not active:
            continue
        bound = _bound(active)
        pieces = [piece for cursor in active if (piece := cursor.take(bound)).num_rows]
        active = [cursor for cursor in active if cursor.fill()]
        if len(pieces) == 1:
            yield pieces[0]
        else:
            table = pa.Table.from_batches(pieces)
            yield from table.sort_by("sequence").combine_chunks().to_batches(ROWS)


def _chosen(directory: ArchiveDirectory, selection: Selection, after: int) -> list[ArchivedFile]:
    return [file for file in directory.manifest.files if file.last > after and selection.has(file)]


def _batches(
    directory: ArchiveDirectory,
    file: ArchivedFile,
    columns: list[str] | None,
    selection: Selection,
    after: int,
) -> Iterator[pa.RecordBatch]:
    """The messages of a file that are meant."""
    path = directory.locate(file)
    try:
        with pq.ParquetFile(path) as source:
            # Without its folders, whose names a reader would make columns of.
            for batch in source.iter_batches(ROWS, columns=columns):
                rows = selection.of(batch)
                if file.first <= after:
                    rows = rows.filter(pc.greater(rows.column("sequence"), after))
                if rows.num_rows:
                    yield rows
    except (pa.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise ArchiveError(
            f"{path}: cannot be read: {reason}; `jetspark archive --verify` looks at all files"
        ) from error


class _Cursor:
    """A file, and those of its rows that were read and not yet taken."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._rows: pa.RecordBatch | None = None
        self.last = 0  # the sequence up to which they were read

    def fill(self) -> bool:
        """Read rows if there are none; False if none are left."""
        if self._rows is None:
            self._rows = next(self._batches, None)
            if self._rows is not None:
                self.last = self._rows.column("sequence")[-1].as_py()
        return self._rows is not None

    def take(self, bound: int) -> pa.RecordBatch:
        """The rows up to a sequence."""
        assert self._rows is not None
        if self.last <= bound:
            rows, self._rows = self._rows, None
            return rows
        sequences = self._rows.column("sequence")
        count = pc.sum(pc.less_equal(sequences, bound)).as_py()
        rows, self._rows = self._rows.slice(0, count), self._rows.slice(count)
        return rows


def _bound(active: list[_Cursor]) -> int:
    """The sequence up to which all rows of the open files were read."""
    return min(cursor.last for cursor in active)
