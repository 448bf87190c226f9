"""Connecting: how servers are named, found and tried, and what a client shows of itself."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import jetspark
from jetspark import Backoff, ConnectionState, EventKind
from jetspark.errors import (
    ConnectError,
    ConnectionClosedError,
    DisconnectedError,
    InvalidOptionError,
    InvalidURLError,
    NoServersError,
    TimeoutError,
)
from jetspark.server import NatsCluster, NatsServer
from tests.support.clients import Connect, Events, eventually, monitor, unique
from tests.support.servers import StartServer


@pytest.fixture
def dead_port() -> Iterator[int]:
    """A port that refuses connections: bound, so that nobody else takes it, but not listening."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


async def works(client: jetspark.Client) -> bool:
    subject = unique()
    async with await client.subscribe(subject) as sub:
        await client.publish(subject, b"hello")
        return (await sub.next(timeout=5)).data == b"hello"


@pytest.mark.parametrize(
    "form",
    [
        "nats://127.0.0.1:{port}",
        "127.0.0.1:{port}",
        "nats://localhost:{port}/",
        "NATS://127.0.0.1:{port}",
    ],
)
async def test_forms_of_url(nats_server: NatsServer, connect: Connect, form: str) -> None:
    nc = await connect(form.format(port=nats_server.port))
    assert nc.connected
    assert nc.state is ConnectionState.CONNECTED
    assert not nc.closed
    assert await works(nc)
    assert nc.server_info.server_name == nats_server.name
    assert nc.server_info.version == nats_server.version
    assert nc.max_payload == 1024 * 1024
    assert nc.server is not None
    assert nc.server.startswith("nats://")
    assert "connected nats://" in repr(nc)


async def test_list_and_comma_list(
    nats_server: NatsServer, connect: Connect, dead_port: int
) -> None:
    dead = f"nats://127.0.0.1:{dead_port}"
    for servers in ([dead, nats_server.url], f"{dead}, {nats_server.url}", (nats_server.url,)):
        nc = await connect(servers)
        assert nc.server == nats_server.url
        assert nats_server.url in nc.servers


async def test_environment_variable(
    nats_server: NatsServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NATS_URL", nats_server.url)
    nc = await connect()
    assert nc.server == nats_server.url
    assert await works(nc)


async def test_context_by_name_and_by_path(
    nats_server: NatsServer,
    connect: Connect,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "nats" / "context"
    folder.mkdir(parents=True)
    content = {"url": nats_server.url, "inbox_prefix": "_IN.ctx", "token": ""}
    (folder / "dev.json").write_text(json.dumps(content))
    (tmp_path / "nats" / "context.txt").write_text("dev")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("NATS_URL", "nats://127.0.0.1:1")  # the context wins over it
    for context in ("dev", "", folder / "dev.json", str(folder / "dev.json")):
        nc = await connect(context=context)
        assert nc.server == nats_server.url
        assert nc.new_inbox().startswith("_IN.ctx.")
    nc = await connect(context="dev", inbox_prefix="_MINE")
    assert nc.new_inbox().startswith("_MINE.")
    with pytest.raises(InvalidOptionError, match=r"no context 'nope'.*available: dev"):
        await jetspark.connect(context="nope")


async def test_ipv6(start_server: StartServer, connect: Connect) -> None:
    if not _has_ipv6():
        with pytest.raises(ConnectError, match=r"cannot connect to nats://\[::1\]:4222"):
            await jetspark.connect("nats://[::1]:4222")
        return
    server = start_server(host="::1", jetstream=False)
    nc = await connect(f"nats://[::1]:{server.port}")
    assert nc.server == f"nats://[::1]:{server.port}"
    assert nc.server_info.client_ip == "::1"
    assert await works(nc)


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


async def test_what_the_monitor_shows(nats_server: NatsServer, connect: Connect) -> None:
    name = unique("name")
    await connect(nats_server.url, name=name)
    connections = (await monitor(nats_server, "/connz"))["connections"]
    (mine,) = [each for each in connections if each.get("name") == name]
    assert mine["lang"] == "python"
    assert mine["version"]


async def test_inbox_prefix(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url, inbox_prefix="_PRIVATE.me")
    subject = unique()

    async def answer(message: jetspark.Message) -> None:
        await message.respond((message.reply or "").encode())

    await nc.subscribe(subject, callback=answer)
    reply = await nc.request(subject)
    assert reply.data.startswith(b"_PRIVATE.me.")
    assert nc.new_inbox().startswith("_PRIVATE.me.")
    assert nc.new_inbox() != nc.new_inbox()


async def test_echo_off(nats_server: NatsServer, connect: Connect) -> None:
    quiet = await connect(nats_server.url, echo=False)
    other = await connect(nats_server.url)
    subject = unique()
    sub = await quiet.subscribe(subject)
    await quiet.flush()
    await quiet.publish(subject, b"mine")
    await quiet.flush()
    await other.publish(subject, b"theirs")
    assert (await sub.next(timeout=5)).data == b"theirs"
    assert sub.pending_messages == 0


async def test_servers_in_order_with_the_first_dead(
    nats_server: NatsServer, connect: Connect, dead_port: int
) -> None:
    dead = f"nats://127.0.0.1:{dead_port}"
    nc = await connect([dead, nats_server.url], randomize_servers=False)
    assert nc.server == nats_server.url
    assert sorted(nc.servers) == sorted([dead, nats_server.url])
    assert nc.statistics.connects == 1
    assert nc.statistics.reconnects == 0


async def test_dead_server(dead_port: int) -> None:
    with pytest.raises(ConnectError, match=f"cannot connect to nats://127.0.0.1:{dead_port}"):
        await jetspark.connect(f"nats://127.0.0.1:{dead_port}")


async def test_all_servers_fail_in_different_ways(dead_port: int, silent_port: int) -> None:
    servers = [f"nats://127.0.0.1:{dead_port}", f"nats://127.0.0.1:{silent_port}"]
    with pytest.raises(NoServersError, match="none of 2 servers") as caught:
        await jetspark.connect(servers, connect_timeout=0.1)
    for server in servers:
        assert server in str(caught.value)


async def test_silent_server(silent_port: int) -> None:
    with pytest.raises(TimeoutError, match=r"longer than 0\.1 s \(waiting for INFO.*tls_first"):
        await jetspark.connect(f"nats://127.0.0.1:{silent_port}", connect_timeout=0.1)
    gc.collect()  # a socket left open would warn now


async def test_unknown_host() -> None:
    with pytest.raises(ConnectError, match=r"cannot connect to nats://no-such-host\.invalid:4222"):
        await jetspark.connect("nats://no-such-host.invalid")


def addresses(monkeypatch: pytest.MonkeyPatch, *ports: int) -> None:
    """Have every host name lead to these ports of the local machine."""
    loop = asyncio.get_running_loop()

    async def getaddrinfo(*args: Any, **options: Any) -> list[tuple[Any, ...]]:
        kind = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
        return [(*kind, ("127.0.0.1", port)) for port in ports]

    monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)


async def test_host_with_several_addresses(
    nats_server: NatsServer, connect: Connect, dead_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses(monkeypatch, dead_port, nats_server.port)
    assert await works(await connect("nats://several.test"))
    addresses(monkeypatch, dead_port, dead_port)
    with pytest.raises(ConnectError, match=r"cannot connect to nats://several\.test:4222"):
        await connect("nats://several.test")
    gc.collect()


async def test_host_with_an_address_that_does_not_answer(
    nats_server: NatsServer, connect: Connect, dead_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    sock_connect = loop.sock_connect

    async def hang(sock: socket.socket, address: Any) -> None:
        if address[1] == dead_port:
            await loop.create_future()
        await sock_connect(sock, address)

    monkeypatch.setattr(loop, "sock_connect", hang)
    monkeypatch.setattr("jetspark.connection.dial.HEAD_START", 0.01)
    addresses(monkeypatch, dead_port, nats_server.port)
    assert await works(await connect("nats://several.test"))
    addresses(monkeypatch, dead_port, dead_port)
    with pytest.raises(TimeoutError, match=r"several\.test:4222 took longer.*connecting"):
        await connect("nats://several.test", connect_timeout=0.1)
    gc.collect()


async def test_port_of_another_protocol(nats_server: NatsServer) -> None:
    port = nats_server.monitor_url.rpartition(":")[2]  # HTTP waits for the client to speak
    with pytest.raises((ConnectError, TimeoutError), match="INFO"):
        await jetspark.connect(f"nats://127.0.0.1:{port}", connect_timeout=0.2)


async def test_server_that_speaks_something_else() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example.com ESMTP\r\n")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectError, match="does not speak the NATS protocol"):
            await jetspark.connect(f"nats://127.0.0.1:{port}")


async def test_bad_url_is_refused_before_anything_is_opened() -> None:
    with pytest.raises(InvalidURLError, match="scheme"):
        await jetspark.connect("http://localhost")


async def test_cancelled_while_connecting(silent_port: int) -> None:
    task = asyncio.create_task(jetspark.connect(f"nats://127.0.0.1:{silent_port}"))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)
    gc.collect()


async def test_discovered_servers(nats_cluster: NatsCluster, connect: Connect) -> None:
    events = Events()
    nc = await connect(nats_cluster.urls[0], on_event=events)
    assert sorted(nc.servers) == sorted(nats_cluster.urls)
    discovered = await events.wait(EventKind.DISCOVERED)
    assert sorted(discovered.servers) == sorted(nats_cluster.urls[1:])
    assert events.kinds.index(EventKind.CONNECTED) < events.kinds.index(EventKind.DISCOVERED)
    await nc.force_reconnect()
    await nc.flush()
    assert nc.server in nats_cluster.urls
    assert nc.server != nats_cluster.urls[0]


async def test_discovered_servers_ignored(nats_cluster: NatsCluster, connect: Connect) -> None:
    nc = await connect(nats_cluster.urls[0], ignore_discovered_servers=True)
    await nc.flush()
    assert nc.servers == [nats_cluster.urls[0]]


async def test_messages_cross_the_cluster(nats_cluster: NatsCluster, connect: Connect) -> None:
    first, second = await connect(nats_cluster.urls[0]), await connect(nats_cluster.urls[1])
    subject = unique()

    async def answer(message: jetspark.Message) -> None:
        await message.respond(b"from afar")

    await first.subscribe(subject, callback=answer)
    await first.flush()

    async def ask() -> bytes:
        while True:  # the interest takes a moment to reach the other server
            try:
                return (await second.request(subject, timeout=5)).data
            except jetspark.errors.NoRespondersError:
                await asyncio.sleep(0.01)

    async with asyncio.timeout(10):
        assert await ask() == b"from afar"


async def test_retry_initial_connect(start_server: StartServer, connect: Connect) -> None:
    server = start_server(jetstream=False)
    url = server.url
    await server.astop()
    events = Events()
    nc = await connect(
        url,
        retry_initial_connect=True,
        reconnect_delay=Backoff(initial=0.01, maximum=0.05),
        max_reconnect_attempts=None,
        on_event=events,
    )
    assert nc.state is ConnectionState.RECONNECTING
    assert nc.server is None
    with pytest.raises(DisconnectedError, match="no server has been connected to yet"):
        _ = nc.server_info
    subject = unique()
    sub = await nc.subscribe(subject)
    await nc.publish(subject, b"early")
    await server.astart()
    assert (await sub.next(timeout=10)).data == b"early"
    assert nc.connected
    first = await events.wait(EventKind.CONNECTED)
    assert not first.reconnect
    assert nc.statistics.connects == 1
    assert nc.statistics.reconnects == 0
    assert EventKind.RECONNECTING in events.kinds
    assert isinstance(events.errors[0], ConnectError)


async def test_retry_initial_connect_gives_up(dead_port: int) -> None:
    events = Events()
    nc = await jetspark.connect(
        f"nats://127.0.0.1:{dead_port}",
        retry_initial_connect=True,
        reconnect_delay=lambda attempts: 0.001,
        max_reconnect_attempts=3,
        on_event=events,
    )
    closed = await events.wait(EventKind.CLOSED)
    assert isinstance(closed.error, NoServersError)
    assert nc.closed
    with pytest.raises(ConnectionClosedError, match="gave up reconnecting"):
        await nc.publish("a")
    with pytest.raises(ConnectionClosedError, match="gave up reconnecting"):
        await nc.flush()
    await nc.close()


async def test_force_reconnect_to_the_same_server(
    nats_server: NatsServer, connect: Connect
) -> None:
    events = Events()
    nc = await connect(nats_server.url, on_event=events)
    sub = await nc.subscribe(unique())
    await nc.force_reconnect()
    assert not nc.connected
    await nc.publish(sub.subject, b"after")
    assert (await sub.next(timeout=10)).data == b"after"
    assert (await events.wait(EventKind.CONNECTED, 2)).reconnect
    assert events.kinds.count(EventKind.DISCONNECTED) == 1
    assert nc.statistics.reconnects == 1
    await nc.close()
    with pytest.raises(ConnectionClosedError):
        await nc.force_reconnect()


async def test_nothing_is_left_after_close(nats_server: NatsServer) -> None:
    name = unique("left")
    before = asyncio.all_tasks()
    nc = await jetspark.connect(nats_server.url, name=name)
    await nc.subscribe(unique(), callback=lambda message: None)
    link = nc._connection._link
    await nc.flush()
    await nc.close()
    assert asyncio.all_tasks() == before
    assert link is not None
    assert link.closed
    assert nc.closed
    assert nc.state is ConnectionState.CLOSED
    del nc, link
    gc.collect()

    async def gone() -> bool:
        connections = (await monitor(nats_server, "/connz"))["connections"]
        return all(each.get("name") != name for each in connections)

    await eventually(gone)


async def test_server_leaves_while_idle(start_server: StartServer, connect: Connect) -> None:
    server = start_server(jetstream=False)
    events = Events()
    nc = await connect(server.url, allow_reconnect=False, on_event=events)
    await server.astop()
    await eventually(lambda: nc.closed)
    assert events.kinds[-2:] == [EventKind.DISCONNECTED, EventKind.CLOSED]
    assert isinstance(nc.last_error, DisconnectedError)
