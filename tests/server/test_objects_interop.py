"""Objects that nats-py and natsrpy have put are read by ours, and the reverse."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import nats
import natsrpy
import pytest
from nats.js import api as nats_api
from nats.js.errors import BucketNotFoundError as NatsPyBucketNotFoundError
from nats.js.errors import LinkIsABucketError
from nats.js.errors import ObjectNotFoundError as NatsPyObjectNotFoundError
from natsrpy.exceptions import NatsrpySessionError
from natsrpy.js import ObjectStoreConfig as RustStoreConfig
from natsrpy.js import StorageType as RustStorageType

import jetspark
from jetspark import JetStream
from jetspark.errors import LinkError, ObjectNotFoundError
from jetspark.objects import ObjectStore
from jetspark.server import NatsServer
from tests.support.clients import Connect
from tests.support.conformance import conformance
from tests.support.objects import (
    assert_no_consumers,
    assert_tidy,
    backing_stream,
    chunks_by_key,
    content,
    digest_of,
    make_store,
    meta_subject,
    new_bucket,
    raw_meta,
    read,
)

SIZES = [0, 1, 4095, 4096, 4097, 131071, 131072, 131073, 500_000]
NAMES = ["plain", "with space", "dir/sub.dir/file.tar.gz", "*>$.", "Grüße 🚀", "ab?", "x" * 300]


@pytest.fixture
async def ours(nats_server: NatsServer, connect: Connect) -> JetStream:
    client = await connect(nats_server.url)
    assert isinstance(client, jetspark.Client)
    return client.jetstream(strict=True)


class Peer(Protocol):
    """What the tests want of another client."""

    async def create(self, bucket: str) -> None: ...
    async def put(self, bucket: str, name: str, data: bytes, chunk_size: int) -> None: ...
    async def get(self, bucket: str, name: str) -> bytes: ...
    async def delete(self, bucket: str, name: str) -> None: ...
    async def names(self, bucket: str) -> list[str]: ...


class NatsPy:
    """nats-py."""

    def __init__(self, js: Any) -> None:
        self.js = js

    async def create(self, bucket: str) -> None:
        await self.js.create_object_store(bucket, storage=nats_api.StorageType.MEMORY)

    async def put(self, bucket: str, name: str, data: bytes, chunk_size: int = 131072) -> None:
        options = nats_api.ObjectMetaOptions(max_chunk_size=chunk_size)
        store = await self.js.object_store(bucket)
        await store.put(name, data, nats_api.ObjectMeta(options=options))

    async def get(self, bucket: str, name: str) -> bytes:
        store = await self.js.object_store(bucket)
        return bytes((await store.get(name)).data or b"")

    async def delete(self, bucket: str, name: str) -> None:
        await (await self.js.object_store(bucket)).delete(name)

    async def names(self, bucket: str) -> list[str]:
        store = await self.js.object_store(bucket)
        return [info.name for info in await store.list(ignore_deletes=True)]


class Rust:
    """natsrpy, which is async-nats inside."""

    def __init__(self, js: Any) -> None:
        self.js = js

    async def create(self, bucket: str) -> None:
        config = RustStoreConfig(bucket=bucket, storage=RustStorageType.MEMORY)
        await self.js.object_store.create(config)

    async def put(self, bucket: str, name: str, data: bytes, chunk_size: int = 131072) -> None:
        store = await self.js.object_store.get(bucket)
        await store.put(name, data, chunk_size=chunk_size)

    async def get(self, bucket: str, name: str) -> bytes:
        writer = io.BytesIO()
        await (await self.js.object_store.get(bucket)).get(name, writer)
        return writer.getvalue()

    async def delete(self, bucket: str, name: str) -> None:
        await (await self.js.object_store.get(bucket)).delete(name)

    async def names(self, bucket: str) -> list[str]:
        store = await self.js.object_store.get(bucket)
        return [info.name async for info in await store.list()]


@pytest.fixture
async def nats_py(nats_server: NatsServer) -> AsyncIterator[NatsPy]:
    client = await nats.connect(nats_server.url)
    yield NatsPy(client.jetstream())
    await client.close()


@pytest.fixture
async def rust(nats_server: NatsServer) -> AsyncIterator[Rust]:
    client = natsrpy.Nats(addrs=[nats_server.url])
    await client.startup()
    yield Rust(await client.jetstream())
    await client.shutdown()


@pytest.fixture(params=["nats_py", "rust"])
def peer(request: pytest.FixtureRequest, nats_py: NatsPy, rust: Rust) -> Peer:
    return nats_py if request.param == "nats_py" else rust


async def peers_store(ours: JetStream, peer: Peer) -> ObjectStore:
    """A store that the other client has made."""
    bucket = new_bucket()
    await peer.create(bucket)
    return await ours.object_store(bucket)


# -- data ---------------------------------------------------------------------------------------


async def test_ours_reads_what_a_peer_has_put(ours: JetStream, peer: Peer) -> None:
    store = await peers_store(ours, peer)
    for number, size in enumerate(SIZES):
        data = content(size, number)
        await peer.put(store.name, f"o{size}", data, 4096 if number % 2 else 131072)
        info = await store.info(f"o{size}")
        assert (info.size, info.digest) == (size, digest_of(data))
        assert await read(store, f"o{size}") == data
    await assert_tidy(ours, store, *(f"o{size}" for size in SIZES))


async def test_a_peer_reads_what_ours_has_put(ours: JetStream, peer: Peer) -> None:
    store = await make_store(ours)
    for number, size in enumerate(SIZES):
        data = content(size, number)
        await store.put(f"o{size}", data, chunk_size=4096 if number % 2 else 131072)
        assert await peer.get(store.name, f"o{size}") == data
    assert sorted(await peer.names(store.name)) == sorted(f"o{size}" for size in SIZES)


async def test_ranges_of_objects_whose_chunks_differ_in_size(ours: JetStream, rust: Rust) -> None:
    """natsrpy does not fill its chunks: where one begins cannot be computed from their size."""
    store = await peers_store(ours, rust)
    data = content(50_000)
    await rust.put(store.name, "o", data, 3000)
    info = await store.info("o")
    for offset, length in [(0, 1), (2999, 2), (3000, 3000), (24_999, 9000), (49_999, 1), (7, None)]:
        reader = await store.get("o", offset=offset, length=length)
        end = len(data) if length is None else offset + length
        assert await reader.read() == data[offset:end], (offset, length, info)
    large = content(5_000_000)
    await rust.put(store.name, "large", large, 30_000)
    for offset, length in [(2_500_000, 1), (3_333_333, 100_000), (4_999_999, 5), (4_000_000, None)]:
        reader = await store.get("large", offset=offset, length=length)
        end = len(large) if length is None else offset + length
        assert await reader.read() == large[offset:end], (offset, length)


@pytest.mark.parametrize("name", NAMES)
@conformance("OBJ", "Names, subjects, encoding", "any text is a name, in base64 on the wire")
async def test_names(ours: JetStream, peer: Peer, name: str) -> None:
    store = await make_store(ours)
    await store.put(name, b"from ours")
    assert await peer.get(store.name, name) == b"from ours"
    await peer.put(store.name, name, b"from the peer", 131072)
    assert await read(store, name) == b"from the peer"
    assert [info.name async for info in store.list()] == [name]
    await assert_tidy(ours, store, name)


async def test_each_replaces_what_the_other_has_put(ours: JetStream, peer: Peer) -> None:
    """Whoever puts an object takes the chunks of the one before away."""
    store = await peers_store(ours, peer)
    for number in range(3):
        await store.put("o", content(10_000, number), chunk_size=1024)
        assert await peer.get(store.name, "o") == content(10_000, number)
        await peer.put(store.name, "o", content(9000, -number), 1024)
        assert await read(store, "o") == content(9000, -number)
    await assert_tidy(ours, store, "o")


async def test_deleted_objects(ours: JetStream, peer: Peer) -> None:
    store = await peers_store(ours, peer)
    await store.put("mine", b"1")
    await peer.put(store.name, "theirs", b"2", 131072)
    await store.put("kept", b"3")
    await peer.delete(store.name, "mine")
    await store.delete("theirs")
    for name in ("mine", "theirs"):
        with pytest.raises(ObjectNotFoundError):
            await store.get(name)
        with pytest.raises((NatsPyObjectNotFoundError, NatsrpySessionError)):
            await peer.get(store.name, name)
        info = await store.info(name, show_deleted=True)
        assert (info.deleted, info.size, info.chunks) == (True, 0, 0)
    await assert_tidy(ours, store, "kept")
    deleted = {info.name async for info in store.list(show_deleted=True) if info.deleted}
    assert deleted == {"mine", "theirs"}
    await store.put("mine", b"again")
    assert await peer.get(store.name, "mine") == b"again"


@conformance("OBJ", "Meta message", "a marker of ours does not stop the listing of async-nats")
async def test_natsrpy_lists_after_a_deletion_of_ours(ours: JetStream, rust: Rust) -> None:
    """It takes no empty time, which nats-py writes into its markers."""
    store = await make_store(ours)
    await store.put("a", b"1")
    await store.put("b", b"2")
    await store.delete("a")
    assert await rust.names(store.name) == ["b"]
    assert "mtime" not in await raw_meta(ours, store.name, "a")


# -- descriptions -------------------------------------------------------------------------------


@conformance("OBJ", "Meta message", "nats-py and async-nats write their own time; ours is another")
async def test_the_time_that_peers_write(ours: JetStream, peer: Peer) -> None:
    store = await make_store(ours)
    before = datetime.now(UTC)
    await peer.put(store.name, "o", b"data", 131072)
    written = datetime.fromisoformat((await raw_meta(ours, store.name, "o"))["mtime"])
    stream = await backing_stream(ours, store.name)
    message = await stream.get_last_message(meta_subject(store.name, "o"))
    assert before <= written < message.timestamp
    assert (await store.info("o")).modified == message.timestamp


async def test_nats_py_reads_the_description(ours: JetStream, nats_py: NatsPy) -> None:
    store = await make_store(ours)
    await store.put(
        "o",
        b"data",
        description="a thing",
        headers={"Type": "text", "Tag": ["a", "b"]},
        metadata={"owner": "ann"},
        chunk_size=1000,
    )
    theirs = await (await nats_py.js.object_store(store.name)).get_info("o")
    assert (theirs.description, theirs.size, theirs.chunks) == ("a thing", 4, 1)
    assert theirs.headers == {"Type": ["text"], "Tag": ["a", "b"]}
    assert theirs.options.max_chunk_size == 1000
    assert theirs.digest == digest_of(b"data")


async def test_natsrpy_reads_the_description(ours: JetStream, rust: Rust) -> None:
    store = await make_store(ours)
    await store.put(
        "o",
        b"data",
        description="a thing",
        headers={"Type": "text", "Tag": ["a", "b"]},
        metadata={"owner": "ann"},
        chunk_size=1000,
    )
    theirs = await (await rust.js.object_store.get(store.name)).get_info("o")
    assert (theirs.description, theirs.size, theirs.chunks) == ("a thing", 4, 1)
    assert {key: list(values) for key, values in theirs.headers.items()} in (
        {"Type": ["text"], "Tag": ["a", "b"]},
        {"Type": list("text"), "Tag": ["a", "b"]},  # it makes a str of a single value
    )
    assert theirs.metadata == {"owner": "ann"}
    assert (theirs.max_chunk_size, theirs.digest) == (1000, digest_of(b"data"))


async def test_ours_reads_the_descriptions_of_peers(
    ours: JetStream, nats_py: NatsPy, rust: Rust
) -> None:
    store = await make_store(ours)
    options = nats_api.ObjectMetaOptions(max_chunk_size=3)
    meta = nats_api.ObjectMeta(description="python", headers={"A": ["1", "2"]}, options=options)
    await (await nats_py.js.object_store(store.name)).put("py", b"12345", meta)
    await (await rust.js.object_store.get(store.name)).put(
        "rs", b"12345", description="rust", headers={"A": ["1", "2"]}, metadata={"k": "v"}
    )
    python, rusty = await store.info("py"), await store.info("rs")
    assert (python.description, rusty.description) == ("python", "rust")
    assert python.headers == rusty.headers == {"A": ["1", "2"]}
    assert (python.metadata, rusty.metadata) == ({}, {"k": "v"})
    assert (python.chunks, python.chunk_size) == (2, 3)
    assert python.modified < rusty.modified
    assert python.modified.tzinfo is not None


async def test_a_renamed_object_is_found_by_peers(ours: JetStream, peer: Peer) -> None:
    store = await peers_store(ours, peer)
    await peer.put(store.name, "before", content(9000), 1000)
    await store.update_meta("before", name="after", description="renamed")
    assert await peer.get(store.name, "after") == content(9000)
    assert await peer.names(store.name) == ["after"]
    with pytest.raises((NatsPyObjectNotFoundError, NatsrpySessionError)):
        await peer.get(store.name, "before")
    await peer.put(store.name, "after", b"new", 1000)
    assert await read(store, "after") == b"new"
    await assert_tidy(ours, store, "after")


async def test_an_object_renamed_by_natsrpy_is_found(ours: JetStream, rust: Rust) -> None:
    store = await make_store(ours)
    await store.put("before", content(9000), chunk_size=1000, metadata={"k": "v"})
    theirs = await rust.js.object_store.get(store.name)
    await theirs.update_metadata("before", new_name="after", description="renamed")
    info = await store.info("after")
    assert (info.name, info.description, info.metadata) == ("after", "renamed", {"k": "v"})
    assert await read(store, "after") == content(9000)
    await assert_tidy(ours, store, "after")
    await store.delete("after")
    assert await chunks_by_key(ours, store.name) == {}


# -- links --------------------------------------------------------------------------------------


async def test_peers_follow_our_links(ours: JetStream, peer: Peer) -> None:
    store, other = await make_store(ours), await make_store(ours)
    await store.put("target", b"data")
    await store.add_link("near", await store.info("target"))
    await other.add_link("far", await store.info("target"))
    await other.add_bucket_link("all", store.name)
    assert await peer.get(store.name, "near") == b"data"
    assert await peer.get(other.name, "far") == b"data"
    with pytest.raises((LinkIsABucketError, NatsrpySessionError)):
        await peer.get(other.name, "all")
    assert sorted(await peer.names(other.name)) == ["all", "far"]


async def test_ours_follows_the_links_of_natsrpy(ours: JetStream, rust: Rust) -> None:
    """nats-py cannot make links."""
    store = await peers_store(ours, rust)
    await rust.put(store.name, "target", content(5000), 1000)
    theirs = await rust.js.object_store.get(store.name)
    await theirs.link_object("target", "link")
    await theirs.link_bucket(store.name, "all")
    assert await read(store, "link") == content(5000)
    link = (await store.info("link")).link
    assert link is not None
    assert (link.bucket, link.name) == (store.name, "target")
    with pytest.raises(LinkError):
        await store.get("all")
    whole = (await store.info("all")).link
    assert whole is not None
    assert (whole.bucket, whole.name) == (store.name, "")
    await store.delete("link")
    assert await read(store, "target") == content(5000)


# -- stores -------------------------------------------------------------------------------------


async def test_peers_read_the_configuration(ours: JetStream, nats_py: NatsPy, rust: Rust) -> None:
    store = await make_store(ours, description="ours", ttl=600, max_bytes=10_000_000)
    status = await (await nats_py.js.object_store(store.name)).status()
    assert (status.description, status.ttl, status.sealed) == ("ours", 600, False)
    assert status.storage_type == nats_api.StorageType.MEMORY
    # Stores of the same configuration are one store.
    again = await rust.js.object_store.create(
        RustStoreConfig(
            bucket=store.name,
            description="ours",
            max_age=600,
            max_bytes=10_000_000,
            storage=RustStorageType.MEMORY,
        )
    )
    await again.put("o", b"1")
    assert await read(store, "o") == b"1"
    await store.seal()
    assert (await (await nats_py.js.object_store(store.name)).status()).sealed
    await ours.delete_object_store(store.name)
    with pytest.raises(NatsPyBucketNotFoundError):
        await nats_py.js.object_store(store.name)


async def test_ours_reads_the_configuration_of_peers(
    ours: JetStream, nats_py: NatsPy, rust: Rust
) -> None:
    names = [new_bucket(), new_bucket()]
    await nats_py.js.create_object_store(
        names[0], description="peer", ttl=600, max_bytes=9_000_000, storage="memory"
    )
    await rust.js.object_store.create(
        RustStoreConfig(
            bucket=names[1],
            description="peer",
            max_age=600,
            max_bytes=9_000_000,
            storage=RustStorageType.MEMORY,
        )
    )
    for name in names:
        status = await (await ours.object_store(name)).status()
        assert (status.bucket, status.description) == (name, "peer")
        assert (status.ttl, status.max_bytes) == (timedelta(minutes=10), 9_000_000)
        assert (status.storage, status.replicas, status.sealed) == ("memory", 1, False)
    assert set(names) <= {status.bucket async for status in ours.object_stores()}
    await (await rust.js.object_store.get(names[1])).seal()
    assert (await (await ours.object_store(names[1])).status()).sealed


# -- watching -----------------------------------------------------------------------------------


async def test_ours_watches_what_peers_do(ours: JetStream, nats_py: NatsPy, rust: Rust) -> None:
    store = await make_store(ours)
    await store.put("old", b"0")
    async with store.watch(updates_only=True) as watcher:
        assert await watcher.next(timeout=5) is None
        await nats_py.put(store.name, "py", b"1")
        await rust.put(store.name, "rs", b"1")
        await nats_py.delete(store.name, "py")
        await rust.delete(store.name, "rs")
        seen = []
        async for info in watcher:
            assert info is not None
            seen.append((info.name, info.deleted))
            if len(seen) == 4:
                break
    assert seen == [("py", False), ("rs", False), ("py", True), ("rs", True)]
    await assert_no_consumers(ours, store.name)
