"""How the data sources reach NATS: their connection options, and one connection per process.

Readers and writers hold only the options, which travel to the executors; a connection is opened
where it is first needed and is used by all later tasks of that worker process.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from jetspark.client import Client
from jetspark.connection import Backoff, ConnectOptions
from jetspark.context import JetStream
from jetspark.errors import (
    ConnectError,
    InvalidOptionError,
    JetSparkError,
    JetStreamNotEnabledError,
)
from jetspark.sync._client import open_client
from jetspark.sync._iterators import Items
from jetspark.sync._thread import loop_thread

from .options import Option, Options, boolean, duration, names, text

__all__ = ["CONNECTION_OPTIONS", "Access", "close_connections", "iterate", "persist", "run"]

P = ParamSpec("P")
T = TypeVar("T")

CONNECTION_OPTIONS: tuple[Option[Any], ...] = (
    Option("servers", names("the URL of a server"), "Where NATS is.", shown_default="`NATS_URL`"),
    Option(
        "context",
        text(),
        "A context of the `nats` command line, by name or path; read where the query is started.",
    ),
    Option("user", text(), "User name."),
    Option("password", text(), "Password.", secret=True),
    Option("token", text(), "Token.", secret=True),
    Option("nkeySeed", text(), "An nkey seed, or the path of its file.", secret=True),
    Option("creds", text(), "The path of a creds file, on every machine of the cluster."),
    Option("tls", boolean(), "Demand TLS, or forbid it."),
    Option("tlsCa", text(), "The CA to trust (PEM file), instead of those of the system."),
    Option("tlsCert", text(), "The certificate of the client (PEM file)."),
    Option("tlsKey", text(), "The key of that certificate (PEM file)."),
    Option("tlsHostname", text(), "The name in the server's certificate, if not that of the URL."),
    Option("tlsFirst", boolean(), "Begin with the TLS handshake."),
    Option("domain", text(), "The JetStream domain."),
    Option("prefix", text(), "The prefix of the JetStream API, if it is imported."),
    Option("inboxPrefix", text(), "The prefix of reply subjects."),
    Option("connectTimeout", duration(), "For one server.", 5.0, "5s"),
    Option("requestTimeout", duration(), "For one request of the JetStream API.", 10.0, "10s"),
)
"""What every data source takes."""

_ARGUMENTS = {
    "servers": "servers",
    "context": "context",
    "user": "user",
    "password": "password",
    "token": "token",
    "nkeySeed": "nkey_seed",
    "creds": "creds",
    "tls": "tls",
    "tlsCa": "tls_ca",
    "tlsCert": "tls_cert",
    "tlsKey": "tls_key",
    "tlsHostname": "tls_hostname",
    "tlsFirst": "tls_first",
    "inboxPrefix": "inbox_prefix",
    "connectTimeout": "connect_timeout",
}
"""The argument of `connect` for each option."""

CONNECTIONS_KEPT = 8
RETRY_DELAY = 0.5  # seconds


@dataclass(frozen=True)
class Access:
    """Which JetStream, and how to get there; travels to the executors."""

    arguments: tuple[tuple[str, Any], ...] = field(repr=False)
    servers: str
    """Without secrets, for messages."""
    domain: str | None
    prefix: str | None
    timeout: float

    @classmethod
    def of(cls, options: Options) -> Access:
        """Read the connection options, which must make sense together."""
        arguments = {
            argument: options[name]
            for name, argument in _ARGUMENTS.items()
            if options[name] is not None
        }
        # Raises for what excludes each other. A context is read here, because the machines of the
        # executors need not have it.
        checked = ConnectOptions(**arguments).with_context()
        if checked.servers is None:
            checked = dataclasses.replace(checked, servers=os.environ.get("NATS_URL") or None)
        servers = ", ".join(str(url) for url in checked.urls())
        if options["domain"] and options["prefix"]:
            raise InvalidOptionError("options 'domain' and 'prefix' exclude each other")
        return cls(
            _given(checked),
            servers,
            options["domain"],
            options["prefix"],
            options["requestTimeout"],
        )

    async def jetstream(self, max_ack_pending: int = 4000) -> JetStream:
        """JetStream over the connection of this process, which is opened if there is none."""
        try:
            client = await _connections.get(self.arguments)
        except ConnectError as error:
            message = f"{error}; is NATS running there, and are the connection options right?"
            raise type(error)(message) from None
        return client.jetstream(
            domain=self.domain,
            prefix=self.prefix,
            timeout=self.timeout,
            max_ack_pending=max_ack_pending,
        )


def _given(options: ConnectOptions) -> tuple[tuple[str, Any], ...]:
    """Those that are not as they are by default, in a form that can be a key."""
    arguments = sorted({*_ARGUMENTS.values(), "jwt"} - {"context"})
    found = [(name, getattr(options, name)) for name in arguments]
    return tuple(
        (name, value) for name, value in found if value != getattr(ConnectOptions, name, None)
    )


class _Connections:
    """The connections of this process, in the thread of the loop."""

    def __init__(self) -> None:
        self._open: dict[tuple[tuple[str, Any], ...], asyncio.Task[Client]] = {}

    async def get(self, arguments: tuple[tuple[str, Any], ...]) -> Client:
        task = self._open.pop(arguments, None)
        if task is None or (task.done() and not _is_usable(task)):
            task = asyncio.create_task(self._connect(arguments), name="jetspark spark connection")
        self._open[arguments] = task  # at the end: the first is the one unused for longest
        while len(self._open) > CONNECTIONS_KEPT:
            oldest = next(iter(self._open))
            unused = self._open.pop(oldest)
            if unused.done() and _is_usable(unused):
                await unused.result().close()
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Close all of them."""
        opened = list(self._open.values())
        self._open.clear()
        for client in await asyncio.gather(*opened, return_exceptions=True):
            if isinstance(client, Client):
                await client.close()

    async def _connect(self, arguments: tuple[tuple[str, Any], ...]) -> Client:
        options = ConnectOptions(
            name="jetspark spark",
            max_reconnect_attempts=None,  # the tasks have their own limits
            reconnect_delay=Backoff(),
            **dict(arguments),
        )
        return await open_client(options)


def _is_usable(task: asyncio.Task[Client]) -> bool:
    return not task.cancelled() and task.exception() is None and not task.result().closed


_connections = _Connections()


def close_connections() -> None:
    """Close the connections of this process; whoever needs one opens it again."""
    run(_connections.close())


async def persist(
    seconds: float, call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Call again and again, for so long, what fails because of something that passes.

    A leader is elected, a server is on its way up: what was there a moment ago will be again.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while True:
        try:
            return await call(*args, **kwargs)
        except JetSparkError as error:
            passing = error.retryable or isinstance(error, JetStreamNotEnabledError)
            if not passing or loop.time() + RETRY_DELAY >= end:
                raise
        await asyncio.sleep(RETRY_DELAY)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the loop of this process, and wait for it."""
    return loop_thread().run(coroutine)


def iterate(make: Callable[[], AsyncIterator[T]], ahead: int = 2) -> Iterator[T]:
    """Iterate over what an async iterator gives, which runs ahead by so many items."""
    with Items[T](loop_thread(), make(), ahead=ahead) as items:
        yield from items
