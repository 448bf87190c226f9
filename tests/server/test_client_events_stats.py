"""Events and statistics: what a client tells about its life."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator

import pytest

from jetspark import Client, ConnectionEvent, ConnectionState, EventKind, Statistics
from jetspark.errors import ConnectError, DisconnectedError
from jetspark.server import NatsServer
from tests.support.clients import Connect, Events, eventually, unique
from tests.support.servers import StartServer


async def collect(events: AsyncIterator[ConnectionEvent]) -> list[ConnectionEvent]:
    return [event async for event in events]


async def test_the_life_of_a_client(start_server: StartServer, connect: Connect) -> None:
    server = start_server(jetstream=False)
    seen = Events()
    states: list[ConnectionState] = []
    holder: list[Client] = []

    def on_event(event: ConnectionEvent) -> None:
        seen(event)
        if holder:
            states.append(holder[0].state)

    nc = await connect(server.url, on_event=on_event, reconnect_delay=lambda attempts: 0.01)
    holder.append(nc)
    assert seen.kinds == [EventKind.CONNECTED]
    first = seen.seen[0]
    assert (first.server, first.reconnect, first.error) == (server.url, False, None)
    iterated = asyncio.create_task(collect(nc.events()))
    await asyncio.sleep(0)
    await server.astop()
    await seen.wait(EventKind.RECONNECTING, 2)
    await server.astart()
    again = await seen.wait(EventKind.CONNECTED, 2)
    assert again.reconnect
    await nc.close()

    lost = seen.seen[1]
    assert (lost.kind, lost.server) == (EventKind.DISCONNECTED, server.url)
    assert isinstance(lost.error, DisconnectedError)
    reconnecting = [event for event in seen.seen if event.kind is EventKind.RECONNECTING]
    assert [event.attempt for event in reconnecting] == list(range(1, len(reconnecting) + 1))
    assert seen.kinds[2:4] == [EventKind.RECONNECTING, EventKind.ERROR]
    assert isinstance(seen.errors[0], ConnectError)
    assert seen.kinds[-3:] == [EventKind.CONNECTED, EventKind.DISCONNECTED, EventKind.CLOSED]
    assert seen.seen[-1].error is None
    assert await iterated == seen.seen[1:]  # the same, in the same order
    assert states[0] is ConnectionState.RECONNECTING
    assert states[-1] is ConnectionState.CLOSED


async def test_iterators_begin_when_they_are_asked_for(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    early = nc.events()
    await nc.force_reconnect()
    await nc.flush()
    late = nc.events()
    await nc.close()
    assert [event.kind for event in await collect(early)] == [
        EventKind.DISCONNECTED,
        EventKind.RECONNECTING,
        EventKind.CONNECTED,
        EventKind.DISCONNECTED,
        EventKind.CLOSED,
    ]
    assert [event.kind for event in await collect(late)] == [
        EventKind.DISCONNECTED,
        EventKind.CLOSED,
    ]
    assert await collect(nc.events()) == []  # nothing happens any more


async def test_iterators_that_are_dropped_are_forgotten(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    nc.events()
    events = nc.events()
    await nc.force_reconnect()
    async for event in events:
        assert event.kind is EventKind.DISCONNECTED
        break
    del events
    gc.collect()
    assert len(nc._connection.events._readers) == 0


async def test_a_slow_iterator_keeps_the_newest(
    nats_server: NatsServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jetspark.connection.events.EventHub.BACKLOG", 2)
    nc = await connect(nats_server.url)
    events = nc.events()
    await nc.force_reconnect()
    await nc.flush()
    await nc.close()
    kinds = [event.kind for event in await collect(events)]
    assert kinds == [EventKind.DISCONNECTED, EventKind.CLOSED]


async def test_a_failing_callback_is_logged(
    nats_server: NatsServer, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    def on_event(event: ConnectionEvent) -> None:
        raise RuntimeError("callback of the application")

    with caplog.at_level(logging.ERROR, logger="jetspark"):
        nc = await connect(nats_server.url, on_event=on_event)
        await nc.force_reconnect()
        await nc.flush()
    assert nc.connected
    assert "the event callback failed on: connected" in caplog.text
    assert "callback of the application" in caplog.text


async def test_events_are_logged(
    nats_server: NatsServer, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, logger="jetspark"):
        nc = await connect(nats_server.url)
        await nc.force_reconnect()
        await nc.flush()
    assert f"connected | {nats_server.url}" in caplog.text
    assert "disconnected" in caplog.text
    assert f"reconnecting | {nats_server.url} | attempt 1" in caplog.text
    assert f"connected | again | {nats_server.url}" in caplog.text


async def test_password_is_in_no_event(start_server: StartServer, connect: Connect) -> None:
    server = start_server(jetstream=False, user="ann", password="s3cret")
    events = Events()
    nc = await connect(f"nats://ann:s3cret@127.0.0.1:{server.port}", on_event=events)
    await nc.force_reconnect()
    await nc.flush()
    await nc.close()
    assert "s3cret" not in "".join(f"{event} {event!r}" for event in events.seen)
    assert "s3cret" not in repr(nc) + repr(nc.servers) + repr(nc._options)


async def test_reconnect_delay_that_fails(start_server: StartServer, connect: Connect) -> None:
    server = start_server(jetstream=False)
    events = Events()

    def delay(attempts: int) -> float:
        raise RuntimeError("no idea")

    nc = await connect(server.url, reconnect_delay=delay, on_event=events)
    await server.astop()
    await eventually(lambda: any(isinstance(e, RuntimeError) for e in events.errors))
    await server.astart()
    await nc.flush()
    assert nc.statistics.reconnects == 1


async def test_statistics(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    start = nc.statistics
    assert isinstance(start, Statistics)
    assert (start.connects, start.reconnects, start.messages_in, start.messages_out) == (1, 0, 0, 0)
    assert start.bytes_in > 0  # INFO and PONG
    assert start.bytes_out > 0
    sub = await nc.subscribe(unique())
    for _ in range(10):
        await nc.publish(sub.subject, bytes(100))
    await nc.flush()
    now = nc.statistics
    assert (now.messages_out, now.messages_in) == (10, 10)
    assert now.bytes_out - start.bytes_out > 1000
    assert now.bytes_in - start.bytes_in > 1000
    assert start.messages_out == 0  # each is a picture of its moment
    await nc.force_reconnect()
    await nc.flush()
    after = nc.statistics
    assert (after.connects, after.reconnects) == (2, 1)
    assert after.messages_out == 10  # they count over the whole life
    assert after.bytes_in > now.bytes_in
    await nc.close()
    assert nc.statistics.messages_in == 10
    assert nc.statistics.bytes_in >= after.bytes_in
    assert (nc.statistics.dropped, nc.statistics.errors) == (0, 0)


async def test_an_idle_client_pings(nats_server: NatsServer, connect: Connect) -> None:
    events = Events()
    nc = await connect(
        nats_server.url, ping_interval=0.01, max_outstanding_pings=50, on_event=events
    )
    start = nc.statistics
    await eventually(lambda: nc.statistics.bytes_out >= start.bytes_out + 10 * len(b"PING\r\n"))
    await eventually(lambda: nc.statistics.bytes_in >= start.bytes_in + 10 * len(b"PONG\r\n"))
    assert events.kinds == [EventKind.CONNECTED]
