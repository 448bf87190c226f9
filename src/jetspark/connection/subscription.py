"""Subscriptions: where messages wait until the application takes them.

Messages arrive and wait in batches, as the parser made them; each becomes a `Message` at the moment
it is taken. Nothing runs per message on arrival.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from jetspark.errors import (
    DisconnectedError,
    InvalidArgumentError,
    JetSparkError,
    PermissionsError,
    SlowConsumerError,
    SubscriptionClosedError,
)
from jetspark.protocol import Frame, MessageBatch

from .deadline import deadline
from .message import Message

if TYPE_CHECKING:
    from .client import Client

__all__ = ["MessageCallback", "Route", "Subscription"]

MessageCallback: TypeAlias = Callable[[Message], Awaitable[None] | None]


class Route:
    """What a subscription id leads to. The client keeps it alive over reconnects."""

    for_answers = False  # gets answers to what we send, so draining must leave it alone

    def __init__(self, client: Client, subject: str, queue: str | None = None) -> None:
        self.client = client
        self.subject = subject
        self.queue = queue
        self.sid = 0  # given by the client
        self.received = 0  # messages that the server sent for it, over all connections
        self.received_before = 0  # ... over those before the present one
        self.stopped = False  # the server has been told to send no more
        self.limit: int | None = None  # unsubscribe automatically after so many

    def deliver(self, batch: MessageBatch) -> None:
        """Take messages; called while a read is processed, so it must not block."""
        raise NotImplementedError

    def end(self, error: BaseException | None) -> None:
        """Note that no more messages will come; called once."""
        raise NotImplementedError

    async def settle(self) -> None:
        """Wait for the answers that are due: the client is draining, and nothing more is sent."""

    def publish_refused(self, error: PermissionsError) -> None:
        """Note that a publish to `error.subject` was refused; who waits for an answer to it fails.

        The server does not say which publish it was, so this goes to all routes.
        """

    def disconnected(self) -> None:
        """Note that the connection is lost; the route will be restored on the next one."""

    def restored(self) -> None:
        """Note that a new connection has it; frames added now follow its SUB."""


class Subscription(Route):
    """A subscription, to iterate over or to ask for the next message.

    >>> async with await nc.subscribe("orders.*") as sub:  # doctest: +SKIP
    ...     async for message in sub:
    ...         print(message.subject, message.data)

    Leaving the block unsubscribes. With a callback the messages are handed to it instead, one
    after the other.
    """

    def __init__(
        self,
        client: Client,
        subject: str,
        queue: str | None,
        *,
        callback: MessageCallback | None,
        pending_messages: int,
        pending_bytes: int,
    ) -> None:
        super().__init__(client, subject, queue)
        if pending_messages < 0 or pending_bytes < 0:
            raise InvalidArgumentError(
                "pending_messages and pending_bytes must not be negative; 0 means no limit"
            )
        self.dropped = 0
        """Messages dropped because the limits were reached."""
        self._message_limit = pending_messages or (1 << 62)
        self._byte_limit = pending_bytes or (1 << 62)
        self._current: Iterator[Frame] = iter(())  # the batch being taken
        self._current_messages = 0  # of the whole of it
        self._current_size = 0
        self._batches: deque[MessageBatch] = deque()  # those after it
        self._waiting_messages = 0  # in _batches and _current
        self._waiting_bytes = 0  # in _batches and _current
        self._slow = False  # dropping has been reported, and the application did not catch up yet
        self._ended = False
        self._error: BaseException | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None
        if callback is not None:
            self._task = asyncio.get_running_loop().create_task(
                self._run(callback), name=f"jetspark subscription {subject}"
            )

    # -- arrival --------------------------------------------------------------------------------

    def deliver(self, batch: MessageBatch) -> None:
        """Queue a batch, or as much of it as the limits allow."""
        if (
            self._waiting_messages + len(batch.frames) > self._message_limit
            or self._waiting_bytes + batch.size > self._byte_limit
        ):
            batch = self._within_limits(batch)
            if not batch.frames:
                return
        self._batches.append(batch)
        self._waiting_messages += len(batch.frames)
        self._waiting_bytes += batch.size
        self.client._holds(batch.size)
        if self._waiters:
            self._wake()

    def _within_limits(self, batch: MessageBatch) -> MessageBatch:
        """What still fits of a batch; the rest is dropped, counted and reported."""
        room_messages = self._message_limit - self.pending_messages
        room_bytes = self._byte_limit - self.pending_bytes
        kept: list[Frame] = []
        size = 0
        for frame in batch.frames:
            frame_size = _wire_size(batch.sid, frame)
            if len(kept) >= room_messages or size + frame_size > room_bytes:
                break
            kept.append(frame)
            size += frame_size
        dropped = len(batch.frames) - len(kept)
        if dropped:
            self.dropped += dropped
            self.client._connection.statistics.dropped += dropped
            if not self._slow:
                self._slow = True
                self.client._connection.report(
                    SlowConsumerError(
                        f"the subscription to {self.subject!r} holds {self.pending_messages} "
                        f"messages; newer ones are dropped until the application keeps up "
                        "(raise pending_messages and pending_bytes, or take messages faster)",
                        subject=self.subject,
                        dropped=dropped,
                    )
                )
        return MessageBatch(batch.sid, kept, size)

    def end(self, error: BaseException | None) -> None:
        """Note that no more messages will come; those that wait can still be taken."""
        self._ended = True
        self._error = error
        self._wake()

    def discard(self) -> None:
        """Drop what waits."""
        self._batches.clear()
        self._waiting_messages = 0
        self._current = iter(())
        self.client._holds(self._current_size - self._waiting_bytes)
        self._current_messages = self._current_size = 0
        self._waiting_bytes = 0

    # -- taking ---------------------------------------------------------------------------------

    def _next_batch(self) -> bool:
        """Make the next batch the current one, if there is one."""
        if self._current_messages:
            self._waiting_messages -= self._current_messages
            self._waiting_bytes -= self._current_size
            self._current_messages = self._current_size = 0
        if not self._batches:
            self._slow = False
            return False
        batch = self._batches.popleft()
        self._current = iter(batch.frames)
        self._current_messages = len(batch.frames)
        self._current_size = batch.size
        # Not when its last message is taken: that is seen only at the next call, which may never
        # come, and reading would stay paused.
        self.client._holds(-batch.size)
        return True

    def __aiter__(self) -> Subscription:
        self._refuse_with_callback()
        return self

    async def __anext__(self) -> Message:
        while True:
            for subject, reply, headers, data in self._current:
                return Message(subject, reply, headers, data, self.client)
            if not self._next_batch():
                if self._ended:
                    if self._error is not None:
                        raise self._error
                    raise StopAsyncIteration
                await self._arrival()

    async def next(self, timeout: float | None = None) -> Message:
        """The next message; waits for it, at most `timeout` seconds if that is given.

        Raises `TimeoutError`, or `SubscriptionClosedError` when no more will come.
        """
        self._refuse_with_callback()
        try:
            async with deadline(
                timeout, f"no message on {self.subject!r}", may_have_taken_effect=False
            ):
                return await self.__anext__()
        except StopAsyncIteration:
            raise SubscriptionClosedError(
                f"the subscription to {self.subject!r} has ended", subject=self.subject
            ) from None

    async def _arrival(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    async def _run(self, callback: MessageCallback) -> None:
        """Hand messages to the callback; what it raises is reported and does not end it."""
        while True:
            try:
                message = await self.__anext__()
            except StopAsyncIteration:
                return
            except JetSparkError:
                return  # reported by whoever ended the subscription
            try:
                result = callback(message)
                if result is not None and inspect.isawaitable(result):
                    await result
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                self.client._connection.report(error)  # the callback awaited what was cancelled
            except Exception as error:
                self.client._connection.report(error)

    def _refuse_with_callback(self) -> None:
        if self._task is not None:
            raise InvalidArgumentError(
                f"the subscription to {self.subject!r} has a callback, which gets its messages"
            )

    # -- state ----------------------------------------------------------------------------------

    @property
    def pending_messages(self) -> int:
        """How many messages wait to be taken."""
        left: int = self._current.__length_hint__()  # type: ignore[attr-defined]
        return self._waiting_messages - self._current_messages + left

    @property
    def pending_bytes(self) -> int:
        """How many bytes wait; a batch counts until its last message is taken."""
        return self._waiting_bytes

    @property
    def closed(self) -> bool:
        """Whether no more messages will come."""
        return self._ended

    # -- ending ---------------------------------------------------------------------------------

    async def unsubscribe(self, limit: int | None = None) -> None:
        """Stop at once and drop what waits; or after `limit` messages in total, if it is given.

        Messages that arrived before a limit was set can be taken even if they are more.
        """
        if limit is not None:
            if limit < 1:
                raise InvalidArgumentError("limit must be at least 1")
            self.client._auto_unsubscribe(self, limit)
            return
        self.client._unsubscribe(self)
        self.discard()
        await self._finish_callback(wait=False)

    async def drain(self, timeout: float | None = None) -> None:
        """Stop the server from sending more, then let the application take what has arrived.

        Returns when the server has confirmed and, with a callback, when the callback has been
        called for the last message. Iteration ends after the last message.
        """
        client = self.client
        timeout = client._connection.options.drain_timeout if timeout is None else timeout
        async with deadline(timeout, f"the subscription to {self.subject!r} was not drained"):
            if not self._ended:
                client._stop_sending(self)
                try:
                    await client.flush(timeout=None)
                except DisconnectedError:
                    pass  # then nothing more comes either
                finally:
                    client._unsubscribe(self)
            await self._finish_callback(wait=True)

    async def _finish_callback(self, *, wait: bool) -> None:
        task = self._task
        if task is None or task is asyncio.current_task():
            return
        if not wait:
            task.cancel()
        await asyncio.wait([task])

    async def __aenter__(self) -> Subscription:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.unsubscribe()

    def __repr__(self) -> str:
        queue = f" queue={self.queue!r}" if self.queue else ""
        state = " ended" if self._ended else ""
        return (
            f"<Subscription {self.subject!r}{queue} pending={self.pending_messages} "
            f"dropped={self.dropped}{state}>"
        )


def _wire_size(sid: int, frame: Frame) -> int:
    """What a message adds to the size of its batch."""
    subject, reply, headers, data = frame
    size = len(data) + len(headers or b"")
    line = f"MSG  {sid} {size}\r\n\r\n"
    if headers is not None:
        line = f"H{line} {len(headers)}"
    return size + len(line) + len(subject) + (0 if reply is None else len(reply) + 1)
