"""Keeps account of messages that are published while things break, and of what a stream holds."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from jetspark import JetStream, PublishAck, PublishAckFuture, Stream
from jetspark.errors import JetSparkError

__all__ = ["Ledger", "stored_numbers"]


class Ledger:
    """Publishes numbers, and holds the books against the stream."""

    def __init__(self, js: JetStream, subject: str, *, ids: bool, **options: Any) -> None:
        self.js = js
        self.subject = subject
        self.published = 0
        self.acked: dict[int, PublishAck] = {}
        self.failed: dict[int, JetSparkError] = {}
        self.refused: dict[int, JetSparkError] = {}  # by the call itself: never sent
        self._ids = ids
        self._options = options
        self._open: list[tuple[int, PublishAckFuture]] = []

    async def publish(self) -> None:
        number = self.published
        self.published += 1
        options = dict(self._options)
        if self._ids:
            options["msg_id"] = f"id-{number}"
        try:
            future = await self.js.publish_async(self.subject, b"%d" % number, **options)
        except JetSparkError as error:
            self.refused[number] = error
        else:
            self._open.append((number, future))

    async def load(self, stop: asyncio.Event, *, pause: float = 0.002) -> None:
        """Publish in small bursts until told to stop."""
        while not stop.is_set():
            for _ in range(25):
                await self.publish()
            await asyncio.sleep(pause)

    async def settle(self) -> None:
        """Wait for everything that was published."""
        for number, future in self._open:
            try:
                self.acked[number] = await future
            except JetSparkError as error:
                self.failed[number] = error
        self._open.clear()

    async def check(self, stream: Stream) -> list[int]:
        """Balance the books; returns what is stored, in its order."""
        assert not self._open, "settle first"
        assert self.js.publish_async_pending == 0
        assert len(self.acked) + len(self.failed) + len(self.refused) == self.published
        stored = await stored_numbers(stream)
        counts = Counter(stored)
        lost = self.acked.keys() - counts.keys()
        assert not lost, f"acknowledged and not stored: {sorted(lost)[:10]}"
        if self._ids:
            twice = {number for number, count in counts.items() if count > 1}
            assert not twice, f"stored twice: {sorted(twice)[:10]}"
        # What was stored without an acknowledgement must have been said to be possible.
        for number in counts.keys() - self.acked.keys():
            assert number in self.failed, f"{number} is stored and was refused by the call"
            error = self.failed[number]
            assert error.may_have_taken_effect, f"{number} is stored in spite of {error!r}"
        for number, ack in self.acked.items():
            assert stored[ack.sequence - 1] == number, "acknowledged with another sequence"
        return stored


async def stored_numbers(stream: Stream) -> list[int]:
    """The numbers that a stream holds, from sequence 1 on."""
    last = (await stream.info()).state.last_seq
    numbers: list[int] = []
    for first in range(1, last + 1, 100):
        wanted = range(first, min(first + 100, last + 1))
        messages = await asyncio.gather(*[stream.get_message(seq) for seq in wanted])
        numbers += [int(message.data) for message in messages]
    return numbers
