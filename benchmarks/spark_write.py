"""Writing a DataFrame to a stream with Spark, a batch query of two tasks.

The limit is a bare socket that publishes the same messages, each with an id as our sink gives it.
In the variants, it is the client itself instead, without Spark: `publish_async` is as plain as it
can be, `publish_async_with_ids` sends what the sink sends.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING

from benchmarks import raw
from benchmarks.harness import Benchmark, Job
from benchmarks.js_common import (
    INBOX,
    SUBJECT,
    WARM_UP,
    Publisher,
    check_stored,
    measure_publish,
    new_stream,
)
from benchmarks.spark_common import CORES, figures_of_a_turn, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB_ID = "0" * 32
VARIANTS = ("publish_async", "publish_async_with_ids")
WARM_UP_ROWS = 200_000
PEER_WARM_UP = 50_000
"""Fewer rows, because it takes as long for them."""


def ours(job: Job) -> float | None:
    def measure() -> dict[str, float]:
        with spark_session() as spark:
            write(spark, job, "jetstream", min(WARM_UP_ROWS, job.messages))
            rate = write(spark, job, "jetstream", job.messages)
        return {"": rate} | dict.fromkeys(VARIANTS, rate)

    return figures_of_a_turn(job, "ours", VARIANTS, measure)


def nats_py(job: Job) -> float | None:
    if job.variant:
        return None
    with spark_session() as spark:
        from benchmarks.spark_peer import PeerSource

        spark.dataSource.register(PeerSource)
        write(spark, job, "nats-py", min(PEER_WARM_UP, job.messages))
        return write(spark, job, "nats-py", job.messages)


def write(spark: SparkSession, job: Job, source: str, rows: int) -> float:
    """The rate at which so many rows are written to a new stream."""
    from pyspark.sql import functions as F

    new_stream(job)
    data = F.lit("x" * job.size).cast("binary").alias("data")
    frame = spark.range(0, rows, numPartitions=CORES).select(data)
    writer = frame.write.format(source).options(servers=job.url, subject=SUBJECT)
    start = perf_counter()
    writer.mode("append").save()
    elapsed = perf_counter() - start
    check_stored(job, rows)
    return rows / elapsed


def limit(job: Job) -> float:
    if job.variant:
        return asyncio.run(client(job))
    new_stream(job)
    with raw.connect(job) as sock:
        publisher = Publisher(sock, job, 1)
        frames = [with_id(job, number) for number in range(WARM_UP + job.messages)]
        publisher.frame = len(frames[0])
        publisher.frames = memoryview(b"".join(frames[:WARM_UP]))
        publisher.publish(WARM_UP)
        publisher.frames = memoryview(b"".join(frames[WARM_UP:]))
        start = perf_counter()
        publisher.publish(job.messages)
        elapsed = perf_counter() - start
    check_stored(job, WARM_UP + job.messages)
    return job.messages / elapsed


def with_id(job: Job, number: int) -> bytes:
    """A frame with a message that has an id."""
    header = b"NATS/1.0\r\nNats-Msg-Id: %b.0.%09d\r\n\r\n" % (JOB_ID.encode(), number)
    sizes = (len(header), len(header) + job.size)
    start = b"HPUB %b %b.%09d %d %d\r\n" % (SUBJECT.encode(), INBOX, number, *sizes)
    return b"%b%b%b\r\n" % (start, header, b"x" * job.size)


async def client(job: Job) -> float:
    """The rate of our client, without Spark."""
    import jetspark

    async def publish(count: int) -> None:
        for _ in range(count):
            await js.publish_async(SUBJECT, data)
        await js.publish_async_complete()

    async def publish_with_ids(count: int) -> None:
        for number in range(count):
            await js.publish_async(SUBJECT, data, msg_id=f"{JOB_ID}.{count}.{number}")
        await js.publish_async_complete()

    data = b"x" * job.size
    async with await jetspark.connect(job.url) as nc:
        js = nc.jetstream()
        plain = job.variant == "publish_async"
        return await measure_publish(job, publish if plain else publish_with_ids)


BENCHMARK = Benchmark(
    title="write a DataFrame to a stream with Spark",
    unit="rows/s",
    messages=1_000_000,
    size=128,
    contenders={"ours": ours, "nats-py": nats_py, "limit": limit},
    variants=VARIANTS,
)
