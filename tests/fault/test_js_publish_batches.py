"""Batches while connections and servers break: all or nothing, and no unnoticed gap."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from jetspark import FastIngest, JetStream, Stream
from jetspark.errors import (
    APIError,
    AtomicPublishError,
    BatchPublishError,
    ConnectionClosedError,
    DisconnectedError,
    JetSparkError,
    NoStreamResponseError,
    ReconnectBufferFullError,
    TimeoutError,
)
from jetspark.server import NatsServer
from tests.support.faults import connected
from tests.support.leaks import until
from tests.support.ledger import stored_numbers
from tests.support.proxy import Proxy
from tests.support.servers import StartCluster, StartServer
from tests.support.streams import caught_up, leader_of, step_down, version_of

ATOMIC = (2, 12)
INGEST = (2, 14)


@pytest.fixture
def server(start_server: StartServer) -> NatsServer:
    return start_server()


@pytest_asyncio.fixture
async def proxy(server: NatsServer, nothing_left: None) -> AsyncIterator[Proxy]:
    async with Proxy(server.host, server.port) as proxy:
        yield proxy


def need(server: NatsServer, version: tuple[int, int]) -> None:
    if version_of(server) < version:
        pytest.skip(f"came with {version[0]}.{version[1]}")


async def new_stream(js: JetStream, server: NatsServer, **fields: Any) -> Stream:
    if version_of(server) >= INGEST:
        fields["allow_batched"] = True
    return await js.create_stream(name="S", subjects=["s.>"], allow_atomic=True, **fields)


# --- atomic batches


@pytest.mark.parametrize("after", [1, 500, 3_000, 9_000, 20_000])
@pytest.mark.parametrize("direction", ["up", "down"])
async def test_a_cut_stores_all_of_a_batch_or_nothing(
    server: NatsServer, proxy: Proxy, after: int, direction: Any
) -> None:
    need(server, ATOMIC)
    async with connected(proxy.url) as nc:
        js = nc.jetstream(timeout=1)
        stream = await new_stream(js, server)
        proxy.truncate_after(after, direction)
        batch = js.batch()
        committed = False
        try:
            for number in range(300):
                await batch.add("s.a", b"%d" % number)
            await batch.commit()
            committed = True
        except (DisconnectedError, TimeoutError, AtomicPublishError) as error:
            assert batch.closed
            unknown = error.may_have_taken_effect
        stored = await stored_numbers(stream)
        if committed:
            assert stored == list(range(300))
        elif unknown:
            assert stored in ([], list(range(300)))
        else:
            assert stored == []


async def test_a_server_that_restarts_forgets_the_batch(server: NatsServer) -> None:
    need(server, ATOMIC)
    async with connected(server.url) as nc:
        js = nc.jetstream()
        stream = await new_stream(js, server)
        batch = js.batch()
        for number in range(50):
            await batch.add("s.a", b"%d" % number)
        await server.arestart()
        await nc.flush()
        with pytest.raises(AtomicPublishError) as caught:
            for number in range(50, 100):
                await batch.add("s.a", b"%d" % number)
            await batch.commit()
        assert caught.value.err_code == 10176
        assert await stored_numbers(stream) == []
        async with js.batch() as again:
            for number in range(100):
                await again.add("s.a", b"%d" % number)
            await again.commit()
        assert await stored_numbers(stream) == list(range(100))


async def test_a_leader_that_steps_down_forgets_the_batch(start_cluster: StartCluster) -> None:
    cluster = start_cluster(3)
    need(cluster[0], ATOMIC)
    async with connected(cluster.url) as nc:
        js = nc.jetstream(timeout=10)
        stream = await js.create_stream(
            name="S", subjects=["s.>"], allow_atomic=True, num_replicas=3
        )
        batch = js.batch()
        for number in range(10):
            await batch.add("s.a", b"%d" % number)
        await step_down(js, "S")
        await leader_of(js, "S", cluster)
        with pytest.raises((AtomicPublishError, NoStreamResponseError)):
            await batch.commit()
        assert await stored_numbers(stream) == []


# --- fast ingest


async def ingest_numbers(ingest: FastIngest, count: int) -> JetSparkError | None:
    """Send numbers and close; what it failed with."""
    try:
        for number in range(count):
            await ingest.add("s.a", b"%d" % number)
        await ingest.close()
    except JetSparkError as error:
        ingest.abandon()
        return error
    return None


@pytest.mark.parametrize("after", [1, 5_000, 20_000, 50_000])
@pytest.mark.parametrize("direction", ["up", "down"])
async def test_a_cut_leaves_a_beginning_without_gaps(
    server: NatsServer, proxy: Proxy, after: int, direction: Any
) -> None:
    need(server, INGEST)
    async with connected(proxy.url) as nc:
        js = nc.jetstream(timeout=1)
        stream = await new_stream(js, server)
        proxy.truncate_after(after, direction)
        ingest = js.fast_ingest(flow=20)
        error = await ingest_numbers(ingest, 1000)
        stored = await stored_numbers(stream)
        assert stored == list(range(len(stored)))
        if error is None:
            assert len(stored) == 1000
        else:
            assert isinstance(error, BatchPublishError | TimeoutError)
        if ingest.ack is not None:
            assert len(stored) == ingest.ack.batch_size


@pytest.mark.parametrize("after", [5_000, 20_000])
async def test_a_cut_is_counted_where_gaps_are_allowed(
    server: NatsServer, proxy: Proxy, after: int
) -> None:
    need(server, INGEST)
    async with connected(proxy.url) as nc:
        js = nc.jetstream(timeout=2)
        stream = await new_stream(js, server)
        proxy.truncate_after(after, "up")
        ingest = js.fast_ingest(gap="ok", flow=20)
        error = await ingest_numbers(ingest, 1000)
        assert error is None
        stored = await stored_numbers(stream)
        assert stored == sorted(set(stored))
        assert len(stored) + ingest.lost == 1000
        assert ingest.ack is not None
        assert ingest.ack.batch_size == 1000


async def test_a_reconnect_without_a_loss_goes_on(server: NatsServer, proxy: Proxy) -> None:
    need(server, INGEST)
    async with connected(proxy.url) as nc:
        js = nc.jetstream()
        stream = await new_stream(js, server)
        ingest = js.fast_ingest()
        for number in range(10):
            await ingest.add("s.a", b"%d" % number)
        await nc.flush()
        await proxy.cut()
        await until(lambda: nc.statistics.reconnects == 1)
        for number in range(10, 20):
            await ingest.add("s.a", b"%d" % number)
        ack = await ingest.close()
        assert ack is not None
        assert ack.batch_size == 20
        assert await stored_numbers(stream) == list(range(20))


async def test_a_server_that_restarts_forgets_the_ingest(server: NatsServer) -> None:
    need(server, INGEST)
    async with connected(server.url) as nc:
        js = nc.jetstream(timeout=2)
        stream = await new_stream(js, server)
        ingest = js.fast_ingest()
        for number in range(10):
            await ingest.add("s.a", b"%d" % number)
        await nc.flush()
        await server.arestart()
        await nc.flush()
        await ingest.add("s.a", b"10")
        with pytest.raises(BatchPublishError) as caught:
            await ingest.close()
        assert caught.value.err_code == 10208
        assert await stored_numbers(stream) == list(range(10))


async def test_an_outage_that_is_too_long(server: NatsServer, proxy: Proxy) -> None:
    need(server, INGEST)
    async with connected(proxy.url, reconnect_buffer_size=5_000) as nc:
        js = nc.jetstream(timeout=0.3)
        await new_stream(js, server)
        ingest = js.fast_ingest(flow=5, max_outstanding=1)
        await ingest.add("s.a", b"0")
        await proxy.refuse()
        await proxy.cut()
        await until(lambda: not nc.connected)
        with pytest.raises(ReconnectBufferFullError):
            await ingest.add("s.a", b"x" * 10_000)
        assert ingest.size == 1, "the message was not taken, and nothing else has happened"
        with pytest.raises(TimeoutError, match="no acknowledgement"):
            for number in range(1, 10):
                await ingest.add("s.a", b"%d" % number)
        assert ingest.closed
        proxy.accept()
        await nc.flush()


async def test_a_client_that_gives_up(server: NatsServer, proxy: Proxy) -> None:
    need(server, INGEST)
    async with connected(proxy.url, allow_reconnect=False) as nc:
        js = nc.jetstream()
        await new_stream(js, server)
        ingest = js.fast_ingest(flow=1, max_outstanding=1)
        await ingest.add("s.a", b"0")
        proxy.stall("down")
        adding = asyncio.create_task(ingest_numbers(ingest, 10))
        await asyncio.sleep(0.05)
        await proxy.cut()
        assert isinstance(await adding, ConnectionClosedError)


async def test_a_leader_that_steps_down_leaves_no_gap(start_cluster: StartCluster) -> None:
    cluster = start_cluster(3)
    need(cluster[0], INGEST)
    async with connected(cluster.url) as nc:
        js = nc.jetstream(timeout=10)
        stream = await js.create_stream(
            name="S", subjects=["s.>"], allow_batched=True, num_replicas=3
        )
        await caught_up(cluster, "S")
        ingest = js.fast_ingest(flow=10)
        running = asyncio.create_task(ingest_numbers(ingest, 5_000))
        await until(lambda: ingest.size > 100 or running.done())
        assert not running.done(), await running
        await step_down(js, "S")
        error = await running
        await leader_of(js, "S", cluster)
        stored = await stored_numbers(stream)
        assert stored == list(range(len(stored)))
        if error is None:  # the next leader goes on with the batch
            assert len(stored) == 5_000
        else:
            assert isinstance(error, APIError | NoStreamResponseError | TimeoutError)
