"""Work on batches: one fetch after the other, each acknowledged as a whole."""

import asyncio

import jetspark
from jetspark.server import run_server


async def main() -> None:
    async with run_server() as server, await jetspark.connect(server.url) as nc:
        js = nc.jetstream()
        stream = await js.create_stream(name="ORDERS", subjects=["orders.>"])
        for number in range(100):
            await js.publish_async(f"orders.{number}", b"a dozen eggs")
        await js.publish_async_complete(timeout=10)
        # With ack_policy="all" the last message of a batch stands for those before it.
        consumer = await stream.create_consumer(durable_name="shop", ack_policy="all")

        async for batch in consumer.sequence(30, timeout=1):
            print(len(batch), "orders, the last one", batch[-1].subject)
            await batch[-1].double_ack()
            if batch[-1].metadata.num_pending == 0:
                break
        info = await consumer.info()
        print("not acknowledged:", info.num_ack_pending)


asyncio.run(main())
