"""Which sequences are read, and how they are divided among tasks. Pure: no I/O, no clock.

An offset is the last sequence that has been read; 0: none. In a checkpoint they stand by stream:
`{"ORDERS": 1234}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

__all__ = ["Range", "divide", "limit_offsets"]

PER_PARTITION = 250_000
"""Sequences for a task: one for fewer costs more than it saves. The user may say otherwise."""


class Range(NamedTuple):
    """Sequences of a stream, the last one included."""

    stream: str
    first: int
    last: int

    @property
    def size(self) -> int:
        """How many sequences these are; fewer messages may be there."""
        return self.last - self.first + 1


def divide(
    ranges: Iterable[Range],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[Range]:
    """Cut ranges into the parts that tasks read.

    The number of cores has no part in it: a batch that is read again, perhaps on another cluster,
    must be divided as it was before.
    """
    whole = [part for part in ranges if part.size > 0]
    total = sum(part.size for part in whole)
    if not total:
        return []
    wanted = min_partitions or max(total // PER_PARTITION, 1)
    parts = []
    for part in whole:
        pieces = max(-(-wanted * part.size // total), 1)
        if max_records is not None:
            pieces = max(pieces, -(-part.size // max_records))
        pieces = min(pieces, part.size)
        # Of equal sizes, as far as whole numbers allow.
        cuts = [part.first + part.size * number // pieces for number in range(pieces + 1)]
        parts += [Range(part.stream, first, after - 1) for first, after in pairwise(cuts)]
    return parts


def limit_offsets(start: Mapping[str, int], latest: Mapping[str, int], most: int) -> dict[str, int]:
    """How far a batch of so many sequences goes, in proportion to what each stream has.

    Each stream that has something gets at least one.
    """
    backlog = {stream: max(latest[stream] - start.get(stream, 0), 0) for stream in latest}
    total = sum(backlog.values())
    if total <= most:
        return {stream: start.get(stream, 0) + size for stream, size in backlog.items()}
    busy = sum(size > 0 for size in backlog.values())
    # One for each that has something, and of the rest a share.
    rest = max(most - busy, 0)
    shares = {
        stream: size and 1 + rest * (size - 1) // max(total - busy, 1)
        for stream, size in backlog.items()
    }
    return {stream: start.get(stream, 0) + share for stream, share in shares.items()}
