"""Getting the latest value of a key: one after the other, and (variant) many at a time."""

from __future__ import annotations

from benchmarks import raw
from benchmarks.harness import Benchmark, Job
from benchmarks.kv_common import (
    BUCKET,
    KEYS,
    TIMEOUT,
    fill_bucket,
    getter,
    in_flight,
    measure,
    measure_limit,
)


async def ours(job: Job) -> float:
    import jetspark

    async def get(key: str) -> None:
        check(job, (await bucket.get(key)).value)

    async with await jetspark.connect(job.url) as nc:
        bucket = await nc.jetstream(timeout=TIMEOUT).key_value(BUCKET)
        return await measure(job, get)


async def nats_py(job: Job) -> float:
    import nats

    async def get(key: str) -> None:
        check(job, (await bucket.get(key)).value)

    nc = await nats.connect(job.url)
    bucket = await nc.jetstream(timeout=TIMEOUT).key_value(BUCKET)
    rate = await measure(job, get)
    await nc.close()
    return rate


async def natsrpy(job: Job) -> float:
    from natsrpy import Nats

    async def get(key: str) -> None:
        check(job, await bucket.get(key))

    nc = Nats([job.url], request_timeout=TIMEOUT)
    await nc.startup()
    bucket = await (await nc.jetstream()).kv.get(BUCKET)
    rate = await measure(job, get)
    await nc.shutdown()
    return rate


def limit(job: Job) -> float:
    with raw.connect(job) as sock:
        return measure_limit(job, getter(sock, job, in_flight(job)))


def prepare(job: Job) -> None:
    fill_bucket(job, KEYS)


def check(job: Job, value: bytes | None) -> None:
    if value is None or len(value) != job.size:
        raise RuntimeError("a value has not the size that was put")


BENCHMARK = Benchmark(
    title="get the value of a key, one at a time; concurrent: --in-flight at a time",
    unit="gets/s",
    messages=20_000,
    size=128,
    prepare=prepare,
    contenders={"ours": ours, "nats-py": nats_py, "natsrpy": natsrpy, "limit": limit},
    variants=("concurrent",),
)
