"""Fetching a stream in batches of 1,000 through the blocking API, one after the other.

The peers have no blocking API: theirs are the figures of `js_fetch`. What counts is the async API:
the extra "async" has its rates, and what the blocking one reaches of them in percent, for batches
(`fetch`), for an iteration (`messages`) and for an iteration with acknowledgements (`acks`).
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING

from benchmarks import js_fetch
from benchmarks.harness import Benchmark, Job, in_fresh_process
from benchmarks.js_common import (
    ON_ORDER,
    STREAM,
    TIMEOUT,
    WARM_UP,
    consumer,
    fill_stream,
    measure_read,
    pull_consumer,
)

if TYPE_CHECKING:
    from jetspark.sync import PullConsumer

BATCH = js_fetch.BATCH
ROUNDS = 3
ACKED = {"ack_policy": "all", "max_ack_pending": -1}


def ours(job: Job) -> float:
    def read(consumer: PullConsumer, count: int) -> int:
        received = 0
        while count > 0:
            messages = consumer.fetch(max_messages=min(BATCH, count), timeout=TIMEOUT)
            for message in messages:
                received += len(message.data)
            count -= len(messages)
        return received

    return blocking(job, read)


def iterate(job: Job) -> float:
    def read(consumer: PullConsumer, count: int) -> int:
        received = 0
        with consumer.messages(ON_ORDER, stop_after=count) as messages:
            for message in messages:
                received += len(message.data)
        return received

    return blocking(job, read)


def acknowledge(job: Job) -> float:
    def read(consumer: PullConsumer, count: int) -> int:
        received = 0
        with consumer.messages(ON_ORDER, stop_after=count) as messages:
            for message in messages:
                received += len(message.data)
                message.ack()
        message.client.flush()
        return received

    return blocking(job, read, **ACKED)


def blocking(job: Job, read: Callable[[PullConsumer, int], int], **config: object) -> float:
    """Like `measure_read`."""
    import jetspark.sync

    with jetspark.sync.connect(job.url) as nc:
        js = nc.jetstream()

        def turn(count: int) -> float:
            with consumer(job, count, **config) as name:
                start = perf_counter()
                received = read(js.get_consumer(STREAM, name), count)
                elapsed = perf_counter() - start
            if received != count * job.size:
                raise RuntimeError(f"{count} messages of {job.size} bytes came as {received} bytes")
            return elapsed

        turn(min(WARM_UP, job.messages))
        return job.messages / turn(job.messages)


def async_fetch(job: Job) -> float:
    return asyncio.run(js_fetch.ours(job))


def async_iterate(job: Job) -> float:
    return asyncio.run(async_messages(job, acks=False))


def async_acknowledge(job: Job) -> float:
    return asyncio.run(async_messages(job, acks=True))


async def async_messages(job: Job, *, acks: bool) -> float:
    import jetspark

    async def read(name: str, count: int) -> int:
        received = 0
        consumer = await pull_consumer(js, name)
        async with consumer.messages(ON_ORDER, stop_after=count) as messages:
            async for message in messages:
                received += len(message.data)
                if acks:
                    await message.ack()
        await nc.flush()
        return received

    async with await jetspark.connect(job.url) as nc:
        js = nc.jetstream()
        return await measure_read(job, read, **(ACKED if acks else {}))


def compare(job: Job) -> dict[str, int]:
    """The rates of the async API, and how much of them the blocking one reaches."""
    pairs = {
        "fetch": (async_fetch, ours),
        "messages": (async_iterate, iterate),
        "acks": (async_acknowledge, acknowledge),
    }
    figures = {}
    for name, pair in pairs.items():
        rates: list[list[float]] = [[], []]
        for turn in range(ROUNDS):
            for which in (0, 1) if turn % 2 else (1, 0):
                rates[which].append(in_fresh_process(pair[which], job))
        theirs, mine = map(statistics.median, rates)
        figures[name] = round(theirs)
        figures[f"{name}_percent"] = round(100 * mine / theirs)
    return figures


BENCHMARK = Benchmark(
    title="fetch batches of 1,000 from a stream with the blocking API",
    unit="messages/s",
    messages=100_000,
    size=128,
    prepare=fill_stream,
    contenders={
        "ours": ours,
        "nats-py": js_fetch.nats_py,
        "natsrpy": js_fetch.natsrpy,
        "limit": js_fetch.limit,
    },
    extras={"async": compare},
)
