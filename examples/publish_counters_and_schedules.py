"""Count on the server, and have it publish messages at given times (2.12 or newer)."""

import asyncio
from datetime import UTC, datetime, timedelta

import jetspark
from jetspark import Schedule
from jetspark.errors import MessageNotFoundError
from jetspark.server import run_server


async def count(js: jetspark.JetStream) -> None:
    stream = await js.create_stream(
        name="COUNTS", subjects=["count.>"], allow_msg_counter=True, allow_direct=True
    )
    await js.counter_add("count.visitors")
    await js.counter_add("count.visitors", 10)
    print("visitors:", await js.counter_add("count.visitors", -1))
    print("asked again:", (await stream.get_counter("count.visitors")).value)


async def schedule(js: jetspark.JetStream) -> None:
    stream = await js.create_stream(
        name="REMINDERS", subjects=["plan.>", "due.>"], allow_msg_schedules=True
    )
    soon = datetime.now(UTC) + timedelta(seconds=0.2)
    await js.publish("plan.tea", b"the tea is ready", schedule=Schedule.at(soon, "due.tea"))
    while True:
        try:
            message = await stream.get_last_message("due.tea")
        except MessageNotFoundError:
            await asyncio.sleep(0.05)
        else:
            break
    print(message.data.decode(), "- scheduled on", message.headers["Nats-Scheduler"])


async def main() -> None:
    async with run_server() as server, await jetspark.connect(server.url) as nc:
        js = nc.jetstream()
        await count(js)
        await schedule(js)


asyncio.run(main())
