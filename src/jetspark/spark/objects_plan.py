"""Which objects are read, and by which task. Pure: no I/O."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence

from jetspark.objects import ObjectInfo

__all__ = ["OPEN_COST", "divide_objects", "is_hidden", "is_wanted"]

OPEN_COST = 256 * 1024
"""Bytes that could be read in the time which an object costs by itself."""


def is_wanted(name: str, patterns: Sequence[str], prefix: str | None) -> bool:
    """Whether a name is under a prefix and like one of the patterns; none are all."""
    if prefix is not None and not name.startswith(f"{prefix}/"):
        return False
    return not patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def is_hidden(name: str) -> bool:
    """Whether it is the name of something that is not data, such as a file in the making."""
    return name.rpartition("/")[2].startswith((".", "_"))


def divide_objects(objects: Iterable[ObjectInfo], most: int) -> list[list[ObjectInfo]]:
    """Divide objects into groups of up to so many bytes; a larger object is a group by itself.

    The largest ones come first, so that the tasks which last longest begin first.
    """
    groups: list[list[ObjectInfo]] = []
    room = 0
    for info in sorted(objects, key=lambda info: (-info.size, info.name)):
        cost = info.size + OPEN_COST
        if cost > room or not groups:
            groups.append([])
            room = most
        groups[-1].append(info)
        room -= cost
    return groups
