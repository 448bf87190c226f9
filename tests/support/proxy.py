"""A TCP proxy that misbehaves on demand, to stand between a client and a real nats-server.

It knows nothing of NATS: it moves bytes, and can be told, while they flow, to hold them, slow
them, break them into small pieces, lose the rest or refuse to serve. A control acts on one
direction ("up" is client to server, "down" is server to client) or, by default, on both. What a
test then asserts about the client lives in `tests/fault`.

    async with Proxy(server.host, server.port) as proxy:
        nc = await jetspark.connect(proxy.url)
        proxy.stall("down")

It works on bare sockets, not on asyncio streams: a stream reads ahead and writes behind, and then
neither "exactly n bytes" nor "stop reading" would be true.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import socket
import struct
import termios
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Literal, Self

__all__ = ["Direction", "Proxy"]

Direction = Literal["up", "down"]

READ_SIZE: Final = 64 * 1024
"""All that the proxy itself holds of one direction of one connection, in bytes."""

KERNEL_BUFFER: Final = 256 * 1024
"""Fixed socket buffers: the kernel's own would grow to several MiB and hide a stall that long."""

ABORT_ON_CLOSE: Final = struct.pack("ii", 1, 0)
"""SO_LINGER with no time to linger: close() sends RST instead of FIN."""


@dataclass
class _Lane:
    """How bytes travel in one direction, on every connection."""

    flowing: asyncio.Event = field(default_factory=asyncio.Event)
    delay: float = 0.0
    piece: int = READ_SIZE
    remaining: int | None = None
    forwarded: int = 0

    def __post_init__(self) -> None:
        self.flowing.set()


class Proxy:
    """Listens on a free port of 127.0.0.1 and forwards each connection to the target."""

    def __init__(self, target_host: str, target_port: int) -> None:
        self.port = 0
        self.connections = 0
        """Connections accepted since the start."""
        self._target = (target_host, target_port)
        self._lanes: dict[Direction, _Lane] = {}
        self._links: dict[asyncio.Task[None], _Link] = {}
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._lanes = {"up": _Lane(), "down": _Lane()}
        self._listener = self._bind()
        self.port = self._listener.getsockname()[1]
        self.accept()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stop_accepting()
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        await self.cut()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def active(self) -> int:
        """Connections open now."""
        return len(self._links)

    @property
    def bytes_up(self) -> int:
        """Bytes handed on to the server, over all connections."""
        return self._lanes["up"].forwarded

    @property
    def bytes_down(self) -> int:
        """Bytes handed on to the client, over all connections."""
        return self._lanes["down"].forwarded

    async def idle(self) -> None:
        """Wait until no connection is open."""
        while self._links:
            await asyncio.wait(list(self._links))

    # -- breaking connections

    async def cut(self) -> None:
        """Abort every current connection with RST on both sides; new ones are still accepted."""
        self._abort_all()
        if tasks := list(self._links):
            await asyncio.wait(tasks)

    def half_close(self, direction: Direction) -> None:
        """End one direction of every current connection with FIN; the other keeps flowing.

        Whatever the source of that direction still sends stays unread.
        """
        for link in self._links.values():
            link.end(direction)

    def truncate_after(self, count: int, direction: Direction) -> None:
        """Forward exactly `count` more bytes, let them arrive, then cut every connection.

        It happens once: connections made after the cut are whole.
        """
        if count < 1:
            raise ValueError(f"truncate_after needs at least 1 byte, got {count}; use cut()")
        self._lanes[direction].remaining = count

    # -- shaping traffic

    def stall(self, direction: Direction | None = None) -> None:
        """Stop reading and forwarding; sockets stay open and the sender feels back-pressure."""
        for lane in self._chosen(direction):
            lane.flowing.clear()

    def unstall(self, direction: Direction | None = None) -> None:
        for lane in self._chosen(direction):
            lane.flowing.set()

    def delay(self, seconds: float, direction: Direction | None = None) -> None:
        """Hold every read of up to 64 KiB that long before it goes on; 0 ends it."""
        for lane in self._chosen(direction):
            lane.delay = seconds

    def split(self, size: int | None, direction: Direction | None = None) -> None:
        """Forward in pieces of `size` bytes, each one its own segment; None ends it."""
        if size is not None and size < 1:
            raise ValueError(f"split needs at least 1 byte a piece, got {size}")
        for lane in self._chosen(direction):
            lane.piece = size or READ_SIZE

    # -- new connections

    async def refuse(self) -> None:
        """Refuse new connections (ECONNREFUSED); the current ones are left alone."""
        await self._stop_accepting()
        if self._listener is not None:
            self._listener.close()
            # A socket that is bound but does not listen keeps the port ours and refuses for us.
            self._listener = self._bind()

    def accept(self) -> None:
        """Take new connections again after `refuse`."""
        if self._listener is None:
            raise RuntimeError("the proxy is not running; use it as `async with Proxy(...)`")
        if self._accepting is None:
            self._listener.listen()
            self._accepting = asyncio.create_task(
                self._accept_loop(self._listener), name=f"proxy-accept-{self.port}"
            )

    def retarget(self, host: str, port: int) -> None:
        """Send connections accepted from now on to another server."""
        self._target = (host, port)

    # -- inside

    def _chosen(self, direction: Direction | None) -> list[_Lane]:
        return list(self._lanes.values()) if direction is None else [self._lanes[direction]]

    def _bind(self) -> socket.socket:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted sockets inherit these; the receive buffer must be set before the handshake.
        _tune(listener)
        listener.bind(("127.0.0.1", self.port))
        return listener

    async def _accept_loop(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            client, _ = await loop.sock_accept(listener)
            self.connections += 1
            link = _Link(client, self)
            task = asyncio.create_task(
                link.run(self._target), name=f"proxy-{self.port}-{self.connections}"
            )
            self._links[task] = link
            task.add_done_callback(self._link_done)

    async def _stop_accepting(self) -> None:
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.wait([self._accepting])
            self._accepting = None

    def _link_done(self, task: asyncio.Task[None]) -> None:
        # Here and not in the task, because a task cancelled before its first step runs nothing.
        self._links.pop(task).close()

    def _abort_all(self) -> None:
        for task, link in self._links.items():
            task.cancel()
            link.stop()


class _Link:
    """One client connection, its connection to the server, and a pump for each direction."""

    def __init__(self, client: socket.socket, proxy: Proxy) -> None:
        self._client = client
        self._server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._server.setblocking(False)
        _tune(self._server)
        self._proxy = proxy
        self._pumps: dict[Direction, asyncio.Task[None]] = {}
        self._ended = False

    async def run(self, target: tuple[str, int]) -> None:
        """Return when both directions have ended; an error on either side aborts both."""
        loop = asyncio.get_running_loop()
        name = asyncio.current_task().get_name()  # type: ignore[union-attr]
        with contextlib.suppress(OSError):
            await loop.sock_connect(self._server, target)
            try:
                async with asyncio.TaskGroup() as group:
                    for direction, lane in self._proxy._lanes.items():
                        self._pumps[direction] = group.create_task(
                            self._pump(direction, lane), name=f"{name}-{direction}"
                        )
                self._ended = True
            except* OSError:
                pass

    def end(self, direction: Direction) -> None:
        """Send FIN in that direction and forward nothing more."""
        if pump := self._pumps.get(direction):
            pump.cancel()
            with contextlib.suppress(OSError):
                self._ends(direction)[1].shutdown(socket.SHUT_WR)

    def stop(self) -> None:
        """Forward nothing more, from this moment on."""
        for pump in self._pumps.values():
            pump.cancel()

    def close(self) -> None:
        """Close both sockets, with RST unless both directions came to their end."""
        for sock in (self._client, self._server):
            if not self._ended:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT_ON_CLOSE)
            sock.close()

    def _ends(self, direction: Direction) -> tuple[socket.socket, socket.socket]:
        if direction == "up":
            return self._client, self._server
        return self._server, self._client

    async def _pump(self, direction: Direction, lane: _Lane) -> None:
        loop = asyncio.get_running_loop()
        source, sink = self._ends(direction)
        while True:
            await lane.flowing.wait()
            data = await loop.sock_recv(source, READ_SIZE)
            if lane.delay:
                await asyncio.sleep(lane.delay)
            if not data:
                await lane.flowing.wait()
                with contextlib.suppress(OSError):
                    sink.shutdown(socket.SHUT_WR)
                return
            await self._forward(data, sink, lane)

    async def _forward(self, data: bytes, sink: socket.socket, lane: _Lane) -> None:
        loop = asyncio.get_running_loop()
        rest = memoryview(data)
        while rest:
            # Asked for each piece, so that a control takes effect in the middle of a read.
            await lane.flowing.wait()
            if lane.remaining == 0:
                await _forever()  # another connection has sent the last byte and is about to cut
            size = lane.piece if lane.remaining is None else min(lane.piece, lane.remaining)
            piece, rest = rest[:size], rest[size:]
            if lane.remaining is not None:
                lane.remaining -= len(piece)
            last = lane.remaining == 0
            try:
                await loop.sock_sendall(sink, piece)
                lane.forwarded += len(piece)
                if last:
                    await _arrived(sink)
            finally:
                if last:
                    lane.remaining = None
                    self._proxy._abort_all()
            if last:
                await _forever()
            if lane.piece < READ_SIZE:
                # A reader in this event loop gets its turn in the second round, so that it sees
                # this piece alone and not joined with the next.
                await asyncio.sleep(0)
                await asyncio.sleep(0)


async def _forever() -> None:
    """Wait for the cancellation that is on its way."""
    await asyncio.Event().wait()


def _tune(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BUFFER)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BUFFER)


async def _arrived(sock: socket.socket) -> None:
    """Wait until the peer's kernel has taken every byte: RST throws away those still queued."""
    while struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, b"\0" * 4))[0]:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
