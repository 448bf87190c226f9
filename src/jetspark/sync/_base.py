"""What the blocking classes have in common: each stands before an object of the async API."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from ._callbacks import check_callback
from ._thread import LoopThread

__all__ = ["FRONTS", "Wrapper", "in_loop", "in_threads", "in_worker", "unwrap", "wrap"]

R = TypeVar("R")

FRONTS: dict[str, Callable[[Any, LoopThread], Any]] = {}
"""By the full name of an async class, what makes a blocking object of one of its objects."""


class Wrapper:
    """The blocking front of an object of the async API."""

    _async: Any

    def __init__(self, wrapped: Any, thread: LoopThread) -> None:
        self._async = wrapped
        self._thread = thread

    def __repr__(self) -> str:
        return repr(self._async)


def wrap(value: Any, thread: LoopThread) -> Any:
    """The blocking object for an async one, of the class that suits it best."""
    for kind in type(value).__mro__:
        front = FRONTS.get(f"{kind.__module__}.{kind.__qualname__}")
        if front is not None:
            return front(value, thread)
    return value


def unwrap(value: Any) -> Any:
    """The async object behind a blocking one; anything else as it is."""
    return value._async if isinstance(value, Wrapper) else value


def in_worker(function: Callable[..., object] | None, thread: LoopThread) -> Any:
    """A callback for the async API that calls a function in a worker thread."""
    if function is None:
        return None
    check_callback(function)

    async def call(*args: Any) -> None:
        await thread.workers.run(function, *[wrap(arg, thread) for arg in args])

    return call


def in_loop(function: Callable[..., R] | None, thread: LoopThread) -> Any:
    """A function for the async API that calls another one with blocking objects, in the loop."""
    if function is None:
        return None

    def call(*args: Any) -> R:
        return function(*[wrap(arg, thread) for arg in args])

    return call


def in_threads(data: Any) -> Any:
    """Data for the async API; an iterable, which may block, is iterated over in threads."""
    is_file = hasattr(data, "read") and not isinstance(data, Wrapper)
    ready = isinstance(data, Sequence | memoryview | bytearray | os.PathLike)
    if is_file or ready or not isinstance(data, Iterable):
        return data
    return _blocks(iter(data))


async def _blocks(iterator: Iterator[Any]) -> AsyncIterator[Any]:
    end = object()
    while (block := await asyncio.to_thread(next, iterator, end)) is not end:
        yield block
