"""Clusters that lose nodes: the client moves, and finds nodes that nobody told it about."""

from __future__ import annotations

import asyncio

import pytest

from jetspark import Client, EventKind, Message
from jetspark.errors import (
    ConnectError,
    ConnectionClosedError,
    DisconnectedError,
    NoRespondersError,
    NoServersError,
)
from jetspark.server import NatsCluster, NatsServer
from tests.support.faults import connected
from tests.support.leaks import GUARD, EventLog, assert_client_gone, until
from tests.support.proxy import Proxy
from tests.support.servers import StartCluster, StartServer


@pytest.fixture
def cluster(start_cluster: StartCluster) -> NatsCluster:
    return start_cluster(3, jetstream=False)


def node_of(client: Client, cluster: NatsCluster) -> NatsServer:
    (node,) = [node for node in cluster if node.url == client.server]
    return node


async def answered(client: Client, subject: str) -> bytes:
    """Ask until somebody answers: interest takes a moment to travel through a cluster."""
    async with asyncio.timeout(GUARD):
        while True:
            try:
                return (await client.request(subject, timeout=GUARD)).data
            except (NoRespondersError, DisconnectedError):
                await asyncio.sleep(0.01)


async def test_moves_to_another_node(cluster: NatsCluster) -> None:
    log = EventLog()
    async with (
        connected(cluster.urls, on_event=log) as client,
        connected(cluster.urls) as other,
    ):

        async def answer(message: Message) -> None:
            await message.respond(b"client")

        await client.subscribe("who", callback=answer)
        assert await answered(other, "who") == b"client"
        await node_of(client, cluster).akill()
        await log.wait(EventKind.CONNECTED, 2)
        assert client.server is not None
        assert node_of(client, cluster).running
        # No wait before the first attempt on a node that has not failed.
        assert len(log.of(EventKind.RECONNECTING)) <= 2
        assert await answered(other, "who") == b"client"
        assert await answered(client, "who") == b"client"


async def test_moves_on_and_on(cluster: NatsCluster) -> None:
    """Each node goes down in turn, and comes back before the next one does."""
    log = EventLog()
    async with connected(cluster.urls, on_event=log) as client:
        subscription = await client.subscribe("s")
        for round_ in range(1, 7):
            node = node_of(client, cluster)
            await node.akill()
            await log.wait(EventKind.DISCONNECTED, round_)
            await client.publish("s", b"%d" % round_)
            await log.wait(EventKind.CONNECTED, round_ + 1)
            assert client.server != node.url
            assert (await subscription.next(timeout=GUARD)).data == b"%d" % round_
            node.start(wait=False)
            await asyncio.to_thread(node.wait_ready)
        assert set(client.servers) == set(cluster.urls)


async def test_uses_discovered_nodes(cluster: NatsCluster) -> None:
    log = EventLog()
    seed = cluster[0]
    async with connected(seed.url, on_event=log) as client:
        await until(lambda: set(client.servers) == set(cluster.urls))
        told = {url for event in log.of(EventKind.DISCOVERED) for url in event.servers}
        assert told == set(cluster.urls) - {seed.url}
        await seed.akill()
        await log.wait(EventKind.CONNECTED, 2)
        assert client.server in told
        await client.flush()


async def test_ignores_discovered_nodes(cluster: NatsCluster) -> None:
    log = EventLog()
    seed = cluster[0]
    options = {"ignore_discovered_servers": True, "max_reconnect_attempts": 2}
    async with connected(seed.url, on_event=log, **options) as client:
        assert client.servers == [seed.url]
        await seed.akill()
        closed = await log.wait(EventKind.CLOSED)
        assert isinstance(closed.error, NoServersError)
        assert {event.server for event in log.of(EventKind.RECONNECTING)} == {seed.url}
        assert log.of(EventKind.DISCOVERED) == []
        assert_client_gone(client)


async def test_hears_of_new_and_gone_nodes(start_cluster: StartCluster) -> None:
    cluster = start_cluster(3, jetstream=False)
    cluster.kill(2)
    async with connected(cluster[0].url) as client:
        await until(lambda: set(client.servers) == set(cluster.urls[:2]))
        await cluster.arestart(2)
        await until(lambda: set(client.servers) == set(cluster.urls))
        await cluster.akill(1)
        await until(lambda: set(client.servers) == {cluster.urls[0], cluster.urls[2]})


async def test_all_gone_and_back(cluster: NatsCluster) -> None:
    log = EventLog()
    async with connected(cluster.urls, on_event=log) as client:
        subscription = await client.subscribe("back")
        await client.flush()
        for node in cluster:
            node.kill()
        await log.wait(EventKind.RECONNECTING, 6)
        for number in range(10):
            await client.publish("back", b"%d" % number)
        flushing = asyncio.ensure_future(client.flush(timeout=GUARD))
        await cluster.astart()
        await flushing
        found = [(await subscription.next(timeout=GUARD)).data for _ in range(10)]
        assert found == [b"%d" % number for number in range(10)]
        assert len({event.server for event in log.of(EventKind.RECONNECTING)}) == 3


async def test_all_gone_for_good(cluster: NatsCluster) -> None:
    log = EventLog()
    async with connected(cluster[0].url, on_event=log, max_reconnect_attempts=2) as client:
        await until(lambda: set(client.servers) == set(cluster.urls))
        subscription = await client.subscribe("x")
        await client.flush()
        for node in cluster:
            node.kill()
        waiting = [
            asyncio.ensure_future(anext(subscription)),
            asyncio.ensure_future(subscription.next(timeout=GUARD)),
        ]
        closed = await log.wait(EventKind.CLOSED)
        assert isinstance(closed.error, NoServersError)
        assert isinstance(closed.error.__cause__, ConnectError)
        for result in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(result, ConnectionClosedError)
            assert result.__cause__ is closed.error
        tried = [event.server for event in log.of(EventKind.RECONNECTING)]
        assert sorted(map(str, tried)) == sorted(cluster.urls * 2), "each one twice"
        assert client.servers == []
        assert_client_gone(client)


async def test_a_bad_server_does_not_hold_up_a_good_one(start_server: StartServer) -> None:
    """One accepts and drops at once; the client ends up with the other and stays there."""
    bad, good = (start_server(jetstream=False) for _ in range(2))
    log = EventLog()
    async with Proxy(bad.host, bad.port) as proxy:
        options = {"randomize_servers": False, "reconnect_delay": lambda _: GUARD}
        async with connected([proxy.url, good.url], on_event=log, **options) as client:
            await proxy.cut()
            await log.wait(EventKind.CONNECTED, 2)
            assert client.server == good.url
            await client.flush()
            assert proxy.connections == 1


async def test_order_of_servers(start_server: StartServer) -> None:
    servers = [start_server(jetstream=False) for _ in range(3)]
    urls = [server.url for server in servers]
    servers[0].kill()
    log = EventLog()
    async with connected(urls, on_event=log, randomize_servers=False) as client:
        assert client.server == urls[1]
        servers[1].kill()
        await log.wait(EventKind.CONNECTED, 2)
        assert client.server == urls[2]
        await asyncio.to_thread(servers[0].start)
        servers[2].kill()
        await log.wait(EventKind.CONNECTED, 3)
        assert client.server == urls[0]
        await asyncio.to_thread(servers[2].start)
        await client.force_reconnect()
        await log.wait(EventKind.CONNECTED, 4)
        assert client.server == urls[2]


async def test_seed_that_is_down_at_first(cluster: NatsCluster) -> None:
    await cluster.akill(0)
    async with connected(cluster.urls, randomize_servers=False) as client:
        assert client.server == cluster[1].url
        await client.force_reconnect()
        await client.flush(timeout=GUARD)
        assert client.server == cluster[2].url
        await cluster.arestart(0)
        assert client.statistics.reconnects == 1
