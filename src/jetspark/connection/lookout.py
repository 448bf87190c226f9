"""Looking out for more acknowledgements where they come many at a time.

A server stores a number of messages, acknowledges them all, and goes on with the next. Falling
asleep between two such bursts and being woken takes about as long as they are apart, above all on
virtual machines, and it is the server that has to do the waking. So after a read with many
acknowledgements the event loop looks for the next for a moment before it sleeps. Other callbacks
and tasks run meanwhile as they always do.

That takes processor time, and so it ends where it is of no use: each time in vain, as with a server
far away, lets twice as many such reads pass until the next try.
"""

from __future__ import annotations

import asyncio

__all__ = ["MANY", "Lookout"]

MANY = 8  # in one read
LONGEST_PAUSE = 1023  # reads


class Lookout:
    """Keeps the event loop awake for a moment (seconds; 0: never)."""

    def __init__(self, loop: asyncio.AbstractEventLoop, moment: float) -> None:
        self._loop = loop
        self._moment = moment
        self._looking = False
        self._until = 0.0
        self._left = 0  # reads to let pass
        self._pause = 0  # as many after the next time in vain

    def acknowledged(self, count: int) -> None:
        """Note that a read has brought so many, and that it is dealt with."""
        if count < MANY or not self._moment:
            return
        if self._looking:
            self._pause = 0
        elif self._left:
            self._left -= 1
            return
        else:
            self._looking = True
            self._loop.call_soon(self._look)
        self._until = self._loop.time() + self._moment

    def _look(self) -> None:
        # As long as a callback is due, the loop takes what has arrived and does not wait for it.
        if self._loop.time() < self._until:
            self._loop.call_soon(self._look)
            return
        self._looking = False
        self._left, self._pause = self._pause, min(2 * self._pause + 1, LONGEST_PAUSE)
