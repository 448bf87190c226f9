"""Buckets shared with nats-py and natsrpy (async-nats): each reads what the others wrote."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import nats
import natsrpy
import pytest
from nats.js import errors as nats_errors
from natsrpy.exceptions import NatsrpyBaseError
from natsrpy.js import KVConfig, KVOperation, Source

import jetspark
from jetspark import JetStream, KeyValue, KeyValueEntry
from jetspark import KeyValueOperation as Operation
from jetspark.errors import (
    InvalidKeyError,
    KeyDeletedError,
    KeyExistsError,
    KeyNotFoundError,
    RevisionMismatchError,
)
from jetspark.server import NatsServer
from tests.support.clients import Connect, eventually
from tests.support.conformance import conformance
from tests.support.kv import listed
from tests.support.streams import new_name, version_of

CONFIG = "2. Bucket -> stream config"
WRITES = "5. Writes"
WATCH = "6. Watch, keys, history"
TTLS = "7. Per-key TTL and limit markers"


@pytest.fixture
async def ours(nats_server: NatsServer, connect: Connect) -> JetStream:
    client = await connect(nats_server.url)
    assert isinstance(client, jetspark.Client)
    return client.jetstream(strict=True)


@pytest.fixture
async def nats_py(nats_server: NatsServer) -> AsyncIterator[Any]:
    client = await nats.connect(nats_server.url)
    yield client.jetstream()
    await client.close()


@pytest.fixture
async def rust(nats_server: NatsServer) -> AsyncIterator[Any]:
    client = natsrpy.Nats(addrs=[nats_server.url])
    await client.startup()
    yield await client.jetstream()
    await client.shutdown()


@pytest.fixture
def name() -> str:
    return new_name("B")


@pytest.fixture
def with_markers(nats_server: NatsServer) -> None:
    """Skip a test of TTLs on a server that has none."""
    if version_of(nats_server) < (2, 11):
        pytest.skip("TTLs of keys need a server of 2.11")


async def initial(bucket: KeyValue[bytes]) -> list[KeyValueEntry[bytes]]:
    """What a watch gives before the end of the initial data."""
    found: list[KeyValueEntry[bytes]] = []
    async with bucket.watch() as watcher:
        async for entry in watcher:
            if entry is None:
                return found
            found.append(entry)
    raise AssertionError("the end was not told")


async def rust_initial(iterator: Any) -> list[Any]:
    """What a watcher of natsrpy gives until nothing is pending."""
    found = []
    async for entry in iterator:
        found.append(entry)
        if entry.delta == 0:
            break
    return found


# -- configurations -----------------------------------------------------------------------------


@conformance("KV", CONFIG, "a bucket of nats-py has no direct gets")
async def test_ours_binds_a_bucket_of_nats_py(
    nats_server: NatsServer, ours: JetStream, nats_py: Any, name: str
) -> None:
    theirs = await nats_py.create_key_value(
        bucket=name, history=5, ttl=3600, max_bytes=1_000_000, max_value_size=1000, description="d"
    )
    await theirs.put("a", b"1")
    bucket = await ours.key_value(name)
    status = await bucket.status()
    assert (status.bucket, status.history, status.values) == (name, 5, 1)
    assert status.ttl == timedelta(hours=1)
    config = (await ours.get_stream(f"KV_{name}")).config
    assert not config.allow_direct
    assert config.allow_msg_ttl == (version_of(nats_server) >= (2, 11))
    # Without direct gets, the API of the stream serves.
    entry = await bucket.get("a")
    assert (entry.value, entry.revision, entry.operation) == (b"1", 1, Operation.PUT)
    revision = await bucket.put("a", b"2")
    assert (await bucket.get("a", revision=1)).value == b"1"
    assert (await bucket.get("a")).revision == revision
    with pytest.raises(KeyNotFoundError):
        await bucket.get("b")
    await bucket.put("empty", b"")
    assert (await bucket.get("empty")).value == b""


@conformance("KV", CONFIG, "a bucket of ours is one for nats-py")
async def test_nats_py_binds_a_bucket_of_ours(ours: JetStream, nats_py: Any, name: str) -> None:
    bucket = await ours.create_key_value(
        bucket=name, history=5, ttl=3600, max_bytes=1_000_000, max_value_size=1000, description="d"
    )
    await bucket.put("a", b"1")
    theirs = await nats_py.key_value(name)
    status = await theirs.status()
    assert (status.bucket, status.history, status.ttl, status.values) == (name, 5, 3600, 1)
    config = status.stream_info.config
    assert (config.max_bytes, config.max_msg_size, config.description) == (1_000_000, 1000, "d")
    assert config.allow_direct
    assert config.deny_delete
    assert (await theirs.get("a")).value == b"1"


@pytest.mark.usefixtures("with_markers")
@conformance("KV", CONFIG, "a bucket of async-nats is one for ours")
async def test_ours_binds_a_bucket_of_natsrpy(ours: JetStream, rust: Any, name: str) -> None:
    theirs = await rust.kv.create(
        KVConfig(name, history=3, max_age=60, compression=True, limit_markers=2, description="d")
    )
    await theirs.put("a", b"1")
    bucket = await ours.key_value(name)
    status = await bucket.status()
    assert (status.history, status.ttl, status.values) == (3, timedelta(minutes=1), 1)
    assert status.compressed
    assert status.limit_marker_ttl == timedelta(seconds=2)
    assert (await bucket.get("a")).value == b"1"


@pytest.mark.usefixtures("with_markers")
@conformance("KV", CONFIG, "a bucket of ours is one for async-nats")
async def test_natsrpy_binds_a_bucket_of_ours(ours: JetStream, rust: Any, name: str) -> None:
    bucket = await ours.create_key_value(
        bucket=name, history=3, ttl=60, compression=True, limit_marker_ttl=2, description="d"
    )
    await bucket.put("a", b"1")
    theirs = await rust.kv.get(name)
    status = await theirs.status()
    config = status.info.config
    assert (status.bucket, config.max_messages_per_subject) == (name, 3)
    assert config.max_age == timedelta(minutes=1)
    assert config.allow_direct
    assert await theirs.get("a") == b"1"


@conformance("KV", CONFIG, "the same bucket made by two clients is one")
async def test_all_make_the_same_bucket(ours: JetStream, rust: Any, name: str) -> None:
    await rust.kv.create(KVConfig(name, history=3))
    bucket = await ours.create_key_value(bucket=name, history=3)
    await bucket.put("a", b"1")
    assert await (await rust.kv.create(KVConfig(name, history=3))).get("a") == b"1"


# -- values, deletes, purges, history -----------------------------------------------------------


@conformance("KV", WRITES, "what nats-py writes, deletes and purges is read by ours")
async def test_values_deletes_and_purges_of_nats_py(
    ours: JetStream, nats_py: Any, name: str
) -> None:
    theirs = await nats_py.create_key_value(bucket=name, history=5)
    bucket = await ours.key_value(name)
    first = await theirs.put("a", b"1")
    assert await theirs.update("a", b"2", last=first) == 2
    await theirs.delete("a")
    with pytest.raises(KeyNotFoundError):
        await bucket.get("a")
    assert [(e.operation, e.value, e.revision) for e in await bucket.history("a")] == [
        (Operation.PUT, b"1", 1),
        (Operation.PUT, b"2", 2),
        (Operation.DELETE, b"", 3),
    ]
    assert await bucket.create("a", b"3") == 4
    await theirs.purge("a")
    [purged] = await bucket.history("a")
    assert purged.operation == Operation.PURGE
    assert await listed(bucket.keys()) == []
    assert await bucket.create("a", b"4") == 6
    with pytest.raises(KeyExistsError):
        await bucket.create("a", b"5")
    with pytest.raises(RevisionMismatchError):
        await bucket.update("a", b"5", 5)


@conformance("KV", WRITES, "what ours writes, deletes and purges is read by nats-py")
async def test_nats_py_reads_deletes_and_purges_of_ours(
    ours: JetStream, nats_py: Any, name: str
) -> None:
    bucket = await ours.create_key_value(bucket=name, history=5)
    theirs = await nats_py.key_value(name)
    await bucket.put("a", b"1")
    await bucket.update("a", b"2", 1)
    await bucket.delete("a")
    with pytest.raises(nats_errors.KeyNotFoundError):
        await theirs.get("a")
    history = await theirs.history("a")
    assert [(e.operation, e.value or b"", e.revision) for e in history] == [
        (None, b"1", 1),
        (None, b"2", 2),
        ("DEL", b"", 3),
    ]
    assert await theirs.create("a", b"3") == 4
    await bucket.purge("a")
    assert [e.operation for e in await theirs.history("a")] == ["PURGE"]
    assert await theirs.create("a", b"4") == 6
    with pytest.raises(nats_errors.KeyWrongLastSequenceError):
        await theirs.update("a", b"5", last=5)
    assert (await theirs.get("a", revision=6)).value == b"4"


@conformance("KV", WRITES, "what async-nats writes, deletes and purges is read by ours")
async def test_values_deletes_and_purges_of_natsrpy(ours: JetStream, rust: Any, name: str) -> None:
    theirs = await rust.kv.create(KVConfig(name, history=5))
    bucket = await ours.key_value(name)
    await theirs.put("a.b", b"1")
    await theirs.update("a.b", b"2", 1)
    await theirs.delete("a.b", expect_revision=2)
    with pytest.raises(KeyDeletedError):
        await bucket.get("a.b")
    assert [(e.operation, e.value, e.revision) for e in await bucket.history("a.b")] == [
        (Operation.PUT, b"1", 1),
        (Operation.PUT, b"2", 2),
        (Operation.DELETE, b"", 3),
    ]
    assert await bucket.create("a.b", b"3") == 4
    await theirs.purge("a.b")
    assert [e.operation for e in await bucket.history("a.b")] == [Operation.PURGE]
    assert await bucket.create("a.b", b"4") == 6


@conformance("KV", WRITES, "what ours writes, deletes and purges is read by async-nats")
async def test_natsrpy_reads_deletes_and_purges_of_ours(
    ours: JetStream, rust: Any, name: str
) -> None:
    bucket = await ours.create_key_value(bucket=name, history=5)
    theirs = await rust.kv.get(name)
    await bucket.put("a", b"1")
    await bucket.update("a", b"2", 1)
    await bucket.delete("a")
    assert await theirs.get("a") is None
    history = [entry async for entry in await theirs.history("a")]
    assert [(e.operation, bytes(e.value), e.revision) for e in history] == [
        (KVOperation.Put, b"1", 1),
        (KVOperation.Put, b"2", 2),
        (KVOperation.Delete, b"", 3),
    ]
    assert await theirs.create("a", b"3") == 4
    await bucket.purge("a")
    purged = await theirs.entry("a")
    assert (purged.operation, purged.revision) == (KVOperation.Purge, 5)
    assert await theirs.create("a", b"4") == 6
    with pytest.raises(NatsrpyBaseError, match="10071"):
        await theirs.update("a", b"5", 5)


@conformance("KV", WRITES, "writers with compare-and-set add up, each of another client")
async def test_three_writers_count_together(
    ours: JetStream, nats_py: Any, rust: Any, name: str
) -> None:
    bucket = await ours.create_key_value(bucket=name)
    pythonic, rusty = await nats_py.key_value(name), await rust.kv.get(name)
    await bucket.create("n", b"0")

    async def count(update: Any, conflict: type[Exception]) -> None:
        for _ in range(20):
            while True:
                entry = await bucket.get("n")
                try:
                    await update("n", b"%d" % (int(entry.value) + 1), entry.revision)
                    break
                except conflict:
                    continue

    async with asyncio.TaskGroup() as group:
        group.create_task(count(bucket.update, RevisionMismatchError))
        group.create_task(count(pythonic.update, nats_errors.KeyWrongLastSequenceError))
        group.create_task(count(rusty.update, NatsrpyBaseError))
    assert (await bucket.get("n")).value == b"60"


# -- expiry -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("with_markers")
@conformance("KV", TTLS, "an expired key is not found, unlike nats-py")
@conformance("KV", "3. Headers", "nats-py ignores the marker in get, and cannot create after it")
async def test_expiry_of_a_key_of_nats_py(ours: JetStream, nats_py: Any, name: str) -> None:
    theirs = await nats_py.create_key_value(bucket=name, limit_marker_ttl=60)
    bucket = await ours.key_value(name)
    await theirs.create("a", b"1", msg_ttl=1)
    assert (await bucket.get("a")).value == b"1"
    await expired(bucket, "a")
    # nats-py takes the marker for a value that is there.
    assert (await theirs.get("a")).value is None
    with pytest.raises(nats_errors.KeyWrongLastSequenceError):
        await theirs.create("a", b"2")
    assert await listed(bucket.keys()) == []
    [marker] = await initial(bucket)
    assert (marker.operation, marker.value, marker.revision) == (Operation.PURGE, b"", 2)
    assert await bucket.create("a", b"2") == 3
    assert (await theirs.get("a")).value == b"2"


@pytest.mark.usefixtures("with_markers")
@conformance("KV", WRITES, "a TTL is kept when a key is created after expiry; async-nats drops it")
async def test_expiry_of_a_key_of_natsrpy(ours: JetStream, rust: Any, name: str) -> None:
    theirs = await rust.kv.create(KVConfig(name, limit_markers=60))
    bucket = await ours.key_value(name)
    stream = await ours.get_stream(f"KV_{name}")
    await theirs.create("a", b"1", ttl=1)
    assert (await bucket.get("a")).value == b"1"
    await expired(bucket, "a")
    assert (await theirs.entry("a")).operation == KVOperation.Purge
    await theirs.create("a", b"2", ttl=60)
    assert "Nats-TTL" not in (await stream.get_last_message(f"$KV.{name}.a")).headers
    await theirs.delete("a")
    await bucket.create("a", b"3", ttl=60)
    assert "Nats-TTL" in (await stream.get_last_message(f"$KV.{name}.a")).headers
    assert await theirs.get("a") == b"3"


@pytest.mark.usefixtures("with_markers")
@conformance("KV", TTLS, "a key of ours that expires is gone for nats-py and async-nats")
async def test_expiry_of_a_key_of_ours(ours: JetStream, nats_py: Any, rust: Any, name: str) -> None:
    bucket = await ours.create_key_value(bucket=name, limit_marker_ttl=60)
    pythonic, rusty = await nats_py.key_value(name), await rust.kv.get(name)
    await bucket.create("a", b"1", ttl=1)
    assert (await pythonic.get("a")).value == b"1"
    assert await rusty.get("a") == b"1"
    await expired(bucket, "a")
    assert await rusty.get("a") is None
    assert [key async for key in await rusty.keys()] == []
    watcher = await pythonic.watch("a")
    assert (await watcher.updates()).operation == "PURGE"
    await watcher.stop()
    assert await rusty.create("a", b"2") == 3
    assert (await bucket.get("a")).revision == 3


@pytest.mark.usefixtures("with_markers")
@conformance("KV", TTLS, "the marker of a purge of ours goes after its TTL, as others see it")
async def test_a_purge_of_ours_with_a_ttl(
    ours: JetStream, nats_py: Any, rust: Any, name: str
) -> None:
    bucket = await ours.create_key_value(bucket=name, limit_marker_ttl=60)
    pythonic, rusty = await nats_py.key_value(name), await rust.kv.get(name)
    watcher = await pythonic.watch("a")
    await bucket.put("a", b"1")
    await bucket.purge("a", ttl=1)
    while (entry := await watcher.updates()) is None or entry.operation is None:
        pass
    assert (entry.operation, entry.revision) == ("PURGE", 2)
    await watcher.stop()

    async def gone() -> bool:
        return await rusty.entry("a") is None

    await eventually(gone)
    with pytest.raises(nats_errors.KeyNotFoundError) as caught:
        await pythonic.get("a")
    assert not isinstance(caught.value, nats_errors.KeyDeletedError)
    assert (await pythonic.status()).values == 0
    assert await pythonic.create("a", b"2") == 3  # so there was no marker of the marker


@pytest.mark.usefixtures("with_markers")
@conformance("KV", TTLS, "the marker of a purge of nats-py or async-nats goes after its TTL")
@pytest.mark.parametrize("other", ["nats-py", "natsrpy"])
async def test_a_purge_of_others_with_a_ttl(
    ours: JetStream, nats_py: Any, rust: Any, name: str, other: str
) -> None:
    bucket = await ours.create_key_value(bucket=name, limit_marker_ttl=60)
    await bucket.put("a", b"1")
    async with bucket.watch(updates_only=True) as watcher:
        assert await watcher.next(5) is None
        if other == "nats-py":
            await (await nats_py.key_value(name)).purge("a", msg_ttl=1)
        else:
            await (await rust.kv.get(name)).purge("a", ttl=1)
        entry = await watcher.next(10)
    assert entry is not None
    assert (entry.operation, entry.revision) == (Operation.PURGE, 2)

    async def gone() -> bool:
        return (await bucket.status()).values == 0

    await eventually(gone)
    with pytest.raises(KeyNotFoundError) as caught:
        await bucket.get("a")
    assert not isinstance(caught.value, KeyDeletedError)
    assert await bucket.create("a", b"2") == 3


async def expired(bucket: KeyValue[bytes], key: str) -> None:
    """Wait until a key is gone."""

    async def gone() -> bool:
        try:
            await bucket.get(key)
        except KeyNotFoundError:
            return True
        return False

    await eventually(gone)


# -- watching -----------------------------------------------------------------------------------


@conformance("KV", WATCH, "a watch sees what nats-py and async-nats do")
async def test_ours_watches_what_others_do(
    ours: JetStream, nats_py: Any, rust: Any, name: str
) -> None:
    bucket = await ours.create_key_value(bucket=name)
    pythonic, rusty = await nats_py.key_value(name), await rust.kv.get(name)
    await pythonic.put("a", b"1")
    await rusty.put("b", b"2")
    async with bucket.watch() as watcher, asyncio.timeout(10):
        found = [await anext(watcher) for _ in range(3)]
        assert [entry and (entry.key, entry.value) for entry in found] == [
            ("a", b"1"),
            ("b", b"2"),
            None,
        ]
        await pythonic.delete("a")
        await rusty.purge("b")
        await rusty.put("a", b"3")
        live = [await anext(watcher) for _ in range(3)]
        assert [entry and (entry.key, entry.operation) for entry in live] == [
            ("a", Operation.DELETE),
            ("b", Operation.PURGE),
            ("a", Operation.PUT),
        ]


@conformance("KV", WATCH, "watches of nats-py and async-nats see what ours does")
async def test_others_watch_what_ours_does(
    ours: JetStream, nats_py: Any, rust: Any, name: str
) -> None:
    bucket = await ours.create_key_value(bucket=name)
    pythonic, rusty = await nats_py.key_value(name), await rust.kv.get(name)
    await bucket.put("a", b"1")
    await bucket.put("b", b"2")
    await bucket.delete("a")
    entries = await rust_initial(await rusty.watch_with_history(">"))
    assert [(e.key, e.operation, e.revision) for e in entries] == [
        ("b", KVOperation.Put, 2),
        ("a", KVOperation.Delete, 3),
    ]
    watcher = await pythonic.watchall()
    found = [await watcher.updates() for _ in range(3)]
    assert [entry and (entry.key, entry.operation) for entry in found] == [
        ("b", None),
        ("a", "DEL"),
        None,
    ]
    await bucket.purge("b")
    assert (await watcher.updates()).operation == "PURGE"
    await watcher.stop()


@conformance("KV", WATCH, "filters are patterns; in nats-py they are substrings")
async def test_keys(ours: JetStream, nats_py: Any, rust: Any, name: str) -> None:
    bucket = await ours.create_key_value(bucket=name)
    pythonic, rusty = await nats_py.key_value(name), await rust.kv.get(name)
    with pytest.raises(nats_errors.NoKeysError):
        await pythonic.keys()
    assert await listed(bucket.keys()) == []
    for key in ("user.1", "user.2", "superuser.1", "gone"):
        await bucket.put(key, b"")
    await bucket.delete("gone")
    everything = {"user.1", "user.2", "superuser.1"}
    assert set(await listed(bucket.keys())) == everything
    assert set(await pythonic.keys()) == everything
    assert {key async for key in await rusty.keys()} == everything
    assert set(await pythonic.keys(filters=["user.1"])) == {"user.1", "superuser.1"}
    assert await listed(bucket.keys("user.1")) == ["user.1"]
    assert set(await listed(bucket.keys("user.*"))) == {"user.1", "user.2"}


# -- what others get wrong ----------------------------------------------------------------------


@conformance("KV", "1. Names and validity", "a doubled dot: nats-py sends it and nobody answers")
async def test_a_doubled_dot(ours: JetStream, nats_py: Any, name: str) -> None:
    bucket = await ours.create_key_value(bucket=name)
    with pytest.raises(nats_errors.NoStreamResponseError):
        await (await nats_py.key_value(name)).put("a..b", b"")
    with pytest.raises(InvalidKeyError):
        await bucket.put("a..b", b"")


@conformance(
    "KV",
    "8. Mirrors, sources, republish",
    "a mirror under another name has the keys of its origin; async-nats finds none there",
)
async def test_a_mirror(ours: JetStream, rust: Any, name: str) -> None:
    origin = await ours.create_key_value(bucket=name)
    await origin.put("a", b"1")
    theirs = await rust.kv.create(KVConfig(f"{name}-m", mirror=Source(f"KV_{name}")))
    mirror = await ours.key_value(f"{name}-m")

    async def has(*keys: str) -> bool:
        return sorted(await listed(mirror.keys())) == list(keys)

    await eventually(lambda: has("a"))
    assert (await mirror.get("a")).value == b"1"
    assert await theirs.get("a") is None
    await mirror.put("b", b"2")  # goes to the origin
    await eventually(lambda: has("a", "b"))  # it may answer gets in the place of the origin
    assert (await origin.get("b")).value == b"2"


@conformance("KV", WRITES, "purge_deletes removes the markers of nats-py")
async def test_markers_of_nats_py_are_removed(ours: JetStream, nats_py: Any, name: str) -> None:
    bucket = await ours.create_key_value(bucket=name, history=3)
    theirs = await nats_py.key_value(name)
    for remove in (theirs.delete, theirs.purge):
        await theirs.put("a", b"1")
        await remove("a")
        await bucket.purge_deletes(0)
        assert (await bucket.status()).values == 0
