"""The connection under a blocking client, and what threads send through it without waiting."""

from __future__ import annotations

import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

from jetspark.client import Client as AsyncClient
from jetspark.connection import ConnectOptions, connector
from jetspark.errors import JetSparkError
from jetspark.jetstream.message import JetStreamMessage as AsyncJetStreamMessage

from ._base import FRONTS
from ._thread import LoopThread, loop_thread

if TYPE_CHECKING:
    from ._generated import Client
    from ._iterators import Feed

__all__ = ["LoopClient", "acknowledge", "open_client"]

OUTBOX = 1000  # messages, which are small


class LoopClient(AsyncClient):
    """A client that lives in the thread of the loop.

    Small plain messages and acknowledgements do not cross to it one by one: they are put into its
    outbox, which it empties when it gets to it. What it is asked for afterwards by the same thread
    comes after them.
    """

    front: Client  # the blocking client before it

    def __init__(self, options: ConnectOptions) -> None:
        super().__init__(options)
        self.thread = loop_thread()
        self.feeds: weakref.WeakSet[Feed[Any]] = weakref.WeakSet()  # those that have had messages
        self._outbox: deque[tuple[bytes, bytes, bytes]] = deque()
        self._called = False  # to empty it

    def on_closed(self, error: BaseException | None) -> None:
        """The connection will never come back."""
        super().on_closed(error)
        if not self._draining:
            for feed in self.feeds:
                feed._hand.clear()
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

    def _put(self, frame: tuple[bytes, bytes, bytes]) -> bool:
        if len(self._outbox) >= OUTBOX or self._encoder.is_full() or self.thread.forked:
            return False
        self._outbox.append(frame)
        if not self._called:
            self._called = True
            self.thread.post(self._empty_outbox)
        return True

    # -- in the loop ----------------------------------------------------------------------------

    def _empty_outbox(self) -> None:
        self._called = False  # first: a thread that sees it set relies on being seen below
        outbox, encoder = self._outbox, self._encoder
        if self._restricted and outbox:  # since a moment ago
            try:
                self._check_publish(sum(len(frame[2]) for frame in outbox))
            except JetSparkError as error:
                outbox.clear()
                self._connection.report(error)
                return
        if outbox and not encoder.pieces:
            encoder.on_output()
        while outbox:
            encoder.pieces += outbox.popleft()


FRONTS[f"{AsyncClient.__module__}.{AsyncClient.__qualname__}"] = lambda client, _: client.front

_connect = connector(LoopClient, lambda options: options)


async def open_client(options: ConnectOptions) -> LoopClient:
    """Connect, and keep the thread running until the client is closed."""
    client = await _connect(options)
    if not client.closed:
        client.thread.opened(client, client.close)
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
