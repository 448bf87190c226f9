"""Servers that announce their end: the client leaves before it is thrown out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from jetspark import Client, EventKind, Message
from jetspark.errors import ConnectionClosedError, DisconnectedError, NoRespondersError
from jetspark.server import NatsCluster, NatsServer
from tests.support.faults import connected
from tests.support.leaks import GUARD, EventLog, assert_client_gone, until
from tests.support.proxy import Proxy
from tests.support.servers import StartCluster, StartServer

LONG: dict[str, Any] = {"lame_duck_duration": 60, "lame_duck_grace_period": 30}
"""Nobody is thrown out while a test lasts: who leaves, leaves by itself."""
SHORT: dict[str, Any] = {"lame_duck_duration": 30, "lame_duck_grace_period": 0.1}


@pytest.fixture
def cluster(start_cluster: StartCluster) -> NatsCluster:
    return start_cluster(2, jetstream=False, **LONG)


async def knows_all(client: Client, cluster: NatsCluster) -> None:
    """Nodes tell of each other a moment after they have met."""
    await until(lambda: set(client.servers) >= set(cluster.urls))


async def heard_of(client: Client, subject: str) -> None:
    """Interest takes a moment to travel, too."""
    async with asyncio.timeout(GUARD):
        while True:
            try:
                await client.request(subject, b"?", timeout=GUARD)
                return
            except NoRespondersError:
                await asyncio.sleep(0.01)


async def test_moves_before_it_is_thrown_out(cluster: NatsCluster) -> None:
    log = EventLog()
    async with (
        connected(cluster[0].url, on_event=log) as client,
        connected(cluster[1].url) as other,
    ):
        await knows_all(client, cluster)
        subscription = await client.subscribe("moved.>")
        await client.subscribe("service", callback=lambda m: m.respond(b"here"))
        await client.flush()
        cluster[0].lame_duck()
        event = await log.wait(EventKind.LAME_DUCK)
        assert event.server == cluster[0].url
        await log.wait(EventKind.CONNECTED, 2)
        assert client.server == cluster[1].url
        assert cluster[0].running, "it left on its own"
        assert log.of(EventKind.ERROR) == []
        await client.flush()
        await other.publish("moved.x", b"1")
        assert (await subscription.next(timeout=GUARD)).data == b"1"
        for each in (client, other):
            assert (await each.request("service")).data == b"here"
        # The old socket is gone although the client is not closed.
        await until(lambda: not client._connection._closing)
        assert client._connection._task is None


async def test_nothing_flushed_is_lost(cluster: NatsCluster) -> None:
    """Publishing goes on through the move; a flush that succeeded covers all before it."""
    log = EventLog()
    arrived: list[int] = []
    flushed = sent = 0
    async with (
        connected(cluster[0].url, on_event=log) as client,
        connected(cluster[1].url) as observer,
    ):
        await knows_all(client, cluster)
        await observer.subscribe("n", callback=lambda m: arrived.append(int(m.data)))
        await observer.flush()
        # Interest has to travel to the other node before anything published there arrives.
        while not arrived:
            await client.publish("n", b"0")
            await client.flush()
            await observer.flush()
        flood = await client.subscribe("flood")
        cluster[0].lame_duck()
        async with asyncio.timeout(GUARD):
            while client.statistics.reconnects == 0 or sent < flushed + 1000:
                if client.statistics.reconnects == 0:
                    flushed = sent
                for _ in range(50):
                    sent += 1
                    await client.publish("n", b"%d" % sent)
                    await client.publish("flood", bytes(100))
                try:
                    await client.flush()
                except DisconnectedError:
                    continue
        await client.flush()
        # Not even those are lost that no flush covered.
        await until(lambda: len(set(arrived)) == sent + 1)
        assert flood.dropped == 0
    numbers = [number for number in arrived if number]
    assert sorted(numbers) == list(range(1, sent + 1))
    # Each server keeps the order. Those over the old one, up to some number, come by a detour and
    # may be overtaken by those over the new one.
    assert any(
        ordered([number for number in numbers if number <= last])
        and ordered([number for number in numbers if number > last])
        for last in range(sent + 1)
    )


def ordered(numbers: list[int]) -> bool:
    return numbers == sorted(numbers)


async def test_move_under_requests(cluster: NatsCluster) -> None:
    log = EventLog()
    stop = asyncio.Event()
    failures: list[DisconnectedError] = []
    answered = 0

    async def ask(client: Client) -> None:
        nonlocal answered
        while not stop.is_set():
            try:
                await client.request("echo", b"?", timeout=GUARD)
                answered += 1
            except DisconnectedError as error:
                failures.append(error)

    async def answer(message: Message) -> None:
        await message.respond(message.data)

    async with (
        connected(cluster[0].url, on_event=log) as client,
        connected(cluster[1].url) as service,
    ):
        await knows_all(client, cluster)
        await service.subscribe("echo", callback=answer)
        await service.flush()
        await heard_of(client, "echo")
        asking = [asyncio.create_task(ask(client)) for _ in range(5)]
        cluster[0].lame_duck()
        await log.wait(EventKind.CONNECTED, 2)
        before = answered
        await until(lambda: answered > before + 100)
        stop.set()
        await asyncio.gather(*asking)
    assert len(failures) <= len(asking), "only those that were on their way when it moved"


async def test_alone_it_stays_until_it_is_thrown_out(start_server: StartServer) -> None:
    server = start_server(jetstream=False, **SHORT)
    log = EventLog()
    async with connected(server.url, on_event=log) as client:
        subscription = await client.subscribe("x")
        await client.flush()
        server.lame_duck()
        await log.wait(EventKind.LAME_DUCK)
        assert client.connected
        await client.publish("x", b"still here")
        assert (await subscription.next(timeout=GUARD)).data == b"still here"
        await log.wait(EventKind.DISCONNECTED)
        await until(lambda: not server.running)
        await server.astart()
        await client.flush(timeout=GUARD)
        await client.publish("x", b"back")
        assert (await subscription.next(timeout=GUARD)).data == b"back"


async def test_stays_if_no_other_server_can_be_reached(start_server: StartServer) -> None:
    server, gone = (start_server(jetstream=False, **LONG) for _ in range(2))
    gone.kill()
    log = EventLog()
    async with connected([server.url, gone.url], on_event=log) as client:
        server.lame_duck()
        await log.wait(EventKind.LAME_DUCK)
        await until(lambda: client._connection._task is None)
        assert client.server == server.url
        await client.flush()
        assert log.of(EventKind.DISCONNECTED) == []


async def test_stays_if_reconnecting_is_not_allowed(cluster: NatsCluster) -> None:
    log = EventLog()
    async with connected(cluster.urls, on_event=log, allow_reconnect=False) as client:
        node = next(node for node in cluster if node.url == client.server)
        node.lame_duck()
        await log.wait(EventKind.LAME_DUCK)
        assert client._connection._task is None
        await client.flush()
        assert client.server == node.url


class Detour:
    """A client whose only other server is behind a proxy that stalls: leaving takes long."""

    def __init__(self, server: NatsServer, proxy: Proxy, client: Client, log: EventLog) -> None:
        self.server = server
        self.proxy = proxy
        self.client = client
        self.log = log

    async def leaving(self) -> None:
        """Have the client in the middle of an attempt to leave."""
        self.server.lame_duck()
        await self.log.wait(EventKind.LAME_DUCK)
        await until(lambda: self.proxy.active == 1)


@asynccontextmanager
async def detour(start_server: StartServer, **options: Any) -> AsyncIterator[Detour]:
    server, other = (start_server(jetstream=False, **options) for _ in range(2))
    log = EventLog()
    async with Proxy(other.host, other.port) as proxy:
        proxy.stall("down")
        servers = [server.url, proxy.url]
        async with connected(
            servers, on_event=log, randomize_servers=False, connect_timeout=3 * GUARD
        ) as client:
            yield Detour(server, proxy, client, log)


async def test_close_while_it_leaves(start_server: StartServer) -> None:
    async with detour(start_server, **LONG) as way:
        await way.leaving()
        await way.client.close()
        assert_client_gone(way.client)


async def test_close_when_the_new_connection_stands(start_server: StartServer) -> None:
    """The new link is ready and the old one is flushed for the last time."""
    async with detour(start_server, **LONG) as way:
        await way.leaving()
        way.server.pause()
        way.proxy.unstall()
        await until(lambda: way.client._connection._pongs)
        await way.client.close()
        assert_client_gone(way.client)
        way.server.resume()
        await way.proxy.idle()


async def test_lost_while_it_leaves(start_server: StartServer) -> None:
    """The attempt that was under way gives way to a reconnect in good order."""
    async with detour(start_server, **LONG) as way:
        await way.leaving()
        await way.server.akill()
        await way.log.wait(EventKind.RECONNECTING)
        await until(lambda: way.proxy.connections == 2)
        way.proxy.unstall()
        await way.client.flush(timeout=GUARD)
        assert way.client.server == way.proxy.url
        await until(lambda: way.proxy.active == 1)


async def test_force_reconnect_while_it_leaves(start_server: StartServer) -> None:
    async with detour(start_server, **LONG) as way:
        await way.leaving()
        await way.client.force_reconnect()
        assert not way.client.connected
        way.proxy.unstall()
        await way.client.flush(timeout=GUARD)
        assert way.client.server == way.proxy.url
        await until(lambda: way.proxy.active == 1)


async def test_drain_while_it_leaves(start_server: StartServer) -> None:
    async with detour(start_server, **LONG) as way:
        seen: list[bytes] = []
        await way.client.subscribe("x", callback=lambda m: seen.append(m.data))
        await way.leaving()
        await way.client.publish("x", b"1")
        await way.client.flush()
        await way.client.drain()
        assert seen == [b"1"]
        with pytest.raises(ConnectionClosedError):
            await way.client.flush()
        assert_client_gone(way.client)
