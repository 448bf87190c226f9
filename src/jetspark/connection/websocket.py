"""NATS over WebSocket: a layer between the socket and a link.

The byte stream is carried in binary frames whose boundaries mean nothing. The frames themselves
are the work of the sans-IO core of the `websockets` package.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from jetspark.errors import ConnectError, MissingExtraError

from .link import Link
from .urls import ServerURL

if TYPE_CHECKING:
    from websockets.client import ClientProtocol

__all__ = ["WebSocketLayer"]

MAX_FRAME = 128 * 1024 * 1024


class WebSocketLayer(asyncio.Protocol):
    """The asyncio protocol on the socket, and the transport of the link on top of it."""

    def __init__(self, link: Link, url: ServerURL, headers: Mapping[str, str]) -> None:
        try:
            from websockets.client import ClientProtocol
            from websockets.uri import parse_uri
        except ImportError as error:
            raise MissingExtraError(
                'ws:// and wss:// URLs need the package websockets: pip install "jetspark[ws]"'
            ) from error
        self._link = link
        self._headers = headers
        self._transport: asyncio.Transport | None = None
        uri = parse_uri(f"{url.scheme}://{url.netloc}{url.path or '/'}")
        self._protocol: ClientProtocol = ClientProtocol(uri, max_size=MAX_FRAME)
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # -- called by asyncio ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the HTTP request."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass
        self._link.attach(self)
        request = self._protocol.connect()
        for name, value in self._headers.items():
            request.headers[name] = value
        self._protocol.send_request(request)
        self._send()

    def data_received(self, data: bytes) -> None:
        """Unwrap frames for the link."""
        self._protocol.receive_data(data)
        self._process()

    def eof_received(self) -> None:
        """Pass on the end of the stream."""
        self._protocol.receive_eof()
        self._process()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the link, and whoever waits for the handshake."""
        if not self.opened.done():
            self.opened.set_exception(
                ConnectError(f"{self._link.url} closed the connection in the WebSocket handshake")
            )
            self.opened.exception()  # whoever gave up the handshake does not wait for it any more
        self._link.connection_lost(exc)

    def pause_writing(self) -> None:
        """Pass it on."""
        self._link.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        self._link.resume_writing()

    def _process(self) -> None:
        from websockets.frames import Frame, Opcode

        for event in self._protocol.events_received():
            if isinstance(event, Frame):
                if event.opcode in (Opcode.BINARY, Opcode.TEXT, Opcode.CONT):
                    self._link.data_received(bytes(event.data))
            elif not self.opened.done():
                self._finish_handshake()
        if not self.opened.done() and self._protocol.handshake_exc is not None:
            self._finish_handshake()
        self._send()
        if self._protocol.close_expected() and self._transport is not None:
            self._transport.close()

    def _finish_handshake(self) -> None:
        refusal = self._protocol.handshake_exc
        if refusal is None:
            self.opened.set_result(None)
        else:
            error = ConnectError(
                f"{self._link.url} refused the WebSocket handshake: {refusal}",
                server=str(self._link.url),
            )
            error.__cause__ = refusal
            self.opened.set_exception(error)

    def _send(self) -> None:
        assert self._transport is not None
        for data in self._protocol.data_to_send():
            if data:
                self._transport.write(data)
            elif self._transport.can_write_eof():
                self._transport.write_eof()

    # -- the transport of the link --------------------------------------------------------------

    def write(self, data: bytes | bytearray) -> None:
        """Wrap bytes into one binary frame."""
        if self._protocol.state.name == "OPEN":
            self._protocol.send_binary(bytes(data))
            self._send()

    def close(self) -> None:
        """Say goodbye; the socket is closed when the server has answered or after all is sent."""
        if self._protocol.state.name == "OPEN":
            self._protocol.send_close(1000)
            self._send()
        self._raw.close()

    def abort(self) -> None:
        """Drop the connection."""
        self._raw.abort()

    def pause_reading(self) -> None:
        """Stop reading from the socket."""
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Go on reading."""
        self._raw.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the watermarks of the socket."""
        self._raw.set_write_buffer_limits(high, low)

    @property
    def _raw(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport
