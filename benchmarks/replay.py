"""Replaying an archive into a stream with `jetspark replay`.

The peer spark_write is our Spark sink, writing as many rows of the same size to the same stream
with two tasks. A replay has one writer, to keep the order.
"""

from __future__ import annotations

import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from benchmarks import spark_write
from benchmarks.archive import access
from benchmarks.harness import Benchmark, Job
from benchmarks.js_common import STREAM, SUBJECT, check_stored, new_stream
from benchmarks.spark_common import spark_session

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 10_000
PART = 250_000
WARM_UP_ROWS = 100_000


def ours(job: Job) -> float:
    folder = Path(tempfile.mkdtemp())
    try:
        rate(job, folder / "warm", min(WARM_UP_ROWS, job.messages))
        return rate(job, folder / "archive", job.messages)
    finally:
        shutil.rmtree(folder)


def rate(job: Job, path: Path, messages: int) -> float:
    """The rate at which an archive of so many messages is replayed into a new stream."""
    from jetspark.pipeline.replay import ReplayOptions, replay

    make_archive(job, path, messages)
    new_stream(job)
    start = perf_counter()
    *_, done = replay(ReplayOptions(access=access(job), directory=path, stream=STREAM))
    elapsed = perf_counter() - start
    if done.published != messages:
        raise RuntimeError(f"of {messages} messages, {done.published} were published")
    check_stored(job, messages)
    return messages / elapsed


def make_archive(job: Job, path: Path, messages: int) -> None:
    """Write an archive as `jetspark archive` does, without a stream to take it from."""
    from jetspark.pipeline.archive_directory import open_archive
    from jetspark.pipeline.archive_write import PartWriter
    from jetspark.pipeline.manifest import ArchivedRange, Head
    from jetspark.spark.ranges import Range, divide

    now = datetime.now(UTC)
    with open_archive(path) as directory:
        directory.manifest.begin(Head(stream="ORIGIN", created=now, by_token=1, first=1))
        for part in divide([Range("ORIGIN", 1, messages)], max_records=PART):
            with PartWriter(path, "_tmp/1", part, 1) as writer:
                for first in range(part.first, part.last + 1, ROWS):
                    writer.add(batch(job, first, min(ROWS, part.last + 1 - first), now))
                files = tuple(writer.finish())
            directory.add(
                ArchivedRange(
                    first=part.first,
                    last=part.last,
                    rows=part.size,
                    bytes=sum(file.bytes for file in files),
                    archived=now,
                    files=files,
                )
            )


def batch(job: Job, first: int, count: int, now: datetime) -> pa.RecordBatch:
    import pyarrow as pa

    from jetspark.jetstream.consumer.arrow import SCHEMA

    columns: list[Any] = [
        pa.repeat("ORIGIN", count),
        pa.repeat(SUBJECT, count),
        pa.array(range(first, first + count), pa.int64()),
        pa.repeat(pa.scalar(now, SCHEMA.field("timestamp").type), count),
        pa.nulls(count, SCHEMA.field("headers").type),
        pa.repeat(pa.scalar(b"x" * job.size, pa.binary()), count),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def write(job: Job) -> float:
    with spark_session() as spark:
        spark_write.write(spark, job, "jetstream", min(spark_write.WARM_UP_ROWS, job.messages))
        return spark_write.write(spark, job, "jetstream", job.messages)


BENCHMARK = Benchmark(
    title="replay an archive into a stream",
    unit="messages/s",
    messages=1_000_000,
    size=128,
    contenders={"ours": ours, "spark_write": write},
)
