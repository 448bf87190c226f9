"""Store several messages all together or not at all (a server of 2.12 or newer)."""

import asyncio

import jetspark
from jetspark.errors import WrongLastSequenceError
from jetspark.server import run_server


async def transfer(js: jetspark.JetStream, amount: int, last: int) -> None:
    """Move money between two accounts, if nothing happened to the first since message `last`."""
    async with js.batch() as batch:
        await batch.add("account.ann", b"-%d" % amount, expected_last_subject_sequence=last)
        await batch.add("account.bob", b"+%d" % amount)
        ack = await batch.commit()
    first = ack.sequence - ack.batch_size + 1
    print(f"{ack.batch_size} messages are stored as {first} to {ack.sequence}")


async def main() -> None:
    async with run_server() as server, await jetspark.connect(server.url) as nc:
        js = nc.jetstream()
        stream = await js.create_stream(name="ACCOUNTS", subjects=["account.>"], allow_atomic=True)
        await transfer(js, 50, last=0)
        try:
            await transfer(js, 50, last=0)
        except WrongLastSequenceError as error:
            print("nothing was moved:", error)
        print((await stream.info()).state.messages, "messages in all")


asyncio.run(main())
