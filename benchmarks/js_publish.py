"""Publishing to a stream, each message after the ack of the one before."""

from __future__ import annotations

from time import perf_counter

from benchmarks import raw
from benchmarks.harness import Benchmark, Job
from benchmarks.js_common import (
    SUBJECT,
    WARM_UP,
    Publisher,
    check_stored,
    measure_publish,
    new_stream,
)


async def ours(job: Job) -> float:
    import jetspark

    async def publish(count: int) -> None:
        for _ in range(count):
            await js.publish(SUBJECT, data)

    data = b"x" * job.size
    async with await jetspark.connect(job.url) as nc:
        js = nc.jetstream()
        return await measure_publish(job, publish)


async def nats_py(job: Job) -> float:
    import nats

    # To await the ack of its asynchronous publish is a little faster than its `publish`.
    async def publish(count: int) -> None:
        for _ in range(count):
            await (await js.publish_async(SUBJECT, data))

    data = b"x" * job.size
    nc = await nats.connect(job.url, skip_subject_validation=True)
    js = nc.jetstream()
    rate = await measure_publish(job, publish)
    await nc.close()
    return rate


async def natsrpy(job: Job) -> float:
    from natsrpy import Nats

    async def publish(count: int) -> None:
        for _ in range(count):
            await js.publish(SUBJECT, data, wait=True)

    data = b"x" * job.size
    nc = Nats([job.url])
    await nc.startup()
    js = await nc.jetstream()
    rate = await measure_publish(job, publish)
    await nc.shutdown()
    return rate


def limit(job: Job) -> float:
    new_stream(job)
    with raw.connect(job) as sock:
        publisher = Publisher(sock, job, max(WARM_UP, job.messages))
        publisher.publish(WARM_UP, window=1)
        start = perf_counter()
        publisher.publish(job.messages, window=1)
        elapsed = perf_counter() - start
    check_stored(job, WARM_UP + job.messages)
    return job.messages / elapsed


BENCHMARK = Benchmark(
    title="publish to a stream, one at a time with its ack",
    unit="messages/s",
    messages=10_000,
    size=128,
    contenders={"ours": ours, "nats-py": nats_py, "natsrpy": natsrpy, "limit": limit},
)
