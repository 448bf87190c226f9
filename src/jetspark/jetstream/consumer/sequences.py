"""The numbers under which a consumer delivers, to notice what got lost on the way.

A consumer counts its deliveries: 1, 2, 3 and so on, redeliveries included. The number is in the
reply subject of each message, and that of the last one in each heartbeat. Messages arrive in
batches, and of a batch only the first and the last are looked at as long as all is well.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from jetspark.errors import JetStreamError
from jetspark.protocol import Frame

__all__ = ["Gap", "GapDetector", "OrderCheck", "Place", "first_sequence", "place_of"]


class Place(NamedTuple):
    """Where a message comes from."""

    consumer: bytes
    stream_sequence: int
    consumer_sequence: int


def place_of(frame: Frame) -> Place | None:
    """The place of a message; None if no consumer delivered it."""
    reply = frame[1]
    tokens = reply.split(b".") if reply else []
    count = len(tokens)
    # 9 tokens, or 11 and more: the first two of those are the domain and the account.
    if count < 9 or count == 10 or tokens[0] != b"$JS" or tokens[1] != b"ACK":
        return None
    first = 3 if count == 9 else 5
    try:
        return Place(tokens[first], int(tokens[first + 2]), int(tokens[first + 3]))
    except ValueError:
        return None


def first_sequence(frames: Iterable[Frame]) -> int | None:
    """The stream sequence of the first message, if there is one."""
    for frame in frames:
        if (place := place_of(frame)) is not None:
            return place.stream_sequence
    return None


class OrderCheck:
    """Accepts the messages of one consumer only in order and without a gap."""

    def __init__(self) -> None:
        self.consumer = b""  # whose messages are accepted
        self.consumer_sequence = 0  # of the last one accepted
        self.stream_sequence = 0  # ... and over all consumers

    def begin(self, consumer: str) -> None:
        """Accept the messages of another consumer from now on, which goes on after the last one."""
        self.consumer = consumer.encode()
        self.consumer_sequence = 0

    def accept(self, frames: Sequence[Frame]) -> tuple[Sequence[Frame], int | None]:
        """What comes next in order, and the delivery that came instead of the one after it, if so.

        Messages of other consumers, and those of nobody, are left out.
        """
        if not frames:
            return frames, None
        first, last = place_of(frames[0]), place_of(frames[-1])
        if (
            first is not None
            and last is not None
            and first.consumer_sequence == self.consumer_sequence + 1
            and last.consumer_sequence == self.consumer_sequence + len(frames)
            and first.consumer == last.consumer == self.consumer
            and first.stream_sequence > self.stream_sequence
        ):
            _, self.stream_sequence, self.consumer_sequence = last
            return frames, None
        return self._accept_each(frames)

    def _accept_each(self, frames: Sequence[Frame]) -> tuple[list[Frame], int | None]:
        accepted: list[Frame] = []
        for frame in frames:
            place = place_of(frame)
            if place is None or place.consumer != self.consumer:
                continue
            if (
                place.consumer_sequence != self.consumer_sequence + 1
                or place.stream_sequence <= self.stream_sequence
            ):
                return accepted, place.consumer_sequence
            _, self.stream_sequence, self.consumer_sequence = place
            accepted.append(frame)
        return accepted, None


class Gap(NamedTuple):
    """Deliveries that did not arrive."""

    expected: int  # the consumer sequence that should have come next
    received: int  # the one that came, or that a heartbeat tells of
    resume_sequence: int  # the first sequence in the stream that may be missing

    def error(self, consumer: str) -> JetStreamError:
        """What to tell the application."""
        return JetStreamError(
            f"{consumer}: delivery {self.expected} was expected, and {self.received} came; "
            f"messages from sequence {self.resume_sequence} of the stream on may be missing",
            expected=self.expected,
            received=self.received,
            resume_sequence=self.resume_sequence,
        )


class GapDetector:
    """Follows the deliveries of a consumer and tells of gaps.

    It begins with whatever comes first. Numbers that fall are no gap: the consumer was reset
    (2.14), or is a new one of the same name.
    """

    def __init__(self) -> None:
        self._last = 0  # consumer sequence
        self._resume_sequence = 0
        self._begun = False

    def messages(self, frames: Sequence[Frame]) -> Gap | None:
        """Note messages; the first gap between them or before them, if there is one."""
        first, last = place_of(frames[0]), place_of(frames[-1])
        if (
            first is not None
            and last is not None
            and self._begun
            and first.consumer_sequence == self._last + 1
            and last.consumer_sequence == self._last + len(frames)
        ):
            self._note(last.consumer_sequence, last.stream_sequence)
            return None
        gap = None
        for frame in frames:
            if (place := place_of(frame)) is not None:
                found = self._compare(place.consumer_sequence - 1, place.consumer_sequence)
                gap = gap or found
                self._note(place.consumer_sequence, place.stream_sequence)
        return gap

    def heartbeat(self, last_consumer: int, last_stream: int) -> Gap | None:
        """Note what the server says that it delivered last; the gap if that never arrived."""
        gap = self._compare(last_consumer, last_consumer)
        if gap is not None or not self._begun or last_consumer < self._last:
            self._note(last_consumer, last_stream)
        return gap

    def _compare(self, before: int, received: int) -> Gap | None:
        if self._begun and before > self._last:
            return Gap(self._last + 1, received, self._resume_sequence)
        return None

    def _note(self, consumer_sequence: int, stream_sequence: int) -> None:
        self._last = consumer_sequence
        self._resume_sequence = stream_sequence + 1
        self._begun = True
