"""The bookkeeping of endless pulling (ADR-37): what is asked for and not delivered yet.

Pure: the stream that pulls tells it what happens and asks it what to request.
"""

from __future__ import annotations

__all__ = ["PullWindow"]


class PullWindow:
    """Counts what is on order, and says when to order more.

    A message counts until the application takes it, so the window also bounds what waits locally.
    """

    __slots__ = (
        "max_bytes",
        "max_messages",
        "min_bytes",
        "pending_bytes",
        "pending_messages",
        "threshold_bytes",
        "threshold_messages",
    )

    def __init__(
        self,
        *,
        max_messages: int,
        max_bytes: int | None,
        threshold_messages: int,
        threshold_bytes: int,
    ) -> None:
        self.max_messages = max_messages
        self.max_bytes = max_bytes  # None: only messages count
        self.threshold_messages = threshold_messages
        self.threshold_bytes = threshold_bytes
        self.min_bytes = 0  # the next message is known to need an order of so many
        self.pending_messages = 0
        self.pending_bytes = 0

    def resize(self, max_messages: int) -> None:
        """Have so many messages on order from now on, and order more at half of them."""
        self.max_messages = max_messages
        self.threshold_messages = -(-max_messages // 2)

    def needs_order(self) -> bool:
        """Whether it is time to order more."""
        if self.max_bytes is None:
            return self.pending_messages < self.threshold_messages
        return (
            self.pending_bytes < self.threshold_bytes
            and self.max_bytes - self.pending_bytes >= self.min_bytes
        )

    def order(self, limit: int | None = None) -> tuple[int, int]:
        """Order as much as fits, at most `limit` messages: batch and bytes (0: no limit)."""
        # Late messages of an order that was given up may have brought it below.
        self.pending_messages = max(self.pending_messages, 0)
        if self.max_bytes is None:
            batch, size = self.max_messages - self.pending_messages, 0
        else:  # the number of messages is then no limit at all
            batch, size = self.max_messages, self.max_bytes - self.pending_bytes
        if limit is not None:
            batch = min(batch, limit)
        self.pending_messages += batch
        self.pending_bytes += size
        self.min_bytes = 0
        return batch, size

    def returned(self, messages: int, size: int) -> None:
        """So much of the orders was taken, or will not be delivered any more."""
        self.pending_messages = max(self.pending_messages - messages, 0)
        self.pending_bytes = max(self.pending_bytes - size, 0)

    def too_small(self, size: int) -> bool:
        """An order of so many bytes was too small for the next message.

        A larger one is placed when enough has been taken; returns whether there can be none.
        """
        if self.max_bytes is None or size >= self.max_bytes:
            return True
        self.min_bytes = max(self.min_bytes, size + 1)
        return False

    def reset(self, messages: int = 0, size: int = 0) -> None:
        """The server has forgotten all orders; so much has arrived and was not taken yet."""
        self.pending_messages = messages
        self.pending_bytes = size
        self.min_bytes = 0
