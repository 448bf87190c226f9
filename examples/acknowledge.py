"""The ways to tell the server what became of a message."""

import asyncio

import jetspark
from jetspark.server import run_server


async def main() -> None:
    async with run_server() as server, await jetspark.connect(server.url) as nc:
        js = nc.jetstream()
        stream = await js.create_stream(name="ORDERS", subjects=["orders.>"])
        for number in range(7):
            await js.publish(f"orders.{number}", b"a dozen eggs")
        consumer = await stream.create_consumer(durable_name="shop", ack_wait=30, max_deliver=5)
        messages = await consumer.fetch(6)

        await messages[0].ack()  # done; returns when that is on its way
        await messages[1].double_ack()  # done; returns when the server has noted it
        await messages[2].in_progress()  # give me another 30 seconds
        await messages[2].ack()
        await messages[3].term("the shop is closed")  # do not deliver it again
        await messages[4].nak(delay=0.5)  # deliver it again, in half a second
        await messages[5].nak()  # ... at once

        again = await consumer.next(timeout=5)
        print(again.subject, "delivered", again.metadata.num_delivered, "times")
        following = await again.ack_next()  # done, and give me the next one
        print(following.subject, "delivered", following.metadata.num_delivered, "times")
        await following.ack()

        last = await consumer.next(timeout=5)
        print(last.subject, "delivered", last.metadata.num_delivered, "times")
        await last.double_ack()
        print("not acknowledged:", (await consumer.info()).num_ack_pending)


asyncio.run(main())
