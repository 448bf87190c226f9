"""Buckets that get their keys from others, and those that pass them on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from jetspark import (
    Client,
    JetStream,
    KeyValue,
    KeyValueConfig,
    Republish,
    StreamSource,
    SubjectTransform,
)
from jetspark.errors import (
    InvalidOptionError,
    InvalidStreamConfigError,
    KeyExistsError,
    KeyNotFoundError,
    MessageNotFoundError,
    NoStreamResponseError,
    RevisionMismatchError,
)
from jetspark.server import NatsServer
from tests.support.buckets import initial, js, nc, stream_of
from tests.support.clients import eventually
from tests.support.conformance import conformance
from tests.support.kv import listed, new_bucket
from tests.support.streams import new_name, version_of

__all__ = ["js", "nc"]

SECTION = "8. Mirrors, sources, republish"


def has(bucket: KeyValue[bytes], key: str, value: bytes) -> Callable[[], Awaitable[bool]]:
    """Whether a bucket has heard of a value."""

    async def heard() -> bool:
        try:
            return (await bucket.get(key)).value == value
        except KeyNotFoundError:
            return False

    return heard


@conformance("KV", SECTION, "a mirror has the subjects of its origin, and is read with them")
async def test_reading_a_mirror(nc: Client, js: JetStream) -> None:
    origin = await new_bucket(nc, history=3)
    for number in range(3):
        await origin.put("a", b"%d" % number)
    await origin.put("b.c", b"x")
    await origin.delete("gone")
    mirror = await js.create_key_value(
        bucket=new_name(), history=3, mirror=StreamSource(name=origin.name)
    )
    await eventually(has(mirror, "b.c", b"x"))
    for bucket in (mirror, await js.key_value(mirror.name)):
        entry = await bucket.get("a")
        assert (entry.bucket, entry.key, entry.value) == (mirror.name, "a", b"2")
        assert (await bucket.get("a", revision=1)).value == b"0"
        assert await listed(bucket.keys()) == ["a", "b.c"]
        assert await listed(bucket.keys("b.*")) == ["b.c"]
        assert [entry.value for entry in await bucket.history("a")] == [b"0", b"1", b"2"]
        assert sorted(await bucket.get_many(["a", "*.c", "gone"])) == ["a", "b.c"]
        async with bucket.watch() as watcher:
            assert [entry.key for entry in await initial(watcher)] == ["a", "b.c", "gone"]
    stream = await stream_of(js, mirror)
    assert stream.config.subjects == []
    assert stream.config.mirror_direct
    message = await stream.direct_get_last(f"$KV.{origin.name}.a")
    assert message.data == b"2"
    with pytest.raises(MessageNotFoundError):
        await stream.direct_get_last(f"$KV.{mirror.name}.a")


@conformance("KV", SECTION, "what is written to a mirror goes to its origin")
async def test_writing_to_a_mirror(nc: Client, js: JetStream, nats_server: NatsServer) -> None:
    origin = await new_bucket(nc, history=3)
    mirror = await js.create_key_value(bucket=new_name(), mirror=StreamSource(name=origin.name))
    revision = await mirror.put("a", b"1")
    assert (await origin.get("a")).revision == revision
    revision = await mirror.update("a", b"2", revision)
    with pytest.raises(RevisionMismatchError):
        await mirror.update("a", b"3", 1)
    await mirror.delete("a", revision=revision)
    assert await mirror.create("a", b"again")  # although the mirror may not know of the delete
    assert await mirror.create("b", b"4")
    if version_of(nats_server) >= (2, 11):  # older ones do not mirror what expected a sequence
        await eventually(has(mirror, "b", b"4"))
    with pytest.raises(KeyExistsError):
        await mirror.create("b", b"5")
    await mirror.purge("b")
    assert [entry.operation for entry in await origin.history("b")] == ["PURGE"]


@conformance("KV", SECTION, "nothing listens to the subjects of the mirror's own name")
async def test_the_name_of_a_mirror_is_no_subject(nc: Client, js: JetStream) -> None:
    origin = await new_bucket(nc)
    mirror = await js.create_key_value(bucket=new_name(), mirror=StreamSource(name=origin.name))
    with pytest.raises(NoStreamResponseError):
        await js.publish(f"$KV.{mirror.name}.a", b"", retries=0)


async def test_what_would_have_other_keys_is_refused(nc: Client, js: JetStream) -> None:
    origin = await new_bucket(nc)
    mirror = await js.create_key_value(bucket=new_name(), mirror=StreamSource(name=origin.name))
    of_mirror = StreamSource(name=mirror.name)
    wrong: list[dict[str, Any]] = [{"mirror": of_mirror}, {"sources": [of_mirror]}]
    for fields in wrong:
        match = f"bucket {mirror.name!r} is a mirror.*{origin.name!r}"
        with pytest.raises(InvalidOptionError, match=match):
            await js.create_key_value(bucket=new_name(), **fields)
    transform = SubjectTransform(src=f"$KV.{origin.name}.>", dest="$KV.other.>")
    renamed = StreamSource(name=origin.name, subject_transforms=[transform])
    with pytest.raises(InvalidOptionError, match=r"mirror\.subject_transforms"):
        await js.create_key_value(bucket=new_name(), mirror=renamed)
    with pytest.raises(InvalidOptionError, match="name of a bucket"):
        await js.create_key_value(bucket=new_name(), mirror=StreamSource(name=""))


@conformance("KV", SECTION, "what a mirror mirrors cannot be changed: 10055")
async def test_changing_a_mirror(nc: Client, js: JetStream) -> None:
    origin, other = await new_bucket(nc), await new_bucket(nc)
    mirror = await js.create_key_value(bucket=new_name(), mirror=StreamSource(name=origin.name))
    with pytest.raises(InvalidStreamConfigError) as caught:
        await js.update_key_value(mirror.config, mirror=StreamSource(name=other.name))
    assert caught.value.err_code == 10055
    updated = await js.update_key_value(
        bucket=mirror.name, mirror=StreamSource(name=origin.name), description="new"
    )
    assert updated.config.description == "new"


@conformance("KV", SECTION, "sources: the keys of other buckets, under the same names")
async def test_sources(nc: Client, js: JetStream) -> None:
    first, second = await new_bucket(nc), await new_bucket(nc)
    await first.put("a", b"1")
    await second.put("b", b"2")
    bucket = await js.create_key_value(
        bucket=new_name(),
        storage="memory",
        sources=[StreamSource(name=first.name), StreamSource(name=f"KV_{second.name}")],
    )
    await eventually(has(bucket, "a", b"1"))
    await eventually(has(bucket, "b", b"2"))
    assert sorted(await listed(bucket.keys())) == ["a", "b"]
    await bucket.put("c", b"3")
    assert (await bucket.get("c")).value == b"3"
    with pytest.raises(KeyNotFoundError):
        await first.get("c")
    again = await js.create_key_value(
        bucket=bucket.name,
        storage="memory",
        sources=[StreamSource(name=first.name), StreamSource(name=second.name)],
    )
    assert again.config == bucket.config


async def test_a_stream_as_a_source(nc: Client, js: JetStream) -> None:
    name, orders = new_name(), new_name()
    await js.create_stream(name=orders, subjects=[f"{orders}.*.*"], storage="memory")
    transform = SubjectTransform(src=f"{orders}.*.*", dest=f"$KV.{name}.{{{{wildcard(1)}}}}")
    source = StreamSource(name=orders, subject_transforms=[transform])
    bucket = await js.create_key_value(bucket=name, storage="memory", sources=[source])
    await js.publish(f"{orders}.17.new", b"eggs")
    await eventually(has(bucket, "17", b"eggs"))


@conformance("KV", SECTION, "republished copies tell where they come from")
async def test_republish(nc: Client, js: JetStream) -> None:
    dest = new_name()
    bucket = await js.create_key_value(
        bucket=new_name(), storage="memory", republish=Republish(src=">", dest=f"{dest}.>")
    )
    async with await nc.subscribe(f"{dest}.>") as copies:
        await bucket.put("a", b"1")
        await bucket.update("a", b"2", 1)
        first, second = await copies.next(5), await copies.next(5)
    subject = f"$KV.{bucket.name}.a"
    assert (first.subject, first.data) == (f"{dest}.{subject}", b"1")
    assert second.data == b"2"
    for copy, sequence, last in ((first, "1", "0"), (second, "2", "1")):
        assert copy.headers["Nats-Stream"] == f"KV_{bucket.name}"
        assert copy.headers["Nats-Subject"] == subject
        assert copy.headers["Nats-Sequence"] == sequence
        assert copy.headers["Nats-Last-Sequence"] == last
        assert copy.headers["Nats-Time-Stamp"]
    assert second.headers["Nats-Expected-Last-Subject-Sequence"] == "1"


@conformance(
    "KV", SECTION, "a mirror becomes a bucket of its own when its mirror is dropped (2.12)"
)
async def test_promotion(nc: Client, js: JetStream, nats_server: NatsServer) -> None:
    if version_of(nats_server) < (2, 12):
        pytest.skip("mirrors can be promoted since 2.12")
    origin = await new_bucket(nc)
    await origin.put("a", b"1")
    mirror = await js.create_key_value(bucket=new_name(), mirror=StreamSource(name=origin.name))
    await eventually(has(mirror, "a", b"1"))
    promoted = await js.update_key_value(KeyValueConfig(bucket=mirror.name))
    await promoted.put("b", b"2")
    assert (await promoted.get("b")).value == b"2"
    with pytest.raises(KeyNotFoundError):
        await origin.get("b")
