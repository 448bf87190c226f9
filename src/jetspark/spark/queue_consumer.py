"""The durable consumer of a query that reads a work queue: it acknowledges what is committed.

The rows of a batch are not what the consumer delivers: they are read from the stream by their
sequences, so that a batch that is run again has the same rows. What keeps them there is that they
are not acknowledged before Spark has committed the batch. Only then are they taken from the
consumer, and acknowledged at once. So the figures of the consumer mean what they say: the ack floor
is what Spark has committed, what is pending it has not, and no batch takes too long for an ack
wait.

What a driver took and did not acknowledge, because it died, comes back after the ack wait, and then
is acknowledged if it was committed. The consumer must be for the query alone, since what somebody
else takes from it would be missing in a batch.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from jetspark.errors import (
    CheckpointError,
    ConsumerMismatchError,
    ConsumerNotFoundError,
    JetSparkError,
    StalledReadError,
)
from jetspark.jetstream import AckPolicy, ConsumerConfig, JetStreamMessage, PullConsumer, Stream

from .connection import persist
from .range_reader import next_sequence

__all__ = ["QueueConsumer"]

P = ParamSpec("P")
T = TypeVar("T")

AT_A_TIME = 1000  # messages
WAIT = 1.0  # seconds for messages that must be there
ASK_AGAIN = 1.0  # seconds until it is seen whether something has come back


class QueueConsumer:
    """Acknowledges messages by their place in the stream."""

    def __init__(
        self, stream: Stream, consumer: PullConsumer, patience: float, *, new: bool
    ) -> None:
        self.subjects = _filters(consumer.config)
        """What it is for; empty: everything."""
        self._stream = stream
        self._consumer = consumer
        self._patience = patience
        self._new = new  # and nothing can have been read with it
        self._done = 0  # all up to here is acknowledged, apart from what is out
        self._held: dict[int, JetStreamMessage] = {}  # taken, and not committed yet
        self._out = False  # something was taken by a driver before, or acknowledged in vain
        self._asked = 0.0

    @classmethod
    async def open(
        cls, stream: Stream, name: str, subjects: tuple[str, ...], patience: float, *, create: bool
    ) -> QueueConsumer | None:
        """The consumer of that name; if there is none, it may be created."""
        new = False
        try:
            consumer = await stream.get_consumer(name)
        except ConsumerNotFoundError:
            if not create:
                return None
            new = True
            consumer = await stream.create_consumer(
                durable_name=name,
                ack_policy=AckPolicy.EXPLICIT,
                filter_subjects=subjects,
                headers_only=True,  # the payloads are read elsewhere
                description="Acknowledges what a Spark query has committed, see jetspark.spark",
            )
        _check(stream.name, consumer.config, subjects)
        return cls(stream, consumer, patience, new=new)

    async def committed(self) -> int:
        """The last sequence that needs no reading any more."""
        info = await self._consumer.info()
        first = (await self._stream.info()).state.first_seq
        return max(info.ack_floor.stream_seq, first - 1, 0)

    async def acknowledge(self, up_to: int) -> None:
        """Acknowledge everything up to a sequence."""
        if up_to > self._done:
            await self._take(up_to)
            self._done = up_to
        elif not self._out or time.monotonic() - self._asked < ASK_AGAIN:
            return
        else:
            await self._take_back()
        pending = (await self._persist(self._consumer.info)).num_ack_pending
        self._out = pending > len(self._held)
        self._asked = time.monotonic()

    async def check_start(self, up_to: int) -> None:
        """Raise if something has been read and committed before the consumer was created."""
        if self._new and up_to > await self._persist(self.committed):
            # So that the next attempt does not take it for an old one.
            await self._consumer.delete()
            raise CheckpointError(
                f"consumer {self._consumer.name!r} of stream {self._stream.name!r} is new, and the "
                f"query has read the stream up to {up_to}; was one of them deleted? Start the "
                "query with a new checkpoint"
            )
        self._new = False

    async def _take(self, up_to: int) -> None:
        """Take from the consumer what it has up to a sequence, and acknowledge it."""
        info = await self._persist(self._consumer.info)
        delivered = info.delivered.stream_seq
        most = info.config.max_ack_pending
        waited = 0.0
        await self._acknowledge_held(up_to)
        while True:
            following = await self._persist(
                next_sequence, self._stream, self.subjects, delivered + 1
            )
            if following is None or following > up_to:
                return
            # No more than can be committed, as far as that is known: they would have to be held.
            count = min(AT_A_TIME, up_to - following + 1, most if most > 0 else AT_A_TIME)
            messages = await self._persist(self._consumer.fetch, max_messages=count, timeout=WAIT)
            for message in messages:
                self._held[message.metadata.stream_sequence] = message
            delivered = max([delivered, *(each.metadata.stream_sequence for each in messages)])
            await self._acknowledge_held(up_to)
            waited = 0.0 if messages else waited + WAIT
            if waited >= self._patience:
                raise StalledReadError(
                    f"consumer {self._consumer.name!r} of stream {self._stream.name!r} delivers "
                    f"nothing, although the stream has message {following} for it; is it paused, "
                    "or used by somebody else?"
                )

    async def _take_back(self) -> None:
        """Take what has come back because it was not acknowledged in time."""
        pending = (await self._persist(self._consumer.info)).num_ack_pending - len(self._held)
        if pending > 0:
            for message in await self._consumer.fetch_no_wait(min(pending, AT_A_TIME)):
                self._held[message.metadata.stream_sequence] = message
        await self._acknowledge_held(self._done)

    async def _acknowledge_held(self, up_to: int) -> None:
        sequences = sorted(sequence for sequence in self._held if sequence <= up_to)
        messages = [self._held.pop(sequence) for sequence in sequences]
        if not messages:
            return
        try:
            for message in messages[:-1]:
                await message.ack()
            # The server takes them in their order: if it has noted the last one, it has them all.
            await messages[-1].double_ack()
        except JetSparkError as error:
            if not error.retryable:
                raise
            # They come back, if they did not arrive.

    async def _persist(
        self, call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await persist(self._patience, call, *args, **kwargs)


def _filters(config: ConsumerConfig) -> tuple[str, ...]:
    if config.filter_subject:
        return (config.filter_subject,)
    return tuple(config.filter_subjects or ())


def _check(stream: str, config: ConsumerConfig, subjects: tuple[str, ...]) -> None:
    """Refuse a consumer that is not fit for it."""
    name = config.durable_name or config.name
    what = f"jetstream: option 'consumer': consumer {name!r} of stream {stream!r}"
    if config.deliver_subject:
        raise ConsumerMismatchError(f"{what} is a push consumer; name a pull consumer")
    if config.ack_policy == AckPolicy.NONE:
        raise ConsumerMismatchError(
            f"{what} takes no acknowledgements; name one with ack policy explicit"
        )
    if config.max_deliver > 0:
        raise ConsumerMismatchError(
            f"{what} gives up after {config.max_deliver} deliveries (max_deliver), and would leave "
            "messages unacknowledged for ever; let it deliver without limit"
        )
    if subjects and set(subjects) != set(_filters(config)):
        has = ", ".join(_filters(config)) or "none"
        raise ConsumerMismatchError(
            f"{what} has other filters than option 'subjects' says: {has}; leave the option out, "
            "or change the consumer"
        )
