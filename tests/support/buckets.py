"""What the tests of buckets share besides `kv`: fixtures, and how to look at what is stored."""

from __future__ import annotations

import pytest
import pytest_asyncio

from jetspark import Client, JetStream, KeyValue, KeyValueEntry, Stream
from jetspark.kv import KeyValueWatcher
from jetspark.server import NatsServer
from tests.support.clients import Connect
from tests.support.streams import version_of

__all__ = ["initial", "js", "nc", "needs_markers", "stream_of"]


@pytest_asyncio.fixture
async def nc(nats_server: NatsServer, connect: Connect) -> Client:
    return await connect(nats_server.url)


@pytest.fixture
def js(nc: Client) -> JetStream:
    return nc.jetstream(strict=True)


@pytest.fixture
def needs_markers(nats_server: NatsServer) -> None:
    """For tests of TTLs of single keys, and of the markers that a server leaves."""
    if version_of(nats_server) < (2, 11):
        pytest.skip("TTLs of keys came with 2.11")


async def stream_of(js: JetStream, bucket: KeyValue[bytes]) -> Stream:
    """The stream under a bucket."""
    return await js.get_stream(f"KV_{bucket.name}")


async def initial(watcher: KeyValueWatcher[bytes]) -> list[KeyValueEntry[bytes]]:
    """What comes before the end of the initial data."""
    found = []
    while (entry := await watcher.next(10)) is not None:
        found.append(entry)
    return found
