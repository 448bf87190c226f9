"""Putting an object into a store, until the server has acknowledged all of it.

The object is in memory; in the variant `file` it is read from a file. The extra figures `memory`
are the peaks of a process of ours that puts a file of 64 MiB, and of one that puts 1 GiB. A bare
socket publishes the same chunks and waits for the same acks; it makes no digest.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks import object_common
from benchmarks.harness import Benchmark, Job
from benchmarks.object_common import (
    BUCKET,
    CHUNK,
    CHUNKS,
    NUID,
    WARM_UP,
    WARM_UP_NUID,
    measure_put,
    mib,
    new_store,
    publish_chunks,
)


async def ours(job: Job) -> float:
    import jetspark

    async def put(name: str, chunks: int) -> None:
        await store.put(name, data[: chunks * job.size], chunk_size=job.size)

    async def put_file(name: str, chunks: int) -> None:
        os.truncate(path, chunks * job.size)
        await store.put_file(name, path, chunk_size=job.size)

    async with await jetspark.connect(job.url) as nc:
        store = await nc.jetstream().object_store(BUCKET)
        if job.variant:
            with source_file() as path:
                return await measure_put(job, put_file)
        data = b"x" * (job.messages * job.size)
        return await measure_put(job, put)


async def nats_py(job: Job) -> float:
    import nats
    from nats.js.api import ObjectMeta, ObjectMetaOptions

    def meta() -> ObjectMeta:
        return ObjectMeta(options=ObjectMetaOptions(max_chunk_size=job.size))

    async def put(name: str, chunks: int) -> None:
        await store.put(name, data[: chunks * job.size], meta())

    async def put_file(name: str, chunks: int) -> None:
        os.truncate(path, chunks * job.size)
        with path.open("rb") as file:
            await store.put(name, file, meta())

    nc = await nats.connect(job.url)
    store = await nc.jetstream().object_store(BUCKET)
    if job.variant:
        with source_file() as path:
            rate = await measure_put(job, put_file)
    else:
        data = b"x" * (job.messages * job.size)
        rate = await measure_put(job, put)
    await nc.close()
    return rate


async def natsrpy(job: Job) -> float:
    from natsrpy import Nats

    async def put(name: str, chunks: int) -> None:
        await store.put(name, data[: chunks * job.size], chunk_size=job.size)

    async def put_file(name: str, chunks: int) -> None:
        os.truncate(path, chunks * job.size)
        await store.put_file(name, path, chunk_size=job.size)

    nc = Nats([job.url])
    await nc.startup()
    store = await (await nc.jetstream()).object_store.get(BUCKET)
    if job.variant:
        with source_file() as path:
            rate = await measure_put(job, put_file)
    else:
        data = b"x" * (job.messages * job.size)
        rate = await measure_put(job, put)
    await nc.shutdown()
    return rate


def limit(job: Job) -> float:
    new_store(job)
    publish_chunks(job, min(WARM_UP, job.messages), WARM_UP_NUID)
    return mib(job) / publish_chunks(job, job.messages, NUID)


@contextmanager
def source_file() -> Iterator[Path]:
    """An empty file; whoever puts it gives it the size of the object."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "object")
        path.touch()
        yield path


def memory(job: Job) -> dict[str, int]:
    return object_common.memory(replace(job, variant="file"), ours)


BENCHMARK = Benchmark(
    title="put an object",
    unit="MiB/s",
    messages=CHUNKS,
    size=CHUNK,
    prepare=new_store,
    contenders={"ours": ours, "nats-py": nats_py, "natsrpy": natsrpy, "limit": limit},
    variants=("file",),
    extras={"memory": memory},
)
