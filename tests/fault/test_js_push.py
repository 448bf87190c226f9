"""Push consumers in trouble: cut, stalled, restarted, and on a cluster whose leaders change."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from jetspark import Client, PushConsumer, connect
from jetspark.errors import JetSparkError, JetStreamError, MissingHeartbeatError, TimeoutError
from jetspark.jetstream.message import JetStreamMessage
from jetspark.server import NatsCluster
from tests.support.conformance import conformance
from tests.support.faults import FAST, connected
from tests.support.js import Warnings, eventually_equal, fill, make_stream, sequences
from tests.support.leaks import assert_client_gone, until
from tests.support.proxy import Proxy
from tests.support.servers import StartServer
from tests.support.streams import step_down


async def durable(nc: Client, stream: str, **config: Any) -> PushConsumer:
    config = {"durable_name": "d", "deliver_subject": nc.new_inbox(), **config}
    consumer: PushConsumer = await nc.jetstream().create_consumer(stream, **config)
    return consumer


async def ack_floor(consumer: PushConsumer) -> int:
    return (await consumer.info()).ack_floor.stream_seq


class Collector:
    """Takes and acknowledges messages."""

    def __init__(self) -> None:
        self.seen: set[int] = set()
        self.warnings = Warnings()

    async def __call__(self, message: JetStreamMessage) -> None:
        try:
            await message.ack()
        except JetSparkError:
            return  # it will come again
        self.seen.add(message.metadata.stream_sequence)


@conformance("ADR-15", "Automatic Status Management", "a reconnect is survived")
async def test_cuts(near: Client, far: Client, proxy: Proxy) -> None:
    stream = await make_stream(near, 2500, size=1000)  # more than is sent at once
    consumer = await durable(far, stream, ack_wait=1, idle_heartbeat=0.3, flow_control=True)
    collector = Collector()
    async with await consumer.consume(collector, on_warning=collector.warnings):
        for cut in (1, 70_000, 150_000):
            connections = proxy.connections
            proxy.truncate_after(cut, "down")
            await until(lambda c=connections: proxy.connections > c)  # type: ignore[misc]
        await until(lambda: len(collector.seen) == 2500)
        await eventually_equal(lambda: ack_floor(consumer), 2500)


@conformance("ADR-15", "Messages Gaps", "what a cut has swallowed is told")
async def test_a_cut_makes_a_gap(near: Client, far: Client, proxy: Proxy) -> None:
    stream = await make_stream(near, 100, size=1000)
    consumer = await durable(far, stream, ack_policy="none")
    warnings = Warnings()
    connections = proxy.connections
    proxy.truncate_after(30_000, "down")
    async with consumer.messages(on_warning=warnings) as messages:
        first = await messages.next(5)
        await until(lambda: proxy.connections > connections)
        await until(lambda: far.connected)
        await far.flush()
        await fill(near, stream, 1)
        seen = [first]
        while seen[-1].metadata.stream_sequence != 101:
            seen.append(await messages.next(5))
    assert len(seen) < 101
    assert warnings.kinds == [JetStreamError]
    # From there on one could read again.
    before = [number for number in sequences(seen) if number < 101]
    assert vars(warnings[0])["resume_sequence"] == before[-1] + 1


@conformance("ADR-15", "Heartbeats", "not missed while there is no connection")
async def test_heartbeats_in_an_outage(near: Client, far: Client, proxy: Proxy) -> None:
    stream = await make_stream(near, 1)
    consumer = await durable(far, stream, idle_heartbeat=0.1)
    warnings = Warnings()
    async with consumer.messages(on_warning=warnings) as messages:
        await messages.next(5)
        await proxy.refuse()
        await proxy.cut()
        with pytest.raises(TimeoutError):
            await messages.next(0.6)
        assert warnings == []
        proxy.accept()
        await until(lambda: far.connected)
        await fill(near, stream, 1)
        assert (await messages.next(5)).metadata.stream_sequence == 2
    assert warnings == []


@conformance("ADR-15", "Heartbeats", "missed when the connection is silent")
async def test_heartbeats_in_silence(near: Client, far: Client, proxy: Proxy) -> None:
    stream = await make_stream(near, 1)
    consumer = await durable(far, stream, idle_heartbeat=0.1)
    warnings = Warnings()
    async with consumer.messages(on_warning=warnings) as messages:
        await messages.next(5)
        proxy.stall("down")
        waiting = asyncio.ensure_future(messages.next())
        await warnings.wait(MissingHeartbeatError)
        proxy.unstall()
        await fill(near, stream, 1)
        assert (await waiting).metadata.stream_sequence == 2


@conformance("ADR-15", "Flow Control", "an answer that got lost is repeated when a heartbeat asks")
async def test_flow_control_over_a_cut(near: Client, far: Client, proxy: Proxy) -> None:
    stream = await make_stream(near, 3000, size=2000)
    consumer = await durable(far, stream, ack_policy="none", flow_control=True, idle_heartbeat=0.2)
    async with consumer.messages(on_warning=Warnings()) as messages:
        await until(lambda: messages._flow_queued)
        await proxy.cut()  # the server waits for an answer, and this connection will not give it
        seen: list[int] = []
        while not seen or seen[-1] != 3000:
            seen.append((await messages.next(10)).metadata.stream_sequence)
    assert seen == sorted(set(seen))


@conformance("ADR-15", "Push consumers", "a durable one goes on after a restart of the server")
async def test_the_server_is_restarted(start_server: StartServer) -> None:
    server = start_server()
    async with connected(server.url) as nc:
        stream = await make_stream(nc, 50, storage="file")
        consumer = await durable(nc, stream, ack_wait=1, idle_heartbeat=0.3)
        collector = Collector()
        async with await consumer.consume(collector, on_warning=collector.warnings):
            await until(lambda: len(collector.seen) >= 20)
            await server.akill()
            await server.astart()
            await nc.flush()
            await fill(nc, stream, 50, start=50)
            await until(lambda: len(collector.seen) == 100)
            # Acknowledgements that the server forgot are given again.
            await eventually_equal(lambda: ack_floor(consumer), 100)


@conformance("ADR-15", "Push consumers", "an ephemeral one that the server lost is told of")
async def test_the_server_forgets_the_consumer(start_server: StartServer) -> None:
    server = start_server()
    async with connected(server.url) as nc:
        stream = await make_stream(nc, 1, storage="file")
        consumer = await nc.jetstream().create_consumer(
            stream, deliver_subject=nc.new_inbox(), idle_heartbeat=0.2, mem_storage=True
        )
        warnings = Warnings()
        async with consumer.messages(on_warning=warnings) as messages:
            await messages.next(5)
            await server.arestart()
            waiting = asyncio.ensure_future(messages.next())
            await warnings.wait(MissingHeartbeatError)
            waiting.cancel()


@conformance("ADR-15", "Push consumers", "leader changes are survived")
async def test_leader_changes(nats_cluster: NatsCluster) -> None:
    async with connected(nats_cluster.urls) as nc:
        stream = await make_stream(nc, num_replicas=3)
        consumer = await durable(nc, stream, ack_wait=1, idle_heartbeat=0.3)
        collector = Collector()
        js = nc.jetstream()
        async with await consumer.consume(collector, on_warning=collector.warnings):
            for turn in range(4):
                await fill(nc, stream, 25, start=25 * turn)
                # Not before there is a leader who could step down.
                count = 25 * (turn + 1)
                await until(lambda count=count: len(collector.seen) == count)  # type: ignore[misc]
                await step_down(js, stream, consumer.name)
            await eventually_equal(lambda: ack_floor(consumer), 100)


async def test_closing_in_an_outage(proxy: Proxy, near: Client) -> None:
    nc = await connect(proxy.url, **FAST)
    consumer = await durable(nc, await make_stream(near, 5), idle_heartbeat=0.1)
    collector = Collector()
    consumption = await consumer.consume(collector)
    await until(lambda: len(collector.seen) == 5)
    await proxy.refuse()
    await proxy.cut()
    await nc.close()
    assert consumption.closed
    assert_client_gone(nc)


async def test_cancelling_the_reader(near: Client) -> None:
    consumer = await durable(near, await make_stream(near, 5))
    async with consumer.messages() as messages:
        seen: list[int] = []
        for _ in range(20):
            reading = asyncio.ensure_future(messages.next())
            await asyncio.sleep(0)
            reading.cancel()
            try:
                seen.append((await reading).metadata.stream_sequence)
            except asyncio.CancelledError:
                continue
        while len(seen) < 5:
            seen.append((await messages.next(5)).metadata.stream_sequence)
    assert seen == [1, 2, 3, 4, 5]
