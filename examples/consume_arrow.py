"""Read a stream as columns, for pandas, Polars, DuckDB or Spark."""

import asyncio

import pyarrow.compute as pc

import jetspark
from jetspark.server import run_server


async def main() -> None:
    async with run_server() as server, await jetspark.connect(server.url) as nc:
        js = nc.jetstream()
        stream = await js.create_stream(name="ORDERS", subjects=["orders.>"])
        for number in range(10_000):
            await js.publish_async(f"orders.{number % 3}", b"a dozen eggs")
        await js.publish_async_complete(timeout=10)
        consumer = await stream.create_consumer(durable_name="columns", ack_policy="none")

        batch = await consumer.fetch_arrow(100, timeout=5)
        print(batch.schema)
        print(pc.value_counts(batch.column("subject")).to_pylist())

        rows = 0
        async for batch in consumer.arrow_batches(rows=4000, stop_after=9_900):
            rows += batch.num_rows
        print(rows, "rows, the last sequence is", batch.column("sequence")[-1])


asyncio.run(main())
