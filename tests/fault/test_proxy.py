"""The fault proxy itself, between bare sockets and a real nats-server."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from jetspark.server import NatsServer
from tests.support.proxy import Proxy
from tests.support.servers import StartServer

CONNECT = b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n'
STALLED = 0.05
"""How long nothing must happen for a stalled connection to count as stalled, in seconds."""


class Peer:
    """A NATS connection by hand, on a socket whose reads see data before they see a reset."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.info = b""
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self.sock, data)

    async def read(self) -> bytes:
        return await self._loop.sock_recv(self.sock, 65536)

    async def line(self) -> bytes:
        while (end := self._buffer.find(b"\r\n") + 2) < 2:
            data = await self.read()
            if not data:
                raise EOFError(bytes(self._buffer))
            self._buffer += data
        line = bytes(self._buffer[:end])
        del self._buffer[:end]
        return line

    async def ping(self) -> None:
        await self.send(b"PING\r\n")
        assert await self.line() == b"PONG\r\n"

    async def handshake(self) -> None:
        self.info = await self.line()
        await self.send(CONNECT)
        await self.ping()


@asynccontextmanager
async def dial(port: int) -> AsyncIterator[Peer]:
    """A bare connection on which nothing has been said."""
    with socket.socket() as sock:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        yield Peer(sock)


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Peer]:
    """A connection that has been through the NATS handshake."""
    async with dial(port) as peer:
        await peer.handshake()
        yield peer


@asynccontextmanager
async def subscribed(port: int, subject: bytes = b"proxied") -> AsyncIterator[Peer]:
    async with connected(port) as peer:
        await peer.send(b"SUB %s 1\r\n" % subject)
        await peer.ping()
        yield peer


@pytest.fixture
async def proxy(nats_server: NatsServer) -> AsyncIterator[Proxy]:
    async with Proxy(nats_server.host, nats_server.port) as proxy:
        yield proxy


async def test_forwards_both_ways_and_counts(proxy: Proxy) -> None:
    assert proxy.url == f"nats://127.0.0.1:{proxy.port}"
    async with connected(proxy.port) as peer:
        assert peer.info.startswith(b"INFO ")
        assert proxy.bytes_up == len(CONNECT + b"PING\r\n")
        assert proxy.bytes_down == len(peer.info + b"PONG\r\n")
        async with connected(proxy.port):
            assert (proxy.connections, proxy.active) == (2, 2)
    await proxy.idle()
    assert proxy.connections == 2


async def test_large_payload_arrives_unchanged(proxy: Proxy, nats_server: NatsServer) -> None:
    payload = os.urandom(900_000)
    async with subscribed(nats_server.port) as sub, connected(proxy.port) as pub:
        await pub.send(b"PUB proxied %d\r\n%s\r\n" % (len(payload), payload))
        assert await sub.line() == b"MSG proxied 1 %d\r\n" % len(payload)
        received = bytes(sub._buffer)
        while len(received) < len(payload) + 2:
            received += await sub.read()
        assert received == payload + b"\r\n"


async def test_cut_resets_the_client_and_leaves_the_proxy_usable(proxy: Proxy) -> None:
    async with connected(proxy.port) as first, connected(proxy.port) as second:
        await proxy.cut()
        assert proxy.active == 0
        for peer in (first, second):
            with pytest.raises(ConnectionResetError):
                await peer.read()
    async with connected(proxy.port):
        assert (proxy.connections, proxy.active) == (3, 1)


async def test_cut_closes_the_server_side(proxy: Proxy, nats_server: NatsServer) -> None:
    async with subscribed(nats_server.port, b"proxied.inbox") as watcher, subscribed(proxy.port):
        await proxy.cut()
        # The server answers "no responders" once it has seen that the only subscriber is gone.
        answer = b""
        while not answer.startswith(b"HMSG proxied.inbox"):
            await watcher.send(b"PUB proxied proxied.inbox 0\r\n\r\nPING\r\n")
            answer = await watcher.line()


async def test_cut_right_after_connecting(proxy: Proxy) -> None:
    async with dial(proxy.port) as peer:
        while not proxy.connections:  # noqa: ASYNC110 - the very step after the accept
            await asyncio.sleep(0)
        await proxy.cut()
        with pytest.raises(ConnectionResetError):
            while True:
                await peer.read()
    assert proxy.active == 0


async def test_half_close_down_ends_reads_while_writes_still_arrive(
    proxy: Proxy, nats_server: NatsServer
) -> None:
    async with subscribed(nats_server.port) as sub, connected(proxy.port) as pub:
        proxy.half_close("down")
        assert await pub.read() == b""
        await pub.send(b"PUB proxied 0\r\n\r\n")
        assert await sub.line() == b"MSG proxied 1 0\r\n"
        assert proxy.active == 1
    await proxy.idle()


async def test_half_close_up_makes_the_server_hang_up(proxy: Proxy) -> None:
    async with connected(proxy.port) as peer:
        proxy.half_close("up")
        assert await peer.read() == b""
    await proxy.idle()


async def test_client_that_closes_ends_its_connection(proxy: Proxy) -> None:
    async with connected(proxy.port):
        assert proxy.active == 1
    await proxy.idle()


@pytest.mark.parametrize("direction", ["up", "down", None])
async def test_stall_holds_and_unstall_releases(proxy: Proxy, direction: str | None) -> None:
    async with connected(proxy.port) as peer:
        proxy.stall(direction)  # type: ignore[arg-type]
        before = (proxy.bytes_up, proxy.bytes_down)
        await peer.send(b"PING\r\n")
        answer = asyncio.create_task(peer.line())
        done, _ = await asyncio.wait([answer], timeout=STALLED)
        assert not done
        assert proxy.bytes_down == before[1]
        assert (proxy.bytes_up == before[0]) == (direction != "down")
        proxy.unstall()
        assert await answer == b"PONG\r\n"


async def test_stall_of_one_direction_leaves_the_other(
    proxy: Proxy, nats_server: NatsServer
) -> None:
    async with connected(nats_server.port) as pub, subscribed(proxy.port) as sub:
        proxy.stall("up")
        await pub.send(b"PUB proxied 0\r\n\r\n")
        assert await sub.line() == b"MSG proxied 1 0\r\n"


async def test_stall_pushes_back_and_loses_nothing(proxy: Proxy) -> None:
    frame = b"PUB proxied 8192\r\n%s\r\n" % bytes(8192)
    async with connected(proxy.port) as peer:
        proxy.stall("up")
        before, sent = proxy.bytes_up, 0
        # Not sendall: it must be known how much was taken when it is cancelled.
        wave = frame * 64
        while True:
            try:
                sent += peer.sock.send(wave[sent % len(frame) :])
            except BlockingIOError:
                await asyncio.sleep(STALLED)
                try:
                    sent += peer.sock.send(wave[sent % len(frame) :])
                except BlockingIOError:
                    break
            assert sent < 64 * 1024 * 1024, "the stalled proxy kept on taking bytes"
        assert proxy.bytes_up == before
        proxy.unstall("up")
        await peer.send(frame[sent % len(frame) :] if sent % len(frame) else b"")
        await peer.ping()
        assert (proxy.bytes_up - before - len(b"PING\r\n")) % len(frame) == 0
        assert proxy.bytes_up - before >= sent


async def test_cut_of_a_stalled_connection(proxy: Proxy) -> None:
    async with connected(proxy.port) as peer:
        proxy.stall()
        await peer.send(b"PING\r\n")
        await proxy.cut()
        with pytest.raises(ConnectionResetError):
            await peer.read()


async def test_delay_holds_each_way(proxy: Proxy) -> None:
    loop = asyncio.get_running_loop()
    async with connected(proxy.port) as peer:
        for direction, least in (("up", 0.05), ("down", 0.1)):
            proxy.delay(0.05, direction)  # type: ignore[arg-type]
            start = loop.time()
            await peer.ping()
            # Only the lower bound: a busy machine may take longer, never less.
            assert loop.time() - start >= least
        proxy.delay(0)
        await peer.ping()


async def test_split_down_delivers_small_pieces(proxy: Proxy) -> None:
    proxy.split(1, "down")
    pieces: list[bytes] = []
    async with dial(proxy.port) as peer:
        while not b"".join(pieces).endswith(b"\r\n"):
            pieces.append(await peer.read())
        # The kernel is free to join neighbours, so not every piece need be one byte.
        assert sum(map(len, pieces)) > 100
        assert len(pieces) > sum(map(len, pieces)) / 4
        proxy.split(None)
        await peer.send(CONNECT)
        await peer.ping()


@pytest.mark.parametrize("size", [1, 7])
async def test_split_up_arrives_whole(proxy: Proxy, nats_server: NatsServer, size: int) -> None:
    proxy.split(size)
    async with subscribed(nats_server.port) as sub, connected(proxy.port) as pub:
        await pub.send(b"PUB proxied 11\r\nhello world\r\n")
        assert await sub.line() == b"MSG proxied 1 11\r\n"
        assert await sub.line() == b"hello world\r\n"


async def test_truncate_down_delivers_exactly_that_much(proxy: Proxy) -> None:
    proxy.truncate_after(25, "down")
    async with dial(proxy.port) as peer:
        received = b""
        with pytest.raises(ConnectionResetError):
            while True:
                received += await peer.read()
        assert len(received) == 25
        assert received.startswith(b"INFO ")
    assert proxy.bytes_down == 25
    async with connected(proxy.port):  # only once
        assert proxy.bytes_down > 25


async def test_truncate_up_stops_inside_a_frame(proxy: Proxy, nats_server: NatsServer) -> None:
    async with subscribed(nats_server.port) as sub, connected(proxy.port) as pub:
        before = proxy.bytes_up
        whole = b"PUB proxied 5\r\nfirst\r\n"
        proxy.truncate_after(len(whole) + 20, "up")
        await pub.send(whole + b"PUB proxied 6\r\nsecond\r\n")
        with pytest.raises(ConnectionResetError):
            await pub.read()
        assert proxy.bytes_up - before == len(whole) + 20
        assert await sub.line() == b"MSG proxied 1 5\r\n"
        assert await sub.line() == b"first\r\n"
        await sub.ping()  # a second message would have come before this PONG


async def test_truncate_waits_for_a_slow_reader(proxy: Proxy, nats_server: NatsServer) -> None:
    count = 300_000
    async with connected(nats_server.port) as pub, subscribed(proxy.port) as sub:
        sub.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        before = proxy.bytes_down
        proxy.truncate_after(count, "down")
        await pub.send(b"PUB proxied 900000\r\n%s\r\n" % bytes(900_000))
        while proxy.bytes_down < before + count:  # noqa: ASYNC110 - bytes, not an event
            await asyncio.sleep(0.001)
        # Most of it now waits in the proxy's kernel buffer, where a reset would lose it.
        await asyncio.sleep(STALLED)
        assert proxy.active == 1
        received = 0
        with pytest.raises(ConnectionResetError):
            while True:
                received += len(await sub.read())
        assert received == count


async def test_truncate_cuts_every_connection(proxy: Proxy) -> None:
    async with connected(proxy.port) as first, connected(proxy.port) as second:
        proxy.truncate_after(3, "up")
        await first.send(b"PING\r\n")
        with pytest.raises(ConnectionResetError):
            await second.read()
    assert proxy.active == 0


async def test_refuse_and_accept_keep_the_port(proxy: Proxy) -> None:
    port = proxy.port
    async with connected(port) as old:
        await proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            async with dial(port):
                pass
        await old.ping()
        proxy.accept()
        async with connected(port):
            assert (proxy.port, proxy.connections) == (port, 2)


async def test_retarget_moves_new_connections_only(proxy: Proxy, start_server: StartServer) -> None:
    other = start_server()
    async with connected(proxy.port) as old:
        proxy.retarget(other.host, other.port)
        async with connected(proxy.port) as new, connected(other.port) as direct:
            assert _server_id(new.info) == _server_id(direct.info) != _server_id(old.info)
        await old.ping()


async def test_unreachable_target_resets_the_client(proxy: Proxy) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound and not listening: refuses
        proxy.retarget("127.0.0.1", unused.getsockname()[1])
        async with dial(proxy.port) as peer:
            with pytest.raises(ConnectionResetError):
                await peer.read()
    await proxy.idle()


async def test_exit_leaves_no_task_and_no_socket(nats_server: NatsServer) -> None:
    proxy = Proxy(nats_server.host, nats_server.port)
    await proxy.__aenter__()
    async with connected(proxy.port) as stalled:
        proxy.stall()
        await stalled.send(b"PING\r\n")
        await proxy.__aexit__(None, None, None)
        names = [task.get_name() for task in asyncio.all_tasks()]
        assert not [name for name in names if name.startswith("proxy-")]
        assert proxy.active == 0
        with pytest.raises(ConnectionResetError):
            await stalled.read()
        with pytest.raises(ConnectionRefusedError):
            async with dial(proxy.port):
                pass


@pytest.mark.parametrize("size", [0, -1])
async def test_sizes_must_be_positive(proxy: Proxy, size: int) -> None:
    with pytest.raises(ValueError, match="split"):
        proxy.split(size)
    with pytest.raises(ValueError, match="truncate_after"):
        proxy.truncate_after(size, "up")


def _server_id(info: bytes) -> bytes:
    return info.split(b'"server_id":"')[1].split(b'"')[0]
