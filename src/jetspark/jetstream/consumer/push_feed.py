"""The messages that a push consumer delivers, for `PushConsumer` and for `subscribe`.

It is a subscription to the deliver subject that knows what else a server sends there: heartbeats,
which tell that it lives and what it has delivered, and requests of flow control. None of that
reaches the application.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Self

from jetspark.connection.subscription import Subscription
from jetspark.errors import (
    ConsumerNotFoundError,
    InvalidArgumentError,
    InvalidOptionError,
    JetSparkError,
    MissingHeartbeatError,
    status_error,
)
from jetspark.jetstream.message import JetStreamMessage
from jetspark.protocol import Frame, Headers, MessageBatch, parse_headers, parse_status

from .base import Consumer
from .messages import MessageCallback, WarningHandler, warn
from .sequences import GapDetector

__all__ = ["PushSubscription"]


class PushSubscription(Subscription):
    """The messages of a push consumer, to iterate over or for a callback.

    >>> async with consumer.messages() as messages:  # doctest: +SKIP
    ...     async for message in messages:
    ...         await message.ack()

    Missing heartbeats and lost messages go to the warning handler, by default to the events of the
    connection, and it goes on: that a push consumer was deleted is never said by a server. Where
    the consumer was made for the subscription, it is deleted by `unsubscribe` and after `drain`.
    """

    def __init__(
        self,
        consumer: Consumer,
        *,
        callback: MessageCallback | None = None,
        auto_ack: bool = False,
        stop_after: int | None = None,
        on_warning: WarningHandler | None = None,
        pending_messages: int | None = None,
        pending_bytes: int | None = None,
        owns_consumer: bool = False,
    ) -> None:
        client = consumer.api.client
        options = client._options
        config = consumer.config
        if stop_after is not None and stop_after < 1:
            raise InvalidOptionError(f"option 'stop_after' must be at least 1, not {stop_after}")
        if callback is not None and auto_ack:
            callback = _acknowledging(callback)
        super().__init__(
            client,
            config.deliver_subject,
            config.deliver_group or None,
            callback=callback,  # type: ignore[arg-type]  # it gets messages of the special kind
            pending_messages=(
                options.pending_messages if pending_messages is None else pending_messages
            ),
            pending_bytes=options.pending_bytes if pending_bytes is None else pending_bytes,
        )
        self.consumer = consumer
        self._deliver_subject = self.subject.encode()
        self._no_acks = consumer.no_acks
        self._on_warning = on_warning
        self._owns_consumer = owns_consumer
        self._started = False
        self._drained = False
        self._loop = asyncio.get_running_loop()
        self._heartbeat = config.idle_heartbeat.total_seconds()  # 0: not watched
        # Members of a queue group get a part of the deliveries each, and of the heartbeats.
        self._gaps = None if config.deliver_group else GapDetector()
        if config.deliver_group:
            self._heartbeat = 0.0
        self._monitor: asyncio.TimerHandle | None = None  # watches the heartbeats
        self._last_arrival = 0.0
        self._messages = 0  # that arrived, without statuses
        self._stop_at = stop_after  # unsubscribe after so many
        self._flow_queued = b""  # the flow control subject that waits in the queue
        self._flow_answered = b""  # ... and the last one that was answered

    # -- life -----------------------------------------------------------------------------------

    def _start(self) -> None:
        self.client._check_open()
        self._started = True
        self.client._add_route(self)
        if self._task is not None:
            self.client._own(self._task)
        self._watch()

    def _watch(self) -> None:
        self._stop_watching()
        if self._heartbeat:
            self._last_arrival = self._loop.time()
            self._monitor = self._loop.call_later(self._heartbeat, self._check_heartbeat)

    def _stop_watching(self) -> None:
        if self._monitor is not None:
            self._monitor.cancel()
            self._monitor = None

    def disconnected(self) -> None:
        """Stop watching: the server cannot send heartbeats now."""
        self._stop_watching()
        self._flow_answered = b""  # the answer may be lost

    def restored(self) -> None:
        """Watch again."""
        self._watch()

    def end(self, error: BaseException | None) -> None:
        """Note that no more messages will come; those that wait can still be taken."""
        self._stop_watching()
        if self.client._draining and not self.client.closed:
            self._drained = True
            if self._owns_consumer and self._task is None:
                deletion = self._loop.create_task(
                    self._delete_quietly(), name=f"jetspark {self.consumer.description}: delete"
                )
                self.client._own(deletion)
        super().end(error)

    def discard(self) -> None:
        """Drop what waits."""
        super().discard()
        self._flow_queued = b""

    def _check_heartbeat(self) -> None:
        # Only while somebody waits: else reading may be paused until messages are taken.
        now = self._loop.time()
        if not self._waiters:
            self._last_arrival = now
        silence = now - self._last_arrival
        self._monitor = self._loop.call_later(self._heartbeat, self._check_heartbeat)
        if silence >= 2 * self._heartbeat:
            self._last_arrival = now
            self._on_silence(
                MissingHeartbeatError(
                    f"{self.consumer.description}: no message and no heartbeat for "
                    f"{silence:.1f} s; the consumer may be gone"
                )
            )

    def _on_silence(self, error: JetSparkError) -> None:
        self._warn(error)

    def _warn(self, error: JetSparkError) -> None:
        warn(self.client, self._on_warning, error)

    # -- arrival --------------------------------------------------------------------------------

    def deliver(self, batch: MessageBatch) -> None:
        """Queue messages, and the requests of flow control between them."""
        self._last_arrival = self._loop.time()
        frames = batch.frames
        # A status has headers and no payload.
        if batch.has_headers and b"" in [frame[3] for frame in frames]:
            frames = self._sort_out(frames)
        else:
            frames = self._accept(frames)
            self._messages += len(frames)
        if self._stop_at is not None and self._messages >= self._stop_at:
            frames = self._up_to_limit(frames)
        if frames:
            dropped = self.dropped
            super().deliver(MessageBatch(batch.sid, frames, batch.size))
            if self.dropped != dropped:
                self._flow_queued = b""  # may have been dropped; a heartbeat will remind us
        if self._stop_at is not None and self._messages >= self._stop_at:
            self.client._unsubscribe(self)

    def _sort_out(self, frames: Sequence[Frame]) -> list[Frame]:
        """Handle the statuses in a batch; what is to be queued remains."""
        queued: list[Frame] = []
        messages: list[Frame] = []
        for frame in frames:
            if self._is_status(frame):
                # Not before what was delivered before it: a heartbeat tells of that.
                accepted = self._accept(messages)
                self._messages += len(accepted)
                queued += accepted
                messages = []
                flow = self._on_status(frame)
                if flow and (queued or self.pending_messages):
                    # Its place in the queue is marked by a frame that has no subject.
                    self._flow_queued = flow
                    queued.append((b"", flow, None, b""))
                elif flow:
                    self._answer_flow_control(flow)
            else:
                messages.append(frame)
        accepted = self._accept(messages)
        self._messages += len(accepted)
        return [*queued, *accepted]

    def _accept(self, frames: Sequence[Frame]) -> Sequence[Frame]:
        """Look for lost messages before those that have arrived; returns those to be queued."""
        if self._gaps is not None and frames:
            gap = self._gaps.messages(frames)
            if gap is not None:
                self._warn(gap.error(self.consumer.description))
        return frames

    def _up_to_limit(self, frames: Sequence[Frame]) -> list[Frame]:
        surplus = self._messages - (self._stop_at or 0)
        self._messages -= surplus
        kept = list(frames)
        while surplus:
            surplus -= bool(kept.pop()[0])
        return kept

    def _is_status(self, frame: Frame) -> bool:
        header = frame[2]
        return (
            header is not None
            and not frame[3]
            and frame[0] == self._deliver_subject
            and parse_status(header)[0] is not None
        )

    def _on_status(self, frame: Frame) -> bytes:
        """React to a status; returns where flow control wants an answer, if it does."""
        assert frame[2] is not None
        headers = parse_headers(frame[2])
        if headers.status == 100:
            if frame[1] is None:
                self._on_heartbeat(headers)
            # Asked for by a request, and again by heartbeats if there was no answer.
            flow = frame[1] or (headers.get("Nats-Consumer-Stalled") or "").encode()
            if flow not in (self._flow_answered, self._flow_queued):
                return flow
        elif headers.status not in (404, 408):
            self._warn(
                status_error(
                    headers.status or 0, headers.description, context=self.consumer.description
                )
            )
        return b""

    def _on_heartbeat(self, headers: Headers) -> None:
        if self._gaps is not None and (delivered := last_delivered(headers)) is not None:
            gap = self._gaps.heartbeat(*delivered)
            if gap is not None:
                self._warn(gap.error(self.consumer.description))

    def _answer_flow_control(self, subject: bytes) -> None:
        """Have the server send more: the application has taken what came before."""
        self._flow_queued = b""
        if subject != self._flow_answered and self.client.connected:
            self._flow_answered = subject
            self.client._encoder.publish_trusted(subject, b"")

    # -- taking ---------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        super().__aiter__()
        return self

    async def __anext__(self) -> JetStreamMessage:
        if not (self._started or self._ended):
            self._start()
        while True:
            for subject, reply, header, data in self._current:
                if not subject:
                    assert reply is not None
                    self._answer_flow_control(reply)
                    continue
                return JetStreamMessage(
                    subject, reply, header, data, self.client, None, self._no_acks
                )
            if not self._next_batch():
                if self._ended:
                    if self._drained:
                        await self._delete_quietly()
                    if self._error is not None:
                        raise self._error
                    raise StopAsyncIteration
                await self._arrival()

    async def next(self, timeout: float | None = None) -> JetStreamMessage:
        """The next message; waits for it, at most `timeout` seconds if that is given."""
        message = await super().next(timeout)
        assert isinstance(message, JetStreamMessage)
        return message

    # -- ending ---------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stop at once and drop what waits; it comes again if it needs acks."""
        await self.unsubscribe()

    async def unsubscribe(self, limit: int | None = None) -> None:
        """Stop at once and drop what waits; or after `limit` messages in total, if it is given.

        Without a limit, the consumer is deleted if it was made for this subscription.
        """
        if limit is None:
            self._end_unstarted()
            await super().unsubscribe()
            await self._delete()
        elif limit < 1:
            raise InvalidArgumentError("limit must be at least 1")
        else:
            # Not by the server, which would count its heartbeats, too.
            self._stop_at = limit
            if self._messages >= limit:
                self.client._unsubscribe(self)

    async def drain(self, timeout: float | None = None) -> None:
        """Stop the server from sending more, then let the application take what has arrived.

        Returns when the server has confirmed and, with a callback, when the callback has been
        called for the last message. Iteration ends after the last message. Then the consumer is
        deleted if it was made for this subscription; should that fail, it is reported.
        """
        self._drained = True
        self._end_unstarted()
        await super().drain(timeout)
        if not any(frame[0] for frame in self._waiting()):
            await self._delete_quietly()

    def _waiting(self) -> Iterator[Frame]:
        """What has arrived and was not taken yet."""
        return chain(copy.copy(self._current), *(batch.frames for batch in self._batches))

    def _end_unstarted(self) -> None:
        if not (self._started or self._ended):
            self.end(None)

    async def _delete(self) -> None:
        if self._owns_consumer:
            self._owns_consumer = False
            try:
                await self.consumer.delete()
            except ConsumerNotFoundError:
                pass  # it has expired

    async def _delete_quietly(self) -> None:
        try:
            await self._delete()
        except JetSparkError as error:
            self._warn(error)

    def __repr__(self) -> str:
        state = " ended" if self._ended else ""
        return (
            f"<{type(self).__name__} {self.consumer.description} "
            f"pending={self.pending_messages} dropped={self.dropped}{state}>"
        )

    async def __aenter__(self) -> Self:
        if not (self._started or self._ended):
            self._start()
        return self


def _acknowledging(callback: MessageCallback) -> MessageCallback:
    """The callback, and then an acknowledgement if it did not fail."""

    async def call(message: JetStreamMessage) -> None:
        result = callback(message)
        if result is not None and inspect.isawaitable(result):
            await result
        await message.ack()

    return call


def last_delivered(headers: Headers) -> tuple[int, int] | None:
    """The consumer and the stream sequence of the last delivery, as a heartbeat tells them."""
    try:
        return int(headers["Nats-Last-Consumer"]), int(headers["Nats-Last-Stream"])
    except (KeyError, ValueError):
        return None
