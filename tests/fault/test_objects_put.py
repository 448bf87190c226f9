"""Puts that fail, are cancelled or get in each other's way: the old object stays, nothing is left.

Whatever happens to a put, the name leads to the object that was there before or to the new one,
whole; and the store has no chunks but theirs.
"""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from jetspark import Client
from jetspark.errors import (
    BucketNotFoundError,
    ConnectionClosedError,
    InvalidNameError,
    JetSparkError,
    MaxPayloadError,
    NoStreamResponseError,
    ObjectNotFoundError,
    StoreFailedError,
    StreamNotFoundError,
    StreamSealedError,
)
from jetspark.objects import ObjectStore
from jetspark.server import NatsServer
from tests.support.conformance import conformance
from tests.support.js import eventually_equal, settled
from tests.support.leaks import no_leaks
from tests.support.objects import (
    CHUNK,
    CancelledAt,
    Gate,
    assert_tidy,
    backing_stream,
    chunks_by_key,
    connected,
    content,
    make_store,
    pieces,
    read,
)
from tests.support.proxy import Proxy

OLD = content(5 * CHUNK, 1)
NEW = content(20 * CHUNK + 7, 2)


@pytest.fixture(autouse=True)
async def nothing_left() -> AsyncIterator[None]:
    async with no_leaks():
        yield


@pytest.fixture
async def nc(nats_server: NatsServer, nothing_left: None) -> AsyncIterator[Client]:
    async with connected(nats_server.url) as client:
        yield client


@pytest.fixture
async def store(nc: Client) -> ObjectStore:
    """A store with an object `o` in it."""
    store = await make_store(nc)
    await store.put("o", OLD, chunk_size=CHUNK)
    return store


async def assert_as_before(nc: Client, store: ObjectStore) -> None:
    assert await read(store, "o") == OLD
    await assert_tidy(nc, store, "o")
    # A description, the chunks, and nothing else.
    info = await (await backing_stream(nc, store.name)).info()
    assert info.state.messages == 1 + 5


# -- sources ------------------------------------------------------------------------------------


class BrokenFile(io.RawIOBase):
    """A file whose disk fails after some reads."""

    def __init__(self, reads: int) -> None:
        self._reads = reads

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._reads -= 1
        if self._reads < 0:
            raise OSError("the disk is broken")
        buffer[:] = b"x" * len(buffer)
        return len(buffer)


def broken_iterator(count: int) -> Iterator[bytes]:
    for _ in range(count):
        yield b"x" * CHUNK
    raise OSError("the disk is broken")


async def broken_async_iterator(count: int) -> AsyncIterator[bytes]:
    for piece in broken_iterator(count):
        yield piece


@pytest.mark.parametrize("count", [0, 1, 15])
@pytest.mark.parametrize("source", [BrokenFile, broken_iterator, broken_async_iterator])
@conformance("OBJ", "Put", "a source that fails leaves the old object and no chunks")
async def test_a_source_that_fails(nc: Client, store: ObjectStore, source: Any, count: int) -> None:
    for name in ("o", "fresh"):
        with pytest.raises(OSError, match="the disk is broken"):
            await store.put(name, source(count), chunk_size=CHUNK)
        await assert_as_before(nc, store)


@pytest.mark.parametrize("wrong", [["text"], [b"good", None], [b"good" * CHUNK, 7]])
async def test_a_source_of_something_else(nc: Client, store: ObjectStore, wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        await store.put("o", iter(wrong), chunk_size=CHUNK)
    await assert_as_before(nc, store)


async def test_no_source_at_all(nc: Client, store: ObjectStore) -> None:
    wrong: Any
    for wrong in (None, 7, object()):
        with pytest.raises((TypeError, ValueError)):
            await store.put("o", wrong)
    await assert_as_before(nc, store)


async def test_files_that_cannot_be_read(nc: Client, store: ObjectStore, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await store.put_file("o", tmp_path / "missing")
    with pytest.raises(IsADirectoryError):
        await store.put_file("o", tmp_path)
    await assert_as_before(nc, store)


@conformance("OBJ", "Put", "the chunk must fit the server's max_payload")
async def test_chunks_larger_than_the_server_takes(nc: Client, store: ObjectStore) -> None:
    wrong = nc.max_payload + 1
    with pytest.raises((MaxPayloadError, ValueError)):
        await store.put("o", pieces(NEW), chunk_size=wrong)
    for wrong in (-1, 0.5):  # type: ignore[assignment]
        with pytest.raises((ValueError, TypeError)):
            await store.put("o", NEW, chunk_size=wrong)
    with pytest.raises(InvalidNameError):
        await store.put("", NEW)
    await assert_as_before(nc, store)


async def test_a_progress_callback_that_fails(nc: Client, store: ObjectStore) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("the window was closed")

    with pytest.raises(RuntimeError, match="the window was closed"):
        await store.put("o", NEW, chunk_size=CHUNK, on_progress=fail)
    await assert_as_before(nc, store)


# -- cancellation -------------------------------------------------------------------------------


@conformance("OBJ", "Put", "a cancelled put leaves the old object and no chunks")
async def test_cancelled_while_it_waits_for_its_source(nc: Client, store: ObjectStore) -> None:
    for name in ("o", "fresh"):
        gate = Gate(NEW, after=10)
        putting = asyncio.create_task(store.put(name, gate, chunk_size=CHUNK))
        await gate.reached.wait()
        putting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await putting
        assert gate.closed, "the source was not told that nobody reads it any more"
        await assert_as_before(nc, store)


async def test_timed_out(nc: Client, store: ObjectStore) -> None:
    gate = Gate(NEW, after=10)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await store.put("o", gate, chunk_size=CHUNK)
    await assert_as_before(nc, store)


@conformance("OBJ", "Put", "a put can be cancelled at every await")
async def test_cancelled_at_every_await(nc: Client, store: ObjectStore) -> None:
    completed = 0
    for turn in range(1, 200):
        call = CancelledAt(store.put("o", pieces(NEW), chunk_size=CHUNK), turn)
        try:
            await asyncio.create_task(call.run())
        except asyncio.CancelledError:
            pass
        else:
            completed += 1
        found = await read(store, "o")
        assert found in (OLD, NEW), f"cancelled at await {turn} of {call.waits}"
        await assert_tidy(nc, store, "o")
        if found == NEW:  # the description was on its way
            await store.put("o", OLD, chunk_size=CHUNK)
        if call.waits < turn:
            break
    else:
        pytest.fail("it never came to its end")
    assert completed == 1
    assert turn > 3


async def test_cancelled_twice(nc: Client, store: ObjectStore) -> None:
    """Whoever cancels again does not stop the tidying up."""
    gate = Gate(NEW, after=10)
    putting = asyncio.create_task(store.put("o", gate, chunk_size=CHUNK))
    await gate.reached.wait()
    for _ in range(4):
        putting.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await putting
    assert await read(store, "o") == OLD
    await assert_as_before(nc, store)


async def test_the_client_is_closed(
    nats_server: NatsServer, nc: Client, store: ObjectStore
) -> None:
    async with connected(nats_server.url) as other:
        theirs = await other.jetstream().object_store(store.name)
        gate = Gate(NEW, after=10)
        putting = asyncio.create_task(theirs.put("o", gate, chunk_size=CHUNK))
        await gate.reached.wait()
        await other.close()
        gate.open()
        with pytest.raises(ConnectionClosedError):
            await putting
    assert await read(store, "o") == OLD  # its chunks remain: nobody could take them away


@conformance("OBJ", "Put", "a server that takes nothing holds the source back")
async def test_a_server_that_stalls(nats_server: NatsServer, nc: Client) -> None:
    size, taken = 131072, 0
    data, stalled = content(size), asyncio.Event()
    store = await make_store(nc)
    async with Proxy(nats_server.host, nats_server.port) as proxy, connected(proxy.url) as far:

        async def source() -> AsyncIterator[bytes]:
            nonlocal taken
            proxy.stall("down")  # no acks, though the chunks arrive
            stalled.set()
            for _ in range(1000):
                taken += 1
                yield data

        async def read_so_far() -> int:
            return taken

        theirs = await far.jetstream().object_store(store.name)
        putting = asyncio.create_task(theirs.put("o", source()))
        await stalled.wait()
        await settled(read_so_far)
        assert 1 < taken * size < 16 * 2**20
        proxy.unstall()
        info = await putting
        assert (info.size, info.chunks, taken) == (1000 * size, 1000, 1000)


# -- killed -------------------------------------------------------------------------------------

SCRIPT = """
import asyncio, sys, jetspark

async def source():
    for _ in range(40):
        yield b"x" * 4096
    await asyncio.sleep(0.2)  # so that they are in the stream
    print("under way", flush=True)
    await asyncio.Event().wait()

async def main():
    nc = await jetspark.connect(sys.argv[1])
    store = await nc.jetstream().object_store(sys.argv[2])
    await store.put("o", source(), chunk_size=4096)

asyncio.run(main())
"""


@conformance("OBJ", "Put", "a process that is killed in the middle of a put leaves the old object")
async def test_killed(nats_server: NatsServer, nc: Client, store: ObjectStore) -> None:
    def run_and_kill() -> bytes:
        arguments = [sys.executable, "-c", SCRIPT, nats_server.url, store.name]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            try:
                return process.stdout.readline()
            finally:
                process.kill()

    assert await asyncio.to_thread(run_and_kill) == b"under way\n"
    before = await store.info("o")
    assert await read(store, "o") == OLD
    chunks = await chunks_by_key(nc, store.name)
    assert chunks.pop(before.nuid) == 5
    assert list(chunks.values()) == [40], "it was not in the middle"
    assert [info.name async for info in store.list()] == ["o"]
    await store.put("o", NEW, chunk_size=CHUNK)
    assert await read(store, "o") == NEW
    assert before.nuid not in await chunks_by_key(nc, store.name)


# -- refused ------------------------------------------------------------------------------------


@conformance("OBJ", "Put", "10077: a full store refuses, and the old object stays")
async def test_a_full_store(nc: Client) -> None:
    store = await make_store(nc, max_bytes=50 * CHUNK)
    await store.put("o", OLD, chunk_size=CHUNK)
    for name in ("o", "fresh"):
        for source in (content(60 * CHUNK), pieces(content(60 * CHUNK))):
            with pytest.raises(StoreFailedError) as caught:
                await store.put(name, source, chunk_size=CHUNK)
            assert caught.value.err_code == 10077
            await assert_as_before(nc, store)
    await store.put("o", NEW, chunk_size=CHUNK)
    assert await read(store, "o") == NEW
    await assert_tidy(nc, store, "o")


async def test_a_store_that_is_full_for_the_description_only(nc: Client) -> None:
    """The chunks of a put whose last message is refused are taken away too."""
    store = await make_store(nc, max_bytes=30 * CHUNK)
    await store.put("o", OLD, chunk_size=CHUNK)
    used = (await store.status()).size
    refused = 0
    for rest in range(0, 2 * CHUNK, 64):
        try:
            await store.put("new", content(30 * CHUNK - used - rest), chunk_size=CHUNK)
        except StoreFailedError:
            refused += 1
            await assert_as_before(nc, store)
        else:
            break
    assert refused > 1
    await assert_tidy(nc, store, "o", "new")


@conformance("OBJ", "Other operations", "a sealed store can be read, and refuses the rest: 10109")
async def test_a_sealed_store(nc: Client, store: ObjectStore) -> None:
    await store.seal()
    info = await store.info("o")
    calls: list[Any] = [
        lambda: store.put("o", NEW),
        lambda: store.put("fresh", b""),
        lambda: store.delete("o"),
        lambda: store.update_meta("o", description="new"),
        lambda: store.update_meta("o", name="new"),
        lambda: store.add_link("link", info),
        lambda: store.add_bucket_link("link", store.name),
    ]
    for call in calls:
        with pytest.raises(StreamSealedError) as caught:
            await call()
        assert caught.value.err_code == 10109
    await assert_as_before(nc, store)
    assert (await store.status()).sealed


async def test_a_store_that_is_sealed_meanwhile(nc: Client, store: ObjectStore) -> None:
    gate = Gate(NEW, after=10)
    putting = asyncio.create_task(store.put("o", gate, chunk_size=CHUNK))
    await gate.reached.wait()
    await store.seal()
    gate.open()
    with pytest.raises(StreamSealedError):
        await putting
    assert await read(store, "o") == OLD


async def test_a_store_that_is_deleted_meanwhile(nc: Client, store: ObjectStore) -> None:
    async def stored() -> int:
        return (await store.status()).stream_info.state.messages

    before = await stored()
    gate = Gate(NEW, after=10)
    putting = asyncio.create_task(store.put("o", gate, chunk_size=CHUNK))
    await gate.reached.wait()
    # A chunk that has arrived and is not stored yet would go with the store, unanswered.
    await eventually_equal(stored, before + 10)
    await nc.jetstream().delete_object_store(store.name)
    gate.open()
    with pytest.raises((NoStreamResponseError, BucketNotFoundError, StreamNotFoundError)):
        await putting
    calls: list[Any] = [
        lambda: store.put("o", NEW),
        lambda: store.get("o"),
        lambda: store.info("o"),
        lambda: store.delete("o"),
        lambda: store.status(),
        lambda: store.seal(),
    ]
    for call in calls:
        with pytest.raises((NoStreamResponseError, StreamNotFoundError)) as caught:
            await call()
        assert not isinstance(caught.value, ObjectNotFoundError)
        assert store.name in str(caught.value)


# -- several at once ----------------------------------------------------------------------------


@conformance("OBJ", "Put", "of puts of one name at once, one wins, whole")
async def test_puts_of_the_same_name_at_once(nats_server: NatsServer, nc: Client) -> None:
    store = await make_store(nc)
    async with connected(nats_server.url) as other:
        theirs = await other.jetstream().object_store(store.name)
        for number in range(10):
            contents = [content(20 * CHUNK + i, 100 * number + i) for i in range(8)]
            results = await asyncio.gather(
                *(
                    (store, theirs)[i % 2].put("o", data, chunk_size=CHUNK)
                    for i, data in enumerate(contents)
                ),
                return_exceptions=True,
            )
            errors = [result for result in results if isinstance(result, BaseException)]
            assert all(isinstance(error, JetSparkError) for error in errors), errors
            assert len(errors) < 8
            assert await read(store, "o") in contents
            await assert_tidy(nc, store, "o")


async def test_a_put_and_a_delete_at_once(nats_server: NatsServer, nc: Client) -> None:
    store = await make_store(nc)
    async with connected(nats_server.url) as other:
        theirs = await other.jetstream().object_store(store.name)
        for _ in range(20):
            await store.put("o", OLD, chunk_size=CHUNK)
            results = await asyncio.gather(
                store.put("o", NEW, chunk_size=CHUNK), theirs.delete("o"), return_exceptions=True
            )
            assert all(
                result is None
                or not isinstance(result, BaseException)
                or isinstance(result, JetSparkError)
                for result in results
            ), results
            try:
                assert await read(store, "o") == NEW
            except ObjectNotFoundError:
                await assert_tidy(nc, store)
            else:
                await assert_tidy(nc, store, "o")


async def test_many_objects_at_once(nc: Client) -> None:
    store = await make_store(nc)
    contents = {f"o{i}": content(i * CHUNK + i, i) for i in range(30)}
    await asyncio.gather(
        *(store.put(name, data, chunk_size=CHUNK) for name, data in contents.items())
    )
    found = await asyncio.gather(*(read(store, name) for name in contents))
    assert dict(zip(contents, found, strict=True)) == contents
    await assert_tidy(nc, store, *contents)
