"""Have a callback called with each message."""

import asyncio

import jetspark
from jetspark.server import run_server


async def main() -> None:
    async with run_server() as server, await jetspark.connect(server.url) as nc:
        js = nc.jetstream()
        stream = await js.create_stream(name="ORDERS", subjects=["orders.>"])
        consumer = await stream.create_consumer(durable_name="shop")
        delivered = asyncio.Event()

        async def on_message(message: jetspark.JetStreamMessage) -> None:
            print(message.subject, message.data.decode())
            await message.ack()
            if message.subject == "orders.9":
                delivered.set()

        consumption = await consumer.consume(on_message, max_messages=100)
        for number in range(10):
            await js.publish(f"orders.{number}", b"a dozen eggs")
        await delivered.wait()

        # Ask for no more, finish what has arrived. (`stop` would drop that.)
        await consumption.drain()
        print("closed:", consumption.closed)


asyncio.run(main())
