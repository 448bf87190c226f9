"""Object stores whose connections break, and whose servers restart, die and change their leader.

A get goes on where it broke off. A put ends with the whole object, or with an error and the old
one; then it may be repeated. A watch sees the last state of every object.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from jetspark import Backoff, Client
from jetspark.errors import JetSparkError
from jetspark.jetstream.consumer import ordered_route
from jetspark.objects import ObjectStore
from jetspark.server import NatsCluster, NatsServer
from tests.support.clients import eventually
from tests.support.conformance import conformance
from tests.support.leaks import no_leaks, until
from tests.support.objects import (
    CHUNK,
    Gate,
    assert_no_consumers,
    assert_tidy,
    connected,
    content,
    make_store,
    read,
)
from tests.support.proxy import Proxy
from tests.support.servers import StartCluster, StartServer
from tests.support.streams import caught_up, leader_of, step_down

MIB = 2**20
OLD = content(5 * CHUNK, 1)
NEW = content(40 * CHUNK + 7, 2)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have failed attempts repeated soon."""
    monkeypatch.setattr(ordered_route, "RESET_BACKOFF", Backoff(initial=0.05, maximum=0.2))


@pytest.fixture(autouse=True)
async def nothing_left() -> AsyncIterator[None]:
    async with no_leaks():
        yield


async def try_to_put(store: ObjectStore, data: Any) -> bool:
    """Put the object; whether the store says that it has it."""
    try:
        await store.put("o", data, chunk_size=CHUNK)
    except JetSparkError:
        return False
    return True


async def put_at_last(store: ObjectStore, data: bytes) -> None:
    """Repeat a put until it is there."""
    await eventually(lambda: try_to_put(store, data), timeout=60)


async def settle(call: Callable[[], Awaitable[Any]]) -> Any:
    """What a call returns when the servers have found each other again."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await call()
            except JetSparkError as error:
                if not error.retryable and not isinstance(error, TimeoutError):
                    raise
                await asyncio.sleep(0.05)


async def latest(cluster: NatsCluster, store: ObjectStore) -> bytes:
    """The object as it was last put: any of the servers may answer, also one that lags behind."""
    await caught_up(cluster, f"OBJ_{store.name}")
    data: bytes = await settle(lambda: read(store, "o"))
    return data


async def change_leader(nc: Client, cluster: NatsCluster, bucket: str) -> None:
    """Have another server lead the stream."""
    js, stream = nc.jetstream(), f"OBJ_{bucket}"
    await leader_of(js, stream, cluster)
    await step_down(js, stream)


async def kill_leader(nc: Client, cluster: NatsCluster, bucket: str) -> None:
    """Kill the server that leads the stream."""
    await cluster.akill(await leader_of(nc.jetstream(), f"OBJ_{bucket}", cluster))


class Steps:
    """A reader that takes chunks as it is told to."""

    def __init__(self, chunks: Any) -> None:
        self.data = bytearray()
        self._chunks = chunks

    async def take(self, size: int) -> None:
        while len(self.data) < size:
            self.data += await anext(self._chunks)

    async def rest(self) -> bytes:
        async with asyncio.timeout(60):
            async for chunk in self._chunks:
                self.data += chunk
        return bytes(self.data)


# -- get ----------------------------------------------------------------------------------------


@conformance("OBJ", "Get", "a get survives cut connections")
async def test_get_over_a_connection_that_is_cut(nats_server: NatsServer) -> None:
    chance = random.Random(7)
    data = content(24 * MIB)
    async with (
        Proxy(nats_server.host, nats_server.port) as proxy,
        connected(nats_server.url) as near,
        connected(proxy.url) as far,
    ):
        store = await make_store(near)
        await store.put("o", data)
        theirs = await far.jetstream().object_store(store.name)
        async with await theirs.get("o") as chunks:
            reader = Steps(chunks)
            for number in range(5):
                proxy.truncate_after(chance.randrange(1, 2 * MIB), "down")
                await reader.take((number + 1) * 4 * MIB)
            assert await reader.rest() == data
        assert far.statistics.reconnects >= 3
        await assert_no_consumers(near, store.name)


@pytest.mark.parametrize("crash", [False, True], ids=["restarted", "killed"])
@conformance("OBJ", "Get", "a get survives a restart of the server")
async def test_get_while_the_server_is_restarted(start_server: StartServer, crash: bool) -> None:
    server = start_server()
    data = content(32 * MIB)
    async with connected(server.url) as nc:
        store = await make_store(nc, storage="file")
        await store.put("o", data)
        async with await store.get("o") as chunks:
            reader = Steps(chunks)
            for number in range(2):
                await reader.take(number * 12 * MIB + 1)
                await (server.akill() if crash else server.astop())
                await server.astart()
            assert await reader.rest() == data
        assert nc.statistics.reconnects >= 1


@conformance("OBJ", "Get", "a get survives a change of the leader")
async def test_get_while_the_leader_steps_down(nats_cluster: NatsCluster) -> None:
    data = content(32 * MIB)
    async with connected(nats_cluster.urls) as nc:
        store = await make_store(nc, replicas=3)
        await store.put("o", data)
        await caught_up(nats_cluster, f"OBJ_{store.name}")
        async with await store.get("o") as chunks:
            reader = Steps(chunks)
            for number in range(3):
                await reader.take(number * 8 * MIB + 1)
                await change_leader(nc, nats_cluster, store.name)
            assert await reader.rest() == data


async def test_get_while_the_leader_is_killed(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    data = content(32 * MIB)
    async with connected(cluster.urls) as nc:
        store = await make_store(nc, replicas=3, storage="file")
        await store.put("o", data)
        await caught_up(cluster, f"OBJ_{store.name}")
        async with await store.get("o") as chunks:
            reader = Steps(chunks)
            await reader.take(1)
            await kill_leader(nc, cluster, store.name)
            assert await reader.rest() == data


async def test_get_file_while_the_server_is_restarted(
    start_server: StartServer, tmp_path: Any
) -> None:
    server = start_server()
    data = content(32 * MIB)
    async with connected(server.url) as nc:
        store = await make_store(nc, storage="file")
        await store.put("o", data)
        begun = asyncio.Event()
        target = tmp_path / "o"
        getting = asyncio.create_task(
            store.get_file("o", target, on_progress=lambda *_: begun.set())
        )
        await begun.wait()
        await server.arestart()
        await getting
        assert target.read_bytes() == data
        assert [path.name for path in tmp_path.iterdir()] == ["o"]


# -- put ----------------------------------------------------------------------------------------


@conformance("OBJ", "Put", "a put over a connection that is cut is whole, or leaves the old one")
async def test_put_over_a_connection_that_is_cut(nats_server: NatsServer) -> None:
    chance = random.Random(8)
    async with (
        Proxy(nats_server.host, nats_server.port) as proxy,
        connected(nats_server.url) as near,
        connected(proxy.url) as far,
    ):
        store = await make_store(near)
        await store.put("o", OLD, chunk_size=CHUNK)
        theirs = await far.jetstream().object_store(store.name)
        failed = 0
        for _ in range(12):
            reconnects = far.statistics.reconnects
            proxy.truncate_after(chance.randrange(1, len(NEW) + 8000), "up")
            if await try_to_put(theirs, NEW):
                assert await read(store, "o") == NEW
            else:
                failed += 1
                assert await read(store, "o") in (OLD, NEW)
            if far.statistics.reconnects == reconnects:
                await proxy.cut()
            await until(lambda r=reconnects: far.statistics.reconnects > r)  # type: ignore[misc]
            await assert_tidy(near, store, "o")
            await store.put("o", OLD, chunk_size=CHUNK)
        assert failed > 3
        await put_at_last(theirs, NEW)
        assert await read(store, "o") == NEW
        await assert_tidy(near, store, "o")


@pytest.mark.parametrize("crash", [False, True], ids=["restarted", "killed"])
@conformance("OBJ", "Put", "a put is whole after a restart of the server, or leaves the old one")
async def test_put_while_the_server_is_restarted(start_server: StartServer, crash: bool) -> None:
    server = start_server()
    async with connected(server.url) as nc:
        store = await make_store(nc, storage="file")
        await store.put("o", OLD, chunk_size=CHUNK)
        gate = Gate(NEW, after=20)
        putting = asyncio.create_task(try_to_put(store, gate))
        await gate.reached.wait()
        await (server.akill() if crash else server.astop())
        gate.open()
        await server.astart()
        stored = await putting
        assert await settle(lambda: read(store, "o")) == (NEW if stored else OLD)
        if not stored:
            await put_at_last(store, NEW)
        assert await read(store, "o") == NEW
        await assert_tidy(nc, store, "o")


async def test_put_while_the_server_is_frozen(start_server: StartServer) -> None:
    server = start_server()
    async with connected(server.url) as nc:
        store = await make_store(nc)
        await store.put("o", OLD, chunk_size=CHUNK)
        gate = Gate(NEW, after=20)
        putting = asyncio.create_task(store.put("o", gate, chunk_size=CHUNK))
        await gate.reached.wait()
        server.pause()
        try:
            gate.open()
            await asyncio.sleep(0.5)
            assert not putting.done()
        finally:
            server.resume()
        await putting
        assert await read(store, "o") == NEW
        await assert_tidy(nc, store, "o")


@conformance("OBJ", "Put", "a put is whole after a change of the leader, or leaves the old one")
async def test_put_while_the_leader_steps_down(nats_cluster: NatsCluster) -> None:
    async with connected(nats_cluster.urls) as nc:
        store = await make_store(nc, replicas=3)
        await store.put("o", OLD, chunk_size=CHUNK)
        for number in range(3):
            data = content(40 * CHUNK, 10 + number)
            before = await latest(nats_cluster, store)
            gate = Gate(data, after=20)
            putting = asyncio.create_task(try_to_put(store, gate))
            await gate.reached.wait()
            await change_leader(nc, nats_cluster, store.name)
            gate.open()
            stored = await putting
            assert await latest(nats_cluster, store) == (data if stored else before)
            await put_at_last(store, data)
            assert await latest(nats_cluster, store) == data
        await settle(lambda: assert_tidy(nc, store, "o"))


async def test_put_while_the_leader_is_killed(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    async with connected(cluster.urls) as nc:
        store = await make_store(nc, replicas=3, storage="file")
        await store.put("o", OLD, chunk_size=CHUNK)
        gate = Gate(NEW, after=20)
        putting = asyncio.create_task(try_to_put(store, gate))
        await gate.reached.wait()
        await kill_leader(nc, cluster, store.name)
        gate.open()
        stored = await putting
        found = await latest(cluster, store)
        # A put that failed may still have got as far as the description.
        assert found == NEW if stored else found in (OLD, NEW)
        await put_at_last(store, NEW)
        assert await latest(cluster, store) == NEW
        await settle(lambda: assert_tidy(nc, store, "o"))


# -- watch --------------------------------------------------------------------------------------


class Watched:
    """Keeps the last state of every object that a watcher told of."""

    def __init__(self, store: ObjectStore) -> None:
        self.digests: dict[str, str] = {}
        self.ready = asyncio.Event()
        self._store = store

    async def run(self) -> None:
        async with self._store.watch() as watcher:
            async for info in watcher:
                if info is None:
                    self.ready.set()
                elif info.deleted:
                    self.digests.pop(info.name, None)
                else:
                    self.digests[info.name] = info.digest


async def changes(store: ObjectStore, count: int) -> dict[str, str]:
    """Put and delete objects, whatever it takes; what is there afterwards."""
    there: dict[str, str] = {}
    for number in range(count):
        name = f"o{number % 10}"
        if number % 7 == 6 and name in there:
            await settle(lambda name=name: store.delete(name))  # type: ignore[misc]
            del there[name]
        else:
            info = await settle(
                lambda name=name, number=number: store.put(name, content(100, number))  # type: ignore[misc]
            )
            there[name] = info.digest
        await asyncio.sleep(0.005)
    return there


async def watch_meanwhile(
    watcher: Client, writer: Client, bucket: str, disturb: Callable[[], Awaitable[None]]
) -> None:
    """Watch a store through troubles; in the end the watcher knows everything."""
    watched = Watched(await watcher.jetstream().object_store(bucket))
    watching = asyncio.create_task(watched.run())
    try:
        await watched.ready.wait()
        store = await writer.jetstream().object_store(bucket)
        writing = asyncio.create_task(changes(store, 150))
        await disturb()
        there = await writing
        try:
            await until(lambda: watched.digests == there or watching.done())
        finally:
            assert watched.digests == there
        assert not watching.done()
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


@conformance("OBJ", "Other operations", "watch: survives cuts")
async def test_watch_over_a_connection_that_is_cut(nats_server: NatsServer) -> None:
    async with (
        Proxy(nats_server.host, nats_server.port) as proxy,
        connected(nats_server.url) as near,
        connected(proxy.url) as far,
    ):
        store = await make_store(near)

        async def cut() -> None:
            for number in range(4):
                await asyncio.sleep(0.1)
                await proxy.cut()
                await until(lambda n=number: far.statistics.reconnects > n)  # type: ignore[misc]

        await watch_meanwhile(far, near, store.name, cut)
        await assert_no_consumers(near, store.name)


@conformance("OBJ", "Other operations", "watch: survives a restart of the server")
async def test_watch_while_the_server_is_restarted(start_server: StartServer) -> None:
    server = start_server()
    async with connected(server.url) as nc, connected(server.url) as other:
        store = await make_store(nc, storage="file")

        async def restart() -> None:
            await asyncio.sleep(0.2)
            await server.arestart()
            await asyncio.sleep(0.2)
            await server.akill()
            await server.astart()

        await watch_meanwhile(nc, other, store.name, restart)


@conformance("OBJ", "Other operations", "watch: survives a change of the leader")
async def test_watch_while_the_leader_steps_down(nats_cluster: NatsCluster) -> None:
    async with connected(nats_cluster.urls) as nc:
        store = await make_store(nc, replicas=3)

        async def step() -> None:
            for _ in range(3):
                await asyncio.sleep(0.2)
                await change_leader(nc, nats_cluster, store.name)

        await watch_meanwhile(nc, nc, store.name, step)
