"""Reading a stream into Arrow batches, with a consumer without acks. No peer has columns."""

from __future__ import annotations

from benchmarks.harness import Benchmark, Job
from benchmarks.js_common import fill_stream, measure_read, pull_consumer, read_limit


async def ours(job: Job) -> float:
    import pyarrow.compute

    import jetspark

    async def read(name: str, count: int) -> int:
        received = 0
        consumer = await pull_consumer(js, name)
        async with consumer.arrow_batches() as batches:
            async for batch in batches:
                lengths = pyarrow.compute.binary_length(batch["data"])
                received += pyarrow.compute.sum(lengths).as_py()
                count -= batch.num_rows
                if not count:
                    break
        return received

    async with await jetspark.connect(job.url) as nc:
        js = nc.jetstream()
        return await measure_read(job, read)


BENCHMARK = Benchmark(
    title="read a stream into Arrow batches, without acks",
    unit="messages/s",
    messages=200_000,
    size=128,
    prepare=fill_stream,
    contenders={"ours": ours, "limit": read_limit},
)
