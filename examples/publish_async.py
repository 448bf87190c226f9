"""Publish many messages without waiting for each, and make sure that all are stored."""

import asyncio

import jetspark
from jetspark.server import run_server


async def main() -> None:
    async with run_server() as server, await jetspark.connect(server.url) as nc:
        # At most a thousand messages are on their way; then publish_async waits.
        js = nc.jetstream(max_ack_pending=1000)
        stream = await js.create_stream(name="READINGS", subjects=["readings.>"])

        for number in range(10_000):
            await js.publish_async(f"readings.{number % 10}", b"21.5", msg_id=str(number))
        # Raises if any of them failed.
        await js.publish_async_complete(timeout=10)
        print((await stream.info()).state.messages, "messages are stored")

        # Or keep the futures and look at each acknowledgement.
        futures = [await js.publish_async("readings.0", b"22.0") for _ in range(3)]
        for future in futures:
            ack = await future
            print("stored as message", ack.sequence)


asyncio.run(main())
