"""Watches in trouble: cut, stalled, restarted, killed, on one server and on three.

Whatever happens, the application sees each entry once and in order, and is told once that it has
seen all that was there at the beginning.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from jetspark import Backoff, Client, KeyValue, KeyValueOperation
from jetspark.errors import BucketNotFoundError
from jetspark.jetstream.consumer import ordered_route
from jetspark.server import NatsCluster, NatsServer
from tests.support.conformance import conformance
from tests.support.kv import (
    Watching,
    bucket_on,
    connected,
    listed,
    new_bucket,
    put_all,
    stream_name,
)
from tests.support.leaks import no_leaks, until
from tests.support.proxy import Proxy
from tests.support.servers import StartCluster, StartServer
from tests.support.streams import step_down, version_of


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have failed attempts repeated soon."""
    monkeypatch.setattr(ordered_route, "RESET_BACKOFF", Backoff(initial=0.05, maximum=0.2))


@pytest.fixture(autouse=True)
async def nothing_left() -> AsyncIterator[None]:
    async with no_leaks():
        yield


# -- the connection -----------------------------------------------------------------------------


@conformance("KV", "6. Watch, keys, history", "a watch goes on after cuts, without loss")
@pytest.mark.parametrize("seed", range(3))
async def test_cuts_in_the_replay(nats_server: NatsServer, seed: int) -> None:
    chance = random.Random(seed)
    async with (
        Proxy(nats_server.host, nats_server.port) as proxy,
        connected(nats_server.url) as near,
        connected(proxy.url) as far,
    ):
        bucket = await new_bucket(near)
        await put_all(bucket, 1500, size=1000)
        proxy.delay(0.01, "down")  # so that the replay does not end between two looks at it
        proxy.truncate_after(chance.randrange(1000, 100_000), "down")
        async with Watching(await bucket_on(far, bucket)) as watching:
            for _ in range(5):
                connections, seen = proxy.connections, len(watching.seen)
                proxy.truncate_after(chance.randrange(1, 200_000), "down")
                await until(
                    lambda c=connections, s=seen: (  # type: ignore[misc]
                        (proxy.connections > c and len(watching.seen) > s) or watching.markers
                    )
                )
            await watching.marked()
            assert proxy.connections > 2
            watching.check(1500)
            assert watching.markers == [1500]
            await put_all(bucket, 5, start=1500)
            await watching.until(1505)
            watching.check(1505)


@conformance(
    "KV",
    "6. Watch, keys, history",
    "the end of the initial data is not told early after a cut of the replay",
)
async def test_the_end_is_not_told_early(nats_server: NatsServer) -> None:
    """The consumer that takes over brings older revisions, too: they do not count as keys."""
    async with (
        Proxy(nats_server.host, nats_server.port) as proxy,
        connected(nats_server.url) as near,
        connected(proxy.url) as far,
    ):
        bucket = await new_bucket(near, history=8)
        latest = {}
        for turn in range(8):
            for number in range(100):
                revision = await bucket.put(f"k.{number}", b"%d" % turn * 1000)
                latest[f"k.{number}"] = revision
        bucket = await bucket_on(far, bucket)
        # So slow that it is cut before everything is there.
        proxy.split(100, "down")
        async with Watching(bucket) as watching:
            await watching.until(3)
            assert not watching.markers
            await proxy.cut()
            proxy.split(None, "down")
            await watching.marked()
            before = watching.seen[: watching.markers[0]]
            assert {entry.key: entry.revision for entry in before} == latest
            assert watching.revisions == sorted(set(watching.revisions))
            assert len(watching.markers) == 1


@conformance("KV", "6. Watch, keys, history", "a watch goes on after a silent connection")
async def test_silence(nats_server: NatsServer) -> None:
    async with (
        Proxy(nats_server.host, nats_server.port) as proxy,
        connected(nats_server.url) as near,
        connected(proxy.url, ping_interval=0.3, max_outstanding_pings=2) as far,
    ):
        bucket = await new_bucket(near)
        await put_all(bucket, 20)
        async with Watching(await bucket_on(far, bucket)) as watching:
            await watching.marked()
            proxy.stall()  # until the pings find out
            await put_all(bucket, 20, start=20)
            await until(lambda: not far.connected)
            proxy.unstall()
            await watching.until(40)
            watching.check(40)
            assert watching.markers == [20]


async def test_a_stall_that_ends_in_time(nats_server: NatsServer) -> None:
    async with (
        Proxy(nats_server.host, nats_server.port) as proxy,
        connected(nats_server.url) as near,
        connected(proxy.url) as far,
    ):
        bucket = await new_bucket(near)
        await put_all(bucket, 300, size=1000)
        async with Watching(await bucket_on(far, bucket)) as watching:
            for count in (1, 100, 200):
                await watching.until(count)
                proxy.stall("down")
                await asyncio.sleep(0.1)
                proxy.unstall("down")
            await put_all(bucket, 10, start=300)
            await watching.until(310)
            assert far.statistics.reconnects == 0
            watching.check(310)


@conformance(
    "KV", "6. Watch, keys, history", "updates_only misses nothing and replays nothing after a cut"
)
async def test_a_cut_before_the_first_update(nats_server: NatsServer) -> None:
    async with (
        Proxy(nats_server.host, nats_server.port) as proxy,
        connected(nats_server.url) as near,
        connected(proxy.url) as far,
    ):
        bucket = await new_bucket(near)
        await put_all(bucket, 20)
        async with Watching(await bucket_on(far, bucket), updates_only=True) as watching:
            await watching.marked()
            await proxy.refuse()
            await proxy.cut()
            await until(lambda: not far.connected)
            await put_all(bucket, 5, start=20)
            proxy.accept()
            await watching.until(5)
            await put_all(bucket, 1, start=25)
            await watching.until(6)
            assert [int(entry.value) for entry in watching.seen] == list(range(20, 26))
            assert watching.markers == [0]


async def test_a_cut_of_a_watch_of_an_empty_bucket(nats_server: NatsServer) -> None:
    """The end of the initial data was told; it is not told again."""
    async with (
        Proxy(nats_server.host, nats_server.port) as proxy,
        connected(nats_server.url) as near,
        connected(proxy.url) as far,
    ):
        bucket = await new_bucket(near)
        async with Watching(await bucket_on(far, bucket)) as watching:
            await watching.marked()
            await proxy.refuse()
            await proxy.cut()
            await until(lambda: not far.connected)
            await put_all(bucket, 3)
            proxy.accept()
            await watching.until(3)
            watching.check(3)
            assert watching.markers == [0]


@conformance("KV", "6. Watch, keys, history", "deletes survive a cut and count for the end marker")
async def test_cuts_and_deletes(nats_server: NatsServer) -> None:
    async with (
        Proxy(nats_server.host, nats_server.port) as proxy,
        connected(nats_server.url) as near,
        connected(proxy.url) as far,
    ):
        bucket = await new_bucket(near)
        await put_all(bucket, 200, size=500)
        for number in range(0, 200, 2):
            await bucket.delete(f"k.{number}")
        far_bucket = await bucket_on(far, bucket)
        proxy.split(50, "down")
        async with Watching(far_bucket, ignore_deletes=True) as watching:
            await watching.until(1)
            assert not watching.markers
            await proxy.cut()
            proxy.split(None, "down")
            await watching.marked()
            assert [int(entry.value) for entry in watching.seen] == list(range(1, 200, 2))
            assert watching.markers == [100]


@conformance(
    "KV", "6. Watch, keys, history", "resume_from_revision begins with that revision, inclusive"
)
async def test_a_watch_resumed_by_another_process(nats_server: NatsServer) -> None:
    async with connected(nats_server.url) as nc:
        bucket = await new_bucket(nc)
        await put_all(bucket, 30)
        async with Watching(bucket) as first:
            await first.until(10)
        seen = first.seen[:10]
        async with Watching(bucket, resume_from_revision=seen[-1].revision + 1) as second:
            await put_all(bucket, 5, start=30)
            await second.until(25)
            values = [int(entry.value) for entry in (*seen, *second.seen)]
            assert values == list(range(35))
            assert len(second.markers) == 1
        async with Watching(bucket, resume_from_revision=seen[-1].revision) as third:
            await third.marked()
            assert third.revisions[0] == seen[-1].revision


async def test_a_resumed_watch_is_cut(nats_server: NatsServer) -> None:
    async with (
        Proxy(nats_server.host, nats_server.port) as proxy,
        connected(nats_server.url) as near,
        connected(proxy.url) as far,
    ):
        bucket = await new_bucket(near)
        await put_all(bucket, 100, size=500)
        far_bucket = await bucket_on(far, bucket)
        proxy.split(50, "down")
        async with Watching(far_bucket, resume_from_revision=51) as watching:
            await watching.until(1)
            assert not watching.markers
            await proxy.cut()
            proxy.split(None, "down")
            await watching.marked()
            assert watching.revisions == list(range(51, 101))
            assert watching.markers == [50]


@conformance(
    "KV",
    "7. Per-key TTL and limit markers",
    "a watch that was cut tells of a key that expired meanwhile",
)
async def test_a_key_expires_in_an_outage(nats_server: NatsServer) -> None:
    if version_of(nats_server) < (2, 11):
        pytest.skip("TTLs of keys need a server of 2.11")
    async with (
        Proxy(nats_server.host, nats_server.port) as proxy,
        connected(nats_server.url) as near,
        connected(proxy.url) as far,
    ):
        bucket = await new_bucket(near, limit_marker_ttl=60)
        await bucket.create("short", b"1", ttl=1)
        async with Watching(await bucket_on(far, bucket)) as watching:
            await watching.marked()
            await proxy.refuse()
            await proxy.cut()
            await until(lambda: not far.connected)
            async with Watching(bucket, updates_only=True) as other:
                await other.until(1)
            proxy.accept()
            await watching.until(2)
            operations = [entry.operation for entry in watching.seen]
            assert operations == [KeyValueOperation.PUT, KeyValueOperation.PURGE]
            assert watching.markers == [1]


# -- one server ---------------------------------------------------------------------------------


@conformance("KV", "6. Watch, keys, history", "a watch survives a restart and a kill of the server")
async def test_the_server_is_restarted(start_server: StartServer) -> None:
    server = start_server()
    async with connected(server.url) as nc, connected(server.url) as other:
        bucket = await new_bucket(other, storage="file")
        await put_all(bucket, 50)
        async with Watching(await bucket_on(nc, bucket)) as watching:
            putting = asyncio.create_task(put_all(bucket, 250, start=50, pause=0.005))
            await watching.until(100)
            await server.arestart()
            await watching.until(180)
            await server.akill()
            await server.astart()
            await putting
            await watching.until(300)
            watching.check(300)
            assert watching.markers[0] >= 50


async def test_a_restart_in_the_replay(start_server: StartServer) -> None:
    server = start_server()
    async with (
        Proxy(server.host, server.port) as proxy,
        connected(server.url) as near,
        connected(proxy.url) as far,
    ):
        bucket = await new_bucket(near, storage="file")
        await put_all(bucket, 300, size=1000)
        far_bucket = await bucket_on(far, bucket)
        proxy.split(200, "down")
        async with Watching(far_bucket) as watching:
            await watching.until(20)
            assert not watching.markers
            await server.arestart()
            proxy.split(None, "down")
            await watching.marked()
            watching.check(300)
            assert watching.markers == [300]


async def test_the_server_is_frozen(start_server: StartServer) -> None:
    server = start_server()
    async with connected(server.url, ping_interval=0.2, max_outstanding_pings=2) as nc:
        bucket = await new_bucket(nc)
        await put_all(bucket, 10)
        async with Watching(bucket) as watching:
            await watching.marked()
            server.pause()
            try:
                await until(lambda: not nc.connected)
            finally:
                server.resume()
            await until(lambda: nc.connected)
            await put_all(bucket, 10, start=10)
            await watching.until(20)
            watching.check(20)


# -- three servers ------------------------------------------------------------------------------


@conformance("KV", "6. Watch, keys, history", "a watch survives changes of the leader")
async def test_the_leader_steps_down(nats_cluster: NatsCluster) -> None:
    async with connected(nats_cluster.urls) as nc:
        bucket = await new_bucket(nc, replicas=3)
        async with Watching(bucket) as watching:
            putting = asyncio.create_task(put_all(bucket, 200, pause=0.01))
            for reached in (30, 80, 130):
                await watching.until(reached)
                await step_down(nc.jetstream(), stream_name(bucket))
            await putting
            await watching.until(200)
            watching.check(200)


async def test_a_key_that_comes_back_is_listed(nats_cluster: NatsCluster) -> None:
    """Who is asked for the keys may lag behind, and still see that one is deleted."""
    async with connected(nats_cluster.urls) as nc:
        bucket = await new_bucket(nc, replicas=3)
        await bucket.put("k", b"")
        await bucket.delete("k")
        await bucket.put("a", b"")
        keys = bucket.keys()
        assert await anext(keys) == "a"
        await bucket.put("k", b"")
        assert await listed(keys) == ["k"]
        await bucket.delete("a")
        await bucket.delete("k")
        assert await listed(bucket.keys()) == []


async def test_every_node_is_killed_in_turn(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    async with connected(cluster.urls) as nc, connected(cluster.urls) as other:
        bucket = await new_bucket(other, replicas=3, storage="file")
        async with Watching(await bucket_on(nc, bucket)) as watching:
            putting = asyncio.create_task(put_all(bucket, 240, pause=0.01))
            for index in range(3):
                await watching.until(40 + 60 * index)
                await cluster.akill(index)
                await asyncio.sleep(0.2)
                await cluster.arestart(index)
            await putting
            await watching.until(240)
            watching.check(240)


@pytest.mark.parametrize("options", [{}, {"include_history": True}, {"resume_from_revision": 21}])
async def test_another_bucket_before_the_first_entry(
    nats_server: NatsServer, options: dict[str, Any]
) -> None:
    async with (
        Proxy(nats_server.host, nats_server.port) as proxy,
        connected(nats_server.url) as near,
        connected(proxy.url) as far,
    ):
        bucket = await new_bucket(near)
        await put_all(bucket, 20)
        await (await near.jetstream().get_stream(stream_name(bucket))).purge()
        async with (await bucket_on(far, bucket)).watch(**options) as watcher:
            assert await watcher.next(timeout=10) is None
            await asyncio.sleep(1.1)  # the clocks of servers may differ by as much as a second
            await replace(near, bucket, proxy)
            with pytest.raises(BucketNotFoundError, match="deleted and created again"):
                await watcher.next(timeout=10)


async def replace(near: Client, bucket: KeyValue[bytes], proxy: Proxy) -> None:
    """Have the bucket deleted and created again while the watcher is cut off."""
    await proxy.refuse()
    await proxy.cut()
    js = near.jetstream()
    await js.delete_key_value(bucket.name)
    await put_all(await js.create_key_value(bucket=bucket.name), 25)
    proxy.accept()


async def test_another_bucket_of_the_same_name(nats_server: NatsServer) -> None:
    """Its revisions begin anew: to go on after the last one would leave its first entries out."""
    async with (
        Proxy(nats_server.host, nats_server.port) as proxy,
        connected(nats_server.url) as near,
        connected(proxy.url) as far,
    ):
        bucket = await new_bucket(near)
        await put_all(bucket, 20)
        async with (await bucket_on(far, bucket)).watch() as watcher:
            for _ in range(21):
                await watcher.next(timeout=10)
            await asyncio.sleep(1.1)  # the clocks of servers may differ by as much as a second
            await replace(near, bucket, proxy)
            with pytest.raises(BucketNotFoundError, match="deleted and created again"):
                await watcher.next(timeout=10)
