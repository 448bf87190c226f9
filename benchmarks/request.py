"""Requests and their replies: one after the other, and (variant) many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter

from benchmarks import raw
from benchmarks.harness import Benchmark, Job

SUBJECT = "bench.echo"
INBOX = b"_INBOX.%b.%b" % (b"0" * 22, b"0" * 8)
"""As long as the reply subject of a client."""
WARM_UP = 500
TIMEOUT = 10.0


async def ours(job: Job) -> float:
    import jetspark

    async def request() -> int:
        return len((await nc.request(SUBJECT, data, timeout=TIMEOUT)).data)

    data = b"x" * job.size
    nc = await jetspark.connect(job.url)
    rate = await measure(job, request)
    await nc.close()
    return rate


async def nats_py(job: Job) -> float:
    import nats

    async def request() -> int:
        return len((await nc.request(SUBJECT, data, timeout=TIMEOUT)).data)

    data = b"x" * job.size
    # Its fastest setting, without a check that ours always makes.
    nc = await nats.connect(job.url, skip_subject_validation=True)
    rate = await measure(job, request)
    await nc.close()
    return rate


async def natsrpy(job: Job) -> float:
    from natsrpy import Nats

    async def request() -> int:
        return len((await nc.request(SUBJECT, data)).payload)

    data = b"x" * job.size
    nc = Nats([job.url], request_timeout=TIMEOUT)
    await nc.startup()
    rate = await measure(job, request)
    await nc.shutdown()
    return rate


def limit(job: Job) -> float:
    def exchange(count: int) -> None:
        """Keep the window full until `count` replies, counted by their bytes, are there."""
        to_send = count - window
        sock.sendall(frame * window)
        missing, partial = count, 0
        while missing > 0:
            replies, partial = divmod(partial + sock.recv_into(buffer), reply)
            missing -= replies
            sock.sendall(frame * min(replies, to_send))
            to_send -= min(replies, to_send)

    window = in_flight(job)
    frame = raw.pub_frame(SUBJECT.encode(), job.size, INBOX)
    reply = raw.msg_size(INBOX, job.size)
    buffer = bytearray(raw.READ_BUFFER)
    with raw.responder(job, SUBJECT.encode()), raw.connect(job) as sock:
        sock.sendall(b"SUB %b 1\r\n" % INBOX)
        raw.flush(sock)
        exchange(max(WARM_UP, window))
        start = perf_counter()
        exchange(job.messages)
        return job.messages / (perf_counter() - start)


async def measure(job: Job, request: Callable[[], Awaitable[int]]) -> float:
    """The rate of `request`, which returns how many bytes came back."""

    async def work(count: int) -> None:
        for _ in range(count):
            if await request() != job.size:
                raise RuntimeError("a reply has not the size of its request")

    async def work_together(count: int) -> None:
        each, rest = divmod(count, workers)
        async with asyncio.TaskGroup() as group:
            for index in range(workers):
                group.create_task(work(each + (index < rest)))

    workers = in_flight(job)
    with raw.responder(job, SUBJECT.encode()):
        await work_together(WARM_UP)
        start = perf_counter()
        await work_together(job.messages)
        return job.messages / (perf_counter() - start)


def in_flight(job: Job) -> int:
    return min(job.in_flight, job.messages) if job.variant == "concurrent" else 1


BENCHMARK = Benchmark(
    title="request and reply, one at a time; concurrent: --in-flight at a time",
    unit="requests/s",
    messages=20_000,
    size=128,
    contenders={"ours": ours, "nats-py": nats_py, "natsrpy": natsrpy, "limit": limit},
    variants=("concurrent",),
)
