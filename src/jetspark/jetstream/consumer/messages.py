"""Endless pulling: the stream of messages behind `messages` and `consume` (ADR-37).

Requests overlap: the next one is sent when half of the last has been taken, so the server never
waits for the application. All requests share one inbox, and what arrives waits there in batches.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NoReturn, Self, TypeAlias

from jetspark.connection.connection import copy_error
from jetspark.connection.deadline import deadline
from jetspark.connection.subscription import Route
from jetspark.errors import (
    ConnectionError,
    InvalidArgumentError,
    IteratorClosedError,
    JetSparkError,
    MissingHeartbeatError,
    PermissionsError,
    status_error,
)
from jetspark.jetstream.message import JetStreamMessage
from jetspark.protocol import Frame, MessageBatch, parse_headers, parse_status

from .pull_options import MAX_MESSAGES, StreamOptions
from .pull_status import PullStatus, Reaction, read_status
from .pull_window import PullWindow

if TYPE_CHECKING:
    from jetspark.connection import Client

    from .pull import PullConsumer
    from .push_feed import PushSubscription

__all__ = [
    "Consumption",
    "MessageCallback",
    "MessageStream",
    "PullFeed",
    "WarningHandler",
    "size_counter",
    "warn",
    "wire_size",
]

MessageCallback: TypeAlias = Callable[[JetStreamMessage], Awaitable[None] | None]
WarningHandler: TypeAlias = Callable[[JetSparkError], object]

FEWEST_ON_ORDER = 16  # unless messages may be so large that fewer are enough
REJECTED_DELAY = 1.0  # seconds before the next request after one was refused
_NO_HEADERS = b"NATS/1.0\r\n\r\n"


def warn(client: Client, on_warning: WarningHandler | None, error: JetSparkError) -> None:
    """Tell of what goes wrong and passes: the handler, or else the events of the connection."""
    report = client._connection.report
    if on_warning is None:
        report(error)
        return
    try:
        on_warning(error)
    except Exception as failure:  # it must not end the pulling, or the reading
        report(failure)


class PullFeed(Route):
    """Keeps requests on order and collects what arrives, as frames.

    Taking them, one by one or as columns, is the business of the subclasses. Nothing here is
    awaited: everything happens while a read is processed or a timer fires.

    Where the application sets no limit, so much is on order as makes up a certain size. A server
    sends all that was ordered, and hangs up on a client that is 64 MiB behind.
    """

    _bytes_on_order = 16 * 1024 * 1024
    _most_on_order = MAX_MESSAGES

    def __init__(
        self,
        consumer: PullConsumer,
        options: StreamOptions,
        on_warning: WarningHandler | None,
    ) -> None:
        client = consumer.api.client
        super().__init__(client, client.new_inbox())
        self.consumer = consumer
        self._inbox = self.subject.encode()
        self._next_subject = consumer.next_subject
        self._options = options
        self._window = PullWindow(
            max_messages=options.max_messages,
            max_bytes=options.max_bytes,
            threshold_messages=options.threshold_messages,
            threshold_bytes=options.threshold_bytes,
        )
        self._adapts = options.by_default
        self._most = min(consumer.config.max_batch or self._most_on_order, self._most_on_order)
        largest = max(client.max_payload, 1)
        self._fewest = min(max(self._bytes_on_order // largest, 2), FEWEST_ON_ORDER, self._most)
        self._typical = 0  # how large messages are, lately
        if self._adapts:
            self._window.resize(self._fewest)  # until the size of some is known
        self._last_order = (0, 0)
        self._left = options.stop_after  # how many messages are still wanted
        # Whether taking a message only means to count it, which is the usual case.
        self._plain = options.max_bytes is None and self._left is None
        self._pinned = consumer.pinned
        self._size_of = size_counter(consumer)
        self._on_warning = on_warning
        self._heartbeat = options.heartbeat.total_seconds()
        self._loop = asyncio.get_running_loop()
        self._last_arrival = 0.0  # or the last request, if that was later
        self._monitor: asyncio.TimerHandle | None = None  # watches the heartbeats
        self._retry: asyncio.TimerHandle | None = None  # the next request must wait for it
        self._frames: Iterator[Frame] = iter(())  # the batch being taken
        self._batches: deque[Sequence[Frame]] = deque()  # those after it
        self._waiter: asyncio.Future[None] | None = None
        self._started = False
        self._ended = False  # no more messages will arrive
        self._error: BaseException | None = None  # ... because of this

    # -- life -----------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._ended:
            return
        self.client._check_open()
        self._started = True
        self.client._add_route(self)
        if self.client.connected:
            self._watch()
            self._order()

    def _watch(self) -> None:
        self._monitor = self._loop.call_later(self._heartbeat / 2, self._check_heartbeat)

    def _stop_timers(self) -> None:
        for timer in (self._monitor, self._retry):
            if timer is not None:
                timer.cancel()
        self._monitor = self._retry = None

    def end(self, error: BaseException | None) -> None:
        """Note that nothing more will arrive."""
        self._ended = True
        self._error = self._error or error
        self._stop_timers()
        if error is None and self.client.closed:
            self._discard()  # they could not be acknowledged any more
        self._wake()

    def _finish(self, error: BaseException | None) -> None:
        """Unsubscribe; what has arrived can still be taken."""
        self._error = self._error or error
        if self._started:
            self.client._unsubscribe(self)
        if not self._ended:
            self.end(None)

    def publish_refused(self, error: PermissionsError) -> None:
        """End if asking is not permitted."""
        if error.subject.encode() == self._next_subject:
            self._finish(copy_error(error))

    def disconnected(self) -> None:
        """Stop watching: the server cannot send heartbeats now."""
        self._stop_timers()
        # A server that lives on keeps the requests as long as somebody listens to their inbox.
        self.subject = self.client.new_inbox()
        self._inbox = self.subject.encode()
        self._forget_orders()

    def restored(self) -> None:
        """Ask the new server, which knows nothing of the old requests."""
        self._watch()
        self._order()

    async def stop(self) -> None:
        """Stop at once; messages that wait are dropped, and come again if they need acks."""
        self._discard()
        self._finish(None)

    async def drain(self, timeout: float | None = None) -> None:
        """Ask for no more; what has arrived can still be taken, then the iteration ends.

        Returns when the server has confirmed it, and raises `TimeoutError` if it does not in
        `timeout` seconds (default: the `drain_timeout` of the connection).
        """
        client = self.client
        timeout = client._options.drain_timeout if timeout is None else timeout
        try:
            if self._started and not self._ended and client.connected:
                client._stop_sending(self)
                async with deadline(timeout, f"{self.consumer.description}: not drained"):
                    await client.flush(timeout=None)
        except ConnectionError:
            pass  # then nothing more arrives either
        finally:
            self._finish(None)

    # -- ordering -------------------------------------------------------------------------------

    def _order(self) -> None:
        """Send a request if the window asks for it."""
        if self._ended or self.stopped or self._retry is not None or not self._window.needs_order():
            return
        if self._left is not None and self._window.pending_messages >= self._left:
            if self._options.max_bytes is None or self._window.pending_bytes > 0:
                return
            # The server does not say so when the bytes of a request are used up exactly.
            self._window.reset()
        client = self.client
        if not client.connected:
            return
        self._last_order = batch, size = self._window.order(
            None if self._left is None else self._left - self._window.pending_messages
        )
        self._last_arrival = self._loop.time()
        body = self._options.body(batch, size, self.consumer.pin_id(self._options.priority.group))
        client._encoder.publish_trusted(self._next_subject, body, self._inbox)
        # At once: the server shall work on it while the application works on what it has.
        client._connection.write_now()

    def _order_later(self) -> None:
        if self._retry is None:
            delay = min(REJECTED_DELAY, self._heartbeat)
            self._retry = self._loop.call_later(delay, self._order_again)

    def _order_again(self) -> None:
        self._retry = None
        self._order()

    def _forget_orders(self) -> None:
        """Count as on order only what has arrived."""
        waiting = self._waiting()
        size = 0 if self._window.max_bytes is None else sum(map(self._size_of, waiting))
        self._window.reset(len(waiting), size)

    def _all_arrived(self) -> bool:
        """Whether nothing is on order, so that the server has no reason to say anything."""
        waiting = self._waiting()
        if self._window.max_bytes is None:
            return self._window.pending_messages <= len(waiting)
        return self._window.pending_bytes <= sum(map(self._size_of, waiting))

    def _check_heartbeat(self) -> None:
        now = self._loop.time()
        if self._all_arrived():
            self._last_arrival = now
        silence = now - self._last_arrival
        self._watch()
        if silence >= 2 * self._heartbeat:
            self._on_silence(
                MissingHeartbeatError(
                    f"{self.consumer.description}: no message and no heartbeat for "
                    f"{silence:.1f} s; asking again"
                )
            )

    def _on_silence(self, error: JetSparkError) -> None:
        self._warn(error)
        self._forget_orders()
        self._order()

    def _warn(self, error: JetSparkError) -> None:
        warn(self.client, self._on_warning, error)

    # -- arrival --------------------------------------------------------------------------------

    def deliver(self, batch: MessageBatch) -> None:
        """Queue the messages; statuses are handled at once, whatever waits before them."""
        self._last_arrival = self._loop.time()
        frames = batch.frames
        # A status has headers and no payload.
        if self._pinned or (batch.has_headers and b"" in [frame[3] for frame in frames]):
            self._deliver_mixed(frames, batch.size)
        else:
            self._queue(frames, batch.size)

    def _queue(self, messages: Sequence[Frame], size: int) -> None:
        """Let them wait for the application, and adapt what is on order to their size."""
        self._batches.append(messages)
        self._wake()
        if self._adapts:
            self._typical = max(size // len(messages), self._typical // 2, 1)
            fitting = self._bytes_on_order // self._typical
            self._window.resize(min(max(fitting, self._fewest), self._most))
            self._order()

    def _deliver_mixed(self, frames: Sequence[Frame], size: int) -> None:
        """Queue what are messages, which may tell of a pin, and handle what are statuses."""
        messages = [frame for frame in frames if not self._is_status(frame)]
        if messages:
            self._queue(messages, size)
        for frame in frames:
            header = frame[2]
            if header is None:
                continue
            if self._is_status(frame):
                self._on_status(header)
            elif self._pinned:
                pin_id = parse_headers(header).get("Nats-Pin-Id")
                self.consumer.pin(self._options.priority.group, pin_id)

    def _waiting(self) -> list[Frame]:
        """What has arrived and was not taken yet."""
        return [*copy.copy(self._frames), *chain.from_iterable(self._batches)]

    def _discard(self) -> None:
        self._batches.clear()
        self._frames = iter(())

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _arrival(self, until: float | None = None) -> None:
        """Wait for something to arrive, or until then."""
        if self._waiter is not None:
            raise InvalidArgumentError(
                f"{self.consumer.description}: two tasks take messages from one iterator; "
                "give each its own"
            )
        self._waiter = self._loop.create_future()
        timer = None if until is None else self._loop.call_at(until, self._wake)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def _is_status(self, frame: Frame) -> bool:
        header = frame[2]
        return (
            header is not None
            and not frame[3]
            and frame[0] == self._inbox
            and parse_status(header)[0] is not None
        )

    def _on_status(self, header: bytes) -> None:
        status = read_status(header)
        window = self._window
        if status.pending_messages is not None:
            window.returned(status.pending_messages, status.pending_bytes)
        reaction = status.reaction
        if reaction is Reaction.HEARTBEAT:
            return
        if reaction is Reaction.TERMINAL:
            self._finish(self._status_error(status))
            return
        if reaction is Reaction.UNPINNED:
            self.consumer.unpin(self._options.priority.group)
        if reaction is Reaction.TOO_LARGE and (
            status.pending_bytes < self._last_order[1]  # it was used up, as it should be
            or not window.too_small(status.pending_bytes)
        ):
            reaction = Reaction.ENDED
        if reaction is not Reaction.ENDED:
            self._warn(self._status_error(status))
        if status.pending_messages is None:  # the server does not say how much will not come
            if reaction is Reaction.REJECTED and status.status == 409:
                window.returned(*self._last_order)
            else:
                self._forget_orders()
        if reaction in (Reaction.REJECTED, Reaction.TOO_LARGE):
            self._order_later()
        self._order()

    def _status_error(self, status: PullStatus) -> JetSparkError:
        return status_error(status.status, status.description, context=self.consumer.description)

    def _taken(self, frame: Frame) -> None:
        """Count a message that the application has taken."""
        self._window.returned(1, self._size_of(frame))
        self._count_down(1)
        self._order()

    def _take_frames(self, limit: int) -> Sequence[Frame]:
        """Take up to so many messages at once; none if none wait."""
        if not self._batches:
            return []
        if self._left is not None:
            limit = min(limit, self._left)
        frames = self._batches.popleft()
        if len(frames) > limit:
            self._batches.appendleft(frames[limit:])
            frames = frames[:limit]
        if self._window.max_bytes is None:
            self._window.pending_messages -= len(frames)
        else:
            self._window.returned(len(frames), sum(map(self._size_of, frames)))
        self._count_down(len(frames))
        self._order()
        return frames

    def _count_down(self, messages: int) -> None:
        if self._left is not None:
            self._left -= messages
            if self._left <= 0:
                if surplus := self._waiting():  # of an order that was given up, but served
                    self.consumer.give_back(surplus)
                    self._discard()
                self._finish(None)

    def _raise_end(self) -> NoReturn:
        if self._error is None:
            raise StopAsyncIteration
        raise self._error


def wire_size(frame: Frame) -> int:
    """What a message counts against `max_bytes`."""
    subject, reply, header, data = frame
    return len(subject) + len(reply or b"") + len(header or b"") + len(data)


def pinned_size(frame: Frame) -> int:
    """The same for a pinned client: the server adds the pin after it has counted."""
    size, header = wire_size(frame), frame[2]
    start = -1 if header is None else header.find(b"\r\nNats-Pin-Id:")
    if start < 0:
        return size
    assert header is not None
    line = header.index(b"\r\n", start + 2) - start
    return size - (len(header) if len(header) == line + len(_NO_HEADERS) else line)


def size_counter(consumer: PullConsumer) -> Callable[[Frame], int]:
    """How the messages of a consumer count against `max_bytes`."""
    return pinned_size if consumer.pinned else wire_size


class MessageStream(PullFeed):
    """The messages of a pull consumer, to iterate over.

    >>> async with consumer.messages() as messages:  # doctest: +SKIP
    ...     async for message in messages:
    ...         await message.ack()

    It survives reconnects, leader changes and missed heartbeats, which go to the warning handler.
    It ends with an error when the consumer is deleted, and quietly after `stop` and `drain`.
    """

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> JetStreamMessage:
        if not self._started:
            self._start()
        window = self._window
        while True:
            for subject, reply, header, data in self._frames:
                if self._plain:
                    # _taken, for the usual case
                    window.pending_messages -= 1
                    if window.pending_messages < window.threshold_messages:
                        self._order()
                else:
                    self._taken((subject, reply, header, data))
                return JetStreamMessage(
                    subject, reply, header, data, self.client, None, self.consumer.no_acks
                )
            if self._batches:
                self._frames = iter(self._batches.popleft())
            elif self._ended:
                self._raise_end()
            else:
                await self._arrival()

    async def next(self, timeout: float | None = None) -> JetStreamMessage:
        """The next message; `TimeoutError` if none comes in time."""
        try:
            async with deadline(
                timeout, f"{self.consumer.description}: no message", may_have_taken_effect=False
            ):
                return await self.__anext__()
        except StopAsyncIteration:
            raise IteratorClosedError(
                f"{self.consumer.description}: the iterator was stopped"
            ) from None

    async def __aenter__(self) -> Self:
        if not self._started:
            self._start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stop()


class Consumption:
    """The running `consume` of a consumer; ends with `stop` or `drain`, or by an error."""

    def __init__(self, stream: MessageStream | PushSubscription, callback: MessageCallback) -> None:
        self._stream = stream
        self._error: JetSparkError | None = None
        stream._start()
        self._task = asyncio.get_running_loop().create_task(
            self._run(callback), name=f"jetspark {stream.consumer.description}: consume"
        )
        stream.client._own(self._task)

    async def _run(self, callback: MessageCallback) -> None:
        stream = self._stream
        report = stream.client._connection.report
        try:
            async for message in stream:
                try:
                    result = callback(message)
                    if result is not None and inspect.isawaitable(result):
                        await result
                except asyncio.CancelledError as error:
                    task = asyncio.current_task()
                    if task is not None and task.cancelling():
                        raise
                    report(error)  # the callback awaited what was cancelled
                except Exception as error:
                    report(error)
        except JetSparkError as error:
            stream._warn(error)
            self._error = error

    @property
    def closed(self) -> bool:
        """Whether no more messages will be handed out."""
        return self._task.done()

    async def stop(self) -> None:
        """Stop at once; messages that wait are dropped, and come again if they need acks."""
        await self._stream.stop()
        await self._finish()

    async def drain(self, timeout: float | None = None) -> None:
        """Ask for no more, hand out what has arrived, then end.

        Raises `TimeoutError` if that takes longer than `timeout` seconds (default: the
        `drain_timeout` of the connection); the callback goes on with what waits.
        """
        stream = self._stream
        timeout = stream.client._options.drain_timeout if timeout is None else timeout
        async with deadline(timeout, f"{stream.consumer.description}: not drained"):
            await stream.drain(timeout)
            await self._finish()

    async def _finish(self) -> None:
        if self._task is not asyncio.current_task():
            await asyncio.wait([self._task])

    async def wait(self) -> None:
        """Wait until it has ended; raises the error that ended it."""
        if self._task is asyncio.current_task():
            raise InvalidArgumentError(
                f"{self._stream.consumer.description}: the callback waits for its own end; "
                "let it return, and wait elsewhere"
            )
        await asyncio.wait([self._task])
        if self._error is not None:
            raise self._error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stop()
