"""Compares an archive with its manifest, and with the stream as far as that has the messages."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jetspark.errors import ArchiveError, JetSparkError, StreamNotFoundError
from jetspark.jetstream import AckPolicy, DeliverPolicy, RetentionPolicy, Stream
from jetspark.spark.connection import Access, persist, run
from jetspark.spark.range_reader import leader_info

from .archive import open_source
from .archive_check import Check
from .archive_directory import read_archive
from .manifest import ArchivedFile, ArchivedRange, Head

__all__ = ["Verified", "verify"]

THREADS = 4
MOST_GROUPS = 500  # of ranges whose messages the server is asked to count
PATIENCE = 30.0

Sequences = np.ndarray[tuple[int], np.dtype[np.int64]]
_NOTHING: Sequences = np.empty(0, np.int64)


@dataclass(frozen=True)
class Verified:
    """What a comparison has found."""

    ranges: int
    files: int
    rows: int
    lost: int
    """Messages, at most, that the manifest says were lost."""
    compared: int
    """Messages that were compared with those of the stream."""
    differences: tuple[str, ...]


def verify(
    path: Path, access: Access, stream: str, progress: Callable[[int, int], None]
) -> Verified:
    """Read all files of an archive, and compare; `progress` is told the rows so far, and of all."""
    # In this order: a file gets its name only when it is in the manifest.
    found = read_archive(path).parquet_files()
    directory = read_archive(path)
    manifest = directory.manifest
    assert manifest.head is not None
    if manifest.head.stream != stream:
        raise ArchiveError(f"the archive in {path} is that of stream {manifest.head.stream!r}")
    known = {file.path for file in manifest.files}
    differences = [f"{name}: not in the manifest" for name in sorted(found - known)]
    differences += _contiguous(manifest.ranges, manifest.head.first)
    source = run(_Source.open(access, manifest.head))
    rows, archived = 0, []
    with ThreadPoolExecutor(THREADS) as pool:
        for part in manifest.ranges:
            paths = [directory.locate(file) for file in part.files]
            contents = list(pool.map(_compare, paths, part.files))
            differences += [each for content in contents for each in content.differences]
            sequences = np.concatenate([_NOTHING, *[each.sequences for each in contents]])
            differences += _once(part, sequences)
            archived.append(int((sequences >= source.first).sum()))
            rows += len(sequences)
            progress(rows, manifest.rows)
    compared, missing = run(source.compare(manifest.ranges, archived))
    return Verified(
        len(manifest.ranges), len(known), rows, manifest.lost, compared, (*differences, *missing)
    )


def _contiguous(ranges: list[ArchivedRange], first: int) -> Iterator[str]:
    expected = first
    for part in ranges:
        if part.first != expected:
            yield f"sequences {expected} to {part.first - 1}: not in the manifest"
        expected = part.last + 1


@dataclass(frozen=True)
class _Content:
    """What is in a file."""

    sequences: Sequences
    differences: list[str]


def _compare(path: Path, file: ArchivedFile) -> _Content:
    """Read a file, and compare it with what the manifest says of it."""
    if not path.exists():
        return _Content(_NOTHING, [f"{file.path}: missing, with {file.rows} messages"])
    check, chunks, rows = Check(), [_NOTHING], 0
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as source:
            for batch in source.iter_batches(20_000):
                check.add(batch)
                chunks.append(batch.column("sequence").to_numpy())
                rows += batch.num_rows
    except (pa.ArrowException, OSError, KeyError) as error:
        reason = str(error).partition("\n")[0]
        return _Content(np.concatenate(chunks), [f"{file.path}: cannot be read: {reason}"])
    sequences = np.concatenate(chunks)
    differences = []
    if rows != file.rows:
        differences.append(f"{file.path}: {rows} messages, the manifest says {file.rows}")
    elif check.text() != file.check:
        differences.append(f"{file.path}: changed, its check is {check.text()}, not {file.check}")
    elif (size := path.stat().st_size) != file.bytes:
        differences.append(f"{file.path}: {size} bytes, the manifest says {file.bytes}")
    return _Content(sequences, differences)


def _once(part: ArchivedRange, sequences: Sequences) -> list[str]:
    """What is wrong with the sequences of a range, of all its files."""
    name = f"sequences {part.first} to {part.last}"
    differences = []
    distinct = np.unique(sequences)
    if len(distinct) < len(sequences):
        differences.append(f"{name}: {len(sequences) - len(distinct)} messages are there twice")
    if len(distinct) and not part.first <= distinct[0] <= distinct[-1] <= part.last:
        differences.append(f"{name}: messages of other sequences are there")
    return differences


# -- the stream ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Source:
    """The stream, as far as it can still be compared with."""

    stream: Stream | None
    subjects: tuple[str, ...] = ()
    first: int = 0
    """The first sequence that it has."""

    @classmethod
    async def open(cls, access: Access, head: Head) -> _Source:
        try:
            stream = await open_source(access, head.stream)
        except StreamNotFoundError:
            return cls(None)
        info = await persist(PATIENCE, leader_info, stream)
        if info.created != head.created or info.config.retention != RetentionPolicy.LIMITS:
            return cls(None)  # it has other messages, or has given them to its consumers
        return cls(stream, head.subjects, info.state.first_seq)

    async def compare(
        self, ranges: list[ArchivedRange], archived: list[int]
    ) -> tuple[int, list[str]]:
        """How many messages of ranges the server has, too, and where it has more."""
        if self.stream is None:
            return 0, []
        compared, differences = 0, []
        size = -(-len(ranges) // MOST_GROUPS) or 1
        for start in range(0, len(ranges), size):
            group = ranges[start : start + size]
            first, last = max(group[0].first, self.first), group[-1].last
            rows = sum(archived[start : start + size])
            stored = await self._at_most(rows, first, last)
            compared += min(rows, stored)
            # Fewer is no difference: messages may have been deleted since.
            if stored > rows:
                differences.append(
                    f"sequences {first} to {last}: the stream has {stored} messages, the archive "
                    f"{rows}"
                )
        return compared, differences

    async def _at_most(self, rows: int, first: int, last: int) -> int:
        """How many messages of sequences the stream has; more than expected only if it stays so."""
        stored = rows + 1 if first <= last else 0
        for _ in range(3):
            if stored > rows:
                stored = await self._from(first) - await self._from(last + 1)
        return stored

    async def _from(self, first: int) -> int:
        """How many messages the stream has from a sequence on."""
        assert self.stream is not None
        consumer = await persist(
            PATIENCE,
            self.stream.create_consumer,
            filter_subjects=self.subjects,
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=first,
            ack_policy=AckPolicy.NONE,
            mem_storage=True,
            num_replicas=1,
            inactive_threshold=10.0,
        )
        with contextlib.suppress(JetSparkError):
            await consumer.delete()  # or the server will
        return consumer.cached_info.num_pending
