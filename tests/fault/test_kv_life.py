"""Watches and calls that are ended: stopped, cancelled, closed, or their bucket deleted.

Nothing hangs, nothing is left, and the bucket can be used as before.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from jetspark import Backoff, Client, KeyValue
from jetspark.errors import JetSparkError, KeyNotFoundError
from jetspark.jetstream.consumer import ordered_route
from jetspark.server import NatsServer
from tests.support.buckets import initial
from tests.support.conformance import conformance
from tests.support.js import eventually_equal
from tests.support.kv import (
    Watching,
    bucket_on,
    connected,
    listed,
    new_bucket,
    put_all,
    stream_name,
)
from tests.support.leaks import GUARD, assert_client_gone, no_leaks, until
from tests.support.proxy import Proxy


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have failed attempts repeated soon."""
    monkeypatch.setattr(ordered_route, "RESET_BACKOFF", Backoff(initial=0.05, maximum=0.2))


@pytest.fixture(autouse=True)
async def nothing_left() -> AsyncIterator[None]:
    async with no_leaks():
        yield


async def no_consumers(nc: Client, bucket: KeyValue[bytes]) -> None:
    """Wait until the server has no consumer of a bucket any more."""

    async def count() -> int:
        return (
            await nc.jetstream().get_stream(stream_name(bucket))
        ).cached_info.state.consumer_count

    await eventually_equal(count, 0)


# -- stopping -----------------------------------------------------------------------------------


STATES = [
    "unstarted",
    "starting",
    "replaying",
    "marked",
    "waiting",
    "disconnected",
    "stopped",
    "failed",
]


@conformance("KV", "6. Watch, keys, history", "stop never hangs, whatever the watch does")
@pytest.mark.parametrize("state", STATES)
async def test_stopping(nats_server: NatsServer, state: str) -> None:
    async with (
        Proxy(nats_server.host, nats_server.port) as proxy,
        connected(nats_server.url) as near,
        connected(proxy.url) as far,
        asyncio.timeout(GUARD),
    ):
        bucket = await new_bucket(near)
        await put_all(bucket, 600)
        watcher = (await bucket_on(far, bucket)).watch()
        taken = []
        waiting = None
        if state == "starting":
            waiting = asyncio.ensure_future(anext(watcher))
            await asyncio.sleep(0)
        elif state != "unstarted":
            taken.append(await anext(watcher))
        if state in ("marked", "waiting"):
            while taken[-1] is not None:
                taken.append(await anext(watcher))
        if state == "waiting":
            waiting = asyncio.ensure_future(anext(watcher))
            await asyncio.sleep(0.05)
        if state == "disconnected":
            await proxy.refuse()
            await proxy.cut()
            await until(lambda: not far.connected)
        if state == "stopped":
            await watcher.stop()
        if state == "failed":
            await far.close()
        await watcher.stop()
        if waiting is not None:
            with pytest.raises(StopAsyncIteration):
                await waiting
        with pytest.raises((StopAsyncIteration, JetSparkError)):
            await anext(watcher)
        if state not in ("disconnected", "failed"):
            await no_consumers(near, bucket)


@conformance("KV", "6. Watch, keys, history", "stop ends a watch whose entries nobody takes")
async def test_stopping_with_a_full_queue(nats_server: NatsServer) -> None:
    async with connected(nats_server.url) as nc, asyncio.timeout(GUARD):
        bucket = await new_bucket(nc)
        await put_all(bucket, 3000)
        watcher = bucket.watch()
        await anext(watcher)
        await asyncio.sleep(0.2)  # as much as it takes has come
        await watcher.stop()
        await no_consumers(nc, bucket)
        assert (await bucket.get("k.0")).value == b"0"


async def test_leaving_a_watch_by_an_error(nats_server: NatsServer) -> None:
    async with connected(nats_server.url) as nc:
        bucket = await new_bucket(nc)
        await put_all(bucket, 10)
        with pytest.raises(ZeroDivisionError):
            async with bucket.watch() as watcher:
                async for _ in watcher:
                    raise ZeroDivisionError
        await no_consumers(nc, bucket)


async def test_the_client_is_closed_in_a_watch(nats_server: NatsServer) -> None:
    async with connected(nats_server.url) as near:
        bucket = await new_bucket(near)
        await put_all(bucket, 10)
        async with connected(nats_server.url) as far:
            async with Watching(await bucket_on(far, bucket)) as watching:
                await watching.marked()
                await far.close()
                await watching.ended()
                assert len(watching.seen) == 10
            assert_client_gone(far)


@conformance("KV", "6. Watch, keys, history", "a watch of a bucket that is deleted ends")
async def test_the_bucket_is_deleted_under_a_watcher(nats_server: NatsServer) -> None:
    async with connected(nats_server.url) as nc:
        js = nc.jetstream()
        bucket = await new_bucket(nc)
        await put_all(bucket, 10)
        async with Watching(bucket) as watching:
            await watching.marked()
            await js.delete_key_value(bucket.name)
            error = await watching.ended()
            assert isinstance(error, JetSparkError)
            assert bucket.name in str(error)
            watching.check(10)


# -- a reader that does not read ----------------------------------------------------------------


@conformance("KV", "6. Watch, keys, history", "a stalled reader: bounded memory, and no loss")
async def test_a_stalled_reader(nats_server: NatsServer) -> None:
    count, size = 4000, 10_000
    async with (
        Proxy(nats_server.host, nats_server.port) as proxy,
        connected(nats_server.url) as near,
        connected(proxy.url) as far,
    ):
        bucket = await new_bucket(near)
        async with asyncio.TaskGroup() as group:
            for first in range(0, count, 500):
                group.create_task(put_all(bucket, 500, start=first, size=size))
        far_bucket = await bucket_on(far, bucket)
        before = proxy.bytes_down
        async with far_bucket.watch() as watcher, asyncio.timeout(GUARD * 2):
            entries = [await watcher.next()]
            await settled(lambda: proxy.bytes_down)
            assert proxy.bytes_down - before < count * size / 2
            while entries[-1] is not None:
                entries.append(await watcher.next())
        found = [entry for entry in entries if entry is not None]
        assert [entry.revision for entry in found] == list(range(1, count + 1))
        assert sorted(int(entry.value) for entry in found) == list(range(count))


async def test_a_stalled_reader_of_entries_that_grow(nats_server: NatsServer) -> None:
    """What is on order was ordered when the entries were small."""
    small, large, size = 5000, 150, 500_000
    async with (
        Proxy(nats_server.host, nats_server.port) as proxy,
        connected(nats_server.url) as near,
        connected(proxy.url) as far,
    ):
        bucket = await new_bucket(near)
        async with asyncio.TaskGroup() as group:
            for first in range(0, small, 500):
                group.create_task(put_all(bucket, 500, start=first))
        far_bucket = await bucket_on(far, bucket)
        async with far_bucket.watch() as watcher, asyncio.timeout(GUARD * 2):
            entries = await initial(watcher)
            before = proxy.bytes_down
            await put_all(bucket, large, start=small, size=size)
            await settled(lambda: proxy.bytes_down)
            assert proxy.bytes_down - before < large * size / 2
            while len(entries) < small + large:
                entry = await watcher.next()
                assert entry is not None
                entries.append(entry)
        assert [entry.revision for entry in entries] == list(range(1, small + large + 1))
        assert sorted(int(entry.value) for entry in entries) == list(range(small + large))
        assert far.statistics.reconnects == 0


async def test_a_replay_of_large_entries_keeps_the_connection(nats_server: NatsServer) -> None:
    """A server hangs up on whom it cannot send what was ordered, over 64 MiB of it."""
    count, size = 150, 1_000_000
    async with connected(nats_server.url) as near, connected(nats_server.url) as far:
        bucket = await new_bucket(near)
        await put_all(bucket, count, size=size)
        async with (await bucket_on(far, bucket)).watch() as watcher:
            entries = await initial(watcher)
        assert [int(entry.value) for entry in entries] == list(range(count))
        assert far.statistics.reconnects == 0


async def settled(read: Callable[[], int]) -> None:
    """Wait until a number does not change any more."""
    before = -1
    while before != (before := read()):  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.3)


# -- cancellation -------------------------------------------------------------------------------


async def watched(bucket: KeyValue[bytes]) -> None:
    async with bucket.watch() as watcher:
        async for entry in watcher:
            if entry is None:
                break


CALLS: dict[str, Callable[[KeyValue[bytes]], Awaitable[Any]]] = {
    "get": lambda bucket: bucket.get("a"),
    "get revision": lambda bucket: bucket.get("a", revision=1),
    "put": lambda bucket: bucket.put("b", b"2"),
    "create": lambda bucket: bucket.create("c", b"3"),
    "create again": lambda bucket: bucket.create("deleted", b"3"),
    "update": lambda bucket: bucket.update("a", b"2", 1),
    "delete": lambda bucket: bucket.delete("b"),
    "purge": lambda bucket: bucket.purge("b"),
    "purge_deletes": lambda bucket: bucket.purge_deletes(),
    "keys": lambda bucket: listed(bucket.keys()),
    "history": lambda bucket: bucket.history("a"),
    "get_many": lambda bucket: bucket.get_many(["a", "b"]),
    "watch": watched,
    "status": lambda bucket: bucket.status(),
}


@conformance("KV", "5. Writes", "a call that is cancelled leaves the bucket usable")
@pytest.mark.parametrize("name", CALLS)
async def test_cancellation(nats_server: NatsServer, name: str) -> None:
    """At every step of a call, one after the other."""
    call = CALLS[name]
    async with connected(nats_server.url) as nc:
        finished = False
        for steps in range(1, 200):
            bucket = await new_bucket(nc)
            await bucket.put("a", b"1")
            await bucket.put("deleted", b"1")
            await bucket.delete("deleted")
            task = asyncio.ensure_future(call(bucket))
            for _ in range(steps):
                await asyncio.sleep(0)
            if steps > 20:
                await asyncio.sleep(0.0002 * (steps - 20))
            finished = task.done()
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()
            await usable(nc, bucket)
            await nc.jetstream().delete_key_value(bucket.name)
            if finished:
                break
        assert finished


async def usable(nc: Client, bucket: KeyValue[bytes]) -> None:
    """Assert that a bucket works, and that nothing waits for an answer."""
    assert await bucket.put("z", b"26")
    assert (await bucket.get("z")).value == b"26"
    assert "z" in await listed(bucket.keys())
    await no_consumers(nc, bucket)


async def test_a_get_in_an_outage_is_given_up(nats_server: NatsServer) -> None:
    async with (
        Proxy(nats_server.host, nats_server.port) as proxy,
        connected(nats_server.url) as near,
        connected(proxy.url) as far,
    ):
        bucket = await new_bucket(near)
        await bucket.put("a", b"1")
        other = await far.jetstream(timeout=0.3).key_value(bucket.name)
        proxy.stall("down")
        with pytest.raises(TimeoutError):
            await other.get("a")
        with pytest.raises(TimeoutError) as caught:
            await other.put("b", b"2")
        assert isinstance(caught.value, JetSparkError)
        assert caught.value.may_have_taken_effect
        proxy.unstall("down")
        assert (await other.get("a")).value == b"1"
        with pytest.raises(KeyNotFoundError):
            await other.get("c")
