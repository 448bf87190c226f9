"""Helpers for tests of push consumers."""

from __future__ import annotations

from typing import Any

from jetspark import Client, PushConsumer, PushSubscription
from jetspark.jetstream.message import JetStreamMessage
from tests.support.js import eventually_equal

__all__ = ["bound", "delivered", "push_consumer", "take"]


async def push_consumer(nc: Client, stream: str, **config: Any) -> PushConsumer:
    """A push consumer that stays for a while when nobody listens."""
    config = {"deliver_subject": nc.new_inbox(), "inactive_threshold": 60, **config}
    consumer: PushConsumer = await nc.jetstream().create_consumer(stream, **config)
    return consumer


async def take(messages: PushSubscription, count: int) -> list[JetStreamMessage]:
    """The next messages."""
    return [await messages.next(timeout=10) for _ in range(count)]


async def bound(consumer: PushConsumer) -> None:
    """Wait until the server knows that somebody listens."""

    async def is_bound() -> bool:
        return (await consumer.info()).push_bound

    await eventually_equal(is_bound, True)


async def delivered(consumer: PushConsumer) -> int:
    """The sequence of the last message that the server has sent."""
    return (await consumer.info()).delivered.stream_seq
