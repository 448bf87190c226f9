"""What can be put into an object store, cut into chunks."""

from __future__ import annotations

import asyncio
import inspect
import io
import os
import stat
from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from contextlib import aclosing
from typing import Any, Protocol, TypeAlias

from jetspark.errors import InvalidArgumentError

from .finishing import to_the_end

__all__ = ["ObjectData", "cut", "size_of"]

READ_SIZE = 2 * 1024 * 1024  # bytes that are read from a file at a time


class SupportsRead(Protocol):
    """A file, or something like it; `read` may be a coroutine."""

    def read(self, size: int, /) -> Any:
        """Up to so many bytes, none at the end."""


ObjectData: TypeAlias = (
    bytes
    | bytearray
    | memoryview
    | os.PathLike[str]
    | SupportsRead
    | Iterable[bytes]
    | AsyncIterable[bytes]
)
"""Bytes, the path of a file, an open file, or an iterable of bytes, which may be asynchronous."""


def size_of(data: ObjectData) -> int | None:
    """How many bytes there are, if that is known beforehand."""
    if isinstance(data, bytes | bytearray):
        return len(data)
    if isinstance(data, os.PathLike):
        return _stat(data).st_size or None  # 0 may mean that it is made up as it is read
    return data.nbytes if isinstance(data, memoryview) else None


async def cut(data: ObjectData, size: int) -> AsyncGenerator[bytes, None]:
    """Yield chunks of exactly `size` bytes; only the last one may be smaller."""
    held = bytearray()  # the beginning of a chunk
    async with aclosing(_blocks(data, size)) as blocks:
        async for block in blocks:
            if type(block) is bytes and len(block) == size and not held:
                yield block
                continue
            with _view(block) as view:  # let go of before the next one: it may be used again
                start = 0
                if held:
                    start = size - len(held)
                    held += view[:start]
                    if len(held) < size:
                        continue
                    yield bytes(held)
                    held.clear()
                last = len(view) - size
                while start <= last:
                    yield bytes(view[start : start + size])
                    start += size
                held += view[start:]
    if held:
        yield bytes(held)


def _view(block: object) -> memoryview:
    try:
        view = memoryview(block)  # type: ignore[arg-type]
    except TypeError:
        advice = "encode it first" if isinstance(block, str) else "give bytes"
        raise InvalidArgumentError(
            f"the data of an object are bytes, not {type(block).__name__}; {advice}"
        ) from None
    return view.cast("B") if view.c_contiguous else memoryview(view.tobytes())


async def _blocks(data: Any, size: int) -> AsyncGenerator[Any, None]:
    """The data as blocks of any size."""
    amount = max(READ_SIZE // size, 1) * size
    if isinstance(data, str):
        raise InvalidArgumentError(
            "the data of an object are bytes, not str; encode it, or use put_file for a path"
        )
    if isinstance(data, bytes | bytearray | memoryview):
        yield data
    elif isinstance(data, io.BytesIO):
        while block := data.read(amount):
            yield block
    elif isinstance(data, os.PathLike):
        with _open(data) as file:
            ahead = _ReadAhead(file, amount)
            try:
                while block := await ahead.next():
                    yield block
            finally:
                await to_the_end(ahead.stop())  # before the file is closed
    elif hasattr(data, "__aiter__") and not _is_async_file(data):
        async for block in data:
            yield block
    elif hasattr(data, "read"):
        while True:
            block = await asyncio.to_thread(data.read, amount)
            if inspect.isawaitable(block):
                block = await block
            if block is None:
                raise InvalidArgumentError(
                    "the data of an object cannot be read from a file that does not block: its "
                    "read() has nothing yet; have it block (os.set_blocking)"
                )
            if not block:
                return
            yield block
    elif _is_buffer(data) or not isinstance(data, Iterable):
        yield _view(data)
    else:
        for block in data:
            yield block


def _is_async_file(data: Any) -> bool:
    """Whether iterating would give lines, of any length, and reading what is asked for."""
    lines = ("readline", "readexactly", "readinto")
    return hasattr(data, "read") and any(hasattr(data, name) for name in lines)


def _is_buffer(data: Any) -> bool:
    try:
        memoryview(data)
    except TypeError:
        return False
    return True


def _open(path: os.PathLike[str]) -> io.FileIO:
    _stat(path)
    return open(path, "rb", buffering=0)


def _stat(path: os.PathLike[str]) -> os.stat_result:
    found = os.stat(path)
    # To open a directory is an error of the system.
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        raise InvalidArgumentError(
            f"{os.fspath(path)!r} is no regular file, and to open it may take for ever; open it, "
            "and put what that gives"
        )
    return found


class _ReadAhead:
    """Reads a file in a thread, always one block ahead of what is taken."""

    def __init__(self, file: io.FileIO, amount: int) -> None:
        self._file = file
        self._amount = amount
        self._read()

    def _read(self) -> None:
        loop = asyncio.get_running_loop()
        self._reading = loop.run_in_executor(None, self._file.read, self._amount)

    async def next(self) -> bytes:
        """The next block; empty at the end."""
        await asyncio.wait([self._reading])
        block = self._reading.result()
        if block:
            self._read()
        return block

    async def stop(self) -> None:
        """Wait until nothing is read any more."""
        await asyncio.wait([self._reading])
        self._reading.exception()  # if there is one, nobody needs it
