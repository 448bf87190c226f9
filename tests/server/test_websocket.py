"""NATS over WebSocket."""

from __future__ import annotations

import asyncio
import gc
import socket
import subprocess
import sys
from typing import Any

import pytest

import jetspark
from jetspark import Client, EventKind, Message
from jetspark.errors import (
    AuthenticationError,
    ConnectError,
    InvalidOptionError,
    NoRespondersError,
    TimeoutError,
    TLSError,
)
from jetspark.server import NatsServer
from tests.support.certs import Certs
from tests.support.clients import Connect, Events, eventually, monitor, unique
from tests.support.servers import StartCluster, StartServer


@pytest.fixture
def ws_server(start_server: StartServer) -> NatsServer:
    return start_server(jetstream=False, websocket=True)


async def works(nc: Client) -> bool:
    """Whether messages get through, large ones too."""
    sub = await nc.subscribe(unique())
    for size in (0, 10, 125, 126, 65_536, 1_000_000):
        await nc.publish(sub.subject, bytes(size), headers={"Size": str(size)})
        message = await sub.next(timeout=5)
        if (len(message.data), message.headers["Size"]) != (size, str(size)):
            return False
    await sub.unsubscribe()
    return True


async def test_ws(ws_server: NatsServer, connect: Connect) -> None:
    nc = await connect(ws_server.ws_url)
    assert nc.server == ws_server.ws_url
    assert await works(nc)
    assert 0 < await nc.rtt() < 10
    (connection,) = (await monitor(ws_server, "/connz"))["connections"]
    assert connection["kind"] == "Client"
    assert connection["type"] == "websocket"
    statistics = nc.statistics
    assert statistics.messages_in == statistics.messages_out == 6
    assert statistics.bytes_in > 1_065_000


async def test_wss(start_server: StartServer, certs: Certs, connect: Connect) -> None:
    server = start_server(jetstream=False, websocket=certs.tls())
    nc = await connect(server.ws_url, tls_ca=certs.ca)
    assert nc.server == server.ws_url
    assert server.ws_url.startswith("wss://")
    assert await works(nc)
    await nc.force_reconnect()
    assert await works(nc)
    assert await works(await connect(server.ws_url, tls=certs.context()))


async def test_client_port_with_tls_does_not_matter(
    start_server: StartServer, certs: Certs, connect: Connect
) -> None:
    """INFO says that TLS is required, which is about the other port."""
    server = start_server(jetstream=False, tls=certs.tls(), websocket=True)
    assert await works(await connect(server.ws_url))


async def test_requests_and_queues(ws_server: NatsServer, connect: Connect) -> None:
    over_ws, over_tcp = await connect(ws_server.ws_url), await connect(ws_server.url)
    subject = unique()

    async def answer(message: Message) -> None:
        await message.respond(message.data * 2)

    await over_ws.subscribe(subject, queue="q", callback=answer)
    await over_ws.flush()
    assert (await over_tcp.request(subject, b"a")).data == b"aa"
    assert (await over_ws.request(subject, b"b")).data == b"bb"
    with pytest.raises(NoRespondersError):
        await over_ws.request(unique())


async def test_many_messages(ws_server: NatsServer, connect: Connect) -> None:
    nc = await connect(ws_server.ws_url)
    sub = await nc.subscribe(unique())
    count = 10_000
    for number in range(count):
        await nc.publish(sub.subject, b"%d" % number)
    for number in range(count):
        assert (await sub.next(timeout=10)).data == b"%d" % number


async def test_server_that_compresses(start_server: StartServer, connect: Connect) -> None:
    server = start_server(
        jetstream=False, websocket=True, config={"websocket": {"compression": True}}
    )
    assert await works(await connect(server.ws_url))


async def test_path_and_query(ws_server: NatsServer, connect: Connect) -> None:
    nc = await connect(f"{ws_server.ws_url}/some/path?key=secret")
    assert nc.server == f"{ws_server.ws_url}/some/path?***"
    assert await works(nc)
    with pytest.raises(ConnectError, match="/mqtt refused the WebSocket handshake"):
        await connect(f"{ws_server.ws_url}/mqtt")  # a path that means something to the server


async def test_headers(start_server: StartServer, connect: Connect) -> None:
    server = start_server(
        jetstream=False,
        websocket=True,
        config={"websocket": {"allowed_origins": ["http://good.test"]}},
    )
    headers = {"Origin": "http://good.test", "Authorization": "Bearer abc"}
    assert await works(await connect(server.ws_url, ws_headers=headers))
    with pytest.raises(ConnectError, match=r"refused the WebSocket handshake.*HTTP 403") as caught:
        await connect(server.ws_url, ws_headers={"Origin": "http://bad.test"})
    assert caught.value.server == server.ws_url
    gc.collect()


async def test_authentication(start_server: StartServer, connect: Connect) -> None:
    server = start_server(jetstream=False, websocket=True, user="ann", password="secret")
    assert await works(await connect(server.ws_url, user="ann", password="secret"))
    location = server.ws_url.removeprefix("ws://")
    assert await works(await connect(f"ws://ann:secret@{location}"))
    with pytest.raises(AuthenticationError, match="refused the credentials"):
        await connect(server.ws_url, user="ann", password="wrong")
    gc.collect()


async def test_reconnect(ws_server: NatsServer, connect: Connect) -> None:
    events = Events()
    nc = await connect(
        ws_server.ws_url,
        reconnect_delay=lambda attempts: 0.01,
        max_reconnect_attempts=None,
        on_event=events,
    )
    sub = await nc.subscribe(unique())
    await ws_server.arestart()
    await events.wait(EventKind.CONNECTED, 2)
    await nc.publish(sub.subject, b"after")
    assert (await sub.next(timeout=5)).data == b"after"
    await ws_server.akill()
    await events.wait(EventKind.DISCONNECTED, 2)
    await nc.publish(sub.subject, b"meanwhile")
    await ws_server.astart()
    assert (await sub.next(timeout=10)).data == b"meanwhile"


async def test_discovery(start_cluster: StartCluster, connect: Connect) -> None:
    cluster = start_cluster(2, jetstream=False, websocket=True)
    first, second = cluster.servers
    events = Events()
    nc = await connect(first.ws_url, on_event=events)
    await events.wait(EventKind.DISCOVERED)
    assert sorted(nc.servers) == sorted([first.ws_url, second.ws_url])
    await nc.force_reconnect()
    await nc.flush()
    assert nc.server == second.ws_url
    assert await works(nc)


async def test_reading_pauses(ws_server: NatsServer, connect: Connect) -> None:
    nc = await connect(ws_server.ws_url, read_high_water=200_000, pending_bytes=0)
    publisher = await connect(ws_server.url)
    sub = await nc.subscribe(unique())
    await nc.flush()
    for number in range(2000):
        await publisher.publish(sub.subject, b"%01000d" % number)
    await publisher.flush()
    await eventually(lambda: sub.pending_bytes > 200_000)
    held = sub.pending_bytes
    await asyncio.sleep(0.02)
    assert sub.pending_bytes == held
    for number in range(2000):
        assert int((await sub.next(timeout=5)).data) == number


async def test_drain_and_close(ws_server: NatsServer, connect: Connect) -> None:
    nc, other = await connect(ws_server.ws_url), await connect(ws_server.url)
    sub = await other.subscribe(unique())
    await other.flush()
    for _ in range(100):
        await nc.publish(sub.subject, bytes(20_000))
    await nc.drain()
    await other.flush()
    assert sub.pending_messages == 100
    closing = await connect(ws_server.ws_url)
    link = closing._connection._link
    await closing.publish(sub.subject, b"last words")
    await closing.close()
    assert link is not None
    assert link.closed
    await eventually(lambda: sub.pending_messages == 101)
    del closing, link
    gc.collect()


# -- what does not work --------------------------------------------------------------------------


async def test_ws_on_a_port_without(ws_server: NatsServer) -> None:
    with pytest.raises(ConnectError, match=r"refused the WebSocket handshake.*HTTP response"):
        await jetspark.connect(f"ws://127.0.0.1:{ws_server.port}")
    gc.collect()


async def test_nats_on_a_ws_port(ws_server: NatsServer) -> None:
    url = ws_server.ws_url.replace("ws://", "nats://")
    with pytest.raises((ConnectError, TimeoutError), match=r"waiting for INFO|before INFO"):
        await jetspark.connect(url, connect_timeout=0.2)


async def test_ws_on_a_wss_port(start_server: StartServer, certs: Certs) -> None:
    server = start_server(jetstream=False, websocket=certs.tls())
    url = server.ws_url.replace("wss://", "ws://")
    with pytest.raises(ConnectError, match="WebSocket handshake"):
        await jetspark.connect(url)
    gc.collect()


async def test_wss_on_a_ws_port(ws_server: NatsServer) -> None:
    url = ws_server.ws_url.replace("ws://", "wss://")
    with pytest.raises(TLSError, match="does not begin with TLS"):
        await jetspark.connect(url)
    gc.collect()


async def test_wss_of_an_unknown_authority(start_server: StartServer, certs: Certs) -> None:
    server = start_server(jetstream=False, websocket=certs.tls())
    with pytest.raises(TLSError, match=r"unable to get local issuer.*set tls_ca"):
        await jetspark.connect(server.ws_url)
    gc.collect()


async def test_nobody_listens() -> None:
    with pytest.raises(ConnectError, match=r"cannot connect to ws://127.0.0.1:1"):
        await jetspark.connect("ws://127.0.0.1:1")
    with pytest.raises(ConnectError, match=r"cannot connect to wss://127.0.0.1:1") as caught:
        await jetspark.connect("wss://127.0.0.1:1")
    assert not isinstance(caught.value, TLSError)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 101 Switching Protocols\r\n\r\n"], ids=repr)
async def test_connection_closed_in_the_handshake(answer: bytes) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectError, match="WebSocket handshake"):
            await jetspark.connect(f"ws://127.0.0.1:{port}")


async def test_silence_in_the_handshake() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"ws://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(TimeoutError, match="the WebSocket handshake"):
            await jetspark.connect(url, connect_timeout=0.1)


async def test_options_that_do_not_go_together() -> None:
    cases: list[tuple[Any, dict[str, Any], str]] = [
        ("ws://127.0.0.1:1", {"tls": True}, "use wss://"),
        ("wss://127.0.0.1:1", {"tls": False}, "a server URL asks for TLS"),
        (["ws://127.0.0.1:1", "nats://127.0.0.1:1"], {}, "mixes WebSocket"),
    ]
    for servers, options, message in cases:
        with pytest.raises(InvalidOptionError, match=message):
            await jetspark.connect(servers, **options)


def test_missing_extra() -> None:
    program = """
import asyncio, sys
sys.modules["websockets"] = None
import jetspark
try:
    asyncio.run(jetspark.connect("ws://127.0.0.1:1", retry_initial_connect=True))
except jetspark.errors.MissingExtraError as error:
    assert isinstance(error, ImportError)
    print(error)
"""
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True
    )
    assert 'pip install "jetspark[ws]"' in result.stdout
    assert result.stderr == ""


def test_websockets_is_not_imported_without_need() -> None:
    program = "import sys, jetspark; print('websockets' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "False"
