"""Asks a server whether it is ready, with sockets and the standard library alone.

The health endpoint of the monitor speaks for a single server: its listeners are open, JetStream
is up, and in a cluster the node knows the leader and has caught up. It does not say whether the
leader has heard enough from every node to place replicas there, so a cluster is asked to place a
stream, through the few lines of the client protocol that this takes.
"""

from __future__ import annotations

import http.client
import json
import secrets
import socket
import ssl
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, BinaryIO

from jetspark.server.config import LOCALHOST

__all__ = ["counted_members", "health_problem", "placement_problem"]


def health_problem(monitor_port: int, *, assets: bool, timeout: float) -> str | None:
    """Return why a server is not healthy, or None if it is.

    Without `assets`, the listeners and JetStream itself count, but not the leader and the streams.
    """
    path = "/healthz" if assets else "/healthz?js-enabled-only=true"
    try:
        answer = _monitor(monitor_port, path, timeout)
    except (OSError, ValueError) as error:
        return f"its monitor does not answer ({error})"
    return None if answer.get("status") == "ok" else str(answer.get("error", answer))


def counted_members(monitor_port: int, timeout: float) -> set[str]:
    """Return the names of the nodes that a leader counts, itself included.

    A node that is not the leader of its cluster counts none.
    """
    try:
        meta = _monitor(monitor_port, "/jsz", timeout).get("meta_cluster", {})
    except (OSError, ValueError):
        return set()
    if "replicas" not in meta:
        return set()
    return {meta["leader"], *(peer["name"] for peer in meta["replicas"])}


def placement_problem(
    host: str,
    port: int,
    *,
    stream: str,
    login: Mapping[str, str],
    tls: bool,
    tls_first: bool,
    replicas: int,
    timeout: float,
) -> str | None:
    """Create and delete a stream with that many replicas.

    Return what went wrong, or None. After an answer that did not come in time the stream may exist.
    """
    config = {"name": stream, "subjects": [stream], "num_replicas": replicas, "storage": "memory"}
    try:
        with ExitStack() as stack:
            connection = stack.enter_context(socket.create_connection((host, port), timeout))
            if not tls_first:
                _skip_info(connection)
            if tls:
                connection = stack.enter_context(_tls_context().wrap_socket(connection))
            if tls_first:
                _skip_info(connection)
            reader = stack.enter_context(connection.makefile("rb"))
            session = _Session(connection, reader, login)
            created = session.request(f"$JS.API.STREAM.CREATE.{stream}", config)
            if "error" not in created:
                session.request(f"$JS.API.STREAM.DELETE.{stream}", {})
    except (OSError, ValueError) as error:
        return f"placing a stream failed ({error})"
    problem = created.get("error")
    return None if problem is None else str(problem.get("description", problem))


class _Session:
    """A client connection that can make one request after the other."""

    def __init__(
        self, connection: socket.socket, reader: BinaryIO, login: Mapping[str, str]
    ) -> None:
        self._socket = connection
        self._reader = reader
        self._inbox = f"_INBOX.{secrets.token_hex(8)}"
        hello = {"verbose": False, "pedantic": False, **login}
        self._send(f"CONNECT {json.dumps(hello)}\r\nSUB {self._inbox} 1\r\n")

    def request(self, subject: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and return the JSON answer."""
        payload = json.dumps(body)
        self._send(f"PUB {subject} {self._inbox} {len(payload)}\r\n{payload}\r\n")
        while line := self._reader.readline():
            verb, _, rest = line.decode().strip().partition(" ")
            if verb == "MSG":
                answer = self._reader.read(int(rest.split()[-1]) + 2)
                return dict(json.loads(answer))
            if verb == "PING":
                self._send("PONG\r\n")
            elif verb == "-ERR":
                raise ValueError(rest)
        raise ConnectionResetError("the server closed the connection")

    def _send(self, text: str) -> None:
        self._socket.sendall(text.encode())


def _tls_context() -> ssl.SSLContext:
    # The peer is a server of ours on this machine; its certificate would prove nothing more.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _skip_info(connection: socket.socket) -> None:
    # Byte by byte: what follows the line may belong to the TLS layer.
    while connection.recv(1) not in (b"\n", b""):
        pass


def _monitor(port: int, path: str, timeout: float) -> dict[str, Any]:
    connection = http.client.HTTPConnection(LOCALHOST, port, timeout=timeout)
    try:
        connection.request("GET", path)
        return dict(json.loads(connection.getresponse().read()))
    except http.client.HTTPException as error:
        raise ValueError(f"not an HTTP answer: {error!r}") from error
    finally:
        connection.close()
