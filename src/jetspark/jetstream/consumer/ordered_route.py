"""How an ordered consumer survives: the part that its pull and its push flavour share.

When anything is lost (a message, the consumer, the connection) a new consumer is created that
begins after the last message that arrived, and the old one is deleted. Each has a name and an
inbox of its own, so that nothing of the old one can be taken for the new one's.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from jetspark.connection.backoff import Backoff
from jetspark.connection.subscription import Route
from jetspark.errors import (
    APIError,
    ConsumerInUseError,
    DisconnectedError,
    JetSparkError,
    JetStreamNotEnabledError,
    LimitReachedError,
    OrderedConsumerResetError,
    PermissionsError,
    StreamReplacedError,
)
from jetspark.jetstream.api import ApiClient
from jetspark.jetstream.consumer_config import DeliverPolicy
from jetspark.jetstream.consumer_info import ConsumerInfo
from jetspark.jetstream.stream_info import StreamInfo
from jetspark.protocol import Frame

from .ordered_config import OrderedPlan
from .sequences import Gap, OrderCheck

if TYPE_CHECKING:
    from jetspark.jetstream.consumer_management import ConsumerManager

__all__ = ["OrderedRoute", "OrderedSeries"]

_PASSING = (JetStreamNotEnabledError, LimitReachedError)  # although they need not

CLOCKS_DIFFER = timedelta(seconds=1)  # between the servers of a cluster, at most
RESET_BACKOFF = Backoff(initial=1.0, maximum=10.0, factor=2.0)


class OrderedSeries:
    """The consumers of one ordered consumer, of which only the last is in use."""

    def __init__(self, context: ConsumerManager, stream: str, plan: OrderedPlan) -> None:
        self.plan = plan
        self.stream = stream
        self.start: int | None = None  # the sequence to begin with; None: as the user said
        self.fresh = False  # the last one exists, and nobody has read from it
        self._context = context
        self._name = ""  # of the last one
        self._opened: datetime | None = None  # when the server created the first one
        self._reader: OrderedRoute | None = None  # the iteration that is running, or ran last

    @property
    def api(self) -> ApiClient:
        """Where requests go to."""
        return self._context.api

    @property
    def max_attempts(self) -> int | None:
        """How often it may fail to create a consumer."""
        return self.plan.max_attempts

    async def open(self, deliver_subject: str = "") -> ConsumerInfo:
        """Create the first one."""
        try:
            info = await self.create(self.next_name(), None, deliver_subject)
        except BaseException:
            self.leave()  # the server may have created it all the same
            raise
        self.fresh = True
        self._opened = info.created
        if self.plan.config.deliver_policy in (DeliverPolicy.NEW, DeliverPolicy.LAST):
            # One that had to be created again before the first message would begin elsewhere.
            self.start = info.delivered.stream_seq + 1
        return info

    @property
    def was_iterated(self) -> bool:
        """Whether there has been an iteration."""
        return self._reader is not None

    def begin(self, reader: OrderedRoute) -> bool:
        """Let an iteration begin where the one before stopped.

        Returns whether the last consumer can be used for it.
        """
        if self._reader is not None:
            if not self._reader._ended:
                raise ConsumerInUseError(
                    f"{reader.consumer.description} is being iterated over; stop that first, or "
                    "make another ordered consumer"
                )
            self.start = self._reader.resume_sequence
        self._reader = reader
        fresh, self.fresh = self.fresh, False
        return fresh

    def finish(self, reader: OrderedRoute) -> None:
        """Note that an iteration has ended: its consumer is not needed any more."""
        if reader is self._reader:
            self.leave()

    def next_name(self) -> str:
        """Give up the last one and return the name of the next."""
        self.leave()
        self.fresh = False
        self._name = self.plan.next_name()
        self.api.client._guests.add(self)
        return self._name

    async def create(self, name: str, start: int | None, deliver_subject: str = "") -> ConsumerInfo:
        """Create the next one, which begins at a sequence."""
        config = self.plan.config_for(name, start, deliver_subject)
        return (await self._context.create_consumer(self.stream, config)).cached_info

    async def check_stream(self, start: int | None) -> None:
        """Raise if the stream is another one now, or ends before the sequence to begin with."""
        context = f"stream {self.stream!r}"
        try:
            info = await self.api.fetch(
                StreamInfo,
                self.api.subjects.stream_info(self.stream),
                context=context,
                idempotent=True,
            )
        except PermissionsError:
            return  # then it cannot be told
        newer = (
            info.created is not None
            and self._opened is not None
            and info.created > self._opened + CLOCKS_DIFFER
        )
        if newer or (start is not None and info.state.last_seq < start - 1):
            raise StreamReplacedError(
                f"{context} was deleted and created again (at {info.created}); what it holds now "
                f"cannot be a continuation. {StreamReplacedError.advice.capitalize()}"
            )

    def leave(self) -> None:
        """Have the last one deleted, if that can be done at once; nobody waits for the answer."""
        client = self.api.client
        if self._name and client.connected:
            subject = self.api.subjects.consumer_delete(self.stream, self._name)
            client._encoder.publish_trusted(subject.encode(), b"")
        self._name = ""


class _Ordered(Protocol):
    """What is asked of the consumer."""

    series: OrderedSeries

    @property
    def description(self) -> str: ...

    def adopt(self, info: ConsumerInfo) -> None:
        """Use the consumer that was created last."""


class OrderedRoute(Route):
    """A route that moves to a new consumer when something is lost."""

    consumer: _Ordered
    _ended: bool
    _check: OrderCheck
    _renewal: asyncio.Task[None] | None = None  # creates the next consumer
    _pushes = False  # the consumer delivers by itself

    # -- for the two flavours -------------------------------------------------------------------

    if TYPE_CHECKING:  # it is in the other base class

        def _warn(self, error: JetSparkError) -> None: ...

    def _suspend(self) -> None:
        """Stop all timers."""
        raise NotImplementedError

    def _listen(self, inbox: str) -> None:
        """Expect statuses on another inbox."""
        self.subject = inbox

    def _resume(self) -> None:
        """Begin with the consumer that was created."""
        raise NotImplementedError

    def _fail(self, error: JetSparkError) -> None:
        """End with an error."""
        raise NotImplementedError

    @property
    def resume_sequence(self) -> int | None:
        """The first sequence that the application has not seen; None: as the user said."""
        raise NotImplementedError

    # -- resetting ------------------------------------------------------------------------------

    @property
    def _next_sequence(self) -> int | None:
        """The sequence to go on with."""
        last = self._check.stream_sequence
        return last + 1 if last else self.consumer.series.start

    def _in_order(self, frames: Sequence[Frame]) -> Sequence[Frame]:
        """The messages that come next; if one is missing, a new consumer has to bring the rest."""
        accepted, surprise = self._check.accept(frames)
        if surprise is not None:
            self._reset_after_gap(surprise)
        return accepted

    def _reset_after_gap(self, received: int) -> None:
        gap = Gap(self._check.consumer_sequence + 1, received, self._next_sequence or 1)
        self._reset(gap.error(self.consumer.description))

    def _reset(self, reason: JetSparkError | None) -> None:
        """Create a new consumer, unless that is under way."""
        if self._ended or self.stopped or self._renewal is not None:
            return
        self._check.begin("")  # whatever still arrives is not wanted
        self._suspend()
        loop = asyncio.get_running_loop()
        self._renewal = loop.create_task(
            self._renew(), name=f"jetspark {self.consumer.description}: reset"
        )
        self.client._own(self._renewal)
        if reason is not None:
            self._warn(reason)

    def _stop_renewal(self) -> None:
        if self._renewal is not None and self._renewal is not asyncio.current_task():
            self._renewal.cancel()
        self._renewal = None

    async def _renew(self) -> None:
        series = self.consumer.series
        failures = 0
        while True:
            try:
                await self.client._connection.wait_connected()
                info = await self._create_next()
                break
            except DisconnectedError:
                continue
            except JetSparkError as error:
                failures += 1
                if self._is_hopeless(error) or failures == series.max_attempts:
                    self._renewal = None
                    failure = OrderedConsumerResetError(
                        f"{self.consumer.description}: it broke off and could not be created "
                        f"again: {error}"
                    )
                    failure.__cause__ = error
                    self._fail(failure)
                    return
                self._warn(error)
            await asyncio.sleep(RESET_BACKOFF.delay(failures, random.random()))
        self._renewal = None
        self.consumer.adopt(info)
        self._resume()

    async def _create_next(self) -> ConsumerInfo:
        series = self.consumer.series
        await series.check_stream(self._next_sequence)
        name = series.next_name()
        self._move()
        self._check.begin(name)  # a push consumer may deliver before we know that it exists
        deliver_subject = self.subject if self._pushes else ""
        return await series.create(name, self._next_sequence, deliver_subject)

    def _move(self) -> None:
        """Listen to a new inbox instead of the old one."""
        client = self.client
        if client._routes.pop(self.sid, None) is not None:
            client._stop_sending(self)
        self.stopped = False
        self._listen(client.new_inbox())
        client._add_route(self)

    def _is_hopeless(self, error: JetSparkError) -> bool:
        """Whether creating the consumer will not succeed later either (ADR-17)."""
        return isinstance(error, PermissionsError | StreamReplacedError) or (
            self._pushes
            and isinstance(error, APIError)
            # The limit of consumers may be reached because the old one is not gone yet.
            and not (error.retryable or isinstance(error, _PASSING))
        )

    def restored(self) -> None:
        """Begin anew: what the old connection carried may be lost, and the consumer too."""
        self._reset(None)

    def end(self, error: BaseException | None) -> None:
        """Note that nothing more will arrive; the consumer is not needed any more."""
        self._stop_renewal()
        super().end(error)
        self.consumer.series.finish(self)
