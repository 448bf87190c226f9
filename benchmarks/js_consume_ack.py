"""Reading from a pull consumer and acknowledging every message by itself.

That is the work of a queue that several processes share: each asks for what it can take. nats-py
has another way to read, a push consumer with a callback, which is faster than its `fetch` and
cannot be asked; the variant `push` compares ours with that.

The clock stops when the server has confirmed the last ack: it handles acks in their order, and so
has then handled all.
"""

from __future__ import annotations

import asyncio
import re
from time import perf_counter
from typing import Any

from benchmarks import raw
from benchmarks.harness import Benchmark, Job
from benchmarks.js_common import (
    INBOX,
    ON_ORDER,
    PULL,
    PULLS,
    STREAM,
    SUBJECT,
    TIMEOUT,
    WARM_UP,
    consumer,
    fill_stream,
    measure_read,
    pull_consumer,
    pull_requests,
    start_sequence,
)

MAX_ACK_PENDING = 10_000
CONFIG = {"ack_policy": "explicit", "max_ack_pending": MAX_ACK_PENDING}
NATS_PY_BATCH = 1_000
NATSRPY_BATCH = 1_000
NATSRPY_CONCURRENT = 100
READ = 256 * 1024


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
                    await message.double_ack()
                    break
                await message.ack()
        return received

    async with await jetspark.connect(job.url) as nc:
        js = nc.jetstream()
        return await measure_read(job, read, **CONFIG)


async def nats_py(job: Job) -> float:
    import nats
    from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

    async def fetch(name: str, count: int) -> int:
        received = 0
        subscription = await js.pull_subscribe_bind(name, STREAM)
        while count > 0:
            messages = await subscription.fetch(min(NATS_PY_BATCH, count), timeout=TIMEOUT)
            count -= len(messages)
            for message in messages:
                received += len(message.data)
                if count or message is not messages[-1]:
                    await message.ack()
                else:
                    await message.ack_sync(timeout=TIMEOUT)
        return received

    async def push(name: str, count: int) -> int:
        received = 0
        complete = asyncio.Event()

        async def on_message(message: Any) -> None:
            nonlocal received, count
            received += len(message.data)
            count -= 1
            if count:
                await message.ack()
            else:
                await message.ack_sync(timeout=TIMEOUT)
                complete.set()

        await js.subscribe(
            SUBJECT,
            stream=STREAM,
            cb=on_message,
            manual_ack=True,
            config=ConsumerConfig(
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=start_sequence(job, count),
                ack_policy=AckPolicy.EXPLICIT,
                max_ack_pending=MAX_ACK_PENDING,
            ),
            pending_msgs_limit=0,
            pending_bytes_limit=0,
        )
        await complete.wait()
        return received

    nc = await nats.connect(job.url)
    js = nc.jetstream()
    rate = await measure_read(job, push if job.variant == "push" else fetch, **CONFIG)
    await nc.close()
    return rate


async def natsrpy(job: Job) -> float | None:
    from natsrpy import Nats

    if job.variant == "push":
        return None

    # The acks of a fetch awaited NATSRPY_CONCURRENT at a time: one by one they take twice as long.
    async def read(name: str, count: int) -> int:
        received = 0
        consumer = await (await js.streams.get(STREAM)).consumers.get_pull(name)
        while count > 0:
            messages = await consumer.fetch(max_messages=min(NATSRPY_BATCH, count), timeout=TIMEOUT)
            for message in messages:
                received += len(message.payload)
            for first in range(0, len(messages), NATSRPY_CONCURRENT):
                chunk = messages[first : first + NATSRPY_CONCURRENT]
                await asyncio.gather(*[message.ack() for message in chunk])
            count -= len(messages)
        await messages[-1].ack(double=True)
        return received

    nc = Nats([job.url])
    await nc.startup()
    js = await nc.jetstream()
    rate = await measure_read(job, read, **CONFIG)
    await nc.shutdown()
    return rate


def limit(job: Job) -> float:
    """Here the socket must look for the reply subjects in what it receives, and for no more."""

    def read(count: int) -> float:
        with consumer(job, count, **CONFIG) as name:
            requests = pull_requests(name, count, PULL)
            start = perf_counter()
            sock.sendall(b"".join(requests[:PULLS]))
            asked, done, received = PULLS, 0, b""
            while done < count:
                received += raw.receive(sock, READ)
                replies = reply.findall(received)
                if not replies:
                    continue
                last = replies[-1]
                received = received[received.rindex(last) + len(last) :]
                done += len(replies)
                sock.sendall(b"PUB %b 4\r\n+ACK\r\n" % b" 4\r\n+ACK\r\nPUB ".join(replies))
                while asked < len(requests) and done >= (asked - PULLS + 1) * PULL:
                    sock.sendall(requests[asked])
                    asked += 1
            sock.sendall(b"PUB %b %b 4\r\n+ACK\r\n" % (last, INBOX))
            raw.receive_until(sock, b"MSG %b 1 0\r\n\r\n" % INBOX)
            return perf_counter() - start

    reply = re.compile(rb" (\$JS\.ACK\.\S+) \d+\r\n")
    with raw.connect(job) as sock:
        sock.sendall(b"SUB %b 1\r\n" % INBOX)
        read(min(WARM_UP, job.messages))
        return job.messages / read(job.messages)


BENCHMARK = Benchmark(
    title="read from a pull consumer and acknowledge each message",
    unit="messages/s",
    messages=100_000,
    size=128,
    prepare=fill_stream,
    contenders={"ours": ours, "nats-py": nats_py, "natsrpy": natsrpy, "limit": limit},
    variants=("push",),
)
