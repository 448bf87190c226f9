"""Reading a stream with Spark, a batch query into noop.

Ours is measured as it comes, which divides a million messages into four parts; the variant
one_partition has one. The extra figures `growth` are the rates for the messages of the job and for
ten times as many, and the peaks of the memory of the driver (a JVM of one gigabyte) and of its
largest Python worker in both cases.
"""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING

from benchmarks import harness
from benchmarks.harness import Benchmark, Job
from benchmarks.js_common import FIRST_SEQUENCE, STREAM, fill_stream, read_limit
from benchmarks.spark_common import (
    CORES,
    figures_of_a_turn,
    spark_peaks,
    spark_session,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TIMES = 10
VARIANTS = ("one_partition",)
PEER_WARM_UP = 50_000
"""Fewer rows, because it takes as long for them."""


def ours(job: Job) -> float | None:
    def measure() -> dict[str, float]:
        with spark_session() as spark:
            check(our_frame(spark, job), job)
            rate = timed(our_frame(spark, job), job)
            alone = timed(our_frame(spark, job, minPartitions="1"), job)
        return {"": rate, "one_partition": alone}

    return figures_of_a_turn(job, "ours", VARIANTS, measure)


def our_frame(spark: SparkSession, job: Job, rows: int | None = None, **options: str) -> DataFrame:
    last = FIRST_SEQUENCE + (rows or job.messages) - 1
    reader = spark.read.format("jetstream").options(servers=job.url, stream=STREAM, **options)
    return reader.option("endingOffsets", last).load()


def nats_py(job: Job) -> float | None:
    def frame(rows: int) -> DataFrame:
        options = {"servers": job.url, "stream": STREAM, "partitions": str(CORES)}
        reader = spark.read.format("nats-py").options(**options)
        reader = reader.option("first", FIRST_SEQUENCE)
        return reader.option("last", FIRST_SEQUENCE + rows - 1).load()

    if job.variant:
        return None
    with spark_session() as spark:
        from benchmarks.spark_peer import PeerSource

        spark.dataSource.register(PeerSource)
        check(frame(min(PEER_WARM_UP, job.messages)), job)
        return timed(frame(job.messages), job)


def limit(job: Job) -> float | None:
    return None if job.variant else read_limit(job)


def timed(frame: DataFrame, job: Job) -> float:
    """The rate at which all rows are read."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    # Counted on the way, which costs a few per cent.
    seen = Observation()
    frame = frame.observe(seen, F.count("data").alias("rows"))
    start = perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    elapsed = perf_counter() - start
    if seen.get["rows"] != job.messages:
        raise RuntimeError(f"of {job.messages} messages, {seen.get['rows']} came as rows")
    return job.messages / elapsed


def check(frame: DataFrame, job: Job) -> None:
    """Warm up, and see that rows are whole and none comes twice."""
    row = frame.selectExpr(
        "count(*) AS rows", "min(sequence) AS first", "max(sequence) AS last",
        "sum(length(data)) AS bytes",
    ).first()  # fmt: skip
    assert row is not None
    if row.rows != row.last - row.first + 1 or row.bytes != row.rows * job.size:
        raise RuntimeError(f"the rows are not those of the stream: {row}")


def growth(job: Job) -> dict[str, int]:
    fill_stream(replace(job, messages=TIMES * job.messages))
    return harness.in_fresh_process(rates_and_peaks, job)


def rates_and_peaks(job: Job) -> dict[str, int]:
    """Read so many rows, then ten times as many, in one session."""
    figures = {}
    with spark_session() as spark:
        check(our_frame(spark, job), job)
        for times, suffix in ((1, ""), (TIMES, f"_{TIMES}x")):
            larger = replace(job, messages=times * job.messages)
            figures[f"rows_per_second{suffix}"] = round(timed(our_frame(spark, larger), larger))
            for part, peak in spark_peaks().items():
                figures[f"{part}_peak_bytes{suffix}"] = peak
    return figures


BENCHMARK = Benchmark(
    title="read a stream with Spark into noop",
    unit="rows/s",
    messages=1_000_000,
    size=128,
    prepare=fill_stream,
    contenders={"ours": ours, "nats-py": nats_py, "limit": limit},
    variants=VARIANTS,
    extras={"growth": growth},
)
