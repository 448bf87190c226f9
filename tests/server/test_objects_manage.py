"""Object stores as such: created, changed, found, listed, sealed and deleted."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from jetspark import (
    Client,
    JetStream,
    ObjectStoreConfig,
    StorageType,
    StreamSource,
    SubjectTransform,
)
from jetspark.errors import (
    APIError,
    BadBucketError,
    BucketExistsError,
    BucketNotFoundError,
    InvalidBucketNameError,
    InvalidJSONError,
    InvalidOptionError,
    InvalidStreamConfigError,
    StreamNameInUseError,
    StreamNotFoundError,
    StreamSealedError,
)
from jetspark.server import NatsServer
from tests.support.clients import Connect, eventually
from tests.support.conformance import conformance
from tests.support.objects import backing_stream, content, make_store, new_bucket, read
from tests.support.streams import version_of


@pytest_asyncio.fixture
async def nc(nats_server: NatsServer, connect: Connect) -> Client:
    return await connect(nats_server.url)


@pytest.fixture
def js(nc: Client) -> JetStream:
    return nc.jetstream(strict=True)


@conformance("OBJ", "Bucket -> stream config", "a store is a stream with fixed features")
async def test_the_stream_behind_a_store(js: JetStream) -> None:
    store = await js.create_object_store(bucket=new_bucket())
    config = (await backing_stream(js, store.name)).config
    assert config.subjects == [f"$O.{store.name}.C.>", f"$O.{store.name}.M.>"]
    assert (config.allow_rollup_hdrs, config.allow_direct, config.discard) == (True, True, "new")
    assert (config.deny_delete, config.deny_purge) == (False, False)
    assert (config.max_msgs_per_subject, config.max_bytes) == (-1, -1)
    assert (config.storage, config.num_replicas) == ("file", 1)
    assert repr(store) == f"<ObjectStore {store.name!r}>"


@conformance("OBJ", "Bucket -> stream config", "unknown fields give 10025")
async def test_the_field_names_of_the_adr_sample(nats_server: NatsServer, js: JetStream) -> None:
    """ADR-20 writes `rollup_hdrs`; the server does not know such a field."""
    bucket = new_bucket()
    wire = ObjectStoreConfig(bucket=bucket).to_stream().to_wire()
    wire["rollup_hdrs"] = wire.pop("allow_rollup_hdrs")
    create = js.api.request(
        js.api.subjects.stream_create(f"OBJ_{bucket}"), wire, context="the sample"
    )
    if version_of(nats_server) < (2, 12):  # it ignores what it does not know
        assert not (await create)["config"]["allow_rollup_hdrs"]
        return
    with pytest.raises(InvalidJSONError) as caught:
        await create
    assert caught.value.err_code == 10025


@conformance("OBJ", "Other operations", "status tells what is known of the store")
async def test_status(js: JetStream) -> None:
    config = ObjectStoreConfig(
        bucket=new_bucket(),
        description="photos",
        ttl=3600,
        max_bytes=10**6,
        storage="memory",
        metadata={"team": "a"},
    )
    store = await js.create_object_store(config)
    empty = await store.status()
    assert empty.config == config
    assert (empty.bucket, empty.description) == (store.name, "photos")
    assert (empty.ttl, empty.max_bytes) == (timedelta(hours=1), 10**6)
    assert (empty.storage, empty.replicas) == (StorageType.MEMORY, 1)
    assert (empty.sealed, empty.compressed, empty.size) == (False, False, 0)
    assert (empty.metadata, empty.backing_store) == ({"team": "a"}, "JetStream")
    await store.put("o", content(10_000))
    filled = await store.status()
    assert filled.size > 10_000
    assert filled.stream_info.state.messages == 2


@conformance("OBJ", "Bucket -> stream config", "compression becomes s2")
async def test_compression(js: JetStream) -> None:
    store = await js.create_object_store(bucket=new_bucket(), compression=True)
    assert (await backing_stream(js, store.name)).config.compression == "s2"
    assert (await store.status()).compressed
    await store.put("o", b"x" * 500_000)
    assert await read(store, "o") == b"x" * 500_000
    await js.delete_object_store(store.name)


@conformance("OBJ", "Bucket -> stream config", "a store that exists differently: 10058")
@conformance("OBJ", "Bucket -> stream config", "the cause of an error is the answer of the server")
async def test_create_again(js: JetStream) -> None:
    store = await make_store(js)
    await store.put("o", b"1")
    same = await js.create_object_store(bucket=store.name, storage="memory")
    assert await read(same, "o") == b"1"
    with pytest.raises(BucketExistsError, match=f"{store.name!r} exists with another") as caught:
        await js.create_object_store(bucket=store.name, storage="memory", description="other")
    assert caught.value.err_code == 10058
    assert isinstance(caught.value, StreamNameInUseError)
    cause = caught.value.__cause__
    assert isinstance(cause, APIError)
    assert cause.err_code == 10058


async def test_a_configuration_and_fields_together(js: JetStream) -> None:
    config = ObjectStoreConfig(bucket="replaced", storage="memory", description="d")
    store = await js.create_object_store(config, bucket=new_bucket())
    assert (await store.status()).config == config.replace(bucket=store.name)
    with pytest.raises(InvalidOptionError, match="did you mean compression"):
        await js.create_object_store(bucket="b", compresion=True)
    with pytest.raises(InvalidOptionError, match="give a ObjectStoreConfig or its fields"):
        await js.create_object_store("bucket")  # type: ignore[arg-type]


async def test_update(js: JetStream) -> None:
    store = await make_store(js, description="old", metadata={"a": "1"})
    await store.put("o", b"1")
    present = (await store.status()).config
    updated = await js.update_object_store(present, description="new", ttl=5)
    assert updated.name == store.name
    status = await store.status()
    assert (status.description, status.ttl, status.metadata) == (
        "new",
        timedelta(seconds=5),
        {"a": "1"},
    )
    assert await read(store, "o") == b"1"
    with pytest.raises(BucketNotFoundError, match="'no-such-store'"):
        await js.update_object_store(bucket="no-such-store")


async def test_create_or_update(js: JetStream) -> None:
    bucket = new_bucket()
    for description in ("first", "second"):
        store = await js.create_or_update_object_store(
            bucket=bucket, storage="memory", description=description
        )
        assert (await store.status()).description == description


@conformance("OBJ", "Bucket -> stream config", "a store that does not exist: 10059")
@conformance("OBJ", "Bucket -> stream config", "the cause of an error is the answer of the server")
async def test_stores_that_do_not_exist(js: JetStream) -> None:
    store = await make_store(js)
    await js.delete_object_store(store.name)
    for call in (
        js.object_store(store.name),
        js.delete_object_store(store.name),
        js.update_object_store(bucket=store.name),
        store.status(),
        store.seal(),
        store.put("o", b"1"),
        store.get("o"),
        store.info("o"),
        store.delete("o"),
        store.update_meta("o", description="d"),
        store.add_bucket_link("o", "other"),
        store.watch().next(5),
        anext(store.list()),
    ):
        with pytest.raises(BucketNotFoundError, match=f"{store.name!r}.*create") as caught:
            await call
        assert caught.value.err_code == 10059
        assert isinstance(caught.value, StreamNotFoundError)
        cause = caught.value.__cause__
        assert isinstance(cause, APIError)
        assert cause.err_code == 10059


async def test_names_are_checked_before_anything_is_sent(nc: Client, js: JetStream) -> None:
    before = nc.statistics.messages_out
    for call in (
        js.create_object_store(bucket="a.b"),
        js.update_object_store(bucket="a.b"),
        js.object_store("a b"),
        js.delete_object_store(""),
    ):
        with pytest.raises(InvalidBucketNameError):
            await call
    with pytest.raises(InvalidOptionError, match="publish_prefix"):
        await js.object_store("a", publish_prefix="a b")
    assert nc.statistics.messages_out == before


async def test_a_stream_that_only_looks_like_a_store(js: JetStream) -> None:
    bucket = new_bucket()
    await js.create_stream(name=f"OBJ_{bucket}", subjects=[f"{bucket}.>"], storage="memory")
    with pytest.raises(BadBucketError, match=f"'OBJ_{bucket}' is no object store"):
        await js.object_store(bucket)


def renamed(origin: str, bucket: str) -> StreamSource:
    """A store as the origin of another one."""
    transform = SubjectTransform(src=f"$O.{origin}.>", dest=f"$O.{bucket}.>")
    return StreamSource(name=f"OBJ_{origin}", subject_transforms=[transform])


async def test_a_mirror_of_a_store(js: JetStream) -> None:
    origin, bucket = await make_store(js), new_bucket()
    await origin.put("o", content(5000), chunk_size=1000, description="d")
    await js.create_stream(
        name=f"OBJ_{bucket}",
        mirror=renamed(origin.name, bucket),
        storage="memory",
        allow_rollup_hdrs=True,  # or older servers leave the descriptions out
    )
    mirror = await js.object_store(bucket)

    async def arrived() -> bool:
        return [info.name async for info in mirror.list()] == ["o"]

    await eventually(arrived)
    assert (await mirror.info("o")).description == "d"
    assert await read(mirror, "o") == content(5000)


async def test_a_mirror_with_the_subjects_of_its_origin(js: JetStream) -> None:
    """Nothing would be found in it."""
    origin, bucket = await make_store(js), new_bucket()
    await js.create_stream(
        name=f"OBJ_{bucket}", mirror=StreamSource(name=f"OBJ_{origin.name}"), storage="memory"
    )
    with pytest.raises(BadBucketError, match=f"'OBJ_{bucket}' is no object store: it mirrors"):
        await js.object_store(bucket)


async def test_a_store_with_a_source(js: JetStream) -> None:
    origin, store = await make_store(js), await make_store(js)
    await (await backing_stream(js, store.name)).update(sources=[renamed(origin.name, store.name)])
    await store.put("mine", b"mine")
    await origin.put("o", content(5000), chunk_size=1000)

    async def arrived() -> bool:
        return sorted([info.name async for info in store.list()]) == ["mine", "o"]

    await eventually(arrived)
    assert await read(store, "o") == content(5000)
    await store.update_meta("o", name="p")
    await store.delete("p")
    assert await read(store, "mine") == b"mine"
    assert await read(origin, "o") == content(5000)


@conformance("OBJ", "Bucket -> stream config", "stores are listed by $O.*.C.> and OBJ_")
async def test_listing(js: JetStream) -> None:
    stores = [await make_store(js) for _ in range(3)]
    stranger = new_bucket("STRANGER")  # it has such a subject, and another name
    await js.create_stream(name=stranger, subjects=[f"$O.{stranger}.C.>"], storage="memory")
    odd = new_bucket("ODD")  # the other way round
    await js.create_stream(name=f"OBJ_{odd}", subjects=[odd], storage="memory")
    key_value = await js.create_key_value(bucket=new_bucket(), storage="memory")
    names = [name async for name in js.object_store_names()]
    assert {store.name for store in stores} <= set(names)
    assert not {stranger, odd, key_value.name} & set(names)
    statuses = {status.bucket: status async for status in js.object_stores()}
    assert statuses.keys() == set(names)
    assert statuses[stores[0].name].storage == "memory"


# -- sealing ------------------------------------------------------------------------------------


@conformance(
    "OBJ", "Other operations", "a sealed store: no age, discard new, no deletes, no rollup"
)
async def test_what_sealing_does_to_the_stream(js: JetStream) -> None:
    store = await make_store(js, ttl=3600)
    await store.put("o", b"1")
    stream = await backing_stream(js, store.name)
    await stream.update(discard="old")
    assert not (await store.status()).sealed
    await store.seal()
    config = (await stream.info()).config
    assert (config.sealed, config.max_age, config.discard) == (True, timedelta(0), "new")
    assert (config.deny_delete, config.deny_purge, config.allow_rollup_hdrs) == (True, True, False)
    assert (await store.status()).sealed


@conformance("OBJ", "Other operations", "put, delete and purge on a sealed store: 10109")
async def test_a_sealed_store_can_only_be_read(js: JetStream) -> None:
    store = await make_store(js)
    await store.put("o", b"1")
    info = await store.info("o")
    await store.seal()
    calls: list[Any] = [
        store.put("o", b"2"),
        store.put("p", b""),
        store.delete("o"),
        store.update_meta("o", description="d"),
        store.update_meta("o", name="p"),
        store.add_link("l", info),
        store.add_bucket_link("l", store),
        js.purge_stream(f"OBJ_{store.name}"),
    ]
    for call in calls:
        with pytest.raises(StreamSealedError, match=store.name) as caught:
            await call
        assert caught.value.err_code == 10109
        assert not hasattr(caught.value, "__notes__"), "nothing is left behind"
    assert await read(store, "o") == b"1"
    assert [info.name async for info in store.list()] == ["o"]


@conformance("OBJ", "Other operations", "unsealing, and creating a sealed store: 10052")
async def test_a_seal_cannot_be_broken(js: JetStream) -> None:
    store = await make_store(js)
    await store.seal()
    stream = await backing_stream(js, store.name)
    with pytest.raises(InvalidStreamConfigError) as caught:
        await stream.update(sealed=False)
    assert caught.value.err_code == 10052
    config = ObjectStoreConfig(bucket=new_bucket()).to_stream().replace(sealed=True)
    with pytest.raises(InvalidStreamConfigError) as caught:
        await js.create_stream(config)
    assert caught.value.err_code == 10052
    await js.delete_object_store(store.name)  # that is always possible
