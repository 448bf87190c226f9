"""Archives a stream: range after range of its sequences becomes files, to the end and onwards."""

from __future__ import annotations

import dataclasses
import pickle
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jetspark.errors import (
    ArchiveError,
    CheckpointError,
    DataLossError,
    InvalidOptionError,
    SparkJobError,
    StreamNotFoundError,
)
from jetspark.jetstream import RetentionPolicy, Stream, StreamInfo
from jetspark.spark.connection import Access, persist, run
from jetspark.spark.positions import last_before
from jetspark.spark.range_reader import ReadPlan, leader_info
from jetspark.spark.ranges import Range, divide

from .archive_directory import TEMPORARY, ArchiveDirectory, open_archive
from .archive_write import ArchiveTask, WrittenPart, run_tasks
from .failure import cause_of
from .manifest import ArchivedRange, Head

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["ArchiveOptions", "Archived", "Place", "archive", "open_source"]

PART_BYTES = 256 * 1024 * 1024  # of messages for a task
PART_SEQUENCES = 250_000
FEWEST_SEQUENCES = 1000
BATCH_BYTES = 32 * 1024 * 1024  # of messages that are in memory at a time, twice or thrice
BATCH_ROWS = 10_000
FEWEST_ROWS = 10
BY_TOKEN = 1
STALL_TIMEOUT = 60.0


Place = int | datetime
"""A sequence, or the first message at or after a moment."""


@dataclass(frozen=True, kw_only=True)
class ArchiveOptions:
    """What is archived, and where."""

    access: Access
    stream: str
    directory: Path
    subjects: tuple[str, ...] = ()
    by_token: int | None = None
    """None: as the archive has it already, or the first one."""
    start: Place | None = None
    until: Place | None = None
    allow_loss: bool = False
    tasks: int = 4
    """How many read at a time."""
    interval: float | None = None
    """Seconds between two looks at the stream; None: once, what is there now."""
    stop: threading.Event = field(default_factory=threading.Event)
    """Set to end after the range that is being written."""


@dataclass(frozen=True)
class Archived:
    """How far an archive is."""

    first: int
    """The first sequence that was archived in this run."""
    last: int
    """The last sequence that is archived."""
    rows: int = 0
    bytes: int = 0
    files: int = 0
    lost: int = 0
    """All these, in this run."""
    lag: int = 0
    """Sequences that the stream has and the archive has not."""


def archive(options: ArchiveOptions, spark: Callable[[], SparkSession]) -> Iterator[Archived]:
    """Archive a stream; gives how far it is after each range, and in the end.

    `spark` is called when there is something to do.
    """
    with open_archive(options.directory) as directory:
        try:
            yield from _Archiver(options, directory, spark).run()
        finally:
            directory.clean()


async def open_source(access: Access, name: str) -> Stream:
    """The stream to archive."""
    js = await persist(STALL_TIMEOUT, access.jetstream)
    try:
        return await persist(STALL_TIMEOUT, js.get_stream, name)
    except StreamNotFoundError as error:
        raise StreamNotFoundError(
            f"there is no stream {name!r} on {access.servers}; correct the name",
            code=error.code,
            err_code=error.err_code,
        ) from None


def _run_job(spark: SparkSession, tasks: int, work: Callable[..., Any]) -> list[Any]:
    """What so many tasks return."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        rows = spark.range(0, tasks, 1, tasks).mapInArrow(work, "result binary").collect()
    except (PySparkException, Py4JError) as error:
        cause, retryable = cause_of(str(error))
        raise SparkJobError(f"Spark failed: {cause}", retryable=retryable) from error
    return [pickle.loads(row.result) for row in rows]


class _Archiver:
    def __init__(
        self,
        options: ArchiveOptions,
        directory: ArchiveDirectory,
        spark: Callable[[], SparkSession],
    ) -> None:
        self._options = options
        self._directory = directory
        self._manifest = directory.manifest
        self._spark = spark
        self._stream = run(open_source(options.access, options.stream))
        self._info = self._look()
        self._head = self._begin()
        self._done = Archived(self._manifest.next, self._manifest.next - 1)
        self._until = self._place(options.until)

    # -- the stream -----------------------------------------------------------------------------

    def _look(self) -> StreamInfo:
        return run(persist(STALL_TIMEOUT, leader_info, self._stream))

    def _place(self, place: Place | None) -> int | None:
        """The sequence that a place means."""
        if not isinstance(place, datetime):
            return place
        return run(last_before(self._stream, place)) + 1

    def _begin(self) -> Head:
        """The head of the archive, which must be that of this stream."""
        options, head, info = self._options, self._manifest.head, self._info
        if head is None:
            first = self._place(options.start)
            head = Head(
                stream=options.stream,
                created=info.created or datetime.now(UTC),
                captured=tuple(info.config.subjects or ()),
                subjects=options.subjects,
                by_token=BY_TOKEN if options.by_token is None else options.by_token,
                first=max(info.state.first_seq, 1) if first is None else first,
            )
            self._manifest.begin(head)
            return head
        where = f"the archive in {self._directory.path}"
        if head.stream != options.stream:
            raise ArchiveError(f"{where} is that of stream {head.stream!r}; use another directory")
        if head.created != info.created:
            raise ArchiveError(
                f"stream {options.stream!r} was deleted and created again at {info.created}, and "
                f"{where} is that of the one before; use another directory"
            )
        if options.start is not None:
            raise InvalidOptionError(
                f"{where} begins with sequence {head.first} and goes on with "
                f"{self._manifest.next}; leave --from out, or use another directory"
            )
        if options.subjects and set(options.subjects) != set(head.subjects):
            raise InvalidOptionError(
                f"{where} holds the subjects {', '.join(head.subjects) or 'of the whole stream'}; "
                "leave --subjects out, or use another directory"
            )
        if options.by_token not in (None, head.by_token):
            raise InvalidOptionError(
                f"{where} is divided by token {head.by_token}; leave --by-token out, or use "
                "another directory"
            )
        return head

    # -- ranges ---------------------------------------------------------------------------------

    def run(self) -> Iterator[Archived]:
        """Archive until the end, or until it is stopped."""
        options = self._options
        goal = self._end()
        while True:
            while self._manifest.next <= goal and not options.stop.is_set():
                self._archive_range(goal)
                yield self._progress()
                if options.interval is not None:
                    goal = self._end()
            if options.interval is None or options.stop.wait(options.interval):
                break
            self._info = self._look()
            goal = self._end()
            yield self._progress()
        yield self._progress()

    def _end(self) -> int:
        """The last sequence to archive, as of now."""
        last = self._info.state.last_seq
        if last < self._manifest.next - 1:
            raise ArchiveError(
                f"stream {self._options.stream!r} ends with sequence {last}, and the archive in "
                f"{self._directory.path} has it up to {self._manifest.next - 1}: the stream has "
                "lost messages, or is another one; use another directory"
            )
        if isinstance(self._options.until, int):
            return min(last, self._options.until)
        return last if self._until is None else min(last, self._until - 1)

    def _archive_range(self, goal: int) -> None:
        first = self._manifest.next
        gone = self._check_begin(first, goal)
        state = self._info.state
        average = max(state.bytes // max(state.messages, 1), 1)
        rows = min(max(BATCH_BYTES // average, FEWEST_ROWS), BATCH_ROWS)
        portion = min(max(PART_BYTES // average, FEWEST_SEQUENCES), PART_SEQUENCES)
        last = min(goal, first + gone + portion * self._options.tasks - 1)
        whole = Range(self._options.stream, first + gone, last)
        written = self._write(tuple(divide([whole], max_records=portion)), rows)
        files = sorted(
            (file for part in written for file in part.files),
            key=lambda file: (file.first, file.path),
        )
        part = ArchivedRange(
            first=first,
            last=last,
            rows=sum(file.rows for file in files),
            bytes=sum(file.bytes for file in files),
            lost=gone + sum(part.lost for part in written),
            archived=datetime.now(UTC),
            files=tuple(files),
        )
        self._directory.add(part)
        self._info = self._look()
        self._done = dataclasses.replace(
            self._done,
            rows=self._done.rows + part.rows,
            bytes=self._done.bytes + part.bytes,
            files=self._done.files + len(part.files),
            lost=self._done.lost + part.lost,
        )

    def _progress(self) -> Archived:
        last = self._manifest.next - 1
        lag = max(self._info.state.last_seq - last, 0)
        return dataclasses.replace(self._done, last=last, lag=lag)

    def _counts_losses(self) -> bool:
        """Whether what the stream no longer has was lost, and not done by its consumers."""
        return self._info.config.retention == RetentionPolicy.LIMITS

    def _check_begin(self, first: int, goal: int) -> int:
        """How many sequences from the first one on are gone; raises if that is not allowed."""
        gone = min(self._info.state.first_seq, goal + 1) - first
        if gone <= 0 or not self._counts_losses():
            return 0
        if not self._options.allow_loss:
            raise DataLossError(
                f"stream {self._options.stream!r}: up to {gone} messages from sequence {first} on "
                "were removed before they were archived; archive more often or keep messages "
                "longer. --allow-loss goes on without them, and notes it"
            )
        return gone

    def _write(self, parts: tuple[Range, ...], rows: int) -> list[WrittenPart]:
        """Have the tasks write their parts, which they read so many rows at a time."""
        if not parts:
            return []
        queue = not self._counts_losses()
        task = ArchiveTask(
            access=self._options.access,
            plan=ReadPlan(
                subjects=self._head.subjects,
                rows=rows,
                fail_on_data_loss=not self._options.allow_loss,
                stall_timeout=STALL_TIMEOUT,
                asking=queue,
                count_losses=not queue,
            ),
            created=self._head.created,
            directory=str(self._directory.path.absolute()),
            temporary=f"{TEMPORARY}/{uuid.uuid4().hex}",
            by_token=self._head.by_token,
            parts=parts,
        )

        def work(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return run_tasks(task, numbers)

        results = _run_job(self._spark(), len(parts), work)
        for result in results:
            if isinstance(result, DataLossError):
                reason = str(result).partition(". Read more")[0]
                raise DataLossError(f"{reason}. --allow-loss goes on without them, and notes it")
            if isinstance(result, CheckpointError):
                raise ArchiveError(
                    f"stream {self._options.stream!r} was deleted and created again meanwhile; use "
                    "another directory"
                )
            if isinstance(result, Exception):
                raise result
        return results
