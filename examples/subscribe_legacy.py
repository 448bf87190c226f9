"""Subscribe by subject: the consumer is found, or created and deleted, behind the scenes.

This is the older way. It is shorter, and leaves more to guess than a consumer of one's own.
"""

import asyncio

import jetspark
from jetspark.server import run_server


async def main() -> None:
    async with run_server() as server, await jetspark.connect(server.url) as nc:
        js = nc.jetstream()
        await js.create_stream(name="ORDERS", subjects=["orders.>"])
        for number in range(6):
            await js.publish(f"orders.{number}", b"a dozen eggs")

        # Pushed to a callback, and acknowledged after it.
        done = asyncio.Event()

        def take(message: jetspark.JetStreamMessage) -> None:
            print("pushed", message.subject)
            if message.metadata.num_pending == 0:
                done.set()

        subscription = await js.subscribe("orders.*", callback=take)
        await done.wait()
        await subscription.drain()  # deletes the consumer, too

        # The members of a queue share the messages.
        first = await js.subscribe("orders.*", queue="kitchen", callback=take, manual_ack=True)
        second = await js.subscribe("orders.*", queue="kitchen", callback=take, manual_ack=True)
        await second.unsubscribe()
        await first.unsubscribe()

        # Pulled, some at a time.
        async with await js.pull_subscribe("orders.*", durable="billing") as billing:
            for message in await billing.fetch(4, timeout=1):
                print("pulled", message.subject)
                await message.ack()
            print("and", (await billing.next(timeout=1)).subject)


asyncio.run(main())
