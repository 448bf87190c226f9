"""From a server's URL to a link that is authenticated and ready.

TCP, TLS (by upgrade, first, or below WebSocket), INFO, CONNECT, and the PONG that says that the
server accepted it. Everything that can go wrong becomes one exception that says what to do.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import ssl
from datetime import UTC, datetime

import msgspec

from jetspark.auth import Authenticator
from jetspark.errors import (
    AuthenticationError,
    AuthenticationExpiredError,
    ConnectError,
    ConnectionError,
    JetSparkError,
    ProtocolError,
    TimeoutError,
    TLSError,
)
from jetspark.protocol import ErrorReply, Op, ServerInfo, connect_frame

from .dial import dial
from .link import Link
from .options import ConnectOptions
from .pool import Server
from .server_errors import closes_connection, error_from_text
from .websocket import WebSocketLayer

__all__ = ["connect_server"]

TLS_CLOSE_TIMEOUT = 1.0


@functools.cache
def _version() -> str:
    # Slow to import, and wanted only here.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("jetspark")
    except PackageNotFoundError:  # run from an archive, as on a Spark executor
        return "0"


async def connect_server(
    server: Server, options: ConnectOptions, authenticator: Authenticator
) -> tuple[Link, ServerInfo]:
    """Connect to one server within the connect timeout."""
    link = Link(server.url)
    handshake = _Handshake(link, server, options, authenticator)
    limit = asyncio.timeout(options.connect_timeout)
    try:
        async with limit:
            info = await handshake.run()
    except BaseException as error:
        link.abort()
        # A cancellation from outside may come in the very turn in which the time is up.
        if limit.expired() and not isinstance(error, asyncio.CancelledError):
            raise handshake.too_slow() from None
        translated = handshake.translate(error)
        if translated is None:
            raise
        raise translated from error
    return link, info


class _Handshake:
    def __init__(
        self, link: Link, server: Server, options: ConnectOptions, authenticator: Authenticator
    ) -> None:
        self.link = link
        self.server = server
        self.options = options
        self.authenticator = authenticator
        self.step = "connecting"  # for the error that says how far it came
        self.info: ServerInfo | None = None  # the first one
        self.jwt: str | None = None  # what CONNECT carried

    async def run(self) -> ServerInfo:
        url, options = self.server.url, self.options
        tls_first = url.scheme == "wss" or (options.tls_first and not url.is_websocket)
        await self._open(options.ssl_context() if tls_first else None)
        self.step = "waiting for INFO"
        info = await self.link.receive()
        if not isinstance(info, ServerInfo):
            raise ProtocolError(f"{url} did not begin with INFO; is it a NATS server?")
        self.info = info
        encrypted = tls_first
        if not url.is_websocket and not tls_first and self._must_upgrade(info):
            self.step = "the TLS handshake"
            await self._upgrade()
            encrypted = True
        self.step = "authenticating"
        fields = await self._connect_fields(info, encrypted=encrypted)
        self.link.write(connect_frame(fields) + b"PING\r\n")
        return await self._accepted(info)

    async def _open(self, context: ssl.SSLContext | None) -> None:
        url = self.server.url
        loop = asyncio.get_running_loop()
        layer: asyncio.BaseProtocol = self.link
        if url.is_websocket:
            layer = WebSocketLayer(self.link, url, self.options.ws_headers or {})
        await loop.create_connection(
            lambda: layer,
            sock=await dial(url.host, url.port),
            ssl=context,
            server_hostname=self._tls_name() if context else None,
            ssl_shutdown_timeout=TLS_CLOSE_TIMEOUT if context else None,
        )
        if isinstance(layer, WebSocketLayer):
            self.step = "the WebSocket handshake"
            await layer.opened

    def _tls_name(self) -> str:
        return self.options.tls_hostname or self.server.tls_name or self.server.url.host

    def _must_upgrade(self, info: ServerInfo) -> bool:
        demanded = self.options.demands_tls or self.server.url.wants_tls
        if demanded and not (info.tls_required or info.tls_available):
            raise TLSError(
                f"TLS is demanded, but {self.server.url} does not offer it; use a nats:// URL "
                "without TLS options, or configure TLS on the server",
                server=str(self.server.url),
            )
        if info.tls_required and self.options.tls is False:
            raise TLSError(
                f"{self.server.url} requires TLS, but tls=False forbids it",
                server=str(self.server.url),
            )
        return demanded or info.tls_required

    async def _upgrade(self) -> None:
        transport = await asyncio.get_running_loop().start_tls(
            self.link.transport,  # type: ignore[arg-type]  # a plain TCP transport here
            self.link,
            self.options.ssl_context(),
            server_hostname=self._tls_name(),
            ssl_shutdown_timeout=TLS_CLOSE_TIMEOUT,
        )
        if transport is None:
            raise ConnectError("the connection was closed")
        self.link.attach(transport)

    async def _connect_fields(self, info: ServerInfo, *, encrypted: bool) -> dict[str, object]:
        url, options = self.server.url, self.options
        credentials = await self.authenticator.connect_fields(
            nonce=info.nonce, url_user=url.user, url_password=url.password, url_token=url.token
        )
        self.jwt = credentials.get("jwt")
        fields: dict[str, object] = {
            "verbose": False,
            "pedantic": False,
            "tls_required": encrypted,
            "lang": "python",
            "version": _version(),
            "protocol": 1,
            "echo": options.echo,
            "headers": True,
            "no_responders": True,
            **credentials,
        }
        if options.name is not None:
            fields["name"] = options.name
        return fields

    async def _accepted(self, info: ServerInfo) -> ServerInfo:
        """Wait for the PONG; a newer INFO may come before it."""
        while True:
            event = await self.link.receive()
            if event is Op.PONG:
                return info
            if isinstance(event, ServerInfo):
                info = event
            elif isinstance(event, ErrorReply):
                if closes_connection(event.text):
                    raise self._refusal(event.text)
            elif event is not Op.OK and event is not Op.PING:
                raise ProtocolError(f"{self.server.url} answered CONNECT with {event!r}")

    def _refusal(self, text: str) -> ConnectionError:
        """What the server said; that a JWT has expired it does not say, so we look."""
        url = str(self.server.url)
        error = error_from_text(text, url)
        expiry = _expiry(self.jwt) if self.jwt is not None else None
        if type(error) is AuthenticationError and expiry and expiry <= datetime.now(UTC):
            return AuthenticationExpiredError(
                f"{text}: {url} refused the credentials, whose user JWT expired at "
                f"{expiry:%Y-%m-%d %H:%M:%S} UTC; get a new one",
                server=url,
            )
        return error

    def too_slow(self) -> TimeoutError:
        hint = ""
        if self.step == "waiting for INFO":
            hint = "; if the server expects TLS first, set tls_first=True"
        return TimeoutError(
            f"connecting to {self.server.url} took longer than {self.options.connect_timeout} s "
            f"({self.step}{hint})",
            may_have_taken_effect=False,
        )

    def translate(self, error: BaseException) -> JetSparkError | None:
        """The exception to raise instead, None to raise the original."""
        url = str(self.server.url)
        if self._lacks_certificate(error):
            return TLSError(
                f"TLS with {url} failed: the server wants a client certificate; set tls_cert and "
                "tls_key",
                server=url,
            )
        if isinstance(error, ssl.SSLError):
            return TLSError(f"TLS with {url} failed: {_explain_tls(error, self.step)}", server=url)
        if isinstance(error, ProtocolError):
            return ConnectError(f"{url} does not speak the NATS protocol: {error}", server=url)
        if isinstance(error, ConnectError) and self.step == "waiting for INFO":
            return ConnectError(
                f"{url} closed the connection before INFO; is it a NATS server? If it expects "
                "TLS first, set tls_first=True",
                server=url,
            )
        if isinstance(error, ConnectError) and self.step == "authenticating":
            return ConnectError(f"{url} closed the connection in the handshake", server=url)
        if isinstance(error, OSError) and not isinstance(error, ConnectionError):
            if self._in_tls(error):
                return TLSError(
                    f"{url} closed the connection in the TLS handshake; does it speak TLS, and "
                    "does it want a client certificate (tls_cert)?",
                    server=url,
                )
            return ConnectError(f"cannot connect to {url}: {error}", server=url)
        return None

    def _in_tls(self, error: OSError) -> bool:
        """Whether the other side broke off a TLS handshake."""
        if self.step == "connecting":  # TCP, and TLS where that comes first
            tls_first = self.options.tls_first or self.server.url.scheme == "wss"
            return tls_first and isinstance(error, _BROKEN_OFF)
        return self.step == "the TLS handshake"

    def _lacks_certificate(self, error: BaseException) -> bool:
        """Whether TLS had to fail because the server checks certificates and we have none."""
        options = self.options
        broken = isinstance(error, OSError) and not isinstance(error, JetSparkError)
        return (
            (broken or type(error) is ConnectError)
            and self.step in ("the TLS handshake", "authenticating")
            and self.info is not None
            and self.info.tls_verify
            and options.tls_cert is None
            and not isinstance(options.tls, ssl.SSLContext)
        )


# An end of the stream in the middle of a handshake is a reset to asyncio.
_BROKEN_OFF = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError)


def _expiry(jwt: str) -> datetime | None:
    """When a JWT expires, whoever signed it; None if it does not, or cannot be read."""
    try:
        payload = jwt.split(".")[1]
        claims = msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return datetime.fromtimestamp(claims["exp"], UTC)
    except (LookupError, TypeError, ValueError, OverflowError, OSError):
        return None


def _explain_tls(error: ssl.SSLError, step: str) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        if "mismatch" in error.verify_message:  # of the host name or of the address
            return f"{error.verify_message}; if the server has another name, set tls_hostname"
        return f"{error.verify_message}; if the server's CA is a private one, set tls_ca"
    reason = (error.reason or str(error)).replace("_", " ").lower()
    if "wrong version number" in reason or "record layer failure" in reason:
        return f"the server does not begin with TLS ({reason}); leave tls_first and wss:// away"
    if "certificate required" in reason or "bad certificate" in reason:
        return f"the server wants a client certificate ({reason}); set tls_cert and tls_key"
    if "handshake failure" in reason:  # how TLS 1.2 says either
        return f"{reason}; the server wants a client certificate (tls_cert) or other ciphers"
    return f"{reason} ({step})"
