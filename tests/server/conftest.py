"""The fixtures of the tests that use a client."""

from __future__ import annotations

import pytest

from jetspark import Client, JetStream
from jetspark.server import NatsServer
from tests.support.certs import certs
from tests.support.clients import Connect, connect
from tests.support.ordered import flavour, impatient

__all__ = ["certs", "connect", "flavour", "impatient", "js", "nc"]


@pytest.fixture
async def nc(nats_server: NatsServer, connect: Connect) -> Client:
    """A client of the server that all tests share."""
    return await connect(nats_server.url)


@pytest.fixture
def js(nc: Client) -> JetStream:
    """Its JetStream, which refuses what it does not know."""
    return nc.jetstream(strict=True)
