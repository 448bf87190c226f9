"""Fixtures that run real nats-servers. A missing nats-server fails the tests that need one.

`nats_server` and `nats_cluster` are shared by the whole session: tests use stream and subject
names of their own there, and leave the processes alone. A test that needs other options, or that
stops, pauses or kills, starts servers of its own with `start_server` and `start_cluster`.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Protocol, Unpack

import pytest

from jetspark.server import NatsCluster, NatsServer, ServerOptions, run_cluster, run_server


class StartServer(Protocol):
    """The type of the fixture `start_server`."""

    def __call__(self, **options: Unpack[ServerOptions]) -> NatsServer: ...


class StartCluster(Protocol):
    """The type of the fixture `start_cluster`."""

    def __call__(self, size: int = 3, **options: Unpack[ServerOptions]) -> NatsCluster: ...


def monitor(server: NatsServer, path: str) -> dict[str, Any]:
    """What a server says of itself, under a path such as `/varz` or `/jsz`."""
    connection = http.client.HTTPConnection("127.0.0.1", server.monitor_port, timeout=5)
    try:
        connection.request("GET", path)
        return dict(json.load(connection.getresponse()))
    finally:
        connection.close()


@pytest.fixture(scope="session")
def nats_server() -> Iterator[NatsServer]:
    """One JetStream server for all tests that do not disturb it."""
    with run_server() as server:
        yield server


@pytest.fixture(scope="session")
def nats_cluster() -> Iterator[NatsCluster]:
    """One cluster of three for all tests that do not disturb it."""
    with run_cluster(3) as cluster:
        yield cluster


@pytest.fixture
def start_server() -> Iterator[StartServer]:
    """Start a server with any options; it is closed at the end of the test."""
    with ExitStack() as stack:

        def start(**options: Unpack[ServerOptions]) -> NatsServer:
            return stack.enter_context(run_server(**options))

        yield start


@pytest.fixture
def start_cluster() -> Iterator[StartCluster]:
    """Start a cluster with any options; it is closed at the end of the test."""
    with ExitStack() as stack:

        def start(size: int = 3, **options: Unpack[ServerOptions]) -> NatsCluster:
            return stack.enter_context(run_cluster(size, **options))

        yield start
