"""Publish messages one by one, each stored before the next, with ids and conditions."""

import asyncio

import jetspark
from jetspark.errors import WrongLastSequenceError
from jetspark.server import run_server


async def main() -> None:
    async with run_server() as server, await jetspark.connect(server.url) as nc:
        js = nc.jetstream()
        await js.create_stream(name="ORDERS", subjects=["orders.>"])

        ack = await js.publish("orders.1", b"a dozen eggs", headers={"Shop": "Rome"})
        print("stored in", ack.stream, "as message", ack.sequence)

        # With an id a message may be published again: it is stored once.
        for _ in range(2):
            ack = await js.publish("orders.2", b"flour", msg_id="order-2")
            print("message", ack.sequence, "is a duplicate:", ack.duplicate)

        # With a condition it is stored only if nobody else was faster.
        try:
            await js.publish("orders.1", b"two dozen", expected_last_subject_sequence=0)
        except WrongLastSequenceError as error:
            print("not stored:", error)


asyncio.run(main())
