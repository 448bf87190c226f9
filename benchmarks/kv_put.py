"""Putting values: one after the other, and (variant) many at a time."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks import raw
from benchmarks.harness import Benchmark, Job
from benchmarks.js_common import FIRST_SEQUENCE, api
from benchmarks.kv_common import (
    BUCKET,
    KEYS,
    STREAM,
    TIMEOUT,
    WARM_UP,
    count,
    fill_bucket,
    in_flight,
    measure,
    measure_limit,
    putter,
)


async def ours(job: Job) -> float:
    import jetspark

    async def work(keys: Sequence[str]) -> None:
        for key in keys:
            await bucket.put(key, value)

    value = b"x" * job.size
    fill_bucket(job, KEYS)
    async with await jetspark.connect(job.url) as nc:
        bucket = await nc.jetstream(timeout=TIMEOUT).key_value(BUCKET)
        rate = await measure(job, work)
    check(job)
    return rate


async def nats_py(job: Job) -> float:
    import nats

    async def work(keys: Sequence[str]) -> None:
        for key in keys:
            await bucket.put(key, value)

    value = b"x" * job.size
    fill_bucket(job, KEYS)
    nc = await nats.connect(job.url)
    bucket = await nc.jetstream(timeout=TIMEOUT).key_value(BUCKET)
    rate = await measure(job, work)
    await nc.close()
    check(job)
    return rate


async def natsrpy(job: Job) -> float:
    from natsrpy import Nats

    async def work(keys: Sequence[str]) -> None:
        for key in keys:
            await bucket.put(key, value)

    value = b"x" * job.size
    fill_bucket(job, KEYS)
    nc = Nats([job.url], request_timeout=TIMEOUT)
    await nc.startup()
    bucket = await (await nc.jetstream()).kv.get(BUCKET)
    rate = await measure(job, work)
    await nc.shutdown()
    check(job)
    return rate


def limit(job: Job) -> float:
    fill_bucket(job, KEYS)
    numbers = [number % KEYS for number in range(count(job))]
    with raw.connect(job) as sock:
        return measure_limit(job, putter(sock, job, numbers, in_flight(job)))


def check(job: Job) -> None:
    """Raise if a put is missing."""
    last = api(job, f"STREAM.INFO.{STREAM}")["state"]["last_seq"]
    if last + 1 - FIRST_SEQUENCE != KEYS + WARM_UP + count(job):
        raise RuntimeError(f"of {count(job)} puts, the last is {last}: not all are stored")


BENCHMARK = Benchmark(
    title="put values, one at a time; concurrent: 5 times as many, --in-flight at a time",
    unit="puts/s",
    messages=20_000,
    size=128,
    rounds=5,
    contenders={"ours": ours, "nats-py": nats_py, "natsrpy": natsrpy, "limit": limit},
    variants=("concurrent",),
)
