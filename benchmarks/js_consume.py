"""Reading a stream from its start with a consumer without acks.

Ours is a loop over `messages()`; a peer reads in whichever way is its fastest. The extra figures
`memory` are the peaks of a process of ours that reads the messages once, and of one that reads ten
times as many.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.harness import Benchmark, Job
from benchmarks.js_common import (
    ON_ORDER,
    STREAM,
    SUBJECT,
    TIMEOUT,
    fill_stream,
    measure_read,
    pull_consumer,
    read_limit,
    start_sequence,
)

NATSRPY_BATCH = 5_000
TIMES = 10


async def ours(job: Job) -> float:
    import jetspark

    async def read(name: str, count: int) -> int:
        received = 0
        consumer = await pull_consumer(js, name)
        async with consumer.messages(ON_ORDER) as messages:
            async for message in messages:
                received += len(message.data)
                count -= 1
                if not count:
                    break
        return received

    async with await jetspark.connect(job.url) as nc:
        js = nc.jetstream()
        return await measure_read(job, read)


async def nats_py(job: Job) -> float:
    import nats
    from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

    # A push consumer and a callback: an ordered consumer with a callback has three quarters of
    # that rate, its iterator a quarter, and `fetch` a sixth.
    async def read(name: str, count: int) -> int:
        received = 0
        complete = asyncio.Event()

        async def on_message(message: Any) -> None:
            nonlocal received, count
            received += len(message.data)
            count -= 1
            if not count:
                complete.set()

        await js.subscribe(
            SUBJECT,
            stream=STREAM,
            cb=on_message,
            manual_ack=True,
            config=ConsumerConfig(
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=start_sequence(job, count),
                ack_policy=AckPolicy.NONE,
            ),
            flow_control=True,
            idle_heartbeat=5,
            pending_msgs_limit=0,
            pending_bytes_limit=0,
        )
        await complete.wait()
        return received

    nc = await nats.connect(job.url)
    js = nc.jetstream()
    rate = await measure_read(job, read)
    await nc.close()
    return rate


async def natsrpy(job: Job) -> float:
    from natsrpy import Nats

    # Large fetches, the next one under way while the last one is read, are some twenty times as
    # fast as its iterators.
    async def read(name: str, count: int) -> int:
        received = 0
        consumer = await (await js.streams.get(STREAM)).consumers.get_pull(name)
        sizes = [min(NATSRPY_BATCH, count - first) for first in range(0, count, NATSRPY_BATCH)]
        following = consumer.fetch(max_messages=sizes[0], timeout=TIMEOUT)
        for size in [*sizes[1:], 0]:
            messages = await following
            if size:
                following = consumer.fetch(max_messages=size, timeout=TIMEOUT)
            for message in messages:
                received += len(message.payload)
        return received

    nc = Nats([job.url])
    await nc.startup()
    js = await nc.jetstream()
    rate = await measure_read(job, read)
    await nc.shutdown()
    return rate


def memory(job: Job) -> dict[str, int]:
    peak = harness.in_fresh_process(peak_memory, job)
    job = replace(job, messages=TIMES * job.messages)
    fill_stream(job)
    more = harness.in_fresh_process(peak_memory, job)
    return {"peak_bytes": peak, f"peak_bytes_{TIMES}x": more, "difference_bytes": more - peak}


def peak_memory(job: Job) -> int:
    """The most memory that this process, which must be a fresh one, has had when all is read."""
    asyncio.run(asyncio.wait_for(ours(job), harness.TURN_TIMEOUT))
    for line in Path("/proc/self/status").read_text().splitlines():
        key, _, value = line.partition(":")
        if key == "VmHWM":
            return int(value.split()[0]) * 1024
    raise RuntimeError("the system does not tell the peak of a process's memory")


BENCHMARK = Benchmark(
    title="read a stream, without acks",
    unit="messages/s",
    messages=200_000,
    size=128,
    prepare=fill_stream,
    contenders={"ours": ours, "nats-py": nats_py, "natsrpy": natsrpy, "limit": read_limit},
    extras={"memory": memory},
)
