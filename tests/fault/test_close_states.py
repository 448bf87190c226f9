"""`close` and `drain` in every state: all that waits ends, and nothing is left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, TypeAlias

import pytest

from jetspark import Client, ConnectionEvent, ConnectionState, EventKind, Message, connect
from jetspark.errors import (
    ConnectionClosedError,
    DisconnectedError,
    SubscriptionClosedError,
    TimeoutError,
)
from jetspark.server import NatsServer
from tests.support.certs import Certs, certs  # noqa: F401
from tests.support.faults import FAST
from tests.support.leaks import GUARD, EventLog, assert_client_gone, until
from tests.support.proxy import Proxy
from tests.support.servers import StartServer

KIB = 1024

NewClient: TypeAlias = Callable[..., Awaitable[Client]]


@pytest.fixture
async def new_client(nothing_left: None) -> AsyncIterator[NewClient]:
    """Connect; the client is closed after the test if it is not yet."""
    async with AsyncExitStack() as stack:

        async def new(url: str, **options: Any) -> Client:
            client = await connect(url, **{**FAST, **options})
            stack.push_async_callback(client.close)
            return client

        yield new


async def close(client: Client) -> None:
    """Close in reasonable time, and see that nothing is left at that very moment."""
    async with asyncio.timeout(GUARD):
        await client.close()
    assert_client_gone(client)
    assert client.state is ConnectionState.CLOSED


async def outage(proxy: Proxy, log: EventLog) -> None:
    await proxy.refuse()
    await proxy.cut()
    await log.wait(EventKind.DISCONNECTED)


async def collect(messages: AsyncIterator[Message]) -> list[bytes]:
    return [message.data async for message in messages]


async def results(calls: list[asyncio.Task[Any]]) -> list[Any]:
    async with asyncio.timeout(GUARD):
        return await asyncio.gather(*calls, return_exceptions=True)


# -- close


async def test_with_calls_that_wait(new_client: NewClient, proxy: Proxy) -> None:
    client = await new_client(proxy.url)
    first, second, third = [await client.subscribe("quiet") for _ in range(3)]
    await client.flush()
    proxy.stall("up")
    calls = [
        asyncio.create_task(call)
        for call in (
            client.flush(timeout=None),
            client.rtt(timeout=None),
            client.request("quiet", timeout=3600),
            collect(client.request_many("quiet", timeout=3600)),
            first.next(timeout=3600),
            collect(second),
            third.drain(),
            collect_events(client),
        )
    ]
    await asyncio.sleep(0.01)
    assert not any(call.done() for call in calls)
    await close(client)
    ends = await results(calls)
    assert [type(end) for end in ends[:4]] == [ConnectionClosedError] * 4
    assert type(ends[4]) is SubscriptionClosedError
    assert ends[5] == []
    assert type(ends[6]) is ConnectionClosedError
    assert ends[7] == [EventKind.DISCONNECTED, EventKind.CLOSED]


async def collect_events(client: Client) -> list[EventKind]:
    return [event.kind async for event in client.events()]


async def test_with_blocked_publishers(new_client: NewClient, proxy: Proxy) -> None:
    client = await new_client(proxy.url)
    proxy.stall("up")

    async def publish() -> None:
        while True:
            await client.publish("blocked", bytes(100 * KIB))

    publishers = [asyncio.create_task(publish()) for _ in range(3)]
    await until(lambda: len(client._connection._room_waiters) == 3)
    await close(client)
    for end in await results(publishers):
        assert type(end) is ConnectionClosedError


async def test_while_it_sleeps_between_attempts(new_client: NewClient, proxy: Proxy) -> None:
    log = EventLog()
    client = await new_client(proxy.url, on_event=log, reconnect_delay=lambda _: 3600)
    await outage(proxy, log)
    calls = [
        asyncio.create_task(client.flush(timeout=None)),
        asyncio.create_task(client.request("x", timeout=3600)),
        asyncio.create_task(client.drain()),
    ]
    await asyncio.sleep(0.01)
    assert not any(call.done() for call in calls)
    await close(client)
    for end in await results(calls):
        assert type(end) is ConnectionClosedError
    assert log.of(EventKind.RECONNECTING) == []


async def test_in_the_middle_of_an_attempt(new_client: NewClient, proxy: Proxy) -> None:
    log = EventLog()
    client = await new_client(proxy.url, on_event=log)
    proxy.stall("down")
    await proxy.cut()
    await log.wait(EventKind.RECONNECTING)
    await until(lambda: proxy.active == 1)
    await close(client)
    proxy.unstall()
    await proxy.idle()


async def test_before_the_first_connection(new_client: NewClient, proxy: Proxy) -> None:
    await proxy.refuse()
    log = EventLog()
    client = await new_client(proxy.url, retry_initial_connect=True, on_event=log)
    subscription = await client.subscribe("x")
    await client.publish("x", b"never sent")
    await close(client)
    assert await collect(subscription) == []
    assert [event.kind for event in log.seen if event.kind is not EventKind.RECONNECTING] == [
        EventKind.ERROR,
        EventKind.CLOSED,
    ]


async def test_right_after_force_reconnect(new_client: NewClient, proxy: Proxy) -> None:
    client = await new_client(proxy.url)
    await client.force_reconnect()
    await close(client)
    client = await new_client(proxy.url)
    proxy.stall("up")
    await client.publish("x", bytes(900 * KIB))
    await asyncio.sleep(0)
    await client.force_reconnect()
    await close(client)  # the old socket still has something to send


async def test_on_a_paused_server(new_client: NewClient, start_server: StartServer) -> None:
    server = start_server(jetstream=False)
    client = await new_client(server.url)
    server.pause()
    try:
        await client.publish("x", b"1")
        await close(client)
    finally:
        server.resume()


async def test_while_it_drains(new_client: NewClient, nats_server: NatsServer) -> None:
    client = await new_client(nats_server.url)
    begun = asyncio.Event()

    async def stuck(message: Message) -> None:
        begun.set()
        await asyncio.sleep(3600)

    await client.subscribe("stuck", callback=stuck)
    await client.publish("stuck")
    await begun.wait()
    draining = asyncio.create_task(client.drain())
    await asyncio.sleep(0.01)
    assert client.state is ConnectionState.DRAINING
    await close(client)
    (end,) = await results([draining])
    assert type(end) is ConnectionClosedError


async def test_in_a_callback(new_client: NewClient, nats_server: NatsServer) -> None:
    client = await new_client(nats_server.url)
    seen: list[bytes] = []

    async def last_words(message: Message) -> None:
        seen.append(message.data)
        await client.close()
        seen.append(b"after")

    await client.subscribe("words", callback=last_words)
    other = await client.subscribe("words", callback=lambda _: None)
    for number in range(3):
        await client.publish("words", b"%d" % number)
    await until(lambda: client.closed and len(seen) == 2)
    await until(lambda: not client._callback_tasks)
    assert seen == [b"0", b"after"]
    assert other.closed
    await close(client)


@pytest.mark.parametrize("kind", [EventKind.DISCONNECTED, EventKind.RECONNECTING, EventKind.ERROR])
async def test_on_an_event(new_client: NewClient, proxy: Proxy, kind: EventKind) -> None:
    """An application that wants no reconnects may close when it hears of a loss."""
    closing: list[asyncio.Task[None]] = []
    log = EventLog()

    def on_event(event: ConnectionEvent) -> None:
        log(event)
        if event.kind is kind and not closing:
            closing.append(asyncio.get_running_loop().create_task(client.close()))

    client = await new_client(proxy.url, on_event=on_event)
    await outage(proxy, log)
    await log.wait(EventKind.CLOSED)
    await closing[0]
    assert_client_gone(client)
    assert [event.kind for event in log.seen].count(EventKind.CLOSED) == 1


@pytest.mark.parametrize("state", ["connected", "stalled", "reconnecting"])
async def test_twice_and_at_the_same_time(new_client: NewClient, proxy: Proxy, state: str) -> None:
    log = EventLog()
    client = await new_client(proxy.url, on_event=log)
    await client.subscribe("x", callback=lambda _: None)
    await client.publish("x", bytes(900 * KIB))
    if state == "stalled":
        proxy.stall()
    elif state == "reconnecting":
        await outage(proxy, log)

    async def close_and_look() -> None:
        await close(client)

    async with asyncio.timeout(GUARD):
        await asyncio.gather(*(close_and_look() for _ in range(3)))
    await close(client)
    await client.drain()
    assert len(log.of(EventKind.CLOSED)) == 1


async def test_after_it_gave_up(new_client: NewClient, proxy: Proxy) -> None:
    log = EventLog()
    client = await new_client(proxy.url, on_event=log, max_reconnect_attempts=1)
    await outage(proxy, log)
    await log.wait(EventKind.CLOSED)
    assert_client_gone(client)
    error = client.last_error
    await close(client)
    assert client.last_error is error, "closing does not hide why it ended"
    assert len(log.of(EventKind.CLOSED)) == 1


@pytest.mark.parametrize("kind", ["tcp", "tls", "ws"])
async def test_sends_what_was_published(
    new_client: NewClient,
    start_server: StartServer,
    certs: Certs,  # noqa: F811
    kind: str,
) -> None:
    """Also if much arrives that nobody reads: then a plain close would reset the connection."""
    tls = certs.tls() if kind == "tls" else None
    server = start_server(jetstream=False, tls=tls, websocket=kind == "ws")
    url = server.ws_url if kind == "ws" else server.url
    options = {"tls_ca": certs.ca} if tls else {}
    observer, flood = [await new_client(url, **options) for _ in range(2)]
    mirror = await observer.subscribe("last.words")
    await observer.flush()
    stop = asyncio.Event()

    async def flooding() -> None:
        while not stop.is_set():
            await flood.publish("flood", bytes(KIB))

    flooder = asyncio.create_task(flooding())
    for _ in range(15):
        client = await new_client(url, **options)
        await client.subscribe("flood", pending_messages=10)
        await asyncio.sleep(0.005)
        for _ in range(100):
            await client.publish("last.words", bytes(KIB))
        await close(client)
    stop.set()
    await flooder
    await until(lambda: mirror.pending_messages == 1500)


async def test_drops_what_waits_and_ends_iteration(
    new_client: NewClient, nats_server: NatsServer
) -> None:
    client = await new_client(nats_server.url)
    subscription = await client.subscribe("x")
    for _ in range(10):
        await client.publish("x", b"1")
    await client.flush()
    assert subscription.pending_messages == 10
    await close(client)
    assert await collect(subscription) == []
    assert subscription.pending_messages == subscription.pending_bytes == 0
    with pytest.raises(SubscriptionClosedError):
        await subscription.next()
    await subscription.unsubscribe()
    await subscription.drain()
    calls: list[Callable[[], Any]] = [
        lambda: client.publish("x"),
        lambda: client.flush(),
        lambda: client.subscribe("x"),
        lambda: client.request("x"),
        lambda: anext(client.request_many("x")),
        lambda: client.force_reconnect(),
    ]
    for call in calls:
        with pytest.raises(ConnectionClosedError):
            await call()


@pytest.mark.parametrize("kind", ["ws", "stalled ws"])
async def test_web_socket(new_client: NewClient, start_server: StartServer, kind: str) -> None:
    server = start_server(jetstream=False, websocket=True)
    client = await new_client(server.ws_url)
    await client.subscribe("x", callback=lambda _: None)
    await client.publish("x", b"1")
    if kind == "stalled ws":
        server.pause()
    await close(client)
    if kind == "stalled ws":
        server.resume()


# -- drain


async def test_drain_waits_for_the_reconnect(
    new_client: NewClient, proxy: Proxy, nats_server: NatsServer
) -> None:
    """What was published meanwhile still goes out; what had arrived is processed meanwhile."""
    log = EventLog()
    observer = await new_client(nats_server.url)
    mirror = await observer.subscribe("meanwhile")
    await observer.flush()
    client = await new_client(proxy.url, on_event=log)
    seen: list[bytes] = []
    release = asyncio.Event()

    async def work(message: Message) -> None:
        await release.wait()
        seen.append(message.data)

    subscription = await client.subscribe("work", callback=work)
    for number in range(3):
        await client.publish("work", b"%d" % number)
    await client.flush()
    await until(lambda: subscription.pending_messages == 2)
    await outage(proxy, log)
    await client.publish("meanwhile", b"1")
    draining = asyncio.create_task(client.drain())
    await asyncio.sleep(0.01)
    release.set()
    await until(lambda: len(seen) == 3)
    assert not draining.done()
    proxy.accept()
    async with asyncio.timeout(GUARD):
        await draining
    assert_client_gone(client)
    assert (await mirror.next(timeout=GUARD)).data == b"1"
    assert seen == [b"0", b"1", b"2"]


async def test_drain_loses_the_connection(new_client: NewClient, proxy: Proxy) -> None:
    """The server's confirmation never comes, but nothing more can come either."""
    log = EventLog()
    client = await new_client(proxy.url, on_event=log)
    seen: list[bytes] = []

    async def work(message: Message) -> None:
        await asyncio.sleep(0)
        seen.append(message.data)

    await client.subscribe("work", callback=work)
    for number in range(100):
        await client.publish("work", b"%d" % number)
    await client.flush()
    proxy.stall("up")
    draining = asyncio.create_task(client.drain())
    await asyncio.sleep(0.01)
    await proxy.cut()
    proxy.unstall()
    (end,) = await results([draining])
    assert end is None
    assert len(seen) == 100
    assert_client_gone(client)


async def test_drain_ends_in_time(new_client: NewClient, proxy: Proxy) -> None:
    log = EventLog()
    client = await new_client(proxy.url, on_event=log)
    await outage(proxy, log)
    with pytest.raises(TimeoutError):
        await client.drain(timeout=0.05)
    assert_client_gone(client)


async def test_leaving_the_block_with_an_error(new_client: NewClient, proxy: Proxy) -> None:
    """It closes at once, and the error is the one that comes out."""
    proxy.delay(0)
    with pytest.raises(DisconnectedError):
        async with await new_client(proxy.url) as client:
            proxy.stall()
            flushing = asyncio.create_task(client.flush(timeout=None))
            await asyncio.sleep(0)
            await proxy.cut()
            await flushing
    assert_client_gone(client)
