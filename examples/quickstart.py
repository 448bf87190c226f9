"""Publish, subscribe and ask, on a server that runs inside this script."""

import asyncio

import jetspark
from jetspark.server import run_server


async def main() -> None:
    async with run_server() as server, await jetspark.connect(server.url) as nc:
        # Subscribe and publish.
        orders = await nc.subscribe("orders.*")
        for number in range(3):
            await nc.publish(f"orders.{number}", b"a dozen eggs", headers={"Shop": "Rome"})
        for _ in range(3):
            message = await orders.next(timeout=1)
            print(message.subject, message.data.decode(), message.headers["Shop"])

        # Answer requests, and make one.
        async def greet(request: jetspark.Message) -> None:
            await request.respond(b"hello " + request.data)

        await nc.subscribe("greet", callback=greet)
        answer = await nc.request("greet", b"world", timeout=1)
        print(answer.data.decode())

        # Store messages in a stream, and consume them.
        js = nc.jetstream()
        stream = await js.create_stream(name="EVENTS", subjects=["events.>"])
        for number in range(3):
            await js.publish(f"events.{number}", b"something happened")
        consumer = await stream.create_consumer(durable_name="reader")
        async with consumer.messages() as messages:
            async for event in messages:
                print(event.metadata.stream_sequence, event.subject, event.data.decode())
                await event.ack()
                if not event.metadata.num_pending:
                    break


asyncio.run(main())
