"""Makes a real server send what it seldom does: statuses on demand, and deliveries with gaps.

A client refuses to write a status line, so `forger` speaks the protocol itself. `deaf` has messages
pass by a subscription, as if they had got lost on the way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from jetspark import Client, Subscription
from jetspark.connection.subscription import Route
from jetspark.server import NatsServer

__all__ = ["Forger", "deaf", "forger"]


class Forger:
    """One bare connection to a server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def status(
        self, subject: str, line: str, reply: str = "", /, **headers: str | int
    ) -> None:
        """Send a status such as "100 Idle Heartbeat"; returns when the server has passed it on.

        The underscores in the names of headers stand for dashes.
        """
        lines = [f"NATS/1.0 {line}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.message(subject, reply, ("\r\n".join(lines) + "\r\n\r\n").encode())

    async def message(
        self, subject: str, reply: str = "", header: bytes = b"", data: bytes = b""
    ) -> None:
        """Send a message; returns when the server has passed it on."""
        total = len(header) + len(data)
        sizes = f"{len(header)} {total}" if header else f"{total}"
        verb = "HPUB" if header else "PUB"
        line = " ".join(part for part in (verb, subject, reply, sizes) if part)
        self._writer.write(f"{line}\r\n".encode() + header + data + b"\r\nPING\r\n")
        await self._pong()

    async def _pong(self) -> None:
        async with asyncio.timeout(10):
            while not (line := await self._reader.readline()).startswith(b"PONG"):
                assert line, "the server closed the connection"
                assert not line.startswith(b"-ERR"), line


@asynccontextmanager
async def forger(server: NatsServer) -> AsyncIterator[Forger]:
    """Connect to a server without a client."""
    reader, writer = await asyncio.open_connection(server.host, server.port)
    try:
        await reader.readline()
        writer.write(b'CONNECT {"verbose":false,"headers":true,"pedantic":false}\r\nPING\r\n')
        forged = Forger(reader, writer)
        await forged._pong()
        yield forged
    finally:
        writer.close()
        await writer.wait_closed()


@asynccontextmanager
async def deaf(nc: Client, route: Route) -> AsyncIterator[Subscription]:
    """Have a subscription miss what another gets meanwhile; for the server, somebody listens."""
    other = await nc.subscribe(route.subject, queue=route.queue)
    nc._encoder.unsubscribe(route.sid)
    await nc.flush()
    try:
        yield other
    finally:
        nc._encoder.subscribe(route.subject, route.sid, route.queue)
        await nc.flush()
        await other.unsubscribe()
