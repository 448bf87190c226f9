"""Readers of objects: their arguments, waits that are given up, and what they have on order."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from jetspark import Client, JetStream, ObjectStore
from jetspark.errors import (
    BucketNotFoundError,
    InvalidArgumentError,
    InvalidOptionError,
    IteratorClosedError,
    JetSparkError,
    TimeoutError,
)
from jetspark.objects import ObjectReader, chunk_feed, reader
from tests.support.buckets import js, nc
from tests.support.clients import Connect, eventually
from tests.support.objects import (
    CHUNK,
    assert_no_consumers,
    chunk_subject,
    content,
    digest_of,
    make_store,
    read,
    store_meta,
)
from tests.support.servers import StartServer

__all__ = ["js", "nc"]

DATA = content(50 * CHUNK + 100)
MIB = 2**20


@pytest_asyncio.fixture
async def store(js: JetStream) -> ObjectStore:
    """A store with an object of 51 chunks."""
    store = await make_store(js)
    await store.put("o", DATA, chunk_size=CHUNK)
    return store


# -- arguments ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"offset": None}, "offset must be"),
        ({"offset": -1}, "offset must be"),
        ({"length": "5"}, "length must be"),
        ({"timeout": None}, "timeout must be"),
        ({"timeout": "x"}, "timeout must be"),
        ({"timeout": 0}, "timeout must be"),
        ({"timeout": float("nan")}, "timeout must be"),
        ({"on_progress": "x"}, "on_progress must be a function"),
        ({"on_progress": asyncio.sleep}, "on_progress must be a plain function"),
    ],
)
async def test_bad_arguments(store: ObjectStore, options: dict[str, Any], text: str) -> None:
    with pytest.raises((InvalidArgumentError, InvalidOptionError), match=text):
        await store.get("o", **options)


async def test_a_timeout_may_be_a_timedelta(store: ObjectStore) -> None:
    async with await store.get("o", timeout=timedelta(seconds=30)) as reader:
        assert await reader.read() == DATA


@pytest.mark.parametrize("path", ["", "/", ".", None])
async def test_paths_that_are_no_files(store: ObjectStore, path: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="path"):
        await store.get_file("o", path)


# -- waits that are given up --------------------------------------------------------------------


async def begin_to_wait(wait: Coroutine[Any, Any, bytes]) -> asyncio.Task[bytes]:
    task = asyncio.create_task(wait)
    await asyncio.sleep(0)
    assert not task.done()
    return task


async def cancel(task: asyncio.Task[bytes]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_wait_that_is_cancelled_can_be_repeated(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "WINDOW_BYTES", 2 * CHUNK)  # so that each has to be waited for
    chunks = await store.get("o")
    got: list[bytes] = []
    while sum(map(len, got)) < len(DATA):
        task = asyncio.create_task(chunks.__anext__())
        await asyncio.sleep(0)
        if task.done():
            got.append(task.result())
        else:
            await cancel(task)
            got.append(await anext(chunks))
    assert b"".join(got) == DATA
    assert await chunks.read() == b""


async def test_a_read_that_is_cancelled(js: JetStream, store: ObjectStore) -> None:
    """What it had collected is lost, and that does not look like the end."""
    chunks = await store.get("o")
    await cancel(await begin_to_wait(chunks.read()))
    for wait in (chunks.read(), anext(chunks)):
        with pytest.raises(IteratorClosedError, match=f"object 'o' in store {store.name!r}"):
            await wait
    await assert_no_consumers(js, store.name)


async def test_a_reader_that_is_stopped(store: ObjectStore) -> None:
    chunks = await store.get("o")
    waiting = await begin_to_wait(chunks.__anext__())
    await chunks.stop()
    for wait in (waiting, anext(chunks), chunks.read()):
        with pytest.raises(IteratorClosedError):
            await wait
    whole = await store.get("o")
    await whole.read()
    await whole.stop()
    assert await whole.read() == b""


async def test_two_tasks_read(store: ObjectStore) -> None:
    """The second one is told so, and the first one goes on."""
    chunks = await store.get("o")
    first = await begin_to_wait(chunks.__anext__())
    with pytest.raises(InvalidArgumentError, match="two tasks"):
        await anext(chunks)
    assert await first + await chunks.read() == DATA


async def test_an_error_is_raised_again(store: ObjectStore) -> None:
    chunks = await store.get("o", timeout=0.05)
    assert chunks._feed is not None
    chunks._feed._order = lambda: None  # type: ignore[method-assign]
    for wait in (anext(chunks), anext(chunks), chunks.read()):
        with pytest.raises(TimeoutError, match=f"object 'o' in store {store.name!r}"):
            await wait


async def test_the_store_is_made_again(
    js: JetStream, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "WINDOW_BYTES", 2 * CHUNK)
    chunks = await store.get("o", timeout=1)
    await anext(chunks)
    await js.delete_object_store(store.name)
    await make_store(js, bucket=store.name)
    with pytest.raises(JetSparkError, match=f"object 'o' in store {store.name!r}"):
        await chunks.read()


@pytest.mark.parametrize("taken", [0, 1])
async def test_the_store_is_deleted(
    js: JetStream, store: ObjectStore, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "WINDOW_BYTES", 2 * CHUNK)
    chunks = await store.get("o")
    for _ in range(taken):
        await anext(chunks)
    await js.delete_object_store(store.name)
    for wait in (chunks.read(), chunks.read()):
        with pytest.raises(BucketNotFoundError, match=f"object 'o' in store {store.name!r}"):
            await wait


@pytest.mark.parametrize("offset", [0, 100])
async def test_the_store_is_deleted_before_its_chunks_are_asked_for(
    js: JetStream, store: ObjectStore, offset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "SCAN_FROM", 100)
    resolve = store._resolve

    async def late(name: str) -> Any:
        found = await resolve(name)
        await js.delete_object_store(store.name)
        return found

    monkeypatch.setattr(store, "_resolve", late)
    with pytest.raises(BucketNotFoundError, match=f"object 'o' in store {store.name!r}"):
        await store.get("o", offset=offset)


async def test_progress_that_fails_once(store: ObjectStore) -> None:
    calls: list[int] = []

    def on_progress(done: int, total: int | None) -> None:
        calls.append(done)
        if len(calls) == 3:
            raise ValueError("once")

    chunks = await store.get("o", on_progress=on_progress)
    got = [await anext(chunks), await anext(chunks)]
    with pytest.raises(ValueError, match="once"):
        await anext(chunks)
    got += [chunk async for chunk in chunks]
    assert b"".join(got) == DATA
    assert calls[2] == calls[3]
    assert calls[-1] == len(DATA)


# -- readers that are left ----------------------------------------------------------------------


async def test_readers_that_are_left_take_everything_with_them(
    nc: Client, js: JetStream, store: ObjectStore
) -> None:
    routes = len(nc._routes)
    for _ in range(3):
        async for _ in await store.get("o"):
            break
    gc.collect()
    await eventually(lambda: len(nc._routes) <= routes + 1)  # the answers to requests
    await assert_no_consumers(js, store.name)


async def test_a_reader_that_another_thread_lets_go(
    nc: Client, js: JetStream, store: ObjectStore
) -> None:
    chunks = await store.get("o")
    await anext(chunks)
    held: list[ObjectReader] = [chunks]
    del chunks
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    await assert_no_consumers(js, store.name)


# -- what is on order ---------------------------------------------------------------------------


async def put_uneven(nc: Client, store: ObjectStore, sizes: list[int]) -> bytes:
    """An object `u` with chunks of these sizes, of which its description says nothing true."""
    data = [content(size, size) for size in sizes]
    for chunk in data:
        await nc.jetstream().publish(chunk_subject(store.name, "N"), chunk)
    whole = b"".join(data)
    meta = {"name": "u", "bucket": store.name, "nuid": "N", "options": {"max_chunk_size": 1}}
    numbers = {"size": len(whole), "chunks": len(data), "digest": digest_of(whole)}
    await store_meta(nc, store.name, "u", {**meta, **numbers})
    return whole


@pytest.mark.parametrize("window", [1, CHUNK, 2 * CHUNK])
async def test_chunks_that_are_larger_than_the_window(
    nc: Client, store: ObjectStore, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "WINDOW_BYTES", window)
    assert await read(store, "o") == DATA
    whole = await put_uneven(nc, store, [10, 100_000, 1, *[50] * 100, 300_000, 7])
    assert await read(store, "u") == whole


async def test_large_chunks(start_server: StartServer, connect: Connect) -> None:
    nc = await connect(start_server(config={"max_payload": 16 * MIB}).url)
    store = await make_store(nc)
    data = content(13 * MIB)
    for size in (8 * MIB, 12 * MIB):
        await store.put("o", data, chunk_size=size)
        assert await read(store, "o") == data


async def test_many_readers_share_what_may_be_on_order(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "WINDOW_BYTES", 20 * CHUNK)
    monkeypatch.setattr(chunk_feed, "CONNECTION_BYTES", 40 * CHUNK)
    readers = [await store.get("o") for _ in range(10)]
    first = [await anext(each) for each in readers]

    def on_order() -> int:
        return sum(each._feed._window.pending_bytes for each in readers if each._feed is not None)

    one = CHUNK + chunk_feed.OVERHEAD
    assert 20 * CHUNK <= on_order() <= 40 * CHUNK + len(readers) * one
    rest = await asyncio.gather(*(each.read() for each in readers))
    assert all(begin + end == DATA for begin, end in zip(first, rest, strict=True))
