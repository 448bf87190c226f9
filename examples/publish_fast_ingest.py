"""Send many messages to a stream with few acknowledgements (a server of 2.14 or newer)."""

import asyncio

import jetspark
from jetspark.server import run_server


async def main() -> None:
    async with run_server() as server, await jetspark.connect(server.url) as nc:
        js = nc.jetstream()
        await js.create_stream(name="LINES", subjects=["lines.>"], allow_batched=True)

        # A message that is lost or refused ends the ingest with an error.
        async with js.fast_ingest() as ingest:
            for number in range(20_000):
                await ingest.add("lines.all", b"line %d" % number)
        assert ingest.ack is not None
        print(ingest.ack.batch_size, "messages, the last one is", ingest.ack.sequence)

        # Here it goes on without them, and tells which.
        async with js.fast_ingest(gap="ok") as ingest:
            await ingest.add("lines.some", b"first")
            await ingest.add("lines.some", b"never", expected_last_sequence=1)
            await ingest.add("lines.some", b"last")
        print(ingest.size, "messages,", ingest.refused, "refused:", ingest.errors[0])


asyncio.run(main())
