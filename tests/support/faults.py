"""Fixtures of the tests in which something fails: a client in trouble, and one that looks on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from jetspark import Backoff, Client, connect
from jetspark.server import NatsServer
from tests.support.leaks import no_leaks
from tests.support.proxy import Proxy

__all__ = ["FAST", "connected", "far", "near", "nothing_left", "proxy"]

FAST: dict[str, Any] = {"reconnect_delay": Backoff(initial=0.01, maximum=0.05)}


@asynccontextmanager
async def connected(servers: str | list[str], **options: Any) -> AsyncIterator[Client]:
    """A client that reconnects fast, and is closed in the end."""
    client = await connect(servers, **{**FAST, **options})
    try:
        yield client
    finally:
        await client.close()


@pytest.fixture(autouse=True)
async def nothing_left() -> AsyncIterator[None]:
    """Fail a test that leaves sockets, tasks or exceptions behind."""
    async with no_leaks():
        yield


@pytest.fixture
async def proxy(nats_server: NatsServer, nothing_left: None) -> AsyncIterator[Proxy]:
    """A way to the server that can be cut and stalled."""
    async with Proxy(nats_server.host, nats_server.port) as proxy:
        yield proxy


@pytest.fixture
async def near(nats_server: NatsServer, nothing_left: None) -> AsyncIterator[Client]:
    """A client that no proxy troubles."""
    async with connected(nats_server.url) as client:
        yield client


@pytest.fixture
async def far(proxy: Proxy) -> AsyncIterator[Client]:
    """The client in trouble."""
    async with connected(proxy.url) as client:
        yield client
