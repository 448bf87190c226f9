"""Time spans as people write them: `5 seconds`, `10m`."""

from __future__ import annotations

import re

__all__ = ["milliseconds"]

_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)", re.IGNORECASE)
_UNITS = {
    1: ("ms", "millisecond", "milliseconds"),
    1000: ("s", "sec", "second", "seconds"),
    60_000: ("m", "min", "minute", "minutes"),
    3_600_000: ("h", "hour", "hours"),
    86_400_000: ("d", "day", "days"),
}


def milliseconds(text: str) -> int:
    """A time span in milliseconds; raises `ValueError` with what it takes for anything else.

    >>> milliseconds("1.5 minutes")
    90000
    """
    found = _SPAN.fullmatch(text.strip())
    if found is not None:
        for size, names in _UNITS.items():
            if found[2].lower() in names:
                return round(float(found[1]) * size)
    raise ValueError(
        f"{text!r} is no time span; write one like '500 ms', '5 seconds' or '10 minutes'"
    )
