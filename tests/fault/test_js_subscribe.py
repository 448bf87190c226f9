"""The older subscriptions in trouble: cut, restarted, cancelled while they are made."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from jetspark import Client, connect
from jetspark.errors import (
    DisconnectedError,
    JetSparkError,
    LeadershipChangedError,
    MissingHeartbeatError,
    NoRespondersError,
    SubscriptionClosedError,
    TimeoutError,
)
from jetspark.jetstream.message import JetStreamMessage
from jetspark.server import NatsCluster, NatsServer
from tests.support.conformance import conformance
from tests.support.faults import FAST, connected
from tests.support.js import Warnings, eventually_equal, fill, make_stream, sequences
from tests.support.leaks import assert_client_gone, until
from tests.support.proxy import Proxy
from tests.support.servers import StartServer
from tests.support.streams import step_down


async def names(nc: Client, stream: str) -> list[str]:
    return [name async for name in nc.jetstream().consumer_names(stream)]


async def out(proxy: Proxy, client: Client) -> None:
    """Begin an outage."""
    await proxy.refuse()
    await proxy.cut()
    await until(lambda: not client.connected)


# -- push ---------------------------------------------------------------------------------------


@conformance("ADR-15", "Ack Handling", "what could not be acknowledged comes again")
async def test_a_durable_survives_cuts(near: Client, far: Client, proxy: Proxy) -> None:
    stream = await make_stream(near)
    seen: set[int] = set()
    subscription = await far.jetstream().subscribe(
        f"{stream}.*",
        durable="d",
        ack_wait=1,
        callback=lambda message: seen.add(message.metadata.stream_sequence),
    )

    async def floor() -> int:
        info = await near.jetstream().get_consumer(stream, "d", push=True)
        return info.cached_info.ack_floor.stream_seq

    for cut in (1, 60_000):
        connections = proxy.connections
        proxy.truncate_after(cut, "down")
        await fill(near, stream, 100, size=1000)
        await until(lambda c=connections: proxy.connections > c)  # type: ignore[misc]
    await eventually_equal(floor, 200)
    assert seen == set(range(1, 201))
    await subscription.unsubscribe()
    assert await names(near, stream) == []


@conformance("ADR-15", "Heartbeats", "a consumer that expired in an outage is told of")
async def test_an_ephemeral_expires_in_an_outage(near: Client, far: Client, proxy: Proxy) -> None:
    stream = await make_stream(near, 1)
    warnings = Warnings()
    subscription = await far.jetstream().subscribe(
        f"{stream}.*", idle_heartbeat=0.1, inactive_threshold=0.2, on_warning=warnings
    )
    await subscription.next(5)
    await out(proxy, far)

    async def count() -> int:
        return len(await names(near, stream))

    await eventually_equal(count, 0)
    assert warnings == []
    proxy.accept()
    waiting = asyncio.ensure_future(subscription.next())
    await warnings.wait(MissingHeartbeatError)
    waiting.cancel()
    await subscription.unsubscribe()  # is gone, which is no error


async def test_ordered_survives_that(near: Client, far: Client, proxy: Proxy) -> None:
    stream = await make_stream(near, 3)
    subscription = await far.jetstream().subscribe(
        f"{stream}.*", ordered=True, idle_heartbeat=0.1, inactive_threshold=0.2
    )
    seen = [await subscription.next(5)]
    await out(proxy, far)
    await fill(near, stream, 3)
    await asyncio.sleep(0.4)
    proxy.accept()
    seen += [await subscription.next(5) for _ in range(5)]
    assert sequences(seen) == [1, 2, 3, 4, 5, 6]
    await subscription.unsubscribe()


@conformance("ADR-15", "Unsubscribe", "without a connection the deletion fails, and that is raised")
async def test_unsubscribe_in_an_outage(near: Client, proxy: Proxy) -> None:
    async with connected(proxy.url) as far:
        stream = await make_stream(near, 1)
        subscription = await far.jetstream(timeout=0.3).subscribe(f"{stream}.*", durable="d")
        await out(proxy, far)
        with pytest.raises(JetSparkError):
            await subscription.unsubscribe()
        assert subscription.closed
        assert await names(near, stream) == ["d"]


@conformance("ADR-15", "Drain", "without a connection the deletion fails, and that is reported")
async def test_drain_in_an_outage(near: Client, proxy: Proxy) -> None:
    async with connected(proxy.url) as far:
        stream = await make_stream(near, 3)
        seen: list[JetStreamMessage] = []
        warnings = Warnings()
        subscription = await far.jetstream(timeout=0.3).subscribe(
            f"{stream}.*", durable="d", callback=seen.append, on_warning=warnings
        )
        await until(lambda: len(seen) == 3)
        proxy.stall("down")  # nothing is confirmed any more
        draining = asyncio.ensure_future(subscription.drain())
        await out(proxy, far)
        await draining
        assert subscription.closed
        assert warnings.kinds == [TimeoutError]
        assert await names(near, stream) == ["d"]


@pytest.mark.parametrize("step", ["stream_name_by_subject", "_consumer_info", "create_consumer"])
async def test_cancelling_while_it_is_made(near: Client, step: str) -> None:
    stream = await make_stream(near, 3)
    routes = len(near._routes)
    js = near.jetstream()
    reached = asyncio.Event()

    async def hang(*args: Any) -> None:
        reached.set()
        await asyncio.Event().wait()

    setattr(js, step, hang)
    called: list[JetStreamMessage] = []
    making = asyncio.ensure_future(js.subscribe(f"{stream}.*", durable="d", callback=called.append))
    await reached.wait()
    assert len(near._routes) == routes + (step == "create_consumer")
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making
    assert len(near._routes) == routes


async def test_losing_the_connection_while_it_is_made(
    near: Client, far: Client, proxy: Proxy
) -> None:
    stream = await make_stream(near, 3)
    await far.flush()
    proxy.stall("down")
    making = asyncio.ensure_future(
        far.jetstream().subscribe(
            f"{stream}.*", stream=stream, ack_wait=0.5, callback=lambda _: None
        )
    )
    await asyncio.sleep(0.1)  # the request is on its way
    await proxy.cut()
    proxy.unstall()
    # It is repeated on the next connection.
    subscription = await making
    await until(lambda: subscription.received >= 3)
    await subscription.unsubscribe()
    assert await names(near, stream) == []


async def test_closing_with_subscriptions(nats_server: NatsServer, near: Client) -> None:
    stream = await make_stream(near, 3)
    nc = await connect(nats_server.url, **FAST)
    js = nc.jetstream()
    started = asyncio.Event()

    async def callback(message: JetStreamMessage) -> None:
        started.set()
        await asyncio.sleep(60)

    await js.subscribe(f"{stream}.*", callback=callback)
    await js.subscribe(f"{stream}.*", ordered=True, callback=callback)
    pulling = await js.pull_subscribe("x.*", stream=stream, durable="d")
    fetching = asyncio.ensure_future(pulling.fetch(3, timeout=30))
    await started.wait()
    await nc.close()
    with pytest.raises(SubscriptionClosedError):
        await fetching
    assert_client_gone(nc)


# -- pull ---------------------------------------------------------------------------------------


@conformance(
    "ADR-13", "PullN", "the connection is lost in a fetch: an error, and the next one works"
)
@pytest.mark.parametrize("batch", [1, 5])
async def test_a_cut_in_a_fetch(near: Client, far: Client, proxy: Proxy, batch: int) -> None:
    stream = await make_stream(near)
    subscription = await far.jetstream().pull_subscribe(f"{stream}.*", durable="d", ack_wait=0.5)
    fetching = asyncio.ensure_future(subscription.fetch(batch, timeout=20))

    async def waiting() -> int:
        consumer = await near.jetstream().get_consumer(stream, "d")
        return consumer.cached_info.num_waiting

    await eventually_equal(waiting, 1)
    await proxy.cut()
    with pytest.raises(DisconnectedError):
        await fetching
    await fill(near, stream, batch)
    # If the server has not noticed the cut yet, they come again after a while.
    seen: set[int] = set()
    while len(seen) < batch:
        for message in await subscription.fetch(batch, timeout=5):
            await message.ack()
            seen.add(message.metadata.stream_sequence)
    await subscription.unsubscribe()


async def test_fetching_in_an_outage(near: Client, far: Client, proxy: Proxy) -> None:
    stream = await make_stream(near, 2)
    subscription = await far.jetstream().pull_subscribe(f"{stream}.*", durable="d")
    await out(proxy, far)
    for batch in (1, 2):
        with pytest.raises(TimeoutError):
            await subscription.fetch(batch, timeout=0.1)
    fetching = asyncio.ensure_future(subscription.fetch(2, timeout=10))
    await asyncio.sleep(0)
    proxy.accept()
    assert sequences(await fetching) == [1, 2]
    await subscription.unsubscribe()


@conformance("ADR-13", "Error messages", "503 while there is no quorum, or no server")
async def test_a_restart_of_the_server(start_server: StartServer) -> None:
    server = start_server()
    async with connected(server.url) as nc:
        stream = await make_stream(nc, 30, storage="file")
        subscription = await nc.jetstream().pull_subscribe(f"{stream}.*", durable="d", ack_wait=1)
        seen: set[int] = set()

        async def work() -> None:
            while len(seen) < 60:
                try:
                    messages = await subscription.fetch(7, timeout=1)
                except (DisconnectedError, NoRespondersError, TimeoutError):
                    await asyncio.sleep(0.02)
                    continue
                for message in messages:
                    await message.ack()
                    seen.add(message.metadata.stream_sequence)

        working = asyncio.ensure_future(work())
        await until(lambda: len(seen) >= 14)
        await server.akill()
        await server.astart()
        await nc.flush()
        await fill(nc, stream, 30)
        async with asyncio.timeout(30):
            await working
        assert seen == set(range(1, 61))
        await subscription.unsubscribe()


async def test_leader_changes(nats_cluster: NatsCluster) -> None:
    async with connected(nats_cluster.urls) as nc:
        stream = await make_stream(nc, num_replicas=3)
        js = nc.jetstream()
        subscription = await js.pull_subscribe(f"{stream}.*", durable="d", ack_wait=1)
        seen: set[int] = set()

        async def work() -> None:
            while len(seen) < 90:
                try:
                    messages = await subscription.fetch(7, timeout=1)
                except (LeadershipChangedError, NoRespondersError, TimeoutError):
                    continue
                for message in messages:
                    await message.ack()
                    seen.add(message.metadata.stream_sequence)

        working = asyncio.ensure_future(work())
        for turn in range(3):
            if turn:
                await step_down(js, stream, "d")
            await fill(nc, stream, 30)
            count = 30 * (turn + 1)
            await until(lambda count=count: len(seen) == count)  # type: ignore[misc]
        async with asyncio.timeout(30):
            await working
        await subscription.unsubscribe()
