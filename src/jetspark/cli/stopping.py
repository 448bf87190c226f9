"""Ctrl-C and SIGTERM for jobs that end in good order: the first asks, the second interrupts."""

from __future__ import annotations

import signal
import threading
from types import FrameType

from jetspark.cli import console

__all__ = ["Stop"]


class Stop:
    """Notes that a job is to end."""

    def __init__(self, what: str) -> None:
        self.asked = threading.Event()
        self._what = what  # is still to be done then

    def listen(self) -> None:
        """Take the signals; again after Spark has started, because it takes Ctrl-C for itself."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked.set()
        console.say(f"stopping: {self._what}; Ctrl-C again does not wait for it")
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # Some send SIGTERM more than once, to a process and to its group: that is not urgent.
