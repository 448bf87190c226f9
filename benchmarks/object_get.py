"""Getting an object out of a store, with its digest verified.

The main figures are for `get` as it is usually called: ours is iterated over, nats-py's returns
bytes, natsrpy's takes a writer. In the variant `bytes` the object is wanted in one piece, which
nats-py does in the main figures already; in the variant `writer` the data go piece by piece into
something that takes them and keeps nothing, which is nats-py's fastest way. The extra figures
`memory` are the peaks of a process of ours that iterates over 64 MiB, and of one over 1 GiB. A bare
socket pulls the same chunks and makes no digest.
"""

from __future__ import annotations

import io

from benchmarks import object_common
from benchmarks.harness import Benchmark, Job
from benchmarks.object_common import (
    BUCKET,
    CHUNK,
    CHUNKS,
    drain_chunks,
    fill_store,
    measure_get,
    mib,
    objects,
)

NATSRPY_READ = 8 * 1024 * 1024
"""What natsrpy reads before it calls the writer: from 128 KiB to 24 MiB it matters little."""


class Sink(io.BufferedIOBase):
    """Takes bytes and counts them."""

    size = 0

    def write(self, data: object) -> int:
        assert isinstance(data, bytes | bytearray | memoryview)
        self.size += len(data)
        return len(data)


async def ours(job: Job) -> float:
    import jetspark

    async def get(name: str) -> int:
        return len(await (await store.get(name)).read())

    async def stream(name: str) -> int:
        received = 0
        async with await store.get(name) as chunks:
            async for chunk in chunks:
                received += len(chunk)
        return received

    async with await jetspark.connect(job.url) as nc:
        store = await nc.jetstream().object_store(BUCKET)
        return await measure_get(job, get if job.variant == "bytes" else stream)


async def nats_py(job: Job) -> float | None:
    import nats

    if job.variant == "bytes":
        return None

    async def get(name: str) -> int:
        return len((await store.get(name)).data or b"")

    async def stream(name: str) -> int:
        sink = Sink()
        await store.get(name, writeinto=sink)
        return sink.size

    nc = await nats.connect(job.url)
    store = await nc.jetstream().object_store(BUCKET)
    rate = await measure_get(job, stream if job.variant == "writer" else get)
    await nc.close()
    return rate


async def natsrpy(job: Job) -> float:
    from natsrpy import Nats

    async def get(name: str) -> int:
        buffer = io.BytesIO()
        await store.get(name, buffer, chunk_size=NATSRPY_READ)
        return len(buffer.getvalue())

    async def stream(name: str) -> int:
        sink = Sink()
        await store.get(name, sink, chunk_size=NATSRPY_READ)
        return sink.size

    nc = Nats([job.url])
    await nc.startup()
    store = await (await nc.jetstream()).object_store.get(BUCKET)
    rate = await measure_get(job, get if job.variant == "bytes" else stream)
    await nc.shutdown()
    return rate


def limit(job: Job) -> float:
    elapsed = 0.0
    for _, nuid, chunks in objects(job):
        elapsed = drain_chunks(job, nuid, chunks)
    return mib(job) / elapsed


def memory(job: Job) -> dict[str, int]:
    return object_common.memory(job, ours)


BENCHMARK = Benchmark(
    title="get an object",
    unit="MiB/s",
    messages=CHUNKS,
    size=CHUNK,
    prepare=fill_store,
    contenders={"ours": ours, "nats-py": nats_py, "natsrpy": natsrpy, "limit": limit},
    variants=("bytes", "writer"),
    extras={"memory": memory},
)
