"""Which NATS system a command works with: the one that is named, or the embedded server.

Without `--server`, `--context`, `NATS_URL` and a selected context of the nats command line, a
server of the project is used: it runs as long as the command that started it, other commands in
the same directory join it, and its data stay in `.jetspark/nats`.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from jetspark.cli import console
from jetspark.cli.failures import CommandError, Status
from jetspark.cli.options import NatsOptions

if TYPE_CHECKING:
    from jetspark.server import NatsServer
    from jetspark.sync import Client, JetStream

__all__ = ["PROJECT", "Target", "closing_connections", "nats_target", "project_server"]

PROJECT = Path(".jetspark")
"""What commands keep in the directory where they are run."""

_JOIN_TIMEOUT = 15.0  # seconds


@dataclass(frozen=True)
class Target:
    """A NATS system, and how to get in."""

    servers: str
    """For messages."""
    connect_options: dict[str, Any] = field(repr=False)
    """The arguments of `jetspark.connect`."""
    spark_options: dict[str, str] = field(repr=False)
    """The same as options of the Spark sources and sinks."""
    domain: str | None = None
    prefix: str | None = None

    @contextmanager
    def connect(self) -> Iterator[Client]:
        """A blocking client, as long as the context lasts."""
        import jetspark.sync

        with jetspark.sync.connect(**self.connect_options) as client:
            yield client

    @contextmanager
    def jetstream(self) -> Iterator[JetStream]:
        """Its JetStream, as long as the context lasts."""
        with self.connect() as client:
            yield client.jetstream(domain=self.domain, prefix=self.prefix)


@contextmanager
def nats_target(options: NatsOptions, *, quiet: bool = False) -> Iterator[Target]:
    """The system that the options name; else the server of the project, which is started."""
    from jetspark.connection.contexts import selected_context

    servers, context = options.server, options.context
    if servers is None and context is None:
        servers = os.environ.get("NATS_URL") or None
        context = selected_context() if servers is None else None
    if servers is not None or context is not None:
        yield _target(options, servers, context)
        return
    with project_server(quiet=quiet) as url:
        yield _target(options, url, None)


@contextmanager
def closing_connections() -> Iterator[None]:
    """Close what the Spark sources have opened in this process, before the server stops."""
    from jetspark.spark.connection import close_connections

    try:
        yield
    finally:
        close_connections()


def _target(options: NatsOptions, servers: str | None, context: str | None) -> Target:
    from jetspark.connection import ConnectOptions
    from jetspark.connection.contexts import load_context

    given = {
        ("servers", "servers"): servers,
        ("context", "context"): context,
        ("creds", "creds"): _absolute(options.creds),
        ("nkey_seed", "nkeySeed"): _absolute(options.nkey),
        ("user", "user"): options.user,
        ("password", "password"): options.password,
        ("token", "token"): options.token,
        ("tls_ca", "tlsCa"): _absolute(options.tls_ca),
        ("tls_cert", "tlsCert"): _absolute(options.tls_cert),
        ("tls_key", "tlsKey"): _absolute(options.tls_key),
    }
    connect: dict[str, Any] = {
        name: value for (name, _), value in given.items() if value is not None
    }
    spark = {name: value for (_, name), value in given.items() if value is not None}
    domain, prefix = options.domain, None
    if context is not None and domain is None:
        loaded = load_context(context)
        domain, prefix = loaded.jetstream_domain, loaded.jetstream_api_prefix
        if domain is not None:
            prefix = None
    if domain is not None:
        spark["domain"] = domain
    if prefix is not None:
        spark["prefix"] = prefix
    shown = ", ".join(str(url) for url in ConnectOptions(**connect).with_context().urls())
    return Target(shown, {**connect, "name": "jetspark"}, spark, domain, prefix)


def _absolute(path: Path | None) -> str | None:
    return str(path.absolute()) if path is not None else None


@contextmanager
def project_server(*, quiet: bool = False) -> Iterator[str]:
    """The URL of the server of this directory, which is started unless another command did."""
    PROJECT.mkdir(exist_ok=True)
    note = PROJECT / "server.json"
    with (PROJECT / "server.lock").open("w") as lock:
        while not _locked(lock):
            if (url := _joined(note)) is not None:
                if not quiet:
                    console.say(f"using the server that another command started, {url}")
                yield url
                return
        _wait_for_end(note)
        server = _start()
        with server:
            note.write_text(json.dumps({"url": server.url, "name": server.name, "pid": server.pid}))
            if not quiet:
                console.say(
                    f"no server given: started nats-server {server.version} on {server.url}, "
                    f"data in {PROJECT / 'nats'}"
                )
            try:
                yield server.url
            finally:
                note.unlink(missing_ok=True)


def _start() -> NatsServer:
    from jetspark.server import run_server

    return run_server(store_dir=PROJECT / "nats")


def _locked(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _joined(note: Path) -> str | None:
    """The URL of the server that another command runs; None if that command ended meanwhile."""
    end = time.monotonic() + _JOIN_TIMEOUT
    with (PROJECT / "server.lock").open("w") as lock:
        while time.monotonic() < end:
            try:
                found = json.loads(note.read_text())
                if _serves(found["url"], found["name"]):
                    return str(found["url"])
            except (OSError, ValueError, KeyError):
                pass  # it is just being written, or removed
            if _locked(lock):
                return None
            time.sleep(0.1)
    raise CommandError(
        f"another command holds {PROJECT / 'server.lock'}, but its server does not answer; wait "
        "until it has ended, or name a server with --server",
        Status.UNAVAILABLE,
    )


def _serves(url: str, name: str) -> bool:
    host, port = url.removeprefix("nats://").rsplit(":", 1)
    try:
        with socket.create_connection((host, int(port)), timeout=1) as connection:
            return f'"server_name":"{name}"'.encode() in connection.recv(4096)
    except OSError:
        return False


def _wait_for_end(note: Path) -> None:
    """Wait for the server of a command that was killed: two must not share the data."""
    try:
        pid = int(json.loads(note.read_text())["pid"])
    except (OSError, ValueError, KeyError):
        return
    end = time.monotonic() + _JOIN_TIMEOUT
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
        except OSError:
            return
        if not (_command_of(pid) or "nats-server").endswith("nats-server"):
            return  # the number belongs to another program by now
        time.sleep(0.1)
    raise CommandError(
        f"the nats-server of a command that was killed still runs (process {pid}); stop it first",
        Status.UNAVAILABLE,
    )


def _command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
