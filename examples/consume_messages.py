"""Iterate over the messages of a consumer: the usual way to consume."""

import asyncio

import jetspark
from jetspark.server import run_server


async def main() -> None:
    async with run_server() as server, await jetspark.connect(server.url) as nc:
        js = nc.jetstream()
        stream = await js.create_stream(name="ORDERS", subjects=["orders.>"])
        for number in range(1000):
            await js.publish_async(f"orders.{number}", b"a dozen eggs")
        await js.publish_async_complete(timeout=10)
        consumer = await stream.create_consumer(durable_name="shop")

        # Up to 200 messages are on order or wait here. Leaving the block stops it.
        count = 0
        async with consumer.messages(200, on_warning=print) as messages:
            async for message in messages:
                await message.ack()
                count += 1
                if message.metadata.num_pending == 0:
                    break
        print("got", count)

        # A given number of messages, and then the end.
        for number in range(1000, 1010):
            await js.publish_async(f"orders.{number}", b"a dozen eggs")
        await js.publish_async_complete(timeout=10)
        async for message in consumer.messages(stop_after=10):
            await message.ack()
            print(message.subject)


asyncio.run(main())
