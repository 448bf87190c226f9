"""The options of a server and the nats-server configuration that they mean.

Everything here is pure: options and ports in, a dictionary or JSON text out (nats-server reads
JSON as well as its own format). Nothing is started, and no file is read or written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypedDict, cast

from jetspark.errors import InvalidOptionError

__all__ = [
    "LOCALHOST",
    "Ports",
    "ServerOptions",
    "TLSConfig",
    "build_config",
    "check_options",
    "merge",
    "probe_login",
    "render_config",
]

LOCALHOST = "127.0.0.1"

Duration = float | timedelta


@dataclass(frozen=True, kw_only=True, slots=True)
class TLSConfig:
    """The certificate of a listener, and what it demands of clients."""

    cert: str | Path
    """PEM file with the server's certificate chain."""
    key: str | Path
    """PEM file with its private key."""
    ca: str | Path | None = None
    """PEM file with the authorities that client certificates are checked against."""
    verify: bool = False
    """Demand a client certificate."""
    handshake_first: bool | str = False
    """TLS before INFO: True, False, or "auto" / a delay such as "50ms" to accept both."""
    timeout: Duration | None = None
    """How long a handshake may take."""


class ServerOptions(TypedDict, total=False):
    """The options of a server, all optional; None is the same as leaving one out.

    Durations are seconds or timedelta. What has no option of its own goes into `config`.
    """

    name: str | None
    """Server name; one is made up if missing."""
    host: str | None
    """Address to listen on, 127.0.0.1 if missing."""
    port: int | None
    """Client port; None or 0 takes a free one."""

    jetstream: bool | None
    """Whether JetStream is on, which it is by default."""
    store_dir: str | Path | None
    """Where JetStream keeps its data; if missing, a temporary directory that `close` removes."""
    domain: str | None
    """JetStream domain."""
    max_memory_store: int | None
    """Bytes of memory for JetStream."""
    max_file_store: int | None
    """Bytes of disk for JetStream."""

    user: str | None
    """The only user; needs `password`."""
    password: str | None
    """The password of `user`."""
    token: str | None
    """The token that clients must show."""
    users: Sequence[Mapping[str, Any]] | None
    """Users in nats-server's form: `{"user": ..., "password": ..., "permissions": {...}}`."""
    nkeys: Sequence[str] | None
    """Public user nkeys (`U...`) that may connect."""
    accounts: Mapping[str, Any] | None
    """Accounts in nats-server's form: `{"A": {"users": [...], "jetstream": "enabled"}}`."""

    tls: TLSConfig | None
    """TLS for the client port."""
    websocket: bool | TLSConfig | None
    """A WebSocket port: True without TLS, a TLSConfig with it."""

    max_payload: int | None
    """Bytes of headers and payload of a message."""
    max_control_line: int | None
    """Bytes of a protocol line."""
    max_connections: int | None
    """Client connections."""
    max_subscriptions: int | None
    """Subscriptions of a connection."""
    max_pending: int | None
    """Bytes buffered for a client before it counts as a slow consumer."""
    write_deadline: Duration | None
    """How long a write to a client may block."""
    ping_interval: Duration | None
    """Time between pings to a client."""
    ping_max: int | None
    """Unanswered pings before a connection is stale."""
    lame_duck_duration: Duration | None
    """Over how long lame duck mode sends the clients away, 30 seconds at least."""
    lame_duck_grace_period: Duration | None
    """How long lame duck mode waits before it begins."""

    config: Mapping[str, Any] | None
    """More nats-server configuration, merged over all of the above."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ports:
    """The ports a server listens on."""

    client: int
    monitor: int
    websocket: int | None = None


# Options that nats-server knows by the same name, at the top level.
_PLAIN = (
    "max_payload",
    "max_control_line",
    "max_connections",
    "max_subscriptions",
    "max_pending",
    "ping_max",
)
_DURATIONS = (
    "write_deadline",
    "ping_interval",
    "lame_duck_duration",
    "lame_duck_grace_period",
)
_JETSTREAM_PLAIN = ("domain", "max_memory_store", "max_file_store")

# The runner depends on these: it knows the ports, reads the log and asks the monitor.
_RESERVED = frozenset(
    {
        "host",
        "http",
        "http_port",
        "https",
        "https_port",
        "listen",
        "log_file",
        "logfile",
        "monitor_port",
        "net",
        "port",
        "server_name",
    }
)


def check_options(options: Mapping[str, object]) -> ServerOptions:
    """Return the options that are set, or raise InvalidOptionError for one that is wrong."""
    unknown = options.keys() - ServerOptions.__annotations__.keys()
    if unknown:
        known = ", ".join(sorted(ServerOptions.__annotations__))
        raise InvalidOptionError(
            f"unknown server option {min(unknown)!r}: known are {known}; anything else that "
            "nats-server can be told goes into `config`"
        )
    chosen = cast(ServerOptions, {k: v for k, v in options.items() if v is not None})
    port = chosen.get("port") or 0
    if not 0 <= port <= 65535:
        raise InvalidOptionError(f"port {port} is not a port: give 1 to 65535, or 0 for a free one")
    if ("user" in chosen) != ("password" in chosen):
        raise InvalidOptionError("`user` and `password` need each other: give both or neither")
    if "token" in chosen and chosen.keys() & {"user", "users", "nkeys"}:
        raise InvalidOptionError("`token` cannot be combined with `user`, `users` or `nkeys`")
    if clash := _RESERVED & (chosen.get("config") or {}).keys():
        raise InvalidOptionError(
            f"`config` must not set {min(clash)!r}, on which the runner depends; for the name and "
            "the address there are the options `name`, `host` and `port`"
        )
    if not chosen.get("jetstream", True) and chosen.keys() & {"store_dir", *_JETSTREAM_PLAIN}:
        option = min(chosen.keys() & {"store_dir", *_JETSTREAM_PLAIN})
        raise InvalidOptionError(f"`{option}` has no meaning with jetstream=False")
    return chosen


def build_config(
    options: ServerOptions, *, name: str, ports: Ports, store_dir: Path
) -> dict[str, Any]:
    """Return the nats-server configuration for checked options."""
    host = options.get("host") or LOCALHOST
    config: dict[str, Any] = {
        "server_name": name,
        "host": host,
        "port": ports.client,
        "http": f"{LOCALHOST}:{ports.monitor}",
    }
    fields = cast(Mapping[str, Any], options)
    config.update({key: fields[key] for key in _PLAIN if key in fields})
    config.update({key: _duration(fields[key]) for key in _DURATIONS if key in fields})
    if options.get("jetstream", True):
        config["jetstream"] = {
            "store_dir": str(store_dir),
            **{key: fields[key] for key in _JETSTREAM_PLAIN if key in fields},
        }
    if authorization := _authorization(options):
        config["authorization"] = authorization
    if accounts := options.get("accounts"):
        config["accounts"] = accounts
    if tls := options.get("tls"):
        config["tls"] = _tls(tls)
    if ports.websocket is not None:
        websocket = options.get("websocket")
        config["websocket"] = {
            "host": host,
            "port": ports.websocket,
            **({"tls": _tls(websocket)} if isinstance(websocket, TLSConfig) else {"no_tls": True}),
        }
    return merge(config, options.get("config") or {})


def render_config(config: Mapping[str, Any]) -> str:
    """Return the text of a configuration file."""
    # Characters beyond ASCII stay as they are: nats-server does not know \u escapes.
    return json.dumps(config, indent=2, ensure_ascii=False, default=_jsonable) + "\n"


def merge(base: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` overridden by `extra`, block by block; None in `extra` removes a key."""
    merged = dict(base)
    for key, value in extra.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
            merged[key] = merge(merged[key], value)
        else:
            merged[key] = value
    return merged


def probe_login(options: ServerOptions) -> dict[str, str] | None:
    """Return CONNECT fields of a client that may do anything, or None if there is none to know.

    Keys, hashed passwords, client certificates and accounts are beyond a plain socket.
    """
    if options.get("accounts") or (options.get("config") or {}).keys() & {
        "accounts",
        "authorization",
        "operator",
    }:
        return None
    if (tls := options.get("tls")) is not None and tls.verify:
        return None
    if token := options.get("token"):
        return {"auth_token": token}
    if not (users := _users(options)):
        return {}
    for user in users:
        password = user.get("password")
        if password and not password.startswith("$2") and "permissions" not in user:
            return {"user": user["user"], "pass": password}
    return None


def _authorization(options: ServerOptions) -> dict[str, Any]:
    if token := options.get("token"):
        return {"token": token}
    users = _users(options)
    return {"users": users} if users else {}


def _users(options: ServerOptions) -> list[Mapping[str, Any]]:
    users: list[Mapping[str, Any]] = []
    if "user" in options:
        users.append({"user": options["user"], "password": options["password"]})
    users.extend(options.get("users") or ())
    users.extend({"nkey": nkey} for nkey in options.get("nkeys") or ())
    return users


def _tls(tls: TLSConfig) -> dict[str, Any]:
    # Absolute, because a configuration may be read again (reload) after a change of directory.
    block: dict[str, Any] = {
        "cert_file": os.path.abspath(tls.cert),
        "key_file": os.path.abspath(tls.key),
    }
    if tls.ca is not None:
        block["ca_file"] = os.path.abspath(tls.ca)
    if tls.verify:
        block["verify"] = True
    if tls.handshake_first:
        block["handshake_first"] = tls.handshake_first
    if tls.timeout is not None:
        block["timeout"] = _duration(tls.timeout)
    return block


def _duration(value: Duration) -> str:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    return f"{seconds:f}s"


def _jsonable(value: object) -> object:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, timedelta):
        return _duration(value)
    raise InvalidOptionError(f"`config` cannot hold a {type(value).__name__}: {value!r}")
