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
    from jetspark import KeyValueEntry

    def check(entry: KeyValueEntry[bytes]) -> None:
        check_size(job, entry.value)

    async with await jetspark.connect(job.url) as nc:
        bucket = await nc.jetstream(timeout=TIMEOUT).key_value(BUCKET)
        return await measure(job, bucket.get, check)


async def nats_py(job: Job) -> float:
    import nats
    from nats.js.kv import KeyValue

    def check(entry: KeyValue.Entry) -> None:
        check_size(job, entry.value)

    nc = await nats.connect(job.url)
    bucket = await nc.jetstream(timeout=TIMEOUT).key_value(BUCKET)
    rate = await measure(job, bucket.get, check)
    await nc.close()
    return rate


async def natsrpy(job: Job) -> float:
    from natsrpy import Nats

    def check(value: bytes | None) -> None:
        check_size(job, value)

    nc = Nats([job.url], request_timeout=TIMEOUT)
    await nc.startup()
    bucket = await (await nc.jetstream()).kv.get(BUCKET)
    rate = await measure(job, bucket.get, check)
    await nc.shutdown()
    return rate


def limit(job: Job) -> float:
    with raw.connect(job) as sock:
        return measure_limit(job, getter(sock, job, in_flight(job)))


def prepare(job: Job) -> None:
    fill_bucket(job, KEYS)


def check_size(job: Job, value: bytes | None) -> None:
    if value is None or len(value) != job.size:
        raise RuntimeError("a value has not the size that was put")


BENCHMARK = Benchmark(
    title="get values, one at a time; concurrent: 5 times as many, --in-flight at a time",
    unit="gets/s",
    messages=20_000,
    size=128,
    prepare=prepare,
    contenders={"ours": ours, "nats-py": nats_py, "natsrpy": natsrpy, "limit": limit},
    variants=("concurrent",),
)
