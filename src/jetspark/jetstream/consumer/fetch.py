"""One pull request and what comes of it: the engine of `fetch` and `next`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from jetspark.connection.connection import copy_error
from jetspark.connection.deadline import deadline
from jetspark.connection.subscription import Route
from jetspark.errors import (
    ConnectionDrainingError,
    DisconnectedError,
    JetSparkError,
    MaxBytesExceededError,
    MissingHeartbeatError,
    PermissionsError,
    TimeoutError,
    status_error,
)
from jetspark.jetstream.message import JetStreamMessage
from jetspark.protocol import Frame, MessageBatch, parse_headers, parse_status

from .messages import size_counter
from .pull_options import PullOptions
from .pull_status import Reaction, read_status

if TYPE_CHECKING:
    from .pull import PullConsumer

__all__ = ["FetchedMessages", "fetch_frames"]

SLACK = 1.0  # seconds after which the server should have said that the time is over
NO_WAIT = 3.0  # seconds that a request takes at most which does not wait


class FetchedMessages(list[JetStreamMessage]):
    """The messages of a fetch; `error` is set when it ended early for a reason."""

    error: JetSparkError | None = None


class _Fetch(Route):
    def __init__(self, consumer: PullConsumer, options: PullOptions) -> None:
        client = consumer.api.client
        super().__init__(client, client.new_inbox())
        self.consumer = consumer
        self.options = options
        self.frames: list[Frame] = []
        self.error: JetSparkError | None = None
        self._inbox = self.subject.encode()
        self._size = 0
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._last_arrival = 0.0
        self._completed = False  # the server will send no more
        self._left = False  # what still arrives is given back

    async def run(self) -> None:
        client, options = self.client, self.options
        client._check_open()
        wait = NO_WAIT if options.expires is None else options.expires.total_seconds()
        if not client.connected:
            what = f"{self.consumer.description}: there was no connection"
            async with deadline(wait, what, may_have_taken_effect=False):
                await client._connection.wait_connected()
        client._add_route(self)
        timers = self._start_timers(wait)
        try:
            body = options.body(self.consumer.pin_id(options.priority.group))
            client._encoder.publish_trusted(self.consumer.next_subject, body, self._inbox)
            await self._done
        except asyncio.CancelledError:
            self.consumer.give_back(self.frames)
            raise
        finally:
            for timer in timers:
                timer.cancel()
            self._leave()

    def _leave(self) -> None:
        """Unsubscribe, upon which the server drops what is left of the request."""
        client = self.client
        if self._completed or self.consumer.no_acks or not client.connected:
            client._unsubscribe(self)
            return
        # Messages may be on their way, and would be lost until the server thinks of them again.
        self._left = True
        client._stop_sending(self)
        confirmed = self._loop.create_future()
        client._connection._send_ping(confirmed)
        confirmed.add_done_callback(self._on_confirmed)

    def _on_confirmed(self, confirmed: asyncio.Future[None]) -> None:
        if not confirmed.cancelled():
            confirmed.exception()  # that the connection is lost is as good
        self.client._unsubscribe(self)

    def _start_timers(self, wait: float) -> list[asyncio.TimerHandle]:
        options = self.options
        timers = [self._loop.call_later(wait + SLACK, self._expire)]
        if options.heartbeat is not None:
            self._last_arrival = self._loop.time()
            self._watch(timers, 2 * options.heartbeat.total_seconds())
        return timers

    def _expire(self) -> None:
        """End without a word of the server that it is over."""
        error = None
        if self.options.expires is None:
            error = TimeoutError(
                f"{self.consumer.description}: no answer in {NO_WAIT + SLACK:g} s",
                may_have_taken_effect=False,
            )
        self._finish(error)

    def _watch(self, timers: list[asyncio.TimerHandle], limit: float) -> None:
        silence = self._loop.time() - self._last_arrival
        if silence >= limit:
            self._finish(
                MissingHeartbeatError(
                    f"{self.consumer.description}: no message and no heartbeat for {silence:.1f} s"
                )
            )
        else:
            timers[1:] = [self._loop.call_later(limit - silence, self._watch, timers, limit)]

    def deliver(self, batch: MessageBatch) -> None:
        """Collect messages and look for the status that ends the request."""
        self._last_arrival = self._loop.time()
        frames = batch.frames
        if self._left:
            self.consumer.give_back(frames)
            return
        if batch.has_headers and b"" in [frame[3] for frame in frames]:  # as a status has it
            frames = [frame for frame in frames if not self._take_status(frame)]
        self.frames += frames
        if len(self.frames) >= self.options.max_messages:
            self._complete(None)
        elif self.options.max_bytes is not None:
            self._size += sum(map(size_counter(self.consumer), frames))
            if self._size >= self.options.max_bytes:
                self._complete(None)

    def _take_status(self, frame: Frame) -> bool:
        header = frame[2]
        if header is None or frame[3] or frame[0] != self._inbox:
            return False
        if parse_status(header)[0] is None:
            return False
        status = read_status(header)
        if status.reaction is Reaction.HEARTBEAT:
            return True
        error: JetSparkError | None = None
        if status.reaction is not Reaction.ENDED:
            error = status_error(
                status.status, status.description, context=self.consumer.description
            )
        if status.reaction is Reaction.UNPINNED:
            self.consumer.unpin(self.options.priority.group)
        self._complete(error)
        return True

    def publish_refused(self, error: PermissionsError) -> None:
        """End if asking is not permitted."""
        if error.subject.encode() == self.consumer.next_subject:
            self._finish(copy_error(error))

    def disconnected(self) -> None:
        """End: the server has forgotten the request."""
        self._finish(
            DisconnectedError(f"{self.consumer.description}: the connection was lost in a fetch")
        )

    def end(self, error: BaseException | None) -> None:
        """End with the connection, or with its draining."""
        if self._done.done():
            return
        if isinstance(error, JetSparkError):
            self._finish(error)
        elif self.client.closed:
            self._finish(self.client._connection.closed_error())
        else:
            self._finish(ConnectionDrainingError("the connection is draining"))

    def _complete(self, error: JetSparkError | None) -> None:
        """End because the server has sent all that it will send."""
        self._completed = True
        self._finish(error)

    def _finish(self, error: JetSparkError | None) -> None:
        if not self._done.done():
            self.error = error
            self._done.set_result(None)


async def fetch_frames(
    consumer: PullConsumer, options: PullOptions
) -> tuple[list[Frame], JetSparkError | None]:
    """Send one pull request and collect what it brings.

    An error is raised if there is nothing else to return.
    """
    fetch = _Fetch(consumer, options)
    await fetch.run()
    frames, error = fetch.frames, fetch.error
    if not frames and error is not None:
        raise error
    if isinstance(error, MaxBytesExceededError):
        error = None  # it is as many as fit
    if consumer.pinned and frames and frames[-1][2] is not None:
        consumer.pin(options.priority.group, parse_headers(frames[-1][2]).get("Nats-Pin-Id"))
    return frames, error
