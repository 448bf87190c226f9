"""Connections that stay open while nothing moves: stale ones, slow ones, and back-pressure."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from jetspark import Backoff, Client, EventKind, connect
from jetspark.errors import (
    DisconnectedError,
    JetSparkError,
    StaleConnectionError,
    TimeoutError,
)
from jetspark.server import NatsServer
from tests.support.leaks import GUARD, EventLog, until
from tests.support.proxy import Direction, Proxy
from tests.support.servers import StartServer

IMPATIENT: dict[str, Any] = {
    "reconnect_delay": Backoff(initial=0.01, maximum=0.05),
    "connect_timeout": 0.2,
    "ping_interval": 0.05,
    "max_outstanding_pings": 2,
}
PATIENT: dict[str, Any] = {"reconnect_delay": Backoff(initial=0.01, maximum=0.05)}
KIB = 1024
BOUND = 4096 * KIB
"""More than this must not pile up in a client whose server takes nothing."""


@pytest.fixture
def server(start_server: StartServer) -> NatsServer:
    return start_server(jetstream=False)


@pytest.fixture
async def proxy(server: NatsServer, nothing_left: None) -> AsyncIterator[Proxy]:
    async with Proxy(server.host, server.port) as proxy:
        yield proxy


@asynccontextmanager
async def connected(url: str, **options: Any) -> AsyncIterator[Client]:
    client = await connect(url, **options)
    try:
        yield client
    finally:
        await client.close()


# -- stale connections


async def test_paused_server_is_stale(server: NatsServer) -> None:
    log = EventLog()
    async with connected(server.url, on_event=log, **IMPATIENT) as client:
        subscription = await client.subscribe("stale")
        await client.flush()
        server.pause()
        try:
            waiting = [
                asyncio.ensure_future(client.flush(timeout=GUARD)),
                asyncio.ensure_future(client.request("stale", timeout=GUARD)),
            ]
            lost = await log.wait(EventKind.DISCONNECTED)
            assert isinstance(lost.error, StaleConnectionError)
            assert isinstance(client.last_error, StaleConnectionError)
            for result in await asyncio.gather(*waiting, return_exceptions=True):
                assert isinstance(result, DisconnectedError)
                assert isinstance(result.__cause__, StaleConnectionError)
            await client.publish("stale", b"later")
            # The kernel still accepts for it; that alone is no connection.
            failed = await log.wait(EventKind.ERROR)
            assert isinstance(failed.error, TimeoutError)
            assert not client.connected
        finally:
            server.resume()
        await log.wait(EventKind.CONNECTED, 2)
        assert (await subscription.next(timeout=GUARD)).data == b"later"


@pytest.mark.parametrize("direction", ["up", "down", None])
async def test_stalled_proxy_is_stale(proxy: Proxy, direction: Direction | None) -> None:
    log = EventLog()
    async with connected(proxy.url, on_event=log, **IMPATIENT) as client:
        proxy.stall(direction)
        lost = await log.wait(EventKind.DISCONNECTED)
        assert isinstance(lost.error, StaleConnectionError)
        proxy.unstall()
        await client.flush(timeout=GUARD)
        assert client.statistics.reconnects >= 1


async def test_short_stall_is_not_stale(proxy: Proxy) -> None:
    log = EventLog()
    options = {**IMPATIENT, "max_outstanding_pings": 1000}
    async with connected(proxy.url, on_event=log, **options) as client:
        for _ in range(3):
            proxy.stall()
            await until(lambda: client._connection._pings_out >= 3)
            proxy.unstall()
            await client.flush()
            assert client._connection._pings_out <= 1
        assert log.of(EventKind.DISCONNECTED) == []


async def test_slow_traffic_is_not_stale(proxy: Proxy, server: NatsServer) -> None:
    """A PONG behind a lot of data comes late; the data before it are a sign of life."""
    log = EventLog()
    size, count = 8 * KIB, 400
    options = {**IMPATIENT, "ping_interval": 0.1}
    async with (
        connected(proxy.url, on_event=log, **options) as slow,
        connected(server.url) as publisher,
    ):
        subscription = await slow.subscribe("slow")
        await slow.flush()
        proxy.delay(0.02, "down")  # for each read, of which there are more than fifty
        for _ in range(count):
            await publisher.publish("slow", bytes(size))
        await publisher.flush()
        for _ in range(count):
            await subscription.next(timeout=GUARD)
        proxy.delay(0)
        assert [str(event) for event in log.of(EventKind.DISCONNECTED)] == []


# -- back-pressure


async def publish_until(client: Client, stop: asyncio.Event, sent: list[int]) -> None:
    while not stop.is_set():
        sent.append(len(sent))
        await client.publish("pressure", b"%010d" % sent[-1] + bytes(KIB))


def piled_up(client: Client) -> int:
    """How many bytes wait in the client and in the transport of its socket."""
    link = client._connection._link
    assert link is not None
    transport = link.transport
    assert isinstance(transport, asyncio.WriteTransport)
    return client._encoder.size + transport.get_write_buffer_size()


async def settled(sent: list[int], pause: float = 0.1) -> None:
    """Wait until the publishers get nothing more off."""
    before = -1
    while before != len(sent) or not sent:
        before = len(sent)
        await asyncio.sleep(pause)


async def test_paused_server_blocks_publishers(server: NatsServer) -> None:
    async with (
        connected(server.url, **PATIENT) as client,
        connected(server.url, **PATIENT) as observer,
    ):
        arrived: list[int] = []
        await observer.subscribe("pressure", callback=lambda m: arrived.append(int(m.data[:10])))
        await observer.flush()
        sent: list[int] = []
        stop = asyncio.Event()
        server.pause()
        try:
            publishers = [asyncio.create_task(publish_until(client, stop, sent)) for _ in range(5)]
            await settled(sent)
            assert piled_up(client) < BOUND
            stop.set()
            await asyncio.sleep(0)
            assert not any(task.done() for task in publishers), "they are blocked"
        finally:
            server.resume()
        async with asyncio.timeout(GUARD):
            await asyncio.gather(*publishers)
        await client.flush()
        await until(lambda: len(arrived) == len(sent))
        assert sorted(arrived) == sorted(set(arrived))
        assert client._encoder.size == 0


async def test_memory_stays_bounded_whatever_is_called(proxy: Proxy) -> None:
    """Pings, flushes and subscriptions between the messages do not open the gate."""
    async with connected(proxy.url, **{**IMPATIENT, "max_outstanding_pings": 10**6}) as client:
        proxy.stall("up")
        sent: list[int] = []
        stop = asyncio.Event()
        publisher = asyncio.create_task(publish_until(client, stop, sent))
        for _ in range(20):
            await settled(sent, pause=0.01)
            with pytest.raises(TimeoutError):
                await client.flush(timeout=0.01)
            await client.subscribe("x")
            assert not publisher.done()
        assert piled_up(client) < BOUND
        stop.set()
        proxy.unstall()
        await publisher
        await client.flush(timeout=GUARD)


async def test_requests_keep_their_time_under_pressure(proxy: Proxy) -> None:
    async with connected(proxy.url, **PATIENT) as client:
        proxy.stall("up")
        sent: list[int] = []
        stop = asyncio.Event()
        publishers = [asyncio.create_task(publish_until(client, stop, sent)) for _ in range(3)]
        await settled(sent)
        async with asyncio.timeout(GUARD):
            with pytest.raises(TimeoutError):
                await client.request("nobody", bytes(KIB), timeout=0.05)
            answers = client.request_many("nobody", bytes(KIB), timeout=0.05)
            assert [answer async for answer in answers] == []
        assert not any(publisher.done() for publisher in publishers)
        stop.set()
        proxy.unstall()
        await asyncio.gather(*publishers)


async def test_a_publish_cancelled_while_it_waits_was_not_taken(
    proxy: Proxy, server: NatsServer
) -> None:
    async with (
        connected(proxy.url, **PATIENT) as client,
        connected(server.url) as observer,
    ):
        subscription = await observer.subscribe("given.up")
        await observer.flush()
        proxy.stall("up")
        taken, given_up = 0, 0
        while given_up < 50:
            try:
                async with asyncio.timeout(0.01):
                    await client.publish("given.up", bytes(64 * KIB))
                taken += 1
            except builtins.TimeoutError:
                given_up += 1
                assert piled_up(client) < BOUND
        proxy.unstall()
        await client.flush(timeout=GUARD)
        await observer.flush(timeout=GUARD)
        assert subscription.pending_messages == taken


async def test_connection_lost_under_pressure(proxy: Proxy, server: NatsServer) -> None:
    """A blocked publisher goes on at once; what the socket had not been given is not lost."""
    async with (
        connected(proxy.url, **PATIENT) as client,
        connected(server.url) as observer,
    ):
        arrived: list[int] = []
        await observer.subscribe("pressure", callback=lambda m: arrived.append(int(m.data[:10])))
        await observer.flush()
        sent: list[int] = []
        stop = asyncio.Event()
        proxy.stall("up")
        publisher = asyncio.create_task(publish_until(client, stop, sent))
        await settled(sent)
        blocked_at = len(sent)
        for number in range(blocked_at, blocked_at + 10):
            await client.publish("pressure", b"%010d" % number)
        requesting = asyncio.create_task(client.request("request", b"0", timeout=GUARD))
        await asyncio.sleep(0)
        stop.set()
        await proxy.refuse()
        await proxy.cut()
        await publisher
        assert len(sent) == blocked_at
        with pytest.raises(DisconnectedError):
            await requesting
        for number in range(blocked_at + 10, blocked_at + 20):
            await client.publish("pressure", b"%010d" % number)
        proxy.unstall()
        proxy.accept()
        await client.flush(timeout=GUARD)
        await until(lambda: blocked_at + 19 in arrived)
        # The message of the blocked publisher was not taken yet, so the others overtook it.
        assert len(arrived) == len(set(arrived))
        others = [number for number in arrived if number >= blocked_at]
        assert others == list(range(blocked_at, blocked_at + 20))


async def test_reconnect_on_request_under_pressure(proxy: Proxy, server: NatsServer) -> None:
    """The old socket is done with before the new one is used: the order stays."""
    log = EventLog()
    async with (
        connected(proxy.url, on_event=log, **PATIENT) as client,
        connected(server.url) as observer,
    ):
        arrived: list[int] = []
        await observer.subscribe("pressure", callback=lambda m: arrived.append(int(m.data[:10])))
        await observer.flush()
        sent: list[int] = []
        stop = asyncio.Event()
        proxy.stall("up")
        publisher = asyncio.create_task(publish_until(client, stop, sent))
        await settled(sent)
        await client.force_reconnect()
        stop.set()
        await publisher
        proxy.unstall()
        await client.publish("pressure", b"%010d" % len(sent))
        await client.flush(timeout=GUARD)
        await until(lambda: arrived and arrived[-1] == len(sent))
        assert arrived == sorted(set(arrived))
        await until(lambda: proxy.active == 1)


async def test_reconnects_on_request_leave_no_sockets(proxy: Proxy) -> None:
    """A socket that cannot be emptied is dropped in the end, also if the client goes on."""
    async with connected(proxy.url, **PATIENT) as client:
        proxy.stall("up")
        sent: list[int] = []
        stop = asyncio.Event()
        publisher = asyncio.create_task(publish_until(client, stop, sent))
        await settled(sent)
        await client.force_reconnect()
        stop.set()
        await publisher
        await until(lambda: not client._connection._closing)
        proxy.unstall()
        await client.flush(timeout=GUARD)


# -- slow readers


def reading_paused(client: Client) -> bool:
    return client._connection._keepalive_timer is not None


async def test_slow_reader_over_a_lost_connection(proxy: Proxy, server: NatsServer) -> None:
    log = EventLog()
    async with (
        connected(proxy.url, on_event=log, read_high_water=64 * KIB, **PATIENT) as client,
        connected(server.url) as publisher,
    ):
        subscription = await client.subscribe("reader")
        await client.flush()

        async def publish(start: int, stop: int) -> None:
            for number in range(start, stop):
                await publisher.publish("reader", b"%010d" % number + bytes(KIB))
            await publisher.flush()

        await publish(0, 1000)
        await until(lambda: client._held > 64 * KIB)
        held = subscription.pending_messages
        assert reading_paused(client), "reading is paused"
        await proxy.cut()
        # Nobody reads, so it is a write that finds out: that of the next sign of life.
        await log.wait(EventKind.CONNECTED, 2)
        assert subscription.pending_messages >= held
        await client.flush()
        await publish(1000, 1200)
        await until(lambda: reading_paused(client))
        numbers: list[int] = []
        while not numbers or numbers[-1] != 1199:
            numbers.append(int((await subscription.next(timeout=GUARD)).data[:10]))
        assert numbers == sorted(set(numbers))
        assert numbers[:held] == list(range(held))
        assert numbers[-200:] == list(range(1000, 1200))
        assert client._held == 0
        assert not reading_paused(client)
        await client.flush()


async def test_slow_reader_is_not_stale(proxy: Proxy, server: NatsServer) -> None:
    """While reading is paused no PONG can be seen, and that proves nothing."""
    log = EventLog()
    async with (
        connected(proxy.url, on_event=log, read_high_water=64 * KIB, **IMPATIENT) as client,
        connected(server.url) as publisher,
    ):
        subscription = await client.subscribe("reader")
        await client.flush()
        for _ in range(300):
            await publisher.publish("reader", bytes(KIB))
        await publisher.flush()
        await until(lambda: reading_paused(client))
        await asyncio.sleep(6 * IMPATIENT["ping_interval"])
        for _ in range(300):
            await subscription.next(timeout=GUARD)
        await client.flush(timeout=GUARD)
        assert log.of(EventKind.DISCONNECTED) == []


async def test_calls_end_in_time_while_everything_stands_still(proxy: Proxy) -> None:
    async with connected(proxy.url, **{**PATIENT, "drain_timeout": 0.05}) as client:
        subscription = await client.subscribe("still", callback=lambda _: None)
        await client.flush()
        proxy.stall()
        calls: list[Any] = [
            client.flush(timeout=0.02),
            client.rtt(timeout=0.02),
            client.request("still", timeout=0.02),
            subscription.drain(),
            client.drain(),
        ]
        for call in calls:
            async with asyncio.timeout(GUARD):
                with pytest.raises(TimeoutError) as caught:
                    await call
            assert isinstance(caught.value, JetSparkError)
        assert client.closed
