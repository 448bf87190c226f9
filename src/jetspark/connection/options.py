"""The options of a connection: one typed class, checked as a whole before anything is opened."""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
import ssl
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from jetspark.auth import Authenticator, CredsOption, SecretOption, SeedOption
from jetspark.errors import InvalidOptionError
from jetspark.protocol import check_subject

from .backoff import Backoff
from .contexts import load_context
from .events import ConnectionEvent
from .urls import ServerURL, parse_urls

__all__ = ["ConnectOptions"]

MIB = 1024 * 1024
LONGEST_POLL = 0.01

# RFC 9110: a token; visible characters and blanks.
_HTTP_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HTTP_VALUE = re.compile(r"[\t\x20-\x7e]*")


@dataclass(frozen=True)
class ConnectOptions:
    """Everything that `connect` takes.

    Times are seconds, sizes are bytes. Where a secret may be given, a callable (plain or async)
    that returns it may be given too; it is called for each connect and reconnect.
    """

    servers: str | Iterable[str] | None = dataclasses.field(default=None, repr=False)
    """One URL, several, or several in one text with commas. Without it the `context`, then
    `NATS_URL`, then `nats://localhost:4222`."""
    _: dataclasses.KW_ONLY
    context: str | os.PathLike[str] | None = None
    """The name of a context of the `nats` command line (`""`: the selected one), or the path of
    its file. Options given here win over those of the context."""
    name: str | None = None
    """How the client is called in the server's monitoring."""

    user: SecretOption | None = None
    password: SecretOption | None = dataclasses.field(default=None, repr=False)
    token: SecretOption | None = dataclasses.field(default=None, repr=False)
    nkey_seed: SeedOption | None = dataclasses.field(default=None, repr=False)
    """An nkey seed (`SU...`) or the path of a file that holds one."""
    jwt: SecretOption | None = dataclasses.field(default=None, repr=False)
    """A user JWT, together with `nkey_seed`."""
    creds: CredsOption | None = dataclasses.field(default=None, repr=False)
    """The path of a creds file: user JWT and seed."""

    tls: bool | ssl.SSLContext | None = None
    """`True` demands TLS, `False` forbids it, a context demands TLS and configures it. Without it
    TLS is used when the URL or the server asks for it."""
    tls_ca: str | os.PathLike[str] | None = None
    """Trust this CA (PEM file) instead of those of the system."""
    tls_cert: str | os.PathLike[str] | None = None
    tls_key: str | os.PathLike[str] | None = None
    tls_hostname: str | None = None
    """The name to find in the server's certificate, if it is not the one in the URL."""
    tls_first: bool = False
    """Begin with the TLS handshake instead of waiting for INFO (servers with `handshake_first`)."""
    ws_headers: Mapping[str, str] | None = dataclasses.field(default=None, repr=False)
    """More HTTP headers for the WebSocket handshake."""

    connect_timeout: float = 5.0
    """For one server: resolving, connecting, TLS and authentication together."""
    ping_interval: float = 120.0
    max_outstanding_pings: int = 2
    """So many pings without an answer and the connection counts as lost."""
    drain_timeout: float = 30.0

    retry_initial_connect: bool = False
    """Return at once and connect in the background if no server can be reached."""
    allow_reconnect: bool = True
    max_reconnect_attempts: int | None = 60
    """For each server; `None`: forever."""
    reconnect_delay: Backoff | Callable[[int], float] = dataclasses.field(default_factory=Backoff)
    """Wait between two attempts on one server: a backoff, or a callable that gets the number of
    failed attempts and returns seconds."""
    reconnect_buffer_size: int = 8 * MIB
    """How much may be published while disconnected; 0 refuses to publish at all then."""
    randomize_servers: bool = True
    ignore_discovered_servers: bool = False

    echo: bool = True
    """Whether the server sends back what this connection publishes to its own subscriptions."""
    inbox_prefix: str = "_INBOX"
    max_control_line: int = 4096
    """Raise it together with the server's setting of the same name."""
    pending_messages: int = 512 * 1024
    pending_bytes: int = 64 * MIB
    """What a subscription may hold that the application has not taken yet (0: no limit). Beyond
    that, newly arriving messages of this subscription are dropped, counted and reported."""
    read_high_water: int = 128 * MIB
    """What all subscriptions may hold together before the client stops reading from its socket;
    it goes on when half of it has been taken."""
    busy_poll: float = 0.0002
    """So long the event loop looks for more acknowledgements, instead of sleeping, when many have
    come at once; 0 never does. Can be faster if the server is near, for some processor time."""
    on_event: Callable[[ConnectionEvent], object] | None = None
    """Called with each event of the connection; must not block."""

    def __post_init__(self) -> None:
        positive = (
            "connect_timeout",
            "ping_interval",
            "drain_timeout",
            "max_outstanding_pings",
            "read_high_water",
            "max_control_line",
        )
        for name in positive:
            if not getattr(self, name) > 0:
                raise InvalidOptionError(f"option {name!r} must be greater than 0")
        for name in ("reconnect_buffer_size", "pending_messages", "pending_bytes"):
            if getattr(self, name) < 0:
                raise InvalidOptionError(f"option {name!r} must not be negative")
        if not 0 <= self.busy_poll <= LONGEST_POLL:
            raise InvalidOptionError(
                f"option 'busy_poll' must be from 0 to {LONGEST_POLL} seconds, not {self.busy_poll}"
            )
        if self.max_reconnect_attempts is not None and self.max_reconnect_attempts < 1:
            raise InvalidOptionError(
                "option 'max_reconnect_attempts' must be at least 1; None means forever, and "
                "allow_reconnect=False not at all"
            )
        if self.tls_key is not None and self.tls_cert is None:
            raise InvalidOptionError("option 'tls_key' needs option 'tls_cert'")
        if isinstance(self.tls, ssl.SSLContext) and (self.tls_ca or self.tls_cert):
            raise InvalidOptionError(
                "option 'tls' is an SSLContext, so 'tls_ca' and 'tls_cert' belong into it"
            )
        if self.tls is False and (self.tls_ca or self.tls_cert or self.tls_first):
            raise InvalidOptionError("option 'tls' is False, but other TLS options are set")
        if not (isinstance(self.reconnect_delay, Backoff) or callable(self.reconnect_delay)):
            raise InvalidOptionError(
                "option 'reconnect_delay' must be a Backoff or a function that returns seconds"
            )
        if inspect.iscoroutinefunction(self.on_event):
            raise InvalidOptionError(
                "option 'on_event' must be a plain function; to await something, iterate over "
                "the client's events()"
            )
        for name, value in (self.ws_headers or {}).items():
            if not _HTTP_NAME.fullmatch(name) or not _HTTP_VALUE.fullmatch(value):
                raise InvalidOptionError(f"option 'ws_headers': {name!r} is not an HTTP header")
        check_subject(self.inbox_prefix, "option 'inbox_prefix'")

    def with_context(self) -> ConnectOptions:
        """These options completed by those of the context, if one is named."""
        if self.context is None:
            return self
        found: dict[str, Any] = load_context(self.context or None).to_options()
        if self._authenticates():
            for name in ("user", "password", "token", "nkey_seed", "jwt", "creds"):
                found.pop(name, None)
        changed = {
            field.name
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != getattr(ConnectOptions, field.name, None)
        }
        return dataclasses.replace(
            self, context=None, **{k: v for k, v in found.items() if k not in changed}
        )

    def _authenticates(self) -> bool:
        ways = (self.user, self.token, self.nkey_seed, self.jwt, self.creds)
        return any(way is not None for way in ways)

    def urls(self) -> list[ServerURL]:
        """The servers, parsed."""
        urls = parse_urls(self.servers)
        if self.tls is False and any(url.wants_tls for url in urls):
            raise InvalidOptionError("option 'tls' is False, but a server URL asks for TLS")
        if self.demands_tls and any(url.scheme == "ws" for url in urls):
            raise InvalidOptionError("TLS is demanded, but a ws:// URL has none; use wss://")
        return urls

    def authenticator(self) -> Authenticator:
        """The credentials; options that exclude each other are refused here."""
        return Authenticator(
            user=self.user,
            password=self.password,
            token=self.token,
            nkey_seed=self.nkey_seed,
            creds=self.creds,
            jwt=self.jwt,
        )

    @property
    def demands_tls(self) -> bool:
        """Whether an unencrypted connection must be refused."""
        return bool(self.tls or self.tls_first or self.tls_ca or self.tls_cert)

    def ssl_context(self) -> ssl.SSLContext:
        """The TLS configuration; unreadable files are named."""
        if isinstance(self.tls, ssl.SSLContext):
            return self.tls
        try:
            context = ssl.create_default_context(cafile=_path(self.tls_ca))
        except (OSError, ssl.SSLError) as error:
            raise InvalidOptionError(
                f"option 'tls_ca': cannot load {self.tls_ca}: {error}"
            ) from error
        if self.tls_cert is not None:
            try:
                context.load_cert_chain(os.fspath(self.tls_cert), _path(self.tls_key))
            except (OSError, ssl.SSLError) as error:
                raise InvalidOptionError(
                    f"options 'tls_cert' and 'tls_key': cannot load {self.tls_cert} "
                    f"and {self.tls_key or 'its key'}: {error}"
                ) from error
        return context


def _path(value: str | os.PathLike[str] | None) -> str | None:
    return None if value is None else os.fspath(value)
