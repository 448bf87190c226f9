"""A feed of chunks, which are large: the readers of one connection share what may be on order.

A server drops a client that lets more than `max_pending` wait (64 MiB by default), and does so
although it was that client which asked for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakSet

from jetspark.jetstream import OrderedConsumer
from jetspark.jetstream.consumer.messages import WarningHandler
from jetspark.jetstream.consumer.pull_options import StreamOptions
from jetspark.jetstream.consumer.pull_status import Reaction, read_status

from .feed import Feed

if TYPE_CHECKING:
    from jetspark.connection import Client

__all__ = ["ChunkFeed"]

CONNECTION_BYTES = 32 * 1024 * 1024  # on order for all readers of a connection
OVERHEAD = 1024  # bytes of a message besides its data, at most, or nearly so

_reading: WeakKeyDictionary[Client, WeakSet[ChunkFeed]] = WeakKeyDictionary()


class ChunkFeed(Feed):
    """Takes chunks, and has as many bytes on order as the other readers leave to it."""

    def __init__(
        self, consumer: OrderedConsumer, options: StreamOptions, on_warning: WarningHandler | None
    ) -> None:
        super().__init__(consumer, options, on_warning)
        self._least = 0  # bytes to order, or not even one chunk would come

    def expect(self, size: int) -> None:
        """Order so many bytes at least: chunks are said to have them, or some of them."""
        self._least = size + OVERHEAD

    def _start(self) -> None:
        _reading.setdefault(self.client, WeakSet()).add(self)
        super()._start()

    def _order(self) -> None:
        if self._window.needs_order():
            self._take_share()
        super()._order()

    def _take_share(self) -> None:
        window, most = self._window, self._options.max_bytes
        assert most is not None
        others = [
            feed._window.pending_bytes
            for feed in _reading[self.client]
            if feed is not self and not feed.ended
        ]
        even = CONNECTION_BYTES // (len(others) + 1)
        # Readers that stall hold what they have: the others need not wait for that.
        share = min(most, even, max(CONNECTION_BYTES - sum(others), even // 8))
        window.max_bytes = max(share, self._least, window.min_bytes)
        window.threshold_bytes = -(-window.max_bytes // 2)

    def _on_status(self, header: bytes) -> None:
        status, window = read_status(header), self._window
        assert window.max_bytes is not None
        # A chunk can be larger than anything that is known of the object allows to expect.
        if status.reaction is Reaction.TOO_LARGE and status.pending_bytes >= window.max_bytes:
            window.max_bytes = self._least = 2 * window.max_bytes
        super()._on_status(header)

    def close(self) -> None:
        """Give up; the others may order more."""
        super().close()
        _reading.get(self.client, WeakSet()).discard(self)
