"""Ordered consumers of both flavours, for tests that hold for both."""

from __future__ import annotations

from typing import Any, TypeAlias

import pytest

from jetspark import Backoff, Client, OrderedConsumer, OrderedPushConsumer, Stream
from jetspark.jetstream.consumer import ordered_route
from jetspark.jetstream.consumer.messages import MessageStream
from jetspark.jetstream.consumer.push_feed import PushSubscription
from tests.support.js import Warnings, make_stream, sequences

__all__ = [
    "Flavour",
    "consumers",
    "flavour",
    "impatient",
    "new_stream",
    "number_of_consumers",
    "take",
]

Messages: TypeAlias = MessageStream | PushSubscription


class Flavour:
    """Makes ordered consumers of one kind that notice losses soon."""

    def __init__(self, push: bool) -> None:
        self.push = push
        self.warnings = Warnings()
        self.slow_push = {"idle_heartbeat": 5} if push else {}
        self.slow_pull = {} if push else {"heartbeat": 5, "expires": 30}

    async def make(self, stream: Stream, **options: Any) -> OrderedConsumer | OrderedPushConsumer:
        if self.push:
            return await stream.ordered_consumer(push=True, **{"idle_heartbeat": 0.1, **options})
        consumer: OrderedConsumer = await stream.ordered_consumer(**options)
        return consumer

    def read(self, consumer: OrderedConsumer | OrderedPushConsumer, **options: Any) -> Any:
        if isinstance(consumer, OrderedConsumer):
            options = {"expires": 1, "heartbeat": 0.1, **options}
        return consumer.messages(on_warning=self.warnings, **options)


@pytest.fixture(params=["pull", "push"])
def flavour(request: pytest.FixtureRequest) -> Flavour:
    """Both kinds, one after the other."""
    return Flavour(request.param == "push")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have failed attempts repeated at once, or nearly so."""
    monkeypatch.setattr(ordered_route, "RESET_BACKOFF", Backoff(initial=0.01, maximum=0.05))


async def new_stream(nc: Client, count: int = 0, **config: Any) -> Stream:
    return await nc.jetstream().get_stream(await make_stream(nc, count, **config))


async def take(messages: Messages, count: int) -> list[int]:
    return sequences([await messages.next(timeout=10) for _ in range(count)])


async def consumers(stream: Stream) -> list[str]:
    return [name async for name in stream.consumer_names()]


async def number_of_consumers(stream: Stream) -> int:
    return len(await consumers(stream))
