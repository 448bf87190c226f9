"""Buckets: created, changed, found, listed and deleted."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from jetspark import Client, JetStream, KeyValueConfig, StreamSource
from jetspark.errors import (
    BadBucketError,
    BucketExistsError,
    BucketNotFoundError,
    InvalidBucketNameError,
    InvalidJSONError,
    InvalidOptionError,
    InvalidStreamConfigError,
    StoreFailedError,
    StreamNameInUseError,
    StreamNotFoundError,
)
from jetspark.server import NatsServer
from tests.support.buckets import js, nc, stream_of
from tests.support.clients import Connect, eventually
from tests.support.conformance import conformance
from tests.support.kv import listed, new_bucket
from tests.support.servers import StartServer
from tests.support.streams import if_supported, new_name, store, version_of

__all__ = ["js", "nc"]

SECTION = "2. Bucket -> stream config"


@conformance("KV", SECTION, "a bucket that is made again with its configuration is the same one")
async def test_create(js: JetStream) -> None:
    name = new_name()
    bucket = await js.create_key_value(bucket=name, history=3, ttl=300)
    assert bucket.name == name
    assert bucket.config == KeyValueConfig(bucket=name, history=3, ttl=300)
    await bucket.put("a", b"1")
    again = await js.create_key_value(KeyValueConfig(bucket=name, history=3, ttl=300))
    assert (await again.get("a")).value == b"1"
    assert repr(again) == f"<KeyValue {name!r}>"


@conformance("KV", SECTION, "the server takes a second create with the same configuration")
async def test_the_request_to_create_is_repeated(nc: Client, js: JetStream) -> None:
    wire = KeyValueConfig(bucket=new_name(), history=3, ttl=300).to_stream()
    subject = js.api.subjects.stream_create(wire.name)
    first = await js.api.request(subject, wire.to_wire(), context="create")
    await store(nc, f"$KV.{wire.name.removeprefix('KV_')}.a")
    again = await js.api.request(subject, wire.to_wire(), context="create")
    assert (again["config"], again["created"]) == (first["config"], first["created"])
    assert again["state"]["messages"] == 1
    with pytest.raises(StreamNameInUseError) as caught:
        await js.api.request(subject, {**wire.to_wire(), "description": "x"}, context="create")
    assert caught.value.err_code == 10058


@conformance("KV", SECTION, "10058, another configuration: the bucket exists")
async def test_create_what_exists_with_another_configuration(js: JetStream) -> None:
    name = new_name()
    await js.create_key_value(bucket=name)
    with pytest.raises(BucketExistsError, match=f"bucket {name!r} exists.*key_value") as caught:
        await js.create_key_value(bucket=name, history=3)
    assert caught.value.err_code == 10058
    assert isinstance(caught.value, StreamNameInUseError)
    assert isinstance(caught.value.__cause__, StreamNameInUseError)


@conformance("KV", SECTION, "update; 10059: there is no such bucket")
async def test_update(js: JetStream) -> None:
    name = new_name()
    with pytest.raises(BucketNotFoundError, match=f"no bucket {name!r}") as caught:
        await js.update_key_value(bucket=name)
    assert caught.value.err_code == 10059
    assert isinstance(caught.value, StreamNotFoundError)
    bucket = await js.create_key_value(bucket=name, description="one")
    updated = await js.update_key_value(bucket.config, history=2, description="two")
    assert (updated.config.history, updated.config.description) == (2, "two")
    assert (await bucket.status()).history == 2


@conformance("KV", SECTION, "create or update")
async def test_create_or_update(js: JetStream) -> None:
    name = new_name()
    bucket = await js.create_or_update_key_value(bucket=name)
    await bucket.put("a", b"1")
    bucket = await js.create_or_update_key_value(bucket=name, history=5)
    assert (await bucket.get("a")).value == b"1"
    assert bucket.config.history == 5


@conformance("KV", SECTION, "bind to a bucket that exists")
async def test_bind(js: JetStream) -> None:
    bucket = await js.create_key_value(bucket=new_name(), history=2)
    found = await js.key_value(bucket.name)
    assert found.config == bucket.config
    with pytest.raises(BucketNotFoundError, match="no bucket 'none'"):
        await js.key_value("none")


@conformance("KV", SECTION, "a stream without max_msgs_per_subject is no bucket")
async def test_a_stream_that_is_no_bucket(nc: Client, js: JetStream) -> None:
    name = new_name()
    stream = await js.create_stream(name=f"KV_{name}", subjects=[f"{name}.>"])
    await store(nc, f"{name}.a")
    await store(nc, f"{name}.a")
    for call in (
        js.key_value(name),
        js.create_key_value(bucket=name),
        js.update_key_value(bucket=name),
        js.create_or_update_key_value(bucket=name),
    ):
        with pytest.raises(BadBucketError, match=f"bucket {name!r}.*no bucket"):
            await call
    info = await stream.info()
    assert (info.state.messages, info.config.subjects) == (2, [f"{name}.>"])


@conformance("KV", SECTION, "create mends discard and allow_direct where nothing else differs")
async def test_create_what_differs_in_what_a_bucket_does_not_decide(
    js: JetStream, nats_server: NatsServer
) -> None:
    name = new_name()
    await js.create_key_value(bucket=name, description="old")
    stream = await js.get_stream(f"KV_{name}")
    # As it was made by older clients, which this mends; and with what only the stream knows.
    await stream.update(allow_direct=False, discard="old", max_consumers=-1, deny_delete=True)
    bucket = await js.create_key_value(bucket=name, description="old")
    mended = (await stream.info()).config
    assert (mended.allow_direct, mended.discard) == (True, "new")
    with pytest.raises(BucketExistsError):
        await js.create_key_value(bucket=name, description="new")
    if version_of(nats_server) >= (2, 11):
        # TTLs stay allowed where they were, which the bucket's configuration does not say.
        await js.update_key_value(bucket=name, limit_marker_ttl=5)
        await js.update_key_value(bucket=name)
        config = (await bucket.status()).config
        assert await js.create_key_value(config)


@conformance("KV", SECTION, "delete a bucket")
async def test_delete(js: JetStream) -> None:
    bucket = await js.create_key_value(bucket=new_name())
    await js.delete_key_value(bucket.name)
    for call in (js.delete_key_value(bucket.name), js.key_value(bucket.name), bucket.status()):
        with pytest.raises(BucketNotFoundError, match=bucket.name):
            await call


async def test_bad_names_are_not_sent(nc: Client, js: JetStream) -> None:
    sent = nc.statistics.messages_out
    for call in (
        js.create_key_value(bucket="a.b"),
        js.update_key_value(bucket="a b"),
        js.key_value(""),
        js.delete_key_value("a>"),
        js.create_or_update_key_value(bucket="ä"),
    ):
        with pytest.raises(InvalidBucketNameError):
            await call
    with pytest.raises(InvalidOptionError, match="KeyValueConfig"):
        await js.create_key_value("name")  # type: ignore[call-overload]
    assert nc.statistics.messages_out == sent


@conformance("KV", SECTION, "lists are by subject, so mirrors are not in them")
async def test_lists(start_server: StartServer, connect: Connect) -> None:
    js = (await connect(start_server().url)).jetstream(strict=True)
    for name in ("b", "a", "c"):
        await js.create_key_value(bucket=name, storage="memory")
    await js.create_key_value(bucket="mirror", mirror=StreamSource(name="a"))
    await js.create_stream(name="other", subjects=["$KV.other.>"])
    await js.create_stream(name="KV_odd", subjects=["odd"])
    assert await listed(js.key_value_names()) == ["a", "b", "c"]
    statuses = await listed(js.key_values())
    assert [status.bucket for status in statuses] == ["a", "b", "c"]
    assert statuses[0].config == KeyValueConfig(bucket="a", storage="memory")


@conformance("KV", SECTION, "without any bucket, the list of names comes as null")
async def test_empty_lists(start_server: StartServer, connect: Connect) -> None:
    js = (await connect(start_server().url)).jetstream(strict=True)
    assert await listed(js.key_value_names()) == []
    assert await listed(js.key_values()) == []
    body = {"subject": "$KV.*.>"}
    names = await js.api.request(js.api.subjects.stream_names(), body, context="names")
    infos = await js.api.request(js.api.subjects.stream_list(), body, context="list")
    assert (names["streams"], infos["streams"]) == (None, [])


@conformance("KV", "6. Watch, keys, history", "status: configuration and state of a bucket")
async def test_status(js: JetStream, nats_server: NatsServer) -> None:
    fields: dict[str, Any] = {
        "compression": True,
        "metadata": {"owner": "us"},
        "history": 4,
        "ttl": 3600,
    }
    if version_of(nats_server) >= (2, 11):
        fields["limit_marker_ttl"] = 60
    bucket = await js.create_key_value(bucket=new_name(), description="d", **fields)
    await bucket.put("a", b"123")
    await bucket.put("a", b"456")
    await bucket.delete("b")
    status = await bucket.status()
    assert (status.bucket, status.values, status.history) == (bucket.name, 3, 4)
    assert status.ttl == timedelta(hours=1)
    assert status.bytes > 0
    assert status.compressed
    assert status.metadata == {"owner": "us"}
    assert status.limit_marker_ttl == timedelta(seconds=fields.get("limit_marker_ttl", 0))
    assert status.backing_store == "JetStream"
    assert status.config == bucket.config
    assert status.config.description == "d"
    assert status.stream_info.config.name == f"KV_{bucket.name}"


@conformance("KV", SECTION, "the server keeps the configuration that a bucket becomes")
async def test_the_stream_is_as_it_was_asked_for(js: JetStream, nc: Client) -> None:
    bucket = await new_bucket(nc, storage="file")
    config = (await stream_of(js, bucket)).config
    wanted = bucket.config.to_stream()
    for name in wanted.__struct_fields__:
        if name not in ("duplicate_window", "metadata", "consumer_limits", "extra"):
            assert getattr(config, name) == getattr(wanted, name), name
    assert config.duplicate_window == timedelta(minutes=2)


# -- what the server says to configurations that a bucket never has ------------------------------


@conformance("KV", SECTION, "subjects on a mirror: 10034")
async def test_a_mirror_with_subjects(js: JetStream) -> None:
    origin = await js.create_key_value(bucket=new_name())
    wire = KeyValueConfig(bucket=new_name(), mirror=StreamSource(name=origin.name)).to_stream()
    body = {**wire.to_wire(), "subjects": ["$KV.x.>"]}
    with pytest.raises(InvalidStreamConfigError) as caught:
        await js.api.request(js.api.subjects.stream_create(wire.name), body, context="create")
    assert caught.value.err_code == 10034


@conformance("KV", SECTION, "a duplicate window longer than the TTL: 10052")
async def test_a_duplicate_window_longer_than_the_ttl(js: JetStream) -> None:
    wire = KeyValueConfig(bucket=new_name(), ttl=10).to_stream()
    body = {**wire.to_wire(), "duplicate_window": 120 * 10**9}
    with pytest.raises(InvalidStreamConfigError) as caught:
        await js.api.request(js.api.subjects.stream_create(wire.name), body, context="create")
    assert caught.value.err_code == 10052
    await js.create_stream(wire)


@conformance("KV", SECTION, "a server takes a longer history than clients do")
async def test_a_long_history(js: JetStream) -> None:
    name = new_name()
    config = KeyValueConfig(bucket=name).to_stream().replace(max_msgs_per_subject=70)
    await js.create_stream(config)
    bucket = await js.key_value(name)
    for number in range(75):
        await bucket.put("a", b"%d" % number)
    assert [int(entry.value) for entry in await bucket.history("a")] == list(range(5, 75))


@conformance("KV", SECTION, "a field that the server does not know: 10025 since 2.12")
async def test_the_rollup_field_of_the_documents(js: JetStream, nats_server: NatsServer) -> None:
    wire = KeyValueConfig(bucket=new_name()).to_stream()
    request = js.api.request(
        js.api.subjects.stream_create(wire.name),
        {**wire.to_wire(), "rollup_hdrs": True},
        context="create",
    )
    if version_of(nats_server) < (2, 12):
        await request  # ignored
        return
    with pytest.raises(InvalidJSONError) as caught:
        await request
    assert caught.value.err_code == 10025


@conformance("KV", SECTION, "the oldest revision makes room for the latest, also in a full bucket")
@conformance("KV", SECTION, "a full bucket takes no new key, and discards nothing for it")
async def test_history_rolls(nc: Client) -> None:
    bucket = await new_bucket(nc, history=2, max_bytes=1000)

    async def roll(first: int) -> None:
        for number in range(first, first + 5):
            await bucket.put("a", b"%0100d" % number)
        history = [int(entry.value) for entry in await bucket.history("a")]
        assert history == [first + 3, first + 4]

    await roll(0)
    number = 0
    with pytest.raises(StoreFailedError, match="maximum bytes"):
        for number in range(10):
            await bucket.put(f"k.{number}", bytes(100))
    await roll(10)
    assert await listed(bucket.keys()) == [*(f"k.{n}" for n in range(number)), "a"]
    with pytest.raises(StoreFailedError, match="maximum bytes"):
        await bucket.put("a", bytes(900))
    assert [int(entry.value) for entry in await bucket.history("a")] == [13, 14]


@conformance("KV", SECTION, "more replicas than there are servers: 10074")
async def test_replicas_on_a_single_server(js: JetStream) -> None:
    name = new_name()
    with pytest.raises(InvalidStreamConfigError, match=name) as caught:
        await js.create_key_value(bucket=name, replicas=3)
    assert (caught.value.err_code, caught.value.code) == (10074, 500)
    with pytest.raises(BucketNotFoundError):
        await js.key_value(name)


@conformance(
    "KV", "7. Per-key TTL and limit markers", "limit markers are refused on servers before 2.11"
)
async def test_limit_markers_need_a_server_that_has_them(
    js: JetStream, nats_server: NatsServer
) -> None:
    name = new_name()
    bucket = await if_supported(
        nats_server,
        (2, 11),
        js.create_key_value(bucket=name, limit_marker_ttl=5),
        "limit_marker_ttl",
        name,
    )
    if bucket is None:  # and nothing was made
        with pytest.raises(BucketNotFoundError):
            await js.key_value(name)
    else:
        assert bucket.config.limit_marker_ttl == timedelta(seconds=5)


async def test_concurrent_create_or_update(js: JetStream) -> None:
    name = new_name()
    buckets = await asyncio.gather(
        *(js.create_or_update_key_value(bucket=name, history=n) for n in range(1, 9))
    )
    assert {bucket.name for bucket in buckets} == {name}

    async def settled() -> bool:
        return (await buckets[0].status()).history in range(1, 9)

    await eventually(settled)
