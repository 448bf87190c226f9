"""Archiving a stream to Parquet files with `jetspark archive`, without starting Spark.

The peer spark_read is our Spark source, reading the same stream into noop: what of its rate is left
when files are written, checked and noted. The variant verify is the rate of `--verify`.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from benchmarks import spark_read
from benchmarks.harness import Benchmark, Job
from benchmarks.js_common import FIRST_SEQUENCE, STREAM, fill_stream
from benchmarks.spark_common import figures_of_a_turn, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jetspark.spark.connection import Access

VARIANTS = ("verify",)
WARM_UP_ROWS = 200_000


def ours(job: Job) -> float | None:
    def measure() -> dict[str, float]:
        with spark_session() as spark, tempfile.TemporaryDirectory() as folder:
            write(spark, job, Path(folder) / "warm", min(WARM_UP_ROWS, job.messages))
            rate = write(spark, job, Path(folder) / "archive", job.messages)
            return {"": rate, "verify": verify(job, Path(folder) / "archive")}

    return figures_of_a_turn(job, "ours", VARIANTS, measure)


def write(spark: SparkSession, job: Job, path: Path, rows: int) -> float:
    """The rate at which so many messages are archived."""
    from jetspark.pipeline.archive import ArchiveOptions, archive

    options = ArchiveOptions(
        access=access(job), stream=STREAM, directory=path, until=FIRST_SEQUENCE + rows - 1
    )
    start = perf_counter()
    *_, done = archive(options, lambda: spark)
    elapsed = perf_counter() - start
    if done.rows != rows:
        raise RuntimeError(f"of {rows} messages, {done.rows} are archived")
    if rows != job.messages:
        shutil.rmtree(path)
    return rows / elapsed


def verify(job: Job, path: Path) -> float:
    from jetspark.pipeline.archive_verify import verify

    start = perf_counter()
    found = verify(path, access(job), STREAM, lambda done, total: None)
    elapsed = perf_counter() - start
    if found.differences or found.compared != job.messages:
        raise RuntimeError(f"the archive is not as it should be: {found}")
    return job.messages / elapsed


def access(job: Job) -> Access:
    from jetspark.spark.connection import CONNECTION_OPTIONS, Access
    from jetspark.spark.options import parse

    return Access.of(parse(CONNECTION_OPTIONS, {"servers": job.url}, "benchmark"))


def read(job: Job) -> float | None:
    if job.variant:
        return None
    with spark_session() as spark:
        spark_read.check(spark_read.our_frame(spark, job), job)
        return spark_read.timed(spark_read.our_frame(spark, job), job)


BENCHMARK = Benchmark(
    title="archive a stream to Parquet",
    unit="messages/s",
    messages=1_000_000,
    size=1024,
    prepare=fill_stream,
    contenders={"ours": ours, "spark_read": read},
    variants=VARIANTS,
)
