"""Have the server push messages, paced by flow control, to whoever listens."""

import asyncio

import jetspark
from jetspark.server import run_server


async def main() -> None:
    async with run_server() as server, await jetspark.connect(server.url) as nc:
        js = nc.jetstream()
        stream = await js.create_stream(name="ORDERS", subjects=["orders.>"])
        for number in range(5):
            await js.publish(f"orders.{number}", b"a dozen eggs")

        consumer = await stream.create_consumer(
            durable_name="kitchen",
            deliver_subject="deliver.kitchen",
            flow_control=True,
            idle_heartbeat=5,
        )

        # Iterate; missing heartbeats and lost messages are given to on_warning.
        async with consumer.messages(on_warning=print) as messages:
            for _ in range(3):
                message = await messages.next(timeout=5)
                print(message.metadata.stream_sequence, message.subject)
                await message.ack()
            await messages.drain()
            async for message in messages:  # what had arrived before
                print(message.metadata.stream_sequence, message.subject)
                await message.ack()

        # Or have a callback called.
        async def cook(message: jetspark.JetStreamMessage) -> None:
            print("cooking", message.data.decode())
            await message.ack()
            done.set()

        done = asyncio.Event()
        async with await consumer.consume(cook):
            await js.publish("orders.5", b"a pound of flour")
            await done.wait()


asyncio.run(main())
