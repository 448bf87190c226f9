"""The connection under a blocking client, and what threads send through it without waiting.

Small plain messages and acknowledgements do not cross to the loop one by one: they are put into
the outbox of the connection, which the loop empties when it gets to it, and before it makes any
call. Nothing in it has to wait: what has no room is sent by a call instead, which the thread waits
for. So all that a thread sends keeps its order, and no thread holds up another one.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from jetspark.client import Client as AsyncClient
from jetspark.connection import ConnectOptions, connector
from jetspark.context import JetStream
from jetspark.errors import JetSparkError, ReconnectBufferFullError
from jetspark.jetstream import PublishAckFuture
from jetspark.jetstream.ack_window import AckWindow
from jetspark.jetstream.message import JetStreamMessage as AsyncJetStreamMessage
from jetspark.protocol import SMALL

from ._base import FRONTS, in_loop
from ._thread import LoopThread, loop_thread

if TYPE_CHECKING:
    from ._generated import Client
    from ._iterators import Feed

__all__ = ["LoopClient", "acknowledge", "open_client", "publish_async", "publish_pending"]

OUTBOX = 1000  # messages, which are small

Posted: TypeAlias = tuple[bytes, bytes, bytes] | tuple[AckWindow, PublishAckFuture]
"""What is in the outbox: a frame, or a message with the window that is to wait for its ack."""


class LoopClient(AsyncClient):
    """A client that lives in the thread of the loop."""

    front: Client  # the blocking client before it

    def __init__(self, options: ConnectOptions) -> None:
        super().__init__(options)
        self.thread = loop_thread()
        self.feeds: weakref.WeakSet[Feed[Any]] = weakref.WeakSet()  # those that have had messages
        self.readings: set[asyncio.Future[Any]] = set()  # of what is to be sent, in threads
        self._outbox: deque[Posted] = deque()
        self._called = False  # to empty it

    def on_closed(self, error: BaseException | None) -> None:
        """The connection will never come back."""
        super().on_closed(error)
        if not self._draining:
            for feed in self.feeds:
                feed._hand.clear()
        for reading in list(self.readings):
            reading.cancel()  # it may wait for ever
        self.thread.closed(self)

    # -- from any thread ------------------------------------------------------------------------

    def put(self, subject: str, data: object) -> bool:
        """Send a message, if that can be done without waiting and is known to be possible."""
        if type(data) is not bytes:
            return False
        try:
            frame = (self._prefixes[subject], self._sizes[len(data)], data)
        except (KeyError, TypeError):
            return False
        return self._put(frame)

    def put_ack(self, subject: bytes) -> bool:
        """Send an acknowledgement, under the same conditions."""
        return not self._restricted and self._put((b"\r\nPUB %b 4\r\n" % subject, b"+ACK", b""))

    def put_async(self, acks: AckWindow, subject: str, data: object) -> PublishAckFuture | None:
        """Send a message that is to be acknowledged, under the same conditions."""
        # Threads that look at the same moment may exceed the window, by one message each.
        if (
            type(data) is not bytes
            or len(data) > SMALL
            or len(acks.pending) + len(self._outbox) >= acks.ceiling
            or not acks.takes_later
        ):
            return None
        try:
            if subject not in self._prefixes or len(data) not in self._sizes:
                return None
        except TypeError:
            return None
        attempts = acks.attempts
        expires = time.monotonic() + attempts.timeout  # the clock of the loop
        future = PublishAckFuture(subject, b"", data, None, expires, attempts)
        return future if self._put((acks, future)) else None

    def _put(self, posted: Posted) -> bool:
        if len(self._outbox) >= OUTBOX or self._encoder.is_full() or self.thread.forked:
            return False
        self._outbox.append(posted)
        if not self._called:
            try:
                self._called = True
                self.thread.post(self.empty_outbox)
            except BaseException:  # an interrupt: nobody was called, perhaps
                self._called = False
                raise
        return True

    # -- in the loop ----------------------------------------------------------------------------

    def empty_outbox(self) -> None:
        """Send what threads have put there."""
        self._called = False  # first: a thread that sees it set relies on being seen below
        outbox, encoder, pieces = self._outbox, self._encoder, self._pieces
        refused = None
        while outbox:
            posted = outbox[0]  # it is counted until it has its place elsewhere
            if len(posted) == 2:
                self._add(*posted)
            else:
                try:
                    if self._restricted:  # since a moment ago
                        self._check_publish(len(posted[2]))
                except JetSparkError as error:
                    refused = error
                else:
                    if not pieces:
                        encoder.on_output()
                    pieces += posted
            outbox.popleft()
        if refused is not None:
            self._connection.report(refused)

    def _add(self, acks: AckWindow, future: PublishAckFuture) -> None:
        try:
            if acks.add_at_once(future):
                return
            # There was room for it a moment ago: it is sent, or waits for a connection.
            if self._restricted:
                try:
                    self._check_publish(len(future._data))
                except ReconnectBufferFullError:
                    pass  # by a little: the outbox is small
            if acks._inbox is None:
                acks._open()
            future._reply = acks.next_reply()
            acks._write(future)
            acks._added(future, future._deadline)
        except JetSparkError as error:
            acks.fail(future, error)


FRONTS[f"{AsyncClient.__module__}.{AsyncClient.__qualname__}"] = lambda client, _: client.front

_connect = connector(LoopClient, lambda options: options)


async def open_client(options: ConnectOptions) -> LoopClient:
    """Connect, and keep the thread running until the client is closed."""
    on_event = in_loop(options.on_event, loop_thread())
    client = await _connect(replace(options, on_event=on_event))
    if not client.closed:
        client.thread.opened(client)
    return client


def acknowledge(message: AsyncJetStreamMessage, thread: LoopThread) -> None:
    """Acknowledge a message like its `ack`, which waits only when the connection is busy."""
    if message._no_acks or message._acked:
        return
    client: Any = message.client
    if client.put_ack(message._ack_subject()):
        message._acked = True
    else:
        thread.run(message.ack())


def publish_async(
    js: JetStream, thread: LoopThread, subject: str, data: Any, options: Any
) -> PublishAckFuture:
    """Publish a message, and wait only if there is no room for it."""
    client: Any = js.client
    future: PublishAckFuture | None = None
    if not options:
        future = client.put_async(js._acks, subject, data)
    if future is None:
        future = thread.run(js.publish_async(subject, data, **options))
    return future


def publish_pending(js: JetStream) -> int:
    """How many messages are without their acknowledgement."""
    client: Any = js.client
    outbox: list[Posted] = list(client._outbox)
    ours = [each[1] for each in outbox if len(each) == 2 and each[0] is js._acks]
    return js.publish_async_pending + sum(not future._reply for future in ours)
