"""Every option of a server, seen from the outside: what a plain socket gets for an answer."""

from __future__ import annotations

import base64
import json
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nkeys
import pytest
import trustme

from jetspark.errors import ServerProcessError
from jetspark.server import NatsServer, TLSConfig
from tests.support.servers import StartServer, monitor


class Line:
    """A client that sends protocol text and reads lines."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._reader = connection.makefile("rb")

    def send(self, text: str) -> None:
        self._socket.sendall(text.encode())

    def read(self) -> str:
        return self._reader.readline().decode().strip()

    def info(self) -> dict[str, Any]:
        verb, _, body = self.read().partition(" ")
        assert verb == "INFO"
        return dict(json.loads(body))

    def hello(self, **fields: object) -> str:
        """CONNECT, and the answer to a PING behind it."""
        options = {"verbose": False, "pedantic": False, **fields}
        self.send(f"CONNECT {json.dumps(options)}\r\nPING\r\n")
        return self.read()

    def close(self) -> None:
        self._reader.close()
        self._socket.close()


@contextmanager
def client(server: NatsServer) -> Iterator[Line]:
    line = Line(socket.create_connection((server.host, server.port), 5))
    try:
        yield line
    finally:
        line.close()


def login(server: NatsServer, **fields: object) -> str:
    with client(server) as line:
        line.info()
        return line.hello(**fields)


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls_config(authority: trustme.CA, tmp_path: Path) -> Callable[..., TLSConfig]:
    def make(**fields: Any) -> TLSConfig:
        certificate = authority.issue_cert("127.0.0.1")
        certificate.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
        certificate.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
        authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
        return TLSConfig(cert=tmp_path / "cert.pem", key=tmp_path / "key.pem", **fields)

    return make


@pytest.fixture
def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def test_user_and_password(start_server: StartServer) -> None:
    server = start_server(user="ann", password="secret")
    assert login(server, user="ann", **{"pass": "secret"}) == "PONG"
    assert login(server, user="ann", **{"pass": "wrong"}) == "-ERR 'Authorization Violation'"


def test_token(start_server: StartServer) -> None:
    server = start_server(token="s3cr$t")
    assert login(server, auth_token="s3cr$t") == "PONG"
    assert login(server) == "-ERR 'Authorization Violation'"


def test_users_with_permissions(start_server: StartServer) -> None:
    server = start_server(
        users=[
            {"user": "all", "password": "a"},
            {"user": "some", "password": "b", "permissions": {"publish": ["in.>"]}},
        ]
    )
    with client(server) as line:
        line.info()
        assert line.hello(user="some", **{"pass": "b"}) == "PONG"
        line.send("PUB out 0\r\n\r\nPING\r\n")
        assert line.read() == "-ERR 'Permissions Violation for Publish to \"out\"'"
    assert login(server, user="all", **{"pass": "a"}) == "PONG"


def test_nkeys(start_server: StartServer) -> None:
    key = nkeys.from_seed(nkeys.encode_seed(bytes(range(32)), nkeys.PREFIX_BYTE_USER))
    server = start_server(nkeys=[key.public_key.decode()])
    with client(server) as line:
        signature = key.sign(line.info()["nonce"].encode())
        signed = base64.urlsafe_b64encode(signature).decode().rstrip("=")
        assert line.hello(nkey=key.public_key.decode(), sig=signed) == "PONG"
    assert login(server) == "-ERR 'Authorization Violation'"


def test_accounts(start_server: StartServer) -> None:
    server = start_server(
        accounts={
            "A": {"jetstream": "enabled", "users": [{"user": "a", "password": "x"}]},
            "B": {"users": [{"user": "b", "password": "x"}]},
        },
        config={"no_auth_user": "b"},
    )
    assert login(server, user="a", **{"pass": "x"}) == "PONG"
    assert login(server) == "PONG"
    assert {"A", "B"} <= set(monitor(server, "/accountz")["accounts"])


def test_tls(
    start_server: StartServer,
    tls_config: Callable[..., TLSConfig],
    trusting: ssl.SSLContext,
) -> None:
    server = start_server(tls=tls_config(timeout=5))
    assert server.url == f"tls://127.0.0.1:{server.port}"
    with socket.create_connection((server.host, server.port), 5) as raw:
        with raw.makefile("rb", buffering=0) as reader:
            assert b'"tls_required":true' in reader.readline()
        line = Line(trusting.wrap_socket(raw, server_hostname=server.host))
        assert line.hello() == "PONG"
        line.close()


def test_tls_with_client_certificates(
    start_server: StartServer,
    tls_config: Callable[..., TLSConfig],
    trusting: ssl.SSLContext,
    authority: trustme.CA,
    tmp_path: Path,
) -> None:
    server = start_server(tls=tls_config(ca=tmp_path / "ca.pem", verify=True))
    authority.issue_cert("ann@example.org").configure_cert(trusting)
    with socket.create_connection((server.host, server.port), 5) as raw:
        with raw.makefile("rb", buffering=0) as reader:
            assert b'"tls_verify":true' in reader.readline()
        line = Line(trusting.wrap_socket(raw, server_hostname=server.host))
        assert line.hello() == "PONG"
        line.close()


def test_tls_first(
    start_server: StartServer,
    tls_config: Callable[..., TLSConfig],
    trusting: ssl.SSLContext,
) -> None:
    server = start_server(tls=tls_config(handshake_first=True))
    with socket.create_connection((server.host, server.port), 5) as raw:
        line = Line(trusting.wrap_socket(raw, server_hostname=server.host))
        assert line.info()["tls_required"] is True
        assert line.hello() == "PONG"
        line.close()


def upgrade(connection: socket.socket) -> str:
    """Ask for a WebSocket and return the status line."""
    key = base64.b64encode(os.urandom(16)).decode()
    connection.sendall(
        f"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
    )
    with connection.makefile("rb") as reader:
        return reader.readline().decode().strip()


def test_websocket(start_server: StartServer) -> None:
    server = start_server(websocket=True)
    host, port = server.ws_url.removeprefix("ws://").split(":")
    assert int(port) != server.port
    with socket.create_connection((host, int(port)), 5) as raw:
        assert "101" in upgrade(raw)
    server.restart()
    assert server.ws_url == f"ws://{host}:{port}"


def test_websocket_with_tls(
    start_server: StartServer,
    tls_config: Callable[..., TLSConfig],
    trusting: ssl.SSLContext,
) -> None:
    server = start_server(websocket=tls_config())
    host, port = server.ws_url.removeprefix("wss://").split(":")
    with (
        socket.create_connection((host, int(port)), 5) as raw,
        trusting.wrap_socket(raw, server_hostname=host) as secure,
    ):
        assert "101" in upgrade(secure)
    assert login(server) == "PONG"


def test_no_websocket_without_the_option(nats_server: NatsServer) -> None:
    with pytest.raises(ServerProcessError, match="websocket=True"):
        _ = nats_server.ws_url


def test_name_domain_and_limits(start_server: StartServer) -> None:
    server = start_server(
        name="limited",
        domain="hub",
        max_payload=2000,
        max_control_line=512,
        max_connections=7,
        max_subscriptions=8,
        max_pending=100_000,
        ping_interval=1.5,
        ping_max=5,
        write_deadline=0.5,
        max_memory_store=1 << 20,
        max_file_store=1 << 21,
    )
    with client(server) as line:
        info = line.info()
    assert info["server_name"] == "limited"
    assert info["domain"] == "hub"
    assert info["max_payload"] == 2000
    assert info["jetstream"] is True
    assert server.monitor_url == f"http://127.0.0.1:{server.monitor_port}"
    varz = monitor(server, "/varz")
    assert varz["max_control_line"] == 512
    assert varz["max_connections"] == 7
    assert varz["max_subscriptions"] == 8
    assert varz["max_pending"] == 100_000
    assert varz["ping_interval"] == 1_500_000_000
    assert varz["ping_max"] == 5
    assert varz["write_deadline"] == 500_000_000
    assert varz["jetstream"]["config"]["max_memory"] == 1 << 20
    assert varz["jetstream"]["config"]["max_storage"] == 1 << 21


def test_jetstream_off(start_server: StartServer) -> None:
    server = start_server(jetstream=False)
    with client(server) as line:
        assert not line.info().get("jetstream")


def test_listening_on_all_addresses_is_reached_locally(start_server: StartServer) -> None:
    server = start_server(host="0.0.0.0")
    assert server.url == f"nats://127.0.0.1:{server.port}"
    assert login(server) == "PONG"


def test_listening_on_ipv6(start_server: StartServer) -> None:
    server = start_server(host="::1")
    assert server.url == f"nats://[::1]:{server.port}"
    assert login(server) == "PONG"
