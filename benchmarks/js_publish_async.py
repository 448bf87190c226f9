"""Publishing to a stream with acks in flight, until all of them are there.

The variant fast_ingest is the same job with the batches in which the server takes a stream of
messages and acknowledges many at a time. No peer has them.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import socket
from time import perf_counter

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

NATS_PY_PENDING = 500
"""Acks in flight of nats-py: from 500 to 4,000 it makes little difference, and `publish` with
`gather` is slower."""
NATSRPY_CONCURRENT = 100
"""Publishes of natsrpy awaited together: more of them, workers or a sliding window were slower."""
FLOW = 500
OUTSTANDING = 3
"""A bare socket asks for an ack each FLOW messages, which is as many as the server allows, and
stops when OUTSTANDING acks are missing, the most that a client may let."""


async def ours(job: Job) -> float:
    import jetspark

    async def publish(count: int) -> None:
        for _ in range(count):
            await js.publish_async(SUBJECT, data)
        await js.publish_async_complete()

    async def ingest(count: int) -> None:
        async with js.fast_ingest() as batch:
            for _ in range(count):
                await batch.add(SUBJECT, data)

    data = b"x" * job.size
    async with await jetspark.connect(job.url) as nc:
        js = nc.jetstream()
        return await measure_publish(job, ingest if job.variant else publish)


async def nats_py(job: Job) -> float | None:
    import nats

    async def publish(count: int) -> None:
        for _ in range(count):
            await js.publish_async(SUBJECT, data)
        await js.publish_async_completed()

    if job.variant:
        return None
    data = b"x" * job.size
    nc = await nats.connect(job.url, skip_subject_validation=True)
    js = nc.jetstream(publish_async_max_pending=NATS_PY_PENDING)
    rate = await measure_publish(job, publish)
    await nc.close()
    return rate


async def natsrpy(job: Job) -> float | None:
    from natsrpy import Nats

    async def publish(count: int) -> None:
        for first in range(0, count, NATSRPY_CONCURRENT):
            batch = min(NATSRPY_CONCURRENT, count - first)
            await asyncio.gather(*[js.publish(SUBJECT, data, wait=True) for _ in range(batch)])

    if job.variant:
        return None
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
        if job.variant:
            sock.sendall(b"SUB %b.> 1\r\n" % INBOX)
            ingest(sock, job, WARM_UP)
            elapsed = ingest(sock, job, job.messages)
        else:
            publisher = Publisher(sock, job, max(WARM_UP, job.messages))
            publisher.publish(WARM_UP)
            start = perf_counter()
            publisher.publish(job.messages)
            elapsed = perf_counter() - start
    check_stored(job, WARM_UP + job.messages)
    return job.messages / elapsed


def ingest(sock: socket.socket, job: Job, count: int) -> float:
    """Send a fast-ingest batch that was written beforehand; returns the seconds."""
    inbox = b"%b.%08d" % (INBOX, count)
    operations = [0] + [1] * (count - 1)  # start and append
    operations[-1] = 2  # commit
    frames = [
        raw.pub_frame(SUBJECT.encode(), job.size, b"%b.%d.fail.%d.%d.$FI" % (inbox, FLOW, *item))
        for item in enumerate(operations, 1)
    ]
    ends = [0, *itertools.accumulate(map(len, frames))]
    data = memoryview(b"".join(frames))
    ack = re.compile(rb'"seq":(\d+),"msgs":(\d+)}')
    start = perf_counter()
    sent, allowed, received = 0, 1, b""
    while b'"count":%d' % count not in received:
        until = min(allowed, count)
        sock.sendall(data[ends[sent] : ends[until]])
        sent = max(sent, until)
        received = received[-256:] + raw.receive(sock)
        for sequence, messages in ack.findall(received)[-1:]:
            allowed = max(allowed, int(sequence) + OUTSTANDING * int(messages))
    return perf_counter() - start


BENCHMARK = Benchmark(
    title="publish to a stream, many at a time, until all acks are there",
    unit="messages/s",
    messages=100_000,
    size=128,
    contenders={"ours": ours, "nats-py": nats_py, "natsrpy": natsrpy, "limit": limit},
    variants=("fast_ingest",),
)
