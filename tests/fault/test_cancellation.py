"""Calls that are cancelled while they wait, at every turn of the loop that can be reached.

Afterwards the client is as good as before, or, where the call was to end it, gone. Exceptions
that nobody looked at and sockets left behind are found by `no_leaks`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from jetspark import Client, EventKind, Message, connect
from jetspark.errors import ConnectionClosedError, ConnectionDrainingError
from jetspark.server import NatsServer
from tests.support.certs import Certs, certs  # noqa: F401
from tests.support.faults import FAST, connected
from tests.support.leaks import GUARD, EventLog, assert_client_gone, until
from tests.support.proxy import Proxy
from tests.support.servers import StartServer

TURNS = [*range(12), *range(12, 60, 4)]
"""After how many turns of the event loop a call is cancelled."""
KIB = 1024


async def cancelled(call: Coroutine[Any, Any, Any], turns: int) -> Any:
    """Cancel a call after some turns of the loop; what it returned or raised."""
    task = asyncio.create_task(call)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    return (await asyncio.gather(task, return_exceptions=True))[0]


async def answer(message: Message) -> None:
    await message.respond(message.data)


async def assert_usable(client: Client) -> None:
    """Everything works, and nothing is left of the calls before."""
    await client.flush(timeout=GUARD)
    async with await client.subscribe("usable.echo", callback=answer):
        assert (await client.request("usable.echo", b"?", timeout=GUARD)).data == b"?"
    async with await client.subscribe("usable") as subscription:
        await client.publish("usable", b"1")
        assert (await subscription.next(timeout=GUARD)).data == b"1"
    await client.flush()
    connection = client._connection
    assert not connection._pongs
    assert not connection._room_waiters
    assert not connection._state_waiters
    assert client._mux is not None
    assert client._mux.pending == 0
    assert set(client._routes) == {client._mux.sid}


# -- connecting


@pytest.mark.parametrize("kind", ["tcp", "name", "tls", "ws"])
async def test_connect(
    start_server: StartServer,
    certs: Certs,  # noqa: F811
    kind: str,
) -> None:
    tls = certs.tls() if kind == "tls" else None
    server = start_server(jetstream=False, tls=tls, websocket=kind == "ws")
    url = server.ws_url if kind == "ws" else server.url
    if kind == "name":  # with several addresses there is a race of attempts
        url = f"nats://localhost:{server.port}"
    outcomes = set()
    turns = 0
    while turns < 40 or Client not in outcomes:
        result = await cancelled(connect(url, tls_ca=certs.ca if tls else None), turns)
        outcomes.add(type(result))
        if isinstance(result, Client):
            await result.flush()
            await result.close()
        turns += 1 if turns < 40 else 100
    assert outcomes <= {asyncio.CancelledError, Client}


async def test_connect_cancelled_as_it_times_out(proxy: Proxy) -> None:
    """Two reasons to stop in one turn: the cancellation must not be taken for the timeout."""
    proxy.stall()
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(connect(proxy.url, connect_timeout=0.05))
    await until(lambda: proxy.active == 1)
    loop.call_later(0.01, task.cancel)
    time.sleep(0.1)  # noqa: ASYNC251  # so that both timers fire in the same turn
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_close_as_a_reconnect_times_out(proxy: Proxy) -> None:
    log = EventLog()
    client = await connect(proxy.url, on_event=log, connect_timeout=0.05, **FAST)
    proxy.stall()
    await proxy.cut()
    await log.wait(EventKind.RECONNECTING)
    await until(lambda: proxy.active == 1)
    loop = asyncio.get_running_loop()
    closing: list[asyncio.Task[None]] = []
    loop.call_later(0.01, lambda: closing.append(loop.create_task(client.close())))
    time.sleep(0.1)  # noqa: ASYNC251
    await until(lambda: closing)
    async with asyncio.timeout(GUARD):
        await closing[0]
    assert_client_gone(client)


# -- calls that leave the client as it was


async def request_many(client: Client) -> None:
    async for _ in client.request_many("many", timeout=GUARD, max_messages=3):
        pass


CALLS: dict[str, Callable[[Client], Coroutine[Any, Any, Any]]] = {
    "flush": lambda client: client.flush(),
    "rtt": lambda client: client.rtt(),
    "request": lambda client: client.request("echo", b"x", timeout=GUARD),
    "request nobody": lambda client: client.request("nobody", timeout=GUARD),
    "request_many": request_many,
    "publish": lambda client: client.publish("nowhere", bytes(200 * KIB)),
}


@pytest.mark.parametrize("name", CALLS)
async def test_calls(nats_server: NatsServer, name: str) -> None:
    async with connected(nats_server.url) as client, connected(nats_server.url) as service:
        await service.subscribe("echo", callback=answer)

        async def three(message: Message) -> None:
            for _ in range(3):
                await message.respond()

        await service.subscribe("many", callback=three)
        await service.flush()
        for turns in TURNS:
            await cancelled(CALLS[name](client), turns)
        await assert_usable(client)


@pytest.mark.parametrize("name", ["flush", "request", "request_many"])
async def test_calls_as_the_connection_is_lost(proxy: Proxy, name: str) -> None:
    """Cancelled before, while and after the call fails because of the loss."""
    log = EventLog()
    async with connected(proxy.url, on_event=log) as client:
        for count, turns in enumerate(range(8), start=1):
            proxy.stall("up")
            task = asyncio.create_task(CALLS[name](client))
            await asyncio.sleep(0)
            cutting = asyncio.create_task(proxy.cut())
            proxy.unstall()
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, cutting, return_exceptions=True)
            await log.wait(EventKind.CONNECTED, count + 1)
        await assert_usable(client)


@pytest.mark.parametrize("name", CALLS)
async def test_calls_during_an_outage(proxy: Proxy, name: str) -> None:
    log = EventLog()
    async with connected(proxy.url, on_event=log) as client:
        await proxy.refuse()
        await proxy.cut()
        await log.wait(EventKind.DISCONNECTED)
        for turns in range(6):
            await cancelled(CALLS[name](client), turns)
        proxy.accept()
        await assert_usable(client)


async def test_publish_when_blocked(proxy: Proxy) -> None:
    async with connected(proxy.url) as client:
        proxy.stall("up")
        for turns in (0, 1, 2, 5) * 10:
            await cancelled(publish_much(client), turns)
        calls: list[Coroutine[Any, Any, Any]] = [publish_much(client) for _ in range(5)]
        calls.append(client.request("nowhere", bytes(KIB), timeout=GUARD))
        waiting = [asyncio.create_task(call) for call in calls]
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in waiting)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        proxy.unstall()
        await assert_usable(client)


async def publish_much(client: Client) -> None:
    for _ in range(100):
        await client.publish("nowhere", bytes(100 * KIB))


async def test_request_when_blocked_and_lost(proxy: Proxy) -> None:
    """It fails because of the loss and is cancelled before it can say so."""
    log = EventLog()
    async with connected(proxy.url, on_event=log) as client:
        for count, turns in enumerate((0, 1, 2, 3), start=1):
            proxy.stall("up")
            publishers = [asyncio.create_task(publish_much(client)) for _ in range(3)]
            await asyncio.sleep(0.02)
            requests = [
                asyncio.create_task(client.request("nowhere", bytes(KIB), timeout=GUARD))
                for _ in range(3)
            ]
            await asyncio.sleep(0)
            link = client._connection._link
            assert link is not None
            link.abort()
            for _ in range(turns):
                await asyncio.sleep(0)
            for task in (*publishers, *requests):
                task.cancel()
            await asyncio.gather(*publishers, *requests, return_exceptions=True)
            proxy.unstall()
            await log.wait(EventKind.CONNECTED, count + 1)
        await assert_usable(client)


# -- subscriptions


async def test_next_loses_no_message(nats_server: NatsServer) -> None:
    """However `next` and iteration are interrupted, the messages come one after the other."""
    async with connected(nats_server.url) as client:
        async with await client.subscribe("numbers") as subscription:
            sent = 0
            found: list[int] = []

            async def take() -> None:
                found.append(int((await subscription.next(timeout=GUARD)).data))

            async def iterate() -> None:
                async for message in subscription:
                    found.append(int(message.data))  # noqa: PERF401

            async def time_out() -> None:
                found.append(int((await subscription.next(timeout=0)).data))

            for turns in TURNS * 3:
                for take_some in (take, iterate, time_out):
                    for _ in range(3):
                        await client.publish("numbers", b"%d" % sent)
                        sent += 1
                    await cancelled(take_some(), turns)
            await client.flush()
            while len(found) < sent:
                await take()
            assert found == list(range(sent))
            assert not subscription._waiters
            assert client._held == 0
        await assert_usable(client)


async def test_subscribe_unsubscribe_drain(nats_server: NatsServer) -> None:
    async with connected(nats_server.url) as client:

        async def slow(message: Message) -> None:
            await asyncio.sleep(0.001)

        for callback in (None, slow):
            for turns in TURNS:
                await cancelled(client.subscribe("s", callback=callback), turns)
                for route in list(client._routes.values()):
                    if route is not client._mux:
                        await client.publish("s", b"x")
                        await cancelled(route.drain(), turns)  # type: ignore[attr-defined]
                        await cancelled(route.unsubscribe(), turns)  # type: ignore[attr-defined]
        await assert_usable(client)
        await until(lambda: not client._callback_tasks)


async def test_drain_of_a_subscription_during_an_outage(proxy: Proxy) -> None:
    log = EventLog()
    async with connected(proxy.url, on_event=log) as client:
        subscriptions = [await client.subscribe("s", callback=lambda _: None) for _ in range(4)]
        await proxy.refuse()
        await proxy.cut()
        await log.wait(EventKind.DISCONNECTED)
        for turns, subscription in enumerate(subscriptions, start=1):
            await cancelled(subscription.drain(), turns)
            assert subscription.closed
        proxy.accept()
        await assert_usable(client)


async def test_callback_that_is_cancelled_from_within(nats_server: NatsServer) -> None:
    """A cancelled future in a callback is a failure of that call, not the end of the callback."""
    log = EventLog()
    seen: list[bytes] = []

    async def unlucky(message: Message) -> None:
        seen.append(message.data)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    async with connected(nats_server.url, on_event=log) as client:
        subscription = await client.subscribe("unlucky", callback=unlucky)
        for number in range(3):
            await client.publish("unlucky", b"%d" % number)
        await until(lambda: len(seen) == 3)
        assert not subscription.closed
        await log.wait(EventKind.ERROR, 3)
        await subscription.unsubscribe()


async def test_events_iteration(proxy: Proxy) -> None:
    log = EventLog()
    async with connected(proxy.url, on_event=log) as client:

        async def watch() -> None:
            async for _ in client.events():
                pass

        for turns in (0, 1, 2, 5):
            await cancelled(watch(), turns)
        watching = asyncio.create_task(watch())
        await asyncio.sleep(0)
        await proxy.cut()
        await log.wait(EventKind.CONNECTED, 2)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await assert_usable(client)


async def test_force_reconnect(nats_server: NatsServer) -> None:
    async with connected(nats_server.url) as client:
        for turns in TURNS[:8]:
            await cancelled(client.force_reconnect(), turns)
            await client.flush(timeout=GUARD)
        await assert_usable(client)


# -- calls that end the client


@pytest.mark.parametrize("state", ["connected", "busy", "stalled", "reconnecting"])
@pytest.mark.parametrize("name", ["close", "drain"])
async def test_end(proxy: Proxy, name: str, state: str) -> None:
    """A cancelled `close` or `drain` may cut corners, but it leaves nothing behind."""
    for turns in [0, 1, 3, 20] if state == "stalled" else [*range(8), 20, 60]:
        log = EventLog()
        client = await connect(proxy.url, on_event=log, **FAST)

        async def slow(message: Message) -> None:
            await asyncio.sleep(GUARD)

        await client.subscribe("s", callback=slow)
        await client.subscribe("s")
        await client.flush()
        if state in ("busy", "stalled"):
            for _ in range(10):
                await client.publish("s", bytes(100 * KIB))
        if state == "stalled":
            proxy.stall()
        elif state == "reconnecting":
            await proxy.refuse()
            await proxy.cut()
            await log.wait(EventKind.DISCONNECTED)
        await cancelled(getattr(client, name)(), turns)
        proxy.unstall()
        proxy.accept()
        if turns == 0:  # it did not begin
            assert not client.closed
            await client.close()
        await until(lambda: not client._connection._closing)  # noqa: B023
        await asyncio.sleep(0)
        assert_client_gone(client)
        with pytest.raises((ConnectionClosedError, ConnectionDrainingError)):
            await client.publish("s")
