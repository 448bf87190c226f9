"""Helpers for tests of consumers: streams filled quickly, sequences, and what a consumer counts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from jetspark import Client, HeadersLike, JetStream
from jetspark.connection.nuid import next_nuid
from jetspark.errors import JetSparkError
from jetspark.jetstream import ConsumerInfo
from jetspark.jetstream.consumer import PullConsumer
from jetspark.jetstream.message import JetStreamMessage
from tests.support.clients import eventually
from tests.support.streams import store

__all__ = [
    "Warnings",
    "all_acked",
    "consumer_state",
    "eventually_equal",
    "fill",
    "make_consumer",
    "make_stream",
    "sequences",
    "served",
    "settled",
    "waiting_requests",
]

T = TypeVar("T")


async def make_stream(client: Client, count: int = 0, *, size: int = 0, **config: Any) -> str:
    """A stream in memory with `count` messages in it; its subjects begin with its name."""
    name = f"T_{next_nuid()}"
    await client.jetstream().create_stream(
        **{"name": name, "subjects": [f"{name}.>"], "storage": "memory", **config}
    )
    await fill(client, name, count, size=size)
    return name


async def fill(
    client: Client,
    stream: str,
    count: int,
    *,
    start: int = 0,
    size: int = 0,
    headers: Callable[[int], HeadersLike | None] = lambda number: None,
    timeout: float = 20,
) -> None:
    """Store messages with the numbers from `start` on as payload, padded to a size."""
    last = start + count - 1
    for number in range(start, start + count):
        subject, data = f"{stream}.{number % 7}", (b"%d" % number).ljust(size)
        # A stream that has stored the first one hears the others, too, and it stores in order: so
        # its answer to the last one is for all.
        if number in (start, last):
            await store(client, subject, data, headers(number), timeout=timeout)
        else:
            await client.publish(subject, data, headers=headers(number))


async def make_consumer(client: Client | JetStream, stream: str, **config: Any) -> PullConsumer:
    """A durable pull consumer, unless the configuration says otherwise."""
    js = client.jetstream() if isinstance(client, Client) else client
    if not config.keys() & {"durable_name", "name"}:
        config["durable_name"] = "c"
    consumer: PullConsumer = await js.create_consumer(stream, **config)
    return consumer


def sequences(messages: Iterable[JetStreamMessage]) -> list[int]:
    """The sequences in the stream."""
    return [message.metadata.stream_sequence for message in messages]


class Warnings(list[JetSparkError]):
    """An `on_warning` that collects."""

    def __call__(self, error: JetSparkError) -> None:
        self.append(error)

    @property
    def kinds(self) -> list[type[JetSparkError]]:
        return [type(error) for error in self]

    async def wait(self, kind: type[JetSparkError], count: int = 1) -> None:
        """Wait until there were so many of a kind."""
        await eventually(lambda: self.kinds.count(kind) >= count)


async def waiting_requests(consumer: PullConsumer) -> int:
    """How many pull requests the server holds."""
    return (await consumer.info()).num_waiting


async def served(consumer: PullConsumer, requests: int = 1) -> None:
    """Wait until the server holds so many requests of a consumer."""
    await eventually_equal(lambda: waiting_requests(consumer), requests)


async def consumer_state(consumer: PullConsumer) -> tuple[int, int, int]:
    """What is not acknowledged, what was not delivered, and the acknowledgement floor."""
    info: ConsumerInfo = await consumer.info()
    return info.num_ack_pending, info.num_pending, info.ack_floor.stream_seq


async def all_acked(consumer: PullConsumer, count: int) -> None:
    """Wait until all of so many messages are delivered and acknowledged."""
    await eventually_equal(lambda: consumer_state(consumer), (0, 0, count))


async def eventually_equal(read: Callable[[], Awaitable[T]], wanted: T) -> None:
    """Wait until something that has to be asked for is as it should be."""
    found: list[T] = []
    try:
        async with asyncio.timeout(20):
            while not found or found[-1] != wanted:
                try:
                    found.append(await read())
                except JetSparkError as error:
                    if not error.retryable:  # else it has no leader at the moment
                        raise
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"{found[-1:]} did not become {wanted}") from None


async def settled(read: Callable[[], Awaitable[T]], turns: int = 3, pause: float = 0.05) -> T:
    """What something is when it has not changed for some turns."""
    last, same = await read(), 0
    while same < turns:
        await asyncio.sleep(pause)
        now = await read()
        last, same = now, same + 1 if now == last else 0
    return last
