"""One socket to one server: an asyncio protocol that parses what arrives.

A link lives for one physical connection. During the handshake its events are taken one by one with
`receive`; then `adopt` turns it over to the connection, which gets whole reads at once.

Reads go into one buffer and are copied out of it. Without it, asyncio has a large block of memory
made for each read, and most of it given back: with glibc often by three calls of the kernel and two
page faults, which take longer than the read itself. Large messages are read more at a time, because
a read costs them more than parsing does; for small ones, a processor's cache matters more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from jetspark.errors import ConnectError, ProtocolError
from jetspark.protocol import Event, MessageBatch, Op, Parser

from .urls import ServerURL

__all__ = ["Link", "LinkTransport"]

WRITE_HIGH_WATER = 256 * 1024
READ_BUFFER = 256 * 1024
LARGE_READ_BUFFER = 512 * 1024
LARGE_MESSAGE = 16 * 1024  # bytes, in the mean of a read


class LinkTransport(Protocol):
    """What a link needs of a transport; WebSocket has its own, see `websocket.py`."""

    def write(self, data: bytes | bytearray) -> None:
        """Send or buffer bytes."""

    def close(self) -> None:
        """Close after the buffer is sent."""

    def abort(self) -> None:
        """Close at once."""

    def pause_reading(self) -> None:
        """Stop reading."""

    def resume_reading(self) -> None:
        """Go on reading."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the watermarks for `pause_writing` and `resume_writing`."""


class Link(asyncio.BufferedProtocol):
    """A socket and the parser behind it."""

    def __init__(self, url: ServerURL) -> None:
        self.url = url
        self.write_paused = False
        self.error: Exception | None = None  # why it was lost
        self.bytes_in = 0
        self.bytes_out = 0
        self._parser = Parser()
        self._buffer: memoryview  # what each read is put into
        self._readable: memoryview  # the part of it that is used
        self._transport: LinkTransport | None = None
        self._received: deque[Event] = deque()  # during the handshake
        self._waiter: asyncio.Future[None] | None = None
        self._on_events: Callable[[list[Event]], None] | None = None
        self._on_lost: Callable[[Link], None] | None = None
        self._on_writable: Callable[[], None] | None = None
        self._closed = asyncio.get_running_loop().create_future()
        self._reading_paused = False
        self._pongs_due = 0  # before a retired link may be closed

    # -- called by asyncio ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport; after a TLS upgrade, the one on top of it."""
        self._buffer = memoryview(bytearray(LARGE_READ_BUFFER))
        self._readable = self._buffer[:READ_BUFFER]
        self.attach(transport)  # type: ignore[arg-type]

    def attach(self, transport: LinkTransport) -> None:
        """Use this transport from now on."""
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_HIGH_WATER)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to put the next read."""
        return self._readable

    def buffer_updated(self, nbytes: int) -> None:
        """Take a read out of the buffer."""
        events = self.data_received(bytes(self._buffer[:nbytes]))
        if nbytes >= READ_BUFFER:
            self._size_reads(nbytes, events)

    def data_received(self, data: bytes) -> list[Event]:
        """Parse a read and pass on what it completes, which is returned, too."""
        self.bytes_in += len(data)
        try:
            events = self._parser.feed(data)
        except ProtocolError as error:
            self.abort(error)
            return []
        if self._on_events is not None:
            self._on_events(events)
        else:
            self._received.extend(events)
            self._wake()
        return events

    def _size_reads(self, size: int, events: list[Event]) -> None:
        messages = sum(len(event) for event in events if isinstance(event, MessageBatch))
        large = size >= messages * LARGE_MESSAGE
        self._readable = self._buffer if large else self._buffer[:READ_BUFFER]

    def eof_received(self) -> None:
        """Let asyncio close the transport."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever uses the link."""
        if self._closed.done():
            return
        self.error = self.error or exc
        self._closed.set_result(None)
        self._wake()
        if self._on_lost is not None:
            self._on_lost(self)

    def pause_writing(self) -> None:
        """Note that the send buffer is full."""
        self.write_paused = True

    def resume_writing(self) -> None:
        """Note that the send buffer has room again."""
        self.write_paused = False
        if self._on_writable is not None:
            self._on_writable()

    # -- the handshake --------------------------------------------------------------------------

    async def receive(self) -> Event:
        """The next event; only until the link is adopted."""
        while not self._received:
            if self._closed.done():
                raise self.error or ConnectError(
                    f"{self.url} closed the connection", server=str(self.url)
                )
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._received.popleft()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # -- in use ---------------------------------------------------------------------------------

    def adopt(
        self,
        *,
        on_events: Callable[[list[Event]], None],
        on_lost: Callable[[Link], None],
        on_writable: Callable[[], None],
    ) -> None:
        """Deliver to these from now on, beginning with what the handshake left."""
        self._on_events = on_events
        self._on_lost = on_lost
        self._on_writable = on_writable
        if self._received:
            leftover = list(self._received)
            self._received.clear()
            on_events(leftover)
        if self._closed.done():
            on_lost(self)

    @property
    def transport(self) -> LinkTransport:
        """The transport; there is one as soon as the link is open."""
        assert self._transport is not None
        return self._transport

    @property
    def closed(self) -> bool:
        """Whether the socket is gone."""
        return self._closed.done()

    def write(self, data: bytes | bytearray) -> None:
        """Send bytes, in one system call if the socket takes them."""
        self.bytes_out += len(data)
        self.transport.write(data)

    def pause_reading(self) -> None:
        """Stop reading from the socket."""
        if not self._reading_paused and not self.closed:
            self._reading_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Go on reading."""
        if self._reading_paused:
            self._reading_paused = False
            if not self.closed:
                self.transport.resume_reading()

    def abort(self, error: Exception | None = None) -> None:
        """Drop the connection at once; what is not sent yet is lost."""
        self.error = self.error or error
        if self._transport is not None:
            self._transport.abort()

    def retire(self, pongs_due: int) -> None:
        """Begin to close: what is buffered is still sent, and what still arrives is ignored.

        A socket that is closed before everything that arrived has been read is reset, and then the
        server may lose what it has not read yet. So it closes when one more PONG than is due has
        come: by then the server has taken everything.
        """
        self._pongs_due = pongs_due + 1
        self._on_events = self._on_last_events
        self.resume_reading()
        self.write(b"PING\r\n")

    def _on_last_events(self, events: list[Event]) -> None:
        self._pongs_due -= events.count(Op.PONG)
        if self._pongs_due <= 0:
            self.transport.close()

    async def close(self, timeout: float = 1.0) -> None:
        """Wait for the end of a retired link; drop the connection if the server is too slow."""
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(self._closed)
        except TimeoutError:
            self.abort()
            await asyncio.shield(self._closed)
        except asyncio.CancelledError:
            self.abort()
            raise
