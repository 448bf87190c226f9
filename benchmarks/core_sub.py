"""Receiving what another process publishes as fast as the server takes it.

The load comes in bursts. Not every client can hold back a faster publisher: natsrpy keeps a fixed
number of messages and then drops, and a benchmark that loses messages measures nothing. The clock
of a burst runs from its release to its last message: begun at the first message seen, it would
give away all that a client had read together with that one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any

from benchmarks import raw
from benchmarks.harness import Benchmark, Job

SUBJECT = "bench.sub"
WARM_UP = 1_000
BURST = 50_000
BURST_BYTES = 64 * 1024 * 1024
BURST_TIMEOUT = 60.0


async def ours(job: Job) -> float:
    import jetspark

    async def receive(count: int) -> int:
        received = 0
        async for message in messages:
            received += len(message.data)
            count -= 1
            if not count:
                break
        return received

    nc = await jetspark.connect(job.url)
    messages = aiter(await nc.subscribe(SUBJECT))
    await nc.flush()
    rate = await measure(job, receive)
    await nc.close()
    return rate


async def nats_py(job: Job) -> float:
    import nats

    # Its callback is some four times as fast as its iterator.
    async def on_message(message: Any) -> None:
        tally.received += len(message.data)
        tally.missing -= 1
        if not tally.missing:
            tally.complete.set()

    tally = Tally()
    nc = await nats.connect(job.url)
    await nc.subscribe(SUBJECT, cb=on_message, pending_msgs_limit=0, pending_bytes_limit=0)
    await nc.flush()
    rate = await measure(job, tally.receive)
    await nc.close()
    return rate


async def natsrpy(job: Job) -> float:
    from natsrpy import Nats

    # Its callback is some two times as fast as its iterator.
    async def on_message(message: Any) -> None:
        tally.received += len(message.payload)
        tally.missing -= 1
        if not tally.missing:
            tally.complete.set()

    tally = Tally()
    nc = Nats([job.url])
    await nc.startup()
    async with nc.subscribe(SUBJECT, callback=on_message):
        await nc.flush()
        rate = await measure(job, tally.receive)
    await nc.shutdown()
    return rate


def limit(job: Job) -> float:
    def burst(count: int) -> float:
        start = perf_counter()
        release(count)
        raw.receive_bytes(sock, count * message, buffer)
        elapsed = perf_counter() - start
        raw.flush(sock)  # drops the end of the burst, should a PING have been in it
        return elapsed

    subject = SUBJECT.encode()
    message = raw.msg_size(subject, job.size)
    buffer = bytearray(raw.READ_BUFFER)
    with raw.connect(job) as sock, raw.load(job, subject) as release:
        sock.sendall(b"SUB %b 1\r\n" % subject)
        raw.flush(sock)
        burst(min(WARM_UP, bursts(job)[0]))
        return job.messages / sum(map(burst, bursts(job)))


class Tally:
    """What a callback has seen of a burst."""

    def __init__(self) -> None:
        self.received = 0
        self.missing = 0
        self.complete = asyncio.Event()

    async def receive(self, count: int) -> int:
        """Wait for `count` messages and return their bytes."""
        self.received, self.missing = 0, count
        self.complete.clear()
        await self.complete.wait()
        return self.received


async def measure(job: Job, receive: Callable[[int], Awaitable[int]]) -> float:
    """The rate at which `receive` gets the load, of which not one message may be missing."""

    async def burst(count: int) -> float:
        start = perf_counter()
        release(count)
        try:
            async with asyncio.timeout(BURST_TIMEOUT):
                received = await receive(count)
        except TimeoutError as error:
            raise RuntimeError(f"messages of a burst of {count} were lost") from error
        elapsed = perf_counter() - start
        if received != count * job.size:
            raise RuntimeError(f"{count} messages of {job.size} bytes came as {received} bytes")
        return elapsed

    with raw.load(job, SUBJECT.encode()) as release:
        await burst(min(WARM_UP, bursts(job)[0]))
        return job.messages / sum([await burst(count) for count in bursts(job)])


def bursts(job: Job) -> list[int]:
    largest = min(BURST, max(BURST_BYTES // max(job.size, 1), 1))
    whole, rest = divmod(job.messages, largest)
    return [largest] * whole + ([rest] if rest else [])


BENCHMARK = Benchmark(
    title="receive on one subscription",
    unit="messages/s",
    messages=200_000,
    size=128,
    contenders={"ours": ours, "nats-py": nats_py, "natsrpy": natsrpy, "limit": limit},
)
