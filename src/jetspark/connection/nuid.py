"""Unique names for inboxes and clients."""

from __future__ import annotations

import os
import random

__all__ = ["Nuid", "next_nuid"]

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_PREFIX_LENGTH = 12
_COUNTER_LENGTH = 10
_COUNTER_END = 62**_COUNTER_LENGTH


class Nuid:
    """Makes names of 22 characters: a random prefix and a counter that moves in random steps."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.renew()

    def renew(self) -> None:
        """Begin anew, with another random prefix."""
        self._prefix = "".join(self._rng.choices(_ALPHABET, k=_PREFIX_LENGTH))
        self._counter = self._rng.randrange(_COUNTER_END)
        self._step = self._rng.randrange(33, 333)

    def next(self) -> str:
        """Return a name that was not returned before."""
        self._counter += self._step
        if self._counter >= _COUNTER_END:
            self.renew()
        number, digits = self._counter, []
        for _ in range(_COUNTER_LENGTH):
            number, digit = divmod(number, 62)
            digits.append(_ALPHABET[digit])
        return self._prefix + "".join(reversed(digits))


_shared = Nuid(random.SystemRandom())
if hasattr(os, "register_at_fork"):  # a forked worker must not repeat the names of its parent
    os.register_at_fork(after_in_child=_shared.renew)


def next_nuid() -> str:
    """Return a name that is unique in all processes."""
    return _shared.next()
