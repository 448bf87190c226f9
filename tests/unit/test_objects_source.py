"""What can be put, cut into chunks; and work that is not left half done."""

from __future__ import annotations

import array
import asyncio
import io
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetspark.errors import InvalidArgumentError
from jetspark.objects import source
from jetspark.objects.finishing import to_the_end
from jetspark.objects.source import cut, size_of

DATA = bytes(range(256)) * 41


async def chunks(data: Any, size: int) -> list[bytes]:
    return [chunk async for chunk in cut(data, size)]


def expected(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


async def asynchronous(blocks: list[bytes]) -> AsyncIterator[bytes]:
    for block in blocks:
        await asyncio.sleep(0)
        yield block


class AsyncFile:
    """A file whose `read` is a coroutine."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    async def read(self, size: int) -> bytes:
        return self._file.read(size)


class ShortReads(io.RawIOBase):
    """A file that gives less than it is asked for, as a pipe does."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, size: int = -1) -> bytes:
        block, self._data = self._data[: min(size, 7)], self._data[min(size, 7) :]
        return block


SOURCES: dict[str, Callable[[bytes], Any]] = {
    "bytes": bytes,
    "bytearray": bytearray,
    "memoryview": memoryview,
    "other buffer": lambda data: array.array("B", data),
    "view with a step": lambda data: memoryview(bytes(2) + data)[2:],
    "BytesIO": io.BytesIO,
    "short reads": ShortReads,
    "async file": AsyncFile,
    "list": lambda data: [data[:100], data[100:101], b"", data[101:]],
    "generator": lambda data: (data[start : start + 3] for start in range(0, len(data), 3)),
    "async iterable": lambda data: asynchronous(expected(data, 1000)),
}


@pytest.mark.parametrize("size", [1, 7, 256, 1000, 100_000])
@pytest.mark.parametrize("name", SOURCES)
async def test_every_source_comes_in_full_chunks(name: str, size: int) -> None:
    assert await chunks(SOURCES[name](DATA), size) == expected(DATA, size)


@pytest.mark.parametrize("name", SOURCES)
async def test_an_empty_source_has_no_chunks(name: str) -> None:
    assert await chunks(SOURCES[name](b""), 10) == []


async def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "READ_SIZE", 1000)
    path = tmp_path / "file"
    path.write_bytes(DATA)
    for size in (1, 300, 1000, 1001, 50_000):
        assert await chunks(path, size) == expected(DATA, size)
        with path.open("rb") as file:
            assert await chunks(file, size) == expected(DATA, size)
    path.write_bytes(b"")
    assert await chunks(path, 10) == []
    with pytest.raises(FileNotFoundError):
        await chunks(tmp_path / "missing", 10)


async def test_a_file_is_closed_when_nobody_wants_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "READ_SIZE", 1000)
    path = tmp_path / "file"
    path.write_bytes(DATA)
    parts = cut(path, 100)
    assert await anext(parts) == DATA[:100]
    await parts.aclose()  # else the suite fails for the file that is left open


@given(st.lists(st.binary(max_size=20), max_size=12), st.integers(1, 25))
def test_blocks_of_any_size(blocks: list[bytes], size: int) -> None:
    assert asyncio.run(chunks(iter(blocks), size)) == expected(b"".join(blocks), size)


async def test_wide_items_and_gaps() -> None:
    numbers = array.array("H", range(500))
    assert b"".join(await chunks([numbers], 64)) == numbers.tobytes()
    assert b"".join(await chunks(memoryview(DATA)[::2], 64)) == DATA[::2]


@pytest.mark.parametrize(
    "data",
    ["text", ["text"], [1], 5, None, io.StringIO("text"), object(), asynchronous([1])],  # type: ignore[list-item]
)
async def test_what_is_no_data(data: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="the data of an object are bytes, not"):
        await chunks(data, 10)


async def test_a_text_that_may_be_a_path() -> None:
    with pytest.raises(InvalidArgumentError, match="put_file"):
        await chunks("file", 10)


class Lines(AsyncFile):
    """A file of another library, which can be iterated over as well."""

    most = 0

    async def read(self, size: int = -1) -> bytes:
        self.most = max(self.most, size)
        return await super().read(size)

    async def readline(self) -> bytes:
        return self._file.readline()

    def __aiter__(self) -> AsyncIterator[bytes]:
        raise AssertionError("a line may have any length")


async def test_async_files_are_read_in_blocks() -> None:
    lines = Lines(DATA)
    assert await chunks(lines, 1000) == expected(DATA, 1000)
    assert lines.most <= source.READ_SIZE
    stream = asyncio.StreamReader()
    stream.feed_data(DATA * 20)
    stream.feed_eof()
    assert await chunks(stream, 1000) == expected(DATA * 20, 1000)


async def test_a_file_that_does_not_block() -> None:
    receive, send = os.pipe()
    os.set_blocking(receive, False)
    os.write(send, DATA[:10])
    with (
        os.fdopen(receive, "rb", buffering=0) as file,
        os.fdopen(send, "wb"),
        pytest.raises(InvalidArgumentError, match="set_blocking"),
    ):
        await chunks(file, 4)


class OneBuffer:
    """A source that uses its only buffer again and again, and leaves nothing in it."""

    def __init__(self, data: bytes) -> None:
        self._blocks = expected(data, 1000)
        self._buffer = bytearray()

    def read(self, size: int) -> bytearray:
        self._buffer.clear()
        if self._blocks:
            self._buffer += self._blocks.pop(0)
        return self._buffer

    def __iter__(self) -> Iterator[bytearray]:
        while self.read(0):
            yield self._buffer

    async def again(self) -> AsyncIterator[bytearray]:
        for block in self:
            yield block


@pytest.mark.parametrize("size", [1, 300, 1000, 1024, 5000])
async def test_a_buffer_that_is_used_again(size: int) -> None:
    assert await chunks(OneBuffer(DATA), size) == expected(DATA, size)
    assert await chunks(iter(OneBuffer(DATA)), size) == expected(DATA, size)
    assert await chunks(OneBuffer(DATA).again(), size) == expected(DATA, size)


async def test_what_is_no_regular_file(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(InvalidArgumentError, match="is no regular file"):
        await chunks(fifo, 10)
    with pytest.raises(InvalidArgumentError, match="is no regular file"):
        size_of(fifo)
    with pytest.raises(IsADirectoryError):
        await chunks(tmp_path, 10)


def test_sizes_that_are_known(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    assert size_of(tmp_path / "file") == 3
    assert size_of(b"abc") == size_of(bytearray(b"abc")) == size_of(memoryview(b"abc")) == 3
    assert size_of(memoryview(array.array("H", [1, 2]))) == 4
    assert size_of([b"abc"]) is size_of(io.BytesIO(b"abc")) is None


# -- to the end ---------------------------------------------------------------------------------


async def test_a_cancellation_waits_for_the_end() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    done: list[str] = []

    async def work() -> int:
        begun.set()
        await go_on.wait()
        done.append("work")
        return 1

    task = asyncio.create_task(to_the_end(work()))
    await begun.wait()
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == ["work"]
    assert await to_the_end(work()) == 1


async def test_what_fails_after_a_cancellation_is_no_news() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        await go_on.wait()
        raise ValueError("work")

    task = asyncio.create_task(to_the_end(work()))
    await begun.wait()
    task.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ValueError, match="work"):
        await to_the_end(work())
