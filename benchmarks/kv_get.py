"""Getting the latest value of a key: one after the other, and (variant) many at a time."""

from __future__ import annotations

from collections.abc import Sequence

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

WRONG_SIZE = "a value has not the size that was put"


async def ours(job: Job) -> float:
    import jetspark

    async def work(keys: Sequence[str]) -> None:
        for key in keys:
            if len((await bucket.get(key)).value) != size:
                raise RuntimeError(WRONG_SIZE)

    size = job.size
    async with await jetspark.connect(job.url) as nc:
        bucket = await nc.jetstream(timeout=TIMEOUT).key_value(BUCKET)
        return await measure(job, work)


async def nats_py(job: Job) -> float:
    import nats

    async def work(keys: Sequence[str]) -> None:
        for key in keys:
            if len((await bucket.get(key)).value or b"") != size:
                raise RuntimeError(WRONG_SIZE)

    size = job.size
    nc = await nats.connect(job.url)
    bucket = await nc.jetstream(timeout=TIMEOUT).key_value(BUCKET)
    rate = await measure(job, work)
    await nc.close()
    return rate


async def natsrpy(job: Job) -> float:
    from natsrpy import Nats

    async def work(keys: Sequence[str]) -> None:
        for key in keys:
            if len(await bucket.get(key) or b"") != size:
                raise RuntimeError(WRONG_SIZE)

    size = job.size
    nc = Nats([job.url], request_timeout=TIMEOUT)
    await nc.startup()
    bucket = await (await nc.jetstream()).kv.get(BUCKET)
    rate = await measure(job, work)
    await nc.shutdown()
    return rate


def limit(job: Job) -> float:
    with raw.connect(job) as sock:
        return measure_limit(job, getter(sock, job, in_flight(job)))


def prepare(job: Job) -> None:
    fill_bucket(job, KEYS)


BENCHMARK = Benchmark(
    title="get values, one at a time; concurrent: 5 times as many, --in-flight at a time",
    unit="gets/s",
    messages=20_000,
    size=128,
    rounds=5,
    prepare=prepare,
    contenders={"ours": ours, "nats-py": nats_py, "natsrpy": natsrpy, "limit": limit},
    variants=("concurrent",),
)
