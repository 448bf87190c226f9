"""What the blocking classes have in common: each stands before an object of the async API."""

from __future__ import annotations

import asyncio
import inspect
import io
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from ._callbacks import check_callback
from ._thread import LoopThread

__all__ = [
    "FRONTS",
    "Wrapper",
    "in_list",
    "in_loop",
    "in_threads",
    "in_worker",
    "unwrap",
    "wrap",
]

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
    check_callback(function)

    def call(*args: Any) -> R:
        try:
            return function(*[wrap(arg, thread) for arg in args])
        except (KeyboardInterrupt, SystemExit) as error:  # it would end what calls it
            raise RuntimeError(f"the callback raised {error!r}") from error

    return call


def in_list(items: Any) -> Any:
    """Items for the async API; taken now, in the thread of the caller, because that may block."""
    return items if isinstance(items, str) or not isinstance(items, Iterable) else list(items)


def in_threads(data: Any, client: Any) -> Any:
    """Data for the async API; a file or iterable, which may block, is read in threads."""
    if hasattr(data, "read") and not isinstance(data, Wrapper | io.BytesIO):
        return _File(data, client)
    ready = isinstance(data, Sequence | memoryview | bytearray | os.PathLike | io.BytesIO)
    if ready or not isinstance(data, Iterable):
        return data
    return _blocks(iter(data), client)


class _File:
    """A file that is read in threads."""

    def __init__(self, file: Any, client: Any) -> None:
        self._file = file
        self._client = client

    async def read(self, size: int) -> Any:
        """Up to so many bytes, none at the end."""
        block = await _in_thread(self._client, self._file.read, size)
        return await block if inspect.isawaitable(block) else block


async def _blocks(iterator: Iterator[Any], client: Any) -> AsyncIterator[Any]:
    end = object()
    while (block := await _in_thread(client, next, iterator, end)) is not end:
        yield block


async def _in_thread(client: Any, function: Callable[..., Any], *args: Any) -> Any:
    reading = asyncio.get_running_loop().run_in_executor(None, function, *args)
    client.readings.add(reading)  # which are cancelled when it is closed
    try:
        return await reading
    finally:
        client.readings.discard(reading)
