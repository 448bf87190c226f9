"""Fetching a stream in batches of 1,000, one after the other, from a consumer without acks."""

from __future__ import annotations

from benchmarks.harness import Benchmark, Job
from benchmarks.js_common import (
    STREAM,
    TIMEOUT,
    fill_stream,
    measure_read,
    pull_consumer,
    read_limit,
)

BATCH = 1_000


async def ours(job: Job) -> float:
    import jetspark

    async def read(name: str, count: int) -> int:
        received = 0
        consumer = await pull_consumer(js, name)
        while count > 0:
            messages = await consumer.fetch(max_messages=min(BATCH, count), timeout=TIMEOUT)
            for message in messages:
                received += len(message.data)
            count -= len(messages)
        return received

    async with await jetspark.connect(job.url) as nc:
        js = nc.jetstream()
        return await measure_read(job, read)


async def nats_py(job: Job) -> float:
    import nats

    async def read(name: str, count: int) -> int:
        received = 0
        subscription = await js.pull_subscribe_bind(
            name, STREAM, pending_msgs_limit=0, pending_bytes_limit=0
        )
        while count > 0:
            messages = await subscription.fetch(min(BATCH, count), timeout=TIMEOUT)
            for message in messages:
                received += len(message.data)
            count -= len(messages)
        return received

    nc = await nats.connect(job.url)
    js = nc.jetstream()
    rate = await measure_read(job, read)
    await nc.close()
    return rate


async def natsrpy(job: Job) -> float:
    from natsrpy import Nats

    async def read(name: str, count: int) -> int:
        received = 0
        consumer = await (await js.streams.get(STREAM)).consumers.get_pull(name)
        while count > 0:
            messages = await consumer.fetch(max_messages=min(BATCH, count), timeout=TIMEOUT)
            for message in messages:
                received += len(message.payload)
            count -= len(messages)
        return received

    nc = Nats([job.url])
    await nc.startup()
    js = await nc.jetstream()
    rate = await measure_read(job, read)
    await nc.shutdown()
    return rate


def limit(job: Job) -> float:
    return read_limit(job, batch=BATCH, pulls=1)


BENCHMARK = Benchmark(
    title="fetch batches of 1,000 from a stream",
    unit="messages/s",
    messages=100_000,
    size=128,
    prepare=fill_stream,
    contenders={"ours": ours, "nats-py": nats_py, "natsrpy": natsrpy, "limit": limit},
)
