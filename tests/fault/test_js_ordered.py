"""Ordered consumers in trouble: cut, stalled, restarted, killed, on one server and on three.

Whatever happens, the application sees each message of the stream once and in order.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from jetspark import Client, OrderedConsumer, OrderedPushConsumer, connect
from jetspark.errors import (
    JetSparkError,
    MissingHeartbeatError,
    OrderedConsumerResetError,
    StreamReplacedError,
    TimeoutError,
)
from jetspark.server import NatsCluster, NatsServer
from tests.support.conformance import conformance
from tests.support.faults import FAST, connected
from tests.support.js import Warnings, fill, make_stream
from tests.support.leaks import assert_client_gone, until
from tests.support.proxy import Proxy
from tests.support.servers import StartCluster, StartServer
from tests.support.streams import step_down

pytestmark = pytest.mark.usefixtures("impatient")
WAYS = ["messages", "arrow", "fetch", "push"]


class Reader:
    """Reads a stream in one of the ways, in the background, until it has seen so many messages."""

    def __init__(self, consumer: OrderedConsumer | OrderedPushConsumer, way: str) -> None:
        self.consumer = consumer
        self.seen: list[tuple[int, bytes]] = []  # sequence and payload
        self.warnings = Warnings()
        self._way = way

    @classmethod
    async def on(cls, nc: Client, stream: str, way: str) -> Reader:
        found = await nc.jetstream().get_stream(stream)
        consumer: OrderedConsumer | OrderedPushConsumer
        if way == "push":
            consumer = await found.ordered_consumer(push=True, idle_heartbeat=0.3)
        else:
            consumer = await found.ordered_consumer()
        return cls(consumer, way)

    async def read(self, count: int) -> None:
        async with asyncio.timeout(60):
            await getattr(self, f"_{self._way}")(count)

    def check(self, count: int) -> None:
        assert [sequence for sequence, _ in self.seen] == list(range(1, count + 1))
        assert [int(data) for _, data in self.seen] == list(range(count))

    async def _messages(self, count: int) -> None:
        assert isinstance(self.consumer, OrderedConsumer)
        options: dict[str, Any] = {"heartbeat": 0.3, "expires": 1, "on_warning": self.warnings}
        async with self.consumer.messages(50, **options) as messages:
            async for message in messages:
                self.seen.append((message.metadata.stream_sequence, message.data))
                if len(self.seen) >= count:
                    return

    async def _push(self, count: int) -> None:
        assert isinstance(self.consumer, OrderedPushConsumer)
        async with self.consumer.messages(on_warning=self.warnings) as messages:
            async for message in messages:
                self.seen.append((message.metadata.stream_sequence, message.data))
                if len(self.seen) >= count:
                    return

    async def _arrow(self, count: int) -> None:
        assert isinstance(self.consumer, OrderedConsumer)
        options: dict[str, Any] = {"heartbeat": 0.3, "expires": 1, "on_warning": self.warnings}
        async with self.consumer.arrow_batches(rows=70, max_messages=100, **options) as batches:
            async for batch in batches:
                columns = (batch[name].to_pylist() for name in ("sequence", "data"))
                self.seen += zip(*columns, strict=True)
                if len(self.seen) >= count:
                    return

    async def _fetch(self, count: int) -> None:
        assert isinstance(self.consumer, OrderedConsumer)
        while len(self.seen) < count:
            try:
                messages = await self.consumer.fetch(40, timeout=1, heartbeat=0.3)
            except JetSparkError as error:
                self.warnings(error)
                await asyncio.sleep(0.05)
                continue
            self.seen += [(m.metadata.stream_sequence, m.data) for m in messages]


async def publish(nc: Client, stream: str, count: int, *, pause: float = 0.0) -> None:
    """Store numbers, each once, whatever it takes."""
    js = nc.jetstream()
    for number in range(count):
        while True:
            try:
                await js.publish(f"{stream}.x", b"%d" % number, msg_id=f"{number}", timeout=1)
                break
            except JetSparkError:
                await asyncio.sleep(0.05)
        await asyncio.sleep(pause)


# -- the connection -----------------------------------------------------------------------------


@conformance("ADR-17", "Failures", "the connection is cut in the middle of the messages")
@pytest.mark.parametrize("way", WAYS)
async def test_cuts(nats_server: NatsServer, way: str) -> None:
    chance = random.Random(way)
    async with (
        Proxy(nats_server.host, nats_server.port) as proxy,
        connected(nats_server.url) as near,
        connected(proxy.url) as far,
    ):
        stream = await make_stream(near, 1500, size=1000)
        reader = await Reader.on(far, stream, way)
        reading = asyncio.create_task(reader.read(1500))
        for _ in range(6):
            connections, seen = proxy.connections, len(reader.seen)
            proxy.truncate_after(chance.randrange(1, 200_000), "down")
            await until(
                lambda c=connections, s=seen: (  # type: ignore[misc]
                    (proxy.connections > c and len(reader.seen) > s) or reading.done()
                )
            )
        await reading
        reader.check(1500)


@conformance("ADR-17", "Failures", "the connection is silent")
@pytest.mark.parametrize("way", ["messages", "push"])
async def test_silence(nats_server: NatsServer, way: str) -> None:
    async with (
        Proxy(nats_server.host, nats_server.port) as proxy,
        connected(nats_server.url) as near,
        connected(proxy.url, ping_interval=0.3, max_outstanding_pings=2) as far,
    ):
        stream = await make_stream(near, 20)
        reader = await Reader.on(far, stream, way)
        reading = asyncio.create_task(reader.read(40))
        await until(lambda: len(reader.seen) == 20)
        proxy.stall()  # until the pings find out
        await fill(near, stream, 20, start=20)
        await until(lambda: far.statistics.reconnects == 0 and not far.connected)
        proxy.unstall()
        await reading
        reader.check(40)


@conformance("ADR-17", "Failures", "heartbeats are not missed while disconnected")
@pytest.mark.parametrize("way", ["messages", "push"])
async def test_an_outage(nats_server: NatsServer, way: str) -> None:
    async with (
        Proxy(nats_server.host, nats_server.port) as proxy,
        connected(nats_server.url) as near,
        connected(proxy.url) as far,
    ):
        stream = await make_stream(near, 20)
        reader = await Reader.on(far, stream, way)
        reading = asyncio.create_task(reader.read(40))
        await until(lambda: len(reader.seen) == 20)
        await proxy.refuse()
        await proxy.cut()
        await fill(near, stream, 20, start=20)
        await asyncio.sleep(1)  # three heartbeats
        assert reader.warnings == []
        proxy.accept()
        await reading
        reader.check(40)
        assert reader.warnings == []


async def test_the_client_is_closed_in_an_outage(nats_server: NatsServer) -> None:
    async with Proxy(nats_server.host, nats_server.port) as proxy:
        for way in ("messages", "push"):
            nc = await connect(proxy.url, **FAST)
            reader = await Reader.on(nc, await make_stream(nc, 5), way)
            reading = asyncio.create_task(reader.read(10))
            await until(lambda reader=reader: len(reader.seen) == 5)  # type: ignore[misc]
            await proxy.refuse()
            await proxy.cut()
            await nc.close()
            await reading  # it ends without an error, and without the rest
            reader.check(5)
            assert_client_gone(nc)
            proxy.accept()


async def test_stopping_in_an_outage(nats_server: NatsServer) -> None:
    async with (
        Proxy(nats_server.host, nats_server.port) as proxy,
        connected(proxy.url) as nc,
    ):
        stream = await nc.jetstream().get_stream(await make_stream(nc, 5))
        consumer = await stream.ordered_consumer()
        messages = consumer.messages()
        seen = [(await messages.next(5)).metadata.stream_sequence for _ in range(2)]
        await proxy.refuse()
        await proxy.cut()
        await until(lambda: not nc.connected)
        await messages.stop()
        again = consumer.messages()
        with pytest.raises(TimeoutError):
            await again.next(0.1)
        proxy.accept()
        seen += [(await again.next(10)).metadata.stream_sequence for _ in range(3)]
        assert seen == [1, 2, 3, 4, 5]
        await again.stop()


# -- one server ---------------------------------------------------------------------------------


@conformance("ADR-17", "Failures", "the server is restarted, or killed, and forgets the consumer")
@pytest.mark.parametrize("way", WAYS)
async def test_the_server_is_restarted(start_server: StartServer, way: str) -> None:
    server = start_server()
    async with connected(server.url) as nc, connected(server.url) as other:
        stream = await make_stream(other, storage="file")
        reader = await Reader.on(nc, stream, way)
        reading = asyncio.create_task(reader.read(300))
        publishing = asyncio.create_task(publish(other, stream, 300, pause=0.005))
        await until(lambda: len(reader.seen) > 50)
        await server.arestart()
        await until(lambda: len(reader.seen) > 150)
        await server.akill()
        await server.astart()
        await publishing
        await reading
        reader.check(300)


async def test_the_server_is_frozen(start_server: StartServer) -> None:
    server = start_server()
    async with connected(server.url) as nc:
        stream = await make_stream(nc, 10)
        for way in ("messages", "push"):
            reader = await Reader.on(nc, stream, way)
            reading = asyncio.create_task(reader.read(11 if way == "messages" else 12))
            await until(lambda reader=reader: len(reader.seen) >= 10)  # type: ignore[misc]
            server.pause()
            try:
                await reader.warnings.wait(MissingHeartbeatError)
            finally:
                server.resume()
            await fill(nc, stream, 1, start=10 if way == "messages" else 11)
            await reading
            reader.check(11 if way == "messages" else 12)


# -- three servers ------------------------------------------------------------------------------


async def host(nc: Client, reader: Reader) -> str:
    """The name of the server that has the consumer."""
    cluster = (await reader.consumer.info()).cluster
    assert cluster is not None
    assert cluster.leader is not None
    return cluster.leader


async def other_nodes(cluster: NatsCluster, name: str) -> list[str]:
    return [server.url for server in cluster if server.name != name]


@conformance("ADR-17", "Failures", "the leader of the stream steps down")
@pytest.mark.parametrize("way", WAYS)
async def test_the_leader_steps_down(nats_cluster: NatsCluster, way: str) -> None:
    async with connected(nats_cluster.urls) as nc:
        stream = await make_stream(nc, num_replicas=3)
        reader = await Reader.on(nc, stream, way)
        reading = asyncio.create_task(reader.read(200))
        publishing = asyncio.create_task(publish(nc, stream, 200, pause=0.01))
        js = nc.jetstream()
        for reached in (30, 80, 130):
            await until(lambda reached=reached: len(reader.seen) > reached)  # type: ignore[misc]
            await step_down(js, stream)
        await publishing
        await reading
        reader.check(200)


@conformance("ADR-17", "Failures", "the node of the consumer, which has one replica, is killed")
@pytest.mark.parametrize("way", WAYS)
async def test_the_node_of_the_consumer_is_killed(start_cluster: StartCluster, way: str) -> None:
    cluster = start_cluster()
    async with connected(cluster.urls) as nc:
        stream = await make_stream(nc, num_replicas=3)
        reader = await Reader.on(nc, stream, way)
        name = await host(nc, reader)
        (index,) = (i for i, server in enumerate(cluster) if server.name == name)
        # Seen from another node: the connection lives on, and nothing tells of the loss.
        urls = await other_nodes(cluster, name)
        async with connected(urls, ignore_discovered_servers=True) as far:
            reader = Reader(await _same(far, reader), way)
            reading = asyncio.create_task(reader.read(200))
            publishing = asyncio.create_task(publish(far, stream, 200, pause=0.005))
            await until(lambda: len(reader.seen) > 50)
            await cluster.akill(index)
            await publishing
            await reading
            assert far.statistics.reconnects == 0
            reader.check(200)


async def _same(nc: Client, reader: Reader) -> OrderedConsumer | OrderedPushConsumer:
    """An ordered consumer over another connection that begins with the same consumer."""
    consumer = reader.consumer
    info = consumer.cached_info
    series = consumer.series
    series._context = nc.jetstream()
    kind = type(consumer)
    return kind(series, info)


@conformance("ADR-17", "Failures", "every node is killed in turn, that of the connection included")
@pytest.mark.parametrize("way", ["messages", "push"])
async def test_every_node_is_killed_in_turn(start_cluster: StartCluster, way: str) -> None:
    cluster = start_cluster()
    async with connected(cluster.urls) as nc, connected(cluster.urls) as other:
        stream = await make_stream(nc, num_replicas=3, storage="file")
        reader = await Reader.on(nc, stream, way)
        count = 240
        reading = asyncio.create_task(reader.read(count))
        publishing = asyncio.create_task(publish(other, stream, count, pause=0.01))
        for index in range(3):
            reached = 40 + 60 * index
            await until(lambda reached=reached: len(reader.seen) > reached)  # type: ignore[misc]
            await cluster.akill(index)
            await asyncio.sleep(0.2)
            await cluster.arestart(index)
        await publishing
        await reading
        reader.check(count)


@pytest.mark.parametrize("way", ["messages", "push"])
@pytest.mark.parametrize("count", [5, 50], ids=["shorter than before", "longer than before"])
async def test_another_stream_of_the_same_name(
    near: Client, far: Client, proxy: Proxy, way: str, count: int
) -> None:
    """Its sequences begin anew: to go on with the next one would leave its first messages out."""
    stream = await make_stream(near)
    await fill(near, stream, 20)
    reader = await Reader.on(far, stream, way)
    reading = asyncio.create_task(reader.read(1000))
    await until(lambda: len(reader.seen) == 20)
    await asyncio.sleep(1.1)  # the clocks of servers may differ by as much as a second
    await proxy.refuse()
    await proxy.cut()
    js = near.jetstream()
    config = (await js.get_stream(stream)).cached_info.config
    await js.delete_stream(stream)
    await js.create_stream(config)
    await fill(near, stream, count)
    proxy.accept()
    with pytest.raises(OrderedConsumerResetError, match="deleted and created again") as caught:
        await reading
    assert isinstance(caught.value.__cause__, StreamReplacedError)
    reader.check(20)
