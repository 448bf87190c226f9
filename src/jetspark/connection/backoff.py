"""How long to wait before the next attempt on a server."""

from __future__ import annotations

import math
from dataclasses import dataclass

from jetspark.errors import InvalidOptionError

__all__ = ["Backoff"]


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff with jitter; all times are seconds."""

    initial: float = 0.1
    """The wait after the first failure."""
    maximum: float = 8.0
    """No wait is longer, whatever the jitter."""
    factor: float = 2.0
    """How much longer each wait is than the one before."""
    jitter: float = 0.2
    """The share of a wait that chance may take away, so that clients do not return all at once."""

    def __post_init__(self) -> None:
        for name, at_least in (("initial", 0.0), ("maximum", self.initial), ("factor", 1.0)):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= at_least):
                raise InvalidOptionError(
                    f"backoff {name} must be a finite number of at least {at_least}, not {value}"
                )
        if not 0.0 <= self.jitter <= 1.0:
            raise InvalidOptionError(f"backoff jitter must be from 0 to 1, not {self.jitter}")

    def delay(self, attempt: int, random: float) -> float:
        """Return the wait after `attempt` failures; `random` is a number from 0 to 1."""
        if attempt <= 0 or self.initial == 0.0:
            return 0.0
        try:
            wait = min(self.maximum, self.initial * self.factor ** (attempt - 1))
        except OverflowError:
            wait = self.maximum
        return wait * (1.0 - self.jitter * random)
