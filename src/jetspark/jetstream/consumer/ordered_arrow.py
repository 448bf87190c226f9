"""Record batches from an ordered consumer; apart, because it needs pyarrow."""

from __future__ import annotations

from .arrow import ArrowStream
from .ordered import OrderedFeed
from .sequences import first_sequence

__all__ = ["OrderedArrowStream"]


class OrderedArrowStream(OrderedFeed, ArrowStream):
    """The messages of an ordered consumer as record batches, to iterate over."""

    @property
    def resume_sequence(self) -> int | None:
        """The first sequence that the application has not seen; None: as the user said."""
        return first_sequence(self._partial) or super().resume_sequence

    async def stop(self) -> None:
        """Stop at once; the next iteration brings what waits."""
        self._discarded_at = self.resume_sequence
        await super().stop()
