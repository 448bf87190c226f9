"""Ordered consumers: every message of a stream once and in order, whatever happens on the way.

This is the pull flavour, which is a pull consumer that is created again when something is lost;
`ordered_push` is the other one. Nothing is acknowledged: what the application has seen is kept
here, not on the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from jetspark.errors import (
    ConsumerDeletedError,
    ConsumerInUseError,
    ConsumerNotFoundError,
    JetSparkError,
    NoStreamResponseError,
)
from jetspark.jetstream.consumer_info import ConsumerInfo
from jetspark.protocol import Frame, MessageBatch

from .fetch import fetch_frames
from .messages import MessageStream, PullFeed, WarningHandler
from .ordered_config import OrderedOptions, OrderedPlan
from .ordered_route import OrderedRoute, OrderedSeries
from .pull import PullConsumer
from .pull_options import PullOptions, StreamOptions
from .pull_status import read_status
from .sequences import OrderCheck, first_sequence

if TYPE_CHECKING:
    from jetspark.jetstream.consumer_management import ConsumerManager

    from .arrow import ArrowStream

__all__ = ["OrderedConsumer", "OrderedFeed", "OrderedMessages"]


class OrderedFeed(OrderedRoute, PullFeed):
    """Pulls, and lets through only what comes next."""

    consumer: OrderedConsumer
    _ended: bool

    def __init__(
        self,
        consumer: OrderedConsumer,
        options: StreamOptions,
        on_warning: WarningHandler | None,
        **more: Any,
    ) -> None:
        super().__init__(consumer, options, on_warning, **more)
        self._check = OrderCheck()
        self._discarded_at: int | None = None  # the first sequence that was dropped unseen

    def _start(self) -> None:
        if self._ended:
            return
        self.client._check_open()
        fresh = self.consumer.begin_iteration(self)
        self._started = True
        self.client._add_route(self)
        if not fresh:
            self._reset(None)
        elif self.client.connected:
            self._check.begin(self.consumer.name)
            self._resume()

    def _suspend(self) -> None:
        self._stop_timers()

    def _listen(self, inbox: str) -> None:
        super()._listen(inbox)
        self._inbox = inbox.encode()

    def _resume(self) -> None:
        self._next_subject = self.consumer.next_subject
        self._forget_orders()
        self._watch()
        self._order()

    def _fail(self, error: JetSparkError) -> None:
        self._finish(error)

    def _order(self) -> None:
        if self._renewal is None:
            super()._order()

    def _on_silence(self, error: JetSparkError) -> None:
        self._reset(error)

    async def drain(self, timeout: float | None = None) -> None:
        """Ask for no more; what has arrived can still be taken, then the iteration ends."""
        self._stop_renewal()
        await super().drain(timeout)

    # -- arrival --------------------------------------------------------------------------------

    def deliver(self, batch: MessageBatch) -> None:
        """Queue what comes next in order; anything else makes a new consumer necessary."""
        self._last_arrival = self._loop.time()
        frames = batch.frames
        statuses: list[Frame] = []
        # A status has headers and no payload.
        if batch.has_headers and b"" in [frame[3] for frame in frames]:
            statuses = [frame for frame in frames if self._is_status(frame)]
            frames = [frame for frame in frames if not self._is_status(frame)]
        if accepted := self._in_order(frames):
            self._queue(accepted, batch.size)
        for status in statuses:  # after the messages, which they may be the end of
            if self._renewal is None:
                self._on_status(status[2])  # type: ignore[arg-type]
        if statuses:
            self._order()

    def _on_status(self, header: bytes) -> None:
        status = read_status(header)
        if status.status == 503 or "consumer deleted" in status.description.lower():
            self._reset(self._status_error(status))
        else:
            super()._on_status(header)

    # -- where the next one goes on -------------------------------------------------------------

    @property
    def resume_sequence(self) -> int | None:
        """The first sequence that the application has not seen; None: as the user said."""
        return self._position()

    def _position(self) -> int | None:
        if self._discarded_at is not None:
            return self._discarded_at
        return first_sequence(self._waiting()) or self._next_sequence

    def _discard(self) -> None:
        self._discarded_at = self._position()
        super()._discard()


class OrderedMessages(OrderedFeed, MessageStream):
    """The messages of an ordered consumer, to iterate over."""


class OrderedConsumer(PullConsumer):
    """Reads a stream in order, each message once, without acknowledgements.

    >>> consumer = await stream.ordered_consumer(filter_subject="orders.>")  # doctest: +SKIP
    >>> async for message in consumer.messages():  # doctest: +SKIP
    ...     print(message.metadata.stream_sequence)

    If a message, the consumer or the connection is lost, a new consumer takes over right after the
    last message, which shows only as a warning. If that cannot be created, it is tried again and
    again (after 1, 2, 4, ... up to 10 seconds), or `max_reset_attempts` times, and then
    `OrderedConsumerResetError` is raised, as it is at once when the permission is missing.

    One iteration (`messages`, `consume`, `arrow_batches`) can run at a time; the next one goes on
    where it stopped. `fetch` and its like go on after the last message fetched, with a new consumer
    each time, which makes them slow. Both on one object raise `ConsumerInUseError`.
    """

    def __init__(self, series: OrderedSeries, info: ConsumerInfo) -> None:
        super().__init__(series.api, info)
        self.series = series
        self._fetched: OrderCheck | None = None  # what was fetched last
        self._fetching = False

    @classmethod
    async def create(
        cls, context: ConsumerManager, stream: str, **options: Unpack[OrderedOptions]
    ) -> OrderedConsumer:
        """Create the first consumer on the server."""
        series = OrderedSeries(context, stream, OrderedPlan(push=False, **options))
        return cls(series, await series.open())

    def adopt(self, info: ConsumerInfo) -> None:
        """Use the consumer that was created last."""
        self.cached_info = info
        self.next_subject = self.api.subjects.consumer_next(info.stream_name, info.name).encode()

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

    # -- iterating ------------------------------------------------------------------------------

    def begin_iteration(self, feed: OrderedFeed) -> bool:
        """Let an iteration begin; returns whether it can use the consumer that exists."""
        if self._fetched is not None:
            raise ConsumerInUseError(
                f"{self.description} is used with fetch; to iterate, make another ordered consumer"
            )
        return self.series.begin(feed)

    def _message_stream(
        self, options: StreamOptions, on_warning: WarningHandler | None
    ) -> MessageStream:
        return OrderedMessages(self, options, on_warning)

    def _arrow_stream(
        self,
        options: StreamOptions,
        on_warning: WarningHandler | None,
        rows: int,
        linger: float,
    ) -> ArrowStream:
        from .ordered_arrow import OrderedArrowStream

        return OrderedArrowStream(self, options, on_warning, rows=rows, linger=linger)

    # -- fetching -------------------------------------------------------------------------------

    async def _fetch_frames(self, options: PullOptions) -> tuple[list[Frame], JetSparkError | None]:
        if self.series.was_iterated:
            raise ConsumerInUseError(
                f"{self.description} is used with messages; to fetch, make another ordered consumer"
            )
        if self._fetching:
            raise ConsumerInUseError(f"{self.description} is busy with another fetch")
        self._fetching = True
        try:
            try:
                return await self._fetch_next(options)
            except (ConsumerDeletedError, NoStreamResponseError):
                return await self._fetch_next(options)  # with a new consumer
        finally:
            self._fetching = False

    async def _fetch_next(self, options: PullOptions) -> tuple[list[Frame], JetSparkError | None]:
        check = self._fetched = self._fetched or OrderCheck()
        series = self.series
        if not series.fresh:
            last = check.stream_sequence
            start = last + 1 if last else series.start
            self.adopt(await series.create(series.next_name(), start))
        series.fresh = False
        check.begin(self.name)
        frames, error = await fetch_frames(self, options)
        # What follows a gap comes again with the next fetch.
        accepted, _ = check.accept(frames)
        return list(accepted), error
