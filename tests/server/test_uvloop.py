"""The client on uvloop, whose transports and loops differ in details."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

import jetspark
from jetspark import Client, EventKind, Message
from jetspark.errors import (
    AuthenticationError,
    ConnectError,
    NoRespondersError,
    TimeoutError,
    TLSError,
)
from jetspark.server import NatsServer
from tests.support.certs import Certs
from tests.support.clients import Events, eventually, unique
from tests.support.servers import StartServer


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run a coroutine function on a loop of uvloop and check that nothing is left."""

    async def main() -> None:
        assert isinstance(asyncio.get_running_loop(), uvloop.Loop)
        async with asyncio.timeout(30):
            await test()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        gc.collect()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


async def exercise(nc: Client) -> None:
    """The core of a client: publish, subscribe, request, reconnect."""
    subject = unique()

    async def answer(message: Message) -> None:
        await message.respond(message.data + b"!", headers=message.headers)

    await nc.subscribe(f"{subject}.ask", callback=answer)
    sub = await nc.subscribe(subject)
    for number in range(5000):
        await nc.publish(subject, b"%d" % number)
    await nc.publish(subject, bytes(1_000_000))
    for number in range(5000):
        assert (await sub.next(timeout=5)).data == b"%d" % number
    assert len((await sub.next(timeout=5)).data) == 1_000_000
    reply = await nc.request(f"{subject}.ask", b"hello", headers={"A": "b"})
    assert (reply.data, reply.headers["A"]) == (b"hello!", "b")
    with pytest.raises(NoRespondersError):
        await nc.request(unique())
    await nc.force_reconnect()
    assert (await nc.request(f"{subject}.ask", b"again")).data == b"again!"
    assert nc.statistics.reconnects == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_tcp(nats_server: NatsServer, host: str) -> None:
    async def test() -> None:
        async with await jetspark.connect(f"nats://{host}:{nats_server.port}") as nc:
            await exercise(nc)
        assert nc.closed

    run(test)


@pytest.mark.parametrize("first", [False, True], ids=["upgrade", "first"])
def test_tls(start_server: StartServer, certs: Certs, first: bool) -> None:
    server = start_server(jetstream=False, tls=certs.tls(handshake_first=first))

    async def test() -> None:
        async with await jetspark.connect(server.url, tls_ca=certs.ca, tls_first=first) as nc:
            await exercise(nc)
        with pytest.raises(TLSError, match="set tls_ca"):
            await jetspark.connect(server.url, tls_ca=certs.other_ca, tls_first=first)

    run(test)


@pytest.mark.parametrize("secure", [False, True], ids=["ws", "wss"])
def test_websocket(start_server: StartServer, certs: Certs, secure: bool) -> None:
    server = start_server(jetstream=False, websocket=certs.tls() if secure else True)
    options: dict[str, Any] = {"tls_ca": certs.ca} if secure else {}

    async def test() -> None:
        async with await jetspark.connect(server.ws_url, **options) as nc:
            await exercise(nc)
        with pytest.raises(ConnectError, match="WebSocket handshake"):
            await jetspark.connect(f"ws://127.0.0.1:{server.port}")

    run(test)


def test_errors(start_server: StartServer) -> None:
    server = start_server(jetstream=False, token="secret")

    async def test() -> None:
        with pytest.raises(AuthenticationError):
            await jetspark.connect(server.url, token="wrong")
        with pytest.raises(ConnectError, match=r"cannot connect to nats://127.0.0.1:1"):
            await jetspark.connect("nats://127.0.0.1:1")
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            with pytest.raises(TimeoutError, match="waiting for INFO"):
                await jetspark.connect(f"nats://127.0.0.1:{port}", connect_timeout=0.05)

    run(test)


def test_server_that_comes_and_goes(start_server: StartServer) -> None:
    server = start_server(jetstream=False)

    async def test() -> None:
        events = Events()
        nc = await jetspark.connect(
            server.url, reconnect_delay=lambda attempts: 0.01, on_event=events
        )
        sub = await nc.subscribe(unique())
        await server.akill()
        await events.wait(EventKind.DISCONNECTED)
        await nc.publish(sub.subject, b"meanwhile")
        await server.astart()
        assert (await sub.next(timeout=10)).data == b"meanwhile"
        await nc.close()
        assert events.kinds[-1] is EventKind.CLOSED

    run(test)


def test_reading_pauses(nats_server: NatsServer) -> None:
    async def test() -> None:
        nc = await jetspark.connect(nats_server.url, read_high_water=200_000, pending_bytes=0)
        publisher = await jetspark.connect(nats_server.url)
        sub = await nc.subscribe(unique())
        await nc.flush()
        for number in range(2000):
            await publisher.publish(sub.subject, b"%01000d" % number)
        await eventually(lambda: sub.pending_bytes > 200_000)
        for number in range(2000):
            assert int((await sub.next(timeout=5)).data) == number
        await publisher.close()
        await nc.close()

    run(test)
