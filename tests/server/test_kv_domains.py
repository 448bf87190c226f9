"""Buckets in other domains and accounts, and mirrors across them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import nats
import pytest

from jetspark import Client, KeyValue, KeyValueOperation, StreamSource
from jetspark.connection import Message
from jetspark.errors import KeyNotFoundError, NoStreamResponseError
from jetspark.server import NatsServer
from jetspark.server.config import LOCALHOST
from jetspark.server.ports import ReservedPort
from tests.support.buckets import initial
from tests.support.clients import Connect, eventually
from tests.support.conformance import conformance
from tests.support.kv import listed
from tests.support.servers import StartServer
from tests.support.streams import new_name

SECTION = "9. API prefix"
MIRRORS = "8. Mirrors, sources, republish"
PUT, DELETE, PURGE = KeyValueOperation


class Servers(NamedTuple):
    hub: NatsServer
    leaf: NatsServer


@pytest.fixture
def servers(start_server: StartServer) -> Iterator[Servers]:
    """A hub and a leaf node, each with a JetStream domain of its own."""
    port = ReservedPort(LOCALHOST)
    listen = {"host": LOCALHOST, "port": port.number}
    hub = start_server(domain="hub", config={"leafnodes": listen})
    remotes = [{"url": f"nats://{LOCALHOST}:{port.number}"}]
    yield Servers(hub, start_server(domain="leaf", config={"leafnodes": {"remotes": remotes}}))
    port.close()


async def use(bucket: KeyValue[bytes]) -> None:
    """Do everything that a bucket can, once."""
    assert await bucket.put("a", b"1") == 1
    assert await bucket.update("a", b"2", 1) == 2
    assert await bucket.create("b", b"3") == 3
    entry = await bucket.get("a")
    assert (entry.key, entry.value, entry.revision) == ("a", b"2", 2)
    assert (await bucket.get("a", revision=1)).value == b"1"
    await bucket.delete("b")
    await bucket.create("b", b"4")
    await bucket.purge("b")
    assert sorted(await bucket.get_many(["a", "b"])) == ["a"]
    assert await listed(bucket.keys()) == ["a"]
    assert [entry.value for entry in await bucket.history("a")] == [b"1", b"2"]
    async with bucket.watch() as watcher:
        assert [entry.key for entry in await initial(watcher)] == ["a", "b"]
        await bucket.put("c", b"5")
        found = await watcher.next(5)
        assert found is not None
        assert (found.key, found.value, found.revision) == ("c", b"5", 7)
    assert await bucket.purge_deletes(0) == 1
    assert (await bucket.status()).values == 3


@conformance("KV", SECTION, "a bucket in another domain: every call goes there")
async def test_another_domain(servers: Servers, connect: Connect) -> None:
    nc = await connect(servers.leaf.url)
    far = nc.jetstream(domain="hub", strict=True)
    await eventually_reachable(nc)
    bucket = await far.create_key_value(bucket="b", history=5)
    await use(bucket)
    hub = (await connect(servers.hub.url)).jetstream(strict=True)
    assert (await (await hub.key_value("b")).get("c")).value == b"5"
    assert await listed(far.key_value_names()) == ["b"]
    assert await listed(nc.jetstream().key_value_names()) == []


async def eventually_reachable(nc: Client, domain: str = "hub") -> None:
    """Wait until a leaf node is connected."""

    async def reachable() -> bool:
        try:
            await nc.jetstream(domain=domain, timeout=1).account_info()
        except Exception:
            return False
        return True

    await eventually(reachable)


@conformance("KV", SECTION, "writes have the prefix in front, everything else has it in the API")
async def test_subjects(servers: Servers, connect: Connect) -> None:
    nc = await connect(servers.leaf.url)
    await eventually_reachable(nc)
    bucket = await nc.jetstream(domain="hub").create_key_value(bucket="b")
    seen: list[Message] = []
    await nc.subscribe("$JS.hub.API.>", callback=seen.append)
    await bucket.put("k", b"")
    await bucket.get("k")
    await bucket.purge_deletes(0)
    await eventually(lambda: len(seen) >= 3)
    subjects = [message.subject for message in seen]
    assert subjects[0] == "$JS.hub.API.$KV.b.k"
    assert subjects[1] == "$JS.hub.API.DIRECT.GET.KV_b.$KV.b.k"
    assert any(
        subject.startswith("$JS.hub.API.CONSUMER.CREATE.KV_b.") and subject.endswith(".$KV.b.>")
        for subject in subjects
    )


@conformance("KV", SECTION, "a put without the prefix does not cross into another domain")
async def test_a_put_without_the_prefix(servers: Servers, connect: Connect) -> None:
    nc = await connect(servers.leaf.url)
    await eventually_reachable(nc)
    bucket = await nc.jetstream(domain="hub").create_key_value(bucket="b")
    with pytest.raises(NoStreamResponseError):
        await nc.jetstream().publish("$KV.b.k", b"", retries=0)
    with pytest.raises(KeyNotFoundError):
        await bucket.get("k")


@conformance("KV", SECTION, "writes of nats-py have no prefix and stay in its own domain")
async def test_nats_py_writes_to_its_own_domain(servers: Servers, connect: Connect) -> None:
    nc = await connect(servers.leaf.url)
    await eventually_reachable(nc)
    far = await nc.jetstream(domain="hub").create_key_value(bucket="b")
    near = await nc.jetstream().create_key_value(bucket="b")
    await far.put("k", b"far")
    await near.put("k", b"near")
    client = await nats.connect(servers.leaf.url)
    theirs = await client.jetstream(domain="hub").key_value("b")
    assert (await theirs.get("k")).value == b"far"
    await theirs.put("k", b"theirs")
    await client.close()
    assert (await near.get("k")).value == b"theirs"
    assert await far.put("other", b"") == 2  # by the same way, so nothing else came
    assert (await far.get("k")).value == b"far"


@conformance("KV", MIRRORS, "a mirror in another domain: reads here, writes there")
@pytest.mark.parametrize("name", ["b", "other"])
async def test_a_mirror_of_another_domain(servers: Servers, connect: Connect, name: str) -> None:
    hub = (await connect(servers.hub.url)).jetstream(strict=True)
    origin = await hub.create_key_value(bucket="b", history=5)
    await origin.put("a", b"1")
    nc = await connect(servers.leaf.url)
    await eventually_reachable(nc)
    js = nc.jetstream(domain="leaf", strict=True)
    mirror = await js.create_key_value(
        bucket=name, history=5, mirror=StreamSource(name="b", domain="hub")
    )

    async def has(key: str, value: bytes) -> bool:
        found = await mirror.get_many(key)
        return key in found and found[key].value == value

    await eventually(lambda: has("a", b"1"))
    assert await mirror.put("c", b"2") == 2
    assert (await origin.get("c")).value == b"2"
    await eventually(lambda: has("c", b"2"))
    assert await mirror.update("c", b"3", 2) == 3
    await mirror.delete("a")
    assert [entry.operation for entry in await origin.history("a")] == [PUT, DELETE]
    assert await mirror.create("a", b"4") == 5
    assert (await mirror.status()).bucket == name


@conformance("KV", MIRRORS, "sources in another domain, of the same bucket and of another")
async def test_sources_in_another_domain(servers: Servers, connect: Connect) -> None:
    hub = (await connect(servers.hub.url)).jetstream(strict=True)
    same = await hub.create_key_value(bucket="b")
    other = await hub.create_key_value(bucket="o")
    await same.put("same", b"1")
    await other.put("other", b"2")
    nc = await connect(servers.leaf.url)
    await eventually_reachable(nc)
    js = nc.jetstream(domain="leaf", strict=True)
    bucket = await js.create_key_value(
        bucket="b",
        sources=[StreamSource(name="b", domain="hub"), StreamSource(name="o", domain="hub")],
    )

    async def complete() -> bool:
        return sorted(await bucket.get_many(">")) == ["other", "same"]

    await eventually(complete)
    await bucket.put("own", b"")
    with pytest.raises(KeyNotFoundError):
        await same.get("own")


@conformance("KV", SECTION, "a bucket of another account, imported under a prefix")
async def test_another_account(start_server: StartServer, connect: Connect) -> None:
    server = start_server(
        accounts={
            "OWNER": {
                "jetstream": "enabled",
                "users": [{"user": "owner", "password": "p"}],
                "exports": [
                    {"service": "$JS.API.>", "response_type": "stream"},
                    {"service": "$KV.>"},
                ],
            },
            "GUEST": {
                "users": [{"user": "guest", "password": "p"}],
                "imports": [
                    {"service": {"account": "OWNER", "subject": "$JS.API.>"}, "to": "owner.>"},
                    {"service": {"account": "OWNER", "subject": "$KV.>"}, "to": "owner.$KV.>"},
                ],
            },
        }
    )
    guest = await connect(server.url, user="guest", password="p")
    bucket = await guest.jetstream(prefix="owner", strict=True).create_key_value(
        bucket=new_name(), history=5
    )
    await use(bucket)
    owner = (await connect(server.url, user="owner", password="p")).jetstream(strict=True)
    assert (await (await owner.key_value(bucket.name)).get("c")).value == b"5"
