"""Publishes the events of the demo, and counts what it sent: one side of the books."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

import jetspark

from .orders import Event

__all__ = ["Sent", "publish", "publish_live"]

_CHUNK = 2000  # messages, half of which wait for their acknowledgements
_TICK = 0.05  # seconds
_LAST_WAIT = 10.0  # seconds


@dataclass
class Sent:
    """What was published, as the publisher knows it."""

    messages: int = 0
    """Acknowledged by the server, stored or not."""
    refused: int = 0
    """Of these, not stored, because their id was there already."""
    kinds: Counter[str] = field(default_factory=Counter)
    cents: int = 0
    """The amounts of all orders that should be stored, repeats included."""
    last_sequence: int = 0

    @property
    def orders(self) -> int:
        """Orders that should be stored, repeats included."""
        return self.kinds["order"] + self.kinds["late"] + self.kinds["repeat"]

    def note(self, event: Event, ack: jetspark.PublishAck) -> None:
        """Count an event that the server has acknowledged."""
        self.messages += 1
        self.kinds[event.kind] += 1
        self.refused += ack.duplicate
        if event.kind != "duplicate":
            self.cents += event.cents
        self.last_sequence = max(self.last_sequence, ack.sequence)


Told = Callable[[], None]


async def publish(
    js: jetspark.JetStream, events: Iterator[Event], sent: Sent, told: Told = lambda: None
) -> None:
    """Publish events as fast as the server takes them; `told` is called now and then."""
    waiting: list[tuple[Event, jetspark.PublishAckFuture]] = []
    try:
        while chunk := list(islice(events, _CHUNK)):
            under_way = [
                (event, await js.publish_async(event.subject, event.data, msg_id=event.msg_id))
                for event in chunk
            ]
            await _settle(waiting, sent)
            waiting = under_way
            told()
        await _settle(waiting, sent)
    except asyncio.CancelledError:  # Ctrl-C: what is under way arrives first
        await js.publish_async_complete(timeout=_LAST_WAIT)
        raise
    told()


async def publish_live(
    js: jetspark.JetStream,
    events: Iterator[Event],
    sent: Sent,
    *,
    rate: float,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Publish about `rate` events a second until there are none, or until it is stopped."""
    begin, count = time.monotonic(), 0
    while not stopped():
        due = int((time.monotonic() - begin) * rate) + 1 - count
        chunk = list(islice(events, due))
        if due > 0 and not chunk:
            return
        count += len(chunk)
        await publish(js, iter(chunk), sent)
        await asyncio.sleep(_TICK)


async def _settle(waiting: list[tuple[Event, jetspark.PublishAckFuture]], sent: Sent) -> None:
    for event, future in waiting:
        sent.note(event, await future)
