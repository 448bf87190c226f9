"""An ordered consumer that knows when nothing more is to come."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self, Unpack

from jetspark.errors import JetSparkError, StreamNotFoundError, TimeoutError
from jetspark.jetstream import OrderedConsumer, OrderedOptions
from jetspark.jetstream.consumer.messages import WarningHandler
from jetspark.jetstream.consumer.ordered import OrderedFeed
from jetspark.jetstream.consumer.ordered_config import OrderedPlan
from jetspark.jetstream.consumer.ordered_route import OrderedSeries
from jetspark.jetstream.consumer.pull_options import PriorityOptions, StreamOptions
from jetspark.jetstream.message import parse_metadata
from jetspark.protocol import Frame

if TYPE_CHECKING:
    from jetspark.jetstream.consumer_management import ConsumerManager

__all__ = ["Feed"]

EXPIRES = 30.0  # seconds of one request for messages
_SHORT_FORM_DOTS = 8
FIRST_LOOK = 0.1  # seconds without a message until the server is asked whether one will come


class Feed(OrderedFeed):
    """Takes messages as they arrive, several at a time.

    It goes on after losses as every ordered consumer does, and fails if the stream is gone.
    """

    def __init__(
        self,
        consumer: OrderedConsumer,
        options: StreamOptions,
        on_warning: WarningHandler | None,
    ) -> None:
        super().__init__(consumer, options, on_warning)
        self.pending = consumer.cached_info.num_pending
        """How many messages were to follow when the server last spoke of it."""

    @classmethod
    async def open(
        cls,
        context: ConsumerManager,
        stream: str,
        *,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        on_warning: WarningHandler | None = None,
        **options: Unpack[OrderedOptions],
    ) -> Self:
        """Create the consumer; so many messages or bytes are on order or wait here."""
        series = OrderedSeries(context, stream, OrderedPlan(push=False, **options))
        try:
            consumer = OrderedConsumer(series, await series.open())
        except BaseException:
            series.leave()  # the server may have created it all the same
            raise
        order = consumer._stream_options(
            max_messages, max_bytes, EXPIRES, None, None, None, None, PriorityOptions()
        )
        return cls(consumer, order, on_warning)

    def _resume(self) -> None:
        # After a loss: the rest may have gone with it.
        self.pending = self.consumer.cached_info.num_pending
        self._wake()
        super()._resume()

    def _is_hopeless(self, error: JetSparkError) -> bool:
        return super()._is_hopeless(error) or isinstance(error, StreamNotFoundError)

    @property
    def ended(self) -> bool:
        """Whether nothing more will come, because it was stopped or the client is closed."""
        return self._ended

    def begin(self) -> None:
        """Ask for messages, unless that has been done."""
        if not self._started:
            self._start()

    async def take(self) -> Sequence[Frame]:
        """The messages that have come, or the next ones; none if the feed has ended."""
        self.begin()
        while True:
            if frames := self._take_frames(1 << 30):
                self.pending = _pending(frames[-1][1])
                return frames
            if self._ended:
                if self._error is not None:
                    raise self._error
                return []
            await self._arrival()

    async def take_rest(self, timeout: float | None = None) -> Sequence[Frame]:
        """Like `take`, for messages that are in the stream; none if there are no more.

        Raises `TimeoutError` if there are more, and none comes in time.
        """
        self.begin()
        end = float("inf") if timeout is None else self._loop.time() + timeout
        patience = FIRST_LOOK
        while not (self._batches or self._ended):
            if not self.pending and self._renewal is None:
                return []
            now = self._loop.time()
            if now >= end:
                raise TimeoutError(
                    f"{self.consumer.description}: no message in {timeout} s, and {self.pending} "
                    "are to come",
                    may_have_taken_effect=False,
                )
            await self._arrival(min(now + patience, end))
            if self._loop.time() >= now + patience:
                patience *= 2
                await self._look(None if timeout is None else end)
        return await self.take()

    async def _look(self, end: float | None) -> None:
        """Ask whether anything will come: messages may be purged before they are delivered."""
        name, received = self.consumer.name, self.received
        try:
            async with asyncio.timeout_at(end):
                info = await self.consumer.info()
        except (JetSparkError, builtins.TimeoutError):
            return  # what is wrong will show itself
        if self.received == received and self.consumer.name == name:
            self.pending = info.num_pending

    def close(self) -> None:
        """Give up; the server forgets the consumer."""
        self._discard()
        self._finish(None)
        self.consumer.series.leave()

    async def stop(self) -> None:
        """Like `close`."""
        self.close()


def _pending(reply: bytes | None) -> int:
    """The number of messages to follow, which is the last token of the usual reply subject."""
    if reply is not None and reply.count(b".") == _SHORT_FORM_DOTS:
        return int(reply[reply.rfind(b".") + 1 :])
    return parse_metadata(reply).num_pending
