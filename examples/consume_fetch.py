"""Fetch messages: some now, some with a deadline, one at a time."""

import asyncio

import jetspark
from jetspark.server import run_server


async def main() -> None:
    async with run_server() as server, await jetspark.connect(server.url) as nc:
        js = nc.jetstream()
        stream = await js.create_stream(name="ORDERS", subjects=["orders.>"])
        for number in range(10):
            await js.publish(f"orders.{number}", b"a dozen eggs")
        consumer = await stream.create_consumer(durable_name="shop")

        # Up to four, or those that come within five seconds.
        for message in await consumer.fetch(4, timeout=5):
            print("fetched", message.subject, message.metadata.num_pending, "to go")
            await message.ack()

        # As many as fit into some bytes.
        messages = await consumer.fetch(max_bytes=300, timeout=5)
        print("fetched", len(messages), "in 300 bytes")
        for message in messages:
            await message.ack()

        # One.
        message = await consumer.next(timeout=5)
        print("next", message.subject)
        await message.ack()

        # What is there, without any wait. An error that ended it early would be in `error`.
        rest = await consumer.fetch_no_wait(100)
        print("the rest", [message.subject for message in rest], rest.error)
        for message in rest:
            await message.ack()
        try:
            await consumer.next(timeout=0.1)
        except jetspark.errors.TimeoutError as error:
            print(error)


asyncio.run(main())
