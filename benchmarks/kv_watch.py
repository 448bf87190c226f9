"""Replaying a bucket: a watch, until it has given the latest value of every key.

The time includes that of creating the consumer, which finds the last message of every key.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable
from time import perf_counter

from benchmarks import raw
from benchmarks.harness import Benchmark, Job
from benchmarks.js_common import FIRST_SEQUENCE, INBOX
from benchmarks.kv_common import BUCKET, STREAM, TIMEOUT, fill_bucket, key


async def ours(job: Job) -> float:
    import jetspark

    async def replay(keys: str) -> tuple[int, int]:
        count = received = 0
        async with bucket.watch(keys) as watcher:
            async for entry in watcher:
                if entry is None:
                    break
                count += 1
                received += len(entry.value)
        return count, received

    async with await jetspark.connect(job.url) as nc:
        bucket = await nc.jetstream(timeout=TIMEOUT).key_value(BUCKET)
        return await measure(job, replay)


async def nats_py(job: Job) -> float:
    import nats

    async def replay(keys: str) -> tuple[int, int]:
        count = received = 0
        watcher = await bucket.watch(keys)
        async for entry in watcher:
            if entry is None:
                break
            count += 1
            received += len(entry.value)
        await watcher.stop()  # type: ignore[no-untyped-call]
        return count, received

    nc = await nats.connect(job.url)
    bucket = await nc.jetstream(timeout=TIMEOUT).key_value(BUCKET)
    rate = await measure(job, replay)
    await nc.close()
    return rate


async def natsrpy(job: Job) -> float:
    from natsrpy import Nats

    async def replay(keys: str) -> tuple[int, int]:
        count = received = 0
        # The name notwithstanding, this is the latest value of each key.
        async for entry in await bucket.watch_with_history(keys):
            count += 1
            received += len(entry.value)
            if entry.delta == 0:
                break
        return count, received

    nc = Nats([job.url], request_timeout=TIMEOUT)
    await nc.startup()
    bucket = await (await nc.jetstream()).kv.get(BUCKET)
    rate = await measure(job, replay)
    await nc.shutdown()
    return rate


def limit(job: Job) -> float:
    """Have an ordered consumer pushed, without flow control."""
    name = secrets.token_hex(8)
    config = {
        "name": name,
        "deliver_subject": INBOX.decode(),
        "deliver_policy": "last_per_subject",
        "ack_policy": "none",
        "max_deliver": 1,
        "mem_storage": True,
        "num_replicas": 1,
        "filter_subject": f"$KV.{BUCKET}.>",
    }
    body = json.dumps({"stream_name": STREAM, "config": config}).encode()
    subject = f"$JS.API.CONSUMER.CREATE.{STREAM}.{name}.$KV.{BUCKET}.>".encode()
    missing = delivery_size(job, name)
    buffer = bytearray(raw.READ_BUFFER)
    with raw.connect(job) as sock:
        sock.sendall(b"SUB %b 1\r\n" % INBOX)
        raw.flush(sock)
        start = perf_counter()
        sock.sendall(b"PUB %b %d\r\n%b\r\n" % (subject, len(body), body))
        raw.receive_bytes(sock, missing, buffer)
        return job.messages / (perf_counter() - start)


def delivery_size(job: Job, name: str) -> int:
    """How many bytes the server sends for the whole bucket."""
    fixed = f"$JS.ACK.{STREAM}.{name}.1.{FIRST_SEQUENCE}..{10**18}.".encode()
    subject = f"$KV.{BUCKET}.{key(0)}".encode()
    length = len(b"MSG %b 1 %b %d\r\n" % (subject, fixed, job.size)) + job.size + 2
    count = job.messages
    # Only the number of the delivery and the count of entries to come have not always as many
    # digits.
    return sum(
        length + len(str(number)) + len(str(count - number)) for number in range(1, count + 1)
    )


async def measure(job: Job, replay: Callable[[str], Awaitable[tuple[int, int]]]) -> float:
    """The rate of `replay`, which watches keys and returns how many entries and bytes came."""
    await replay(key(0))
    start = perf_counter()
    count, received = await replay(">")
    elapsed = perf_counter() - start
    if (count, received) != (job.messages, job.messages * job.size):
        raise RuntimeError(f"of {job.messages} entries came {count}, with {received} bytes")
    return job.messages / elapsed


def prepare(job: Job) -> None:
    fill_bucket(job, job.messages)


BENCHMARK = Benchmark(
    title="replay a bucket with a watch",
    unit="entries/s",
    messages=100_000,
    size=128,
    prepare=prepare,
    contenders={"ours": ours, "nats-py": nats_py, "natsrpy": natsrpy, "limit": limit},
)
