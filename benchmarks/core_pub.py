"""Publishing as fast as possible, until the server has taken everything."""

from __future__ import annotations

import asyncio
from time import perf_counter

from benchmarks import raw
from benchmarks.harness import Benchmark, Job

SUBJECT = "bench.pub"
WARM_UP = 1_000
CONCURRENT = 100
"""Publishes of natsrpy awaited together: each is a round through its own thread, and this many at
a time were the fastest; more, or one by one, were slower."""


async def ours(job: Job) -> float:
    import jetspark

    data = b"x" * job.size
    nc = await jetspark.connect(job.url)
    for _ in range(WARM_UP):
        await nc.publish(SUBJECT, data)
    await nc.flush()
    start = perf_counter()
    for _ in range(job.messages):
        await nc.publish(SUBJECT, data)
    await nc.flush()
    elapsed = perf_counter() - start
    await nc.close()
    return job.messages / elapsed


async def nats_py(job: Job) -> float:
    import nats

    data = b"x" * job.size
    # Its fastest setting, without a check that ours always makes.
    nc = await nats.connect(job.url, skip_subject_validation=True)
    for _ in range(WARM_UP):
        await nc.publish(SUBJECT, data)
    await nc.flush()
    start = perf_counter()
    for _ in range(job.messages):
        await nc.publish(SUBJECT, data)
    await nc.flush()
    elapsed = perf_counter() - start
    await nc.close()
    return job.messages / elapsed


async def natsrpy(job: Job) -> float:
    from natsrpy import Nats
    from natsrpy.exceptions import NatsrpySessionError

    async def publish(count: int) -> None:
        for first in range(0, count, CONCURRENT):
            batch = min(CONCURRENT, count - first)
            await asyncio.gather(*[nc.publish(SUBJECT, data) for _ in range(batch)])
        # Its flush ends at the socket. The answer "no responders" comes from the server, and
        # only after it has taken what was sent before.
        await nc.flush()
        try:
            await nc.request("bench.nobody", b"")
        except NatsrpySessionError as error:
            if "no responders" not in str(error):
                raise

    data = b"x" * job.size
    nc = Nats([job.url])
    await nc.startup()
    await publish(WARM_UP)
    start = perf_counter()
    await publish(job.messages)
    elapsed = perf_counter() - start
    await nc.shutdown()
    return job.messages / elapsed


def limit(job: Job) -> float:
    frame = raw.pub_frame(SUBJECT.encode(), job.size)
    with raw.connect(job) as sock:
        raw.send_frames(sock, frame, WARM_UP)
        raw.flush(sock)
        start = perf_counter()
        raw.send_frames(sock, frame, job.messages)
        raw.flush(sock)
        return job.messages / (perf_counter() - start)


BENCHMARK = Benchmark(
    title="publish, then flush with a round trip",
    unit="messages/s",
    messages=200_000,
    size=128,
    contenders={"ours": ours, "nats-py": nats_py, "natsrpy": natsrpy, "limit": limit},
)
