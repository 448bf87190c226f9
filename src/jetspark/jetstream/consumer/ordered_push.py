"""The push flavour of ordered consumers (ADR-17), for whoever prefers that the server delivers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

from jetspark.errors import ConsumerNotFoundError, JetSparkError
from jetspark.jetstream.consumer_info import ConsumerInfo
from jetspark.protocol import Frame, Headers

from .base import Consumer
from .messages import Consumption, MessageCallback, WarningHandler
from .ordered_config import OrderedOptions, OrderedPlan
from .ordered_route import OrderedRoute, OrderedSeries
from .push_feed import PushSubscription, last_delivered
from .sequences import OrderCheck, first_sequence

if TYPE_CHECKING:
    from jetspark.jetstream.consumer_management import ConsumerManager

__all__ = ["OrderedPushConsumer", "OrderedPushSubscription"]


class OrderedPushSubscription(OrderedRoute, PushSubscription):
    """The messages of an ordered push consumer, to iterate over or for a callback."""

    consumer: OrderedPushConsumer
    _pushes = True

    def __init__(
        self,
        consumer: OrderedPushConsumer,
        *,
        callback: MessageCallback | None = None,
        stop_after: int | None = None,
        on_warning: WarningHandler | None = None,
    ) -> None:
        # What is dropped would come again, and be dropped again: flow control is the limit.
        PushSubscription.__init__(
            self,
            consumer,
            callback=callback,
            stop_after=stop_after,
            on_warning=on_warning,
            pending_messages=0,
            pending_bytes=0,
        )
        self._check = OrderCheck()
        self._discarded_at: int | None = None  # the first sequence that was dropped unseen

    def _start(self) -> None:
        self.client._check_open()
        fresh = self.consumer.series.begin(self)
        if fresh:
            self._listen(self.consumer.config.deliver_subject)
            self._check.begin(self.consumer.name)
        super()._start()
        if not fresh:
            self._reset(None)

    def _suspend(self) -> None:
        self._stop_watching()

    def _listen(self, inbox: str) -> None:
        super()._listen(inbox)
        self._deliver_subject = inbox.encode()
        self._flow_answered = b""

    def _resume(self) -> None:
        self._watch()

    def _fail(self, error: JetSparkError) -> None:
        self.client._routes.pop(self.sid, None)
        self.client._stop_sending(self)
        self.end(error)

    def _on_silence(self, error: JetSparkError) -> None:
        self._reset(error)

    def _accept(self, frames: Sequence[Frame]) -> Sequence[Frame]:
        return self._in_order(frames)

    def _on_heartbeat(self, headers: Headers) -> None:
        delivered = last_delivered(headers)
        if self._renewal is not None or delivered is None:
            return
        if delivered[0] != self._check.consumer_sequence:
            self._reset_after_gap(delivered[0])

    async def drain(self, timeout: float | None = None) -> None:
        """Stop the server from sending more, then let the application take what has arrived."""
        self._stop_renewal()
        await super().drain(timeout)

    @property
    def resume_sequence(self) -> int | None:
        """The first sequence that the application has not seen; None: as the user said."""
        return first_sequence(self._waiting()) or self._discarded_at or self._next_sequence

    def _up_to_limit(self, frames: Sequence[Frame]) -> list[Frame]:
        kept = super()._up_to_limit(frames)
        self._discarded_at = first_sequence(frames[len(kept) :])
        return kept

    def discard(self) -> None:
        """Drop what waits."""
        self._discarded_at = self.resume_sequence
        super().discard()


class OrderedPushConsumer(Consumer):
    """Reads a stream in order, each message once, with a consumer that pushes.

    It survives like `OrderedConsumer`, except that an error of the server which will not pass by
    itself (the stream is gone, for example) ends the iteration with `OrderedConsumerResetError`.

    One iteration can run at a time; the next one goes on where it stopped.
    """

    def __init__(self, series: OrderedSeries, info: ConsumerInfo) -> None:
        super().__init__(series.api, info)
        self.series = series

    @classmethod
    async def create(
        cls, context: ConsumerManager, stream: str, **options: Unpack[OrderedOptions]
    ) -> OrderedPushConsumer:
        """Create the first consumer on the server; it delivers when somebody listens."""
        series = OrderedSeries(context, stream, OrderedPlan(push=True, **options))
        return cls(series, await series.open(context.client.new_inbox()))

    def adopt(self, info: ConsumerInfo) -> None:
        """Use the consumer that was created last."""
        self.cached_info = info

    async def info(self) -> ConsumerInfo:
        """Ask the server for the state of the consumer that is in use."""
        name = self.name
        info = await self._fetch_info()
        if self.name == name:  # else another one took over meanwhile
            self.cached_info = info
        return info

    async def delete(self) -> None:
        """Delete the consumer on the server, if it is there; reading on creates a new one."""
        try:
            await super().delete()
        except ConsumerNotFoundError:
            pass

    def messages(
        self, *, stop_after: int | None = None, on_warning: WarningHandler | None = None
    ) -> OrderedPushSubscription:
        """Iterate over the messages that the server pushes, without end or until `stop_after`.

        What goes wrong and passes is given to `on_warning`, by default to the events of the
        connection.
        """
        return OrderedPushSubscription(self, stop_after=stop_after, on_warning=on_warning)

    async def consume(
        self,
        callback: MessageCallback,
        *,
        stop_after: int | None = None,
        on_warning: WarningHandler | None = None,
    ) -> Consumption:
        """Have a callback (plain or async) called with each message, one after the other."""
        return Consumption(self.messages(stop_after=stop_after, on_warning=on_warning), callback)
