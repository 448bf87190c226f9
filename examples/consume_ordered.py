"""Read a stream in order, each message once, while the consumer is taken away again and again."""

import asyncio

import jetspark
from jetspark.server import run_server


async def main() -> None:
    async with run_server() as server, await jetspark.connect(server.url) as nc:
        js = nc.jetstream()
        stream = await js.create_stream(name="EVENTS", subjects=["events.>"])
        for number in range(100):
            await js.publish_async(f"events.{number % 3}", b"%d" % number)
        await js.publish_async_complete()

        consumer = await stream.ordered_consumer(opt_start_seq=11)
        numbers = []
        async with consumer.messages(on_warning=print) as messages:
            async for message in messages:
                numbers.append(message.metadata.stream_sequence)
                if len(numbers) in (20, 60):
                    await consumer.delete()
                if message.metadata.num_pending == 0:
                    break
        print("in order and complete:", numbers == list(range(11, 101)))
        print("the last consumer was", consumer.name)

        # The same, pushed by the server; and the last message of each subject, to begin with.
        pushed = await stream.ordered_consumer(push=True, deliver_policy="last_per_subject")
        async with pushed.messages() as messages:
            for _ in range(3):
                message = await messages.next(timeout=5)
                print(message.subject, message.data.decode())


asyncio.run(main())
