"""Keys that expire, and the markers that the server leaves in their place."""

from __future__ import annotations

from typing import Any

import pytest

from jetspark import Client, JetStream, KeyValue, KeyValueOperation, StreamSource
from jetspark.errors import (
    InvalidMessageTTLError,
    InvalidOptionError,
    InvalidStreamConfigError,
    KeyDeletedError,
    KeyExistsError,
    KeyNotFoundError,
    MessageTooLargeError,
    MessageTTLDisabledError,
)
from tests.support.buckets import initial, js, nc, needs_markers, stream_of
from tests.support.clients import eventually
from tests.support.conformance import conformance
from tests.support.kv import listed, new_bucket
from tests.support.streams import new_name, store

__all__ = ["js", "nc", "needs_markers"]

pytestmark = pytest.mark.usefixtures("needs_markers")

SECTION = "7. Per-key TTL and limit markers"
CONFIG = "2. Bucket -> stream config"
PUT, DELETE, PURGE = KeyValueOperation


async def gone(bucket: KeyValue[bytes], key: str) -> KeyNotFoundError:
    """Wait until a key is not found."""
    errors: list[KeyNotFoundError] = []

    async def missing() -> bool:
        try:
            await bucket.get(key)
        except KeyNotFoundError as error:
            errors.append(error)
            return True
        return False

    await eventually(missing)
    return errors[0]


async def empty(bucket: KeyValue[bytes]) -> bool:
    """Whether nothing is stored, markers included."""
    return (await bucket.status()).values == 0


async def stored_ttl(js: JetStream, bucket: KeyValue[bytes], sequence: int) -> str | None:
    message = await (await stream_of(js, bucket)).get_message(sequence)
    return message.headers.get("Nats-TTL")


@conformance("KV", SECTION, "where the last message of a key expires, the server leaves a marker")
@conformance("KV", "3. Headers", "an expired key is not found, and can be created again")
async def test_a_key_expires(nc: Client, js: JetStream) -> None:
    bucket = await new_bucket(nc, limit_marker_ttl=90)
    await bucket.put("other", b"")
    async with bucket.watch("a") as watcher:
        assert await watcher.next(5) is None
        assert await bucket.create("a", b"1", ttl=1) == 2
        assert (await bucket.get("a")).value == b"1"
        entry = await watcher.next(5)
        assert entry is not None
        assert entry.value == b"1"
        marker = await watcher.next(10)
    assert marker is not None
    assert (marker.key, marker.operation, marker.value, marker.revision) == ("a", PURGE, b"", 3)
    error = await gone(bucket, "a")
    assert isinstance(error, KeyDeletedError)
    assert error.revision == 3
    assert await listed(bucket.keys()) == ["other"]
    assert [found.operation for found in await bucket.history("a")] == [PURGE]
    assert await bucket.get_many("a") == {}
    message = await (await stream_of(js, bucket)).get_message(3)
    assert message.headers == {
        "Nats-Marker-Reason": "MaxAge",
        "Nats-TTL": "1m30s",
        "Nats-Rollup": "sub",
    }


@conformance("KV", SECTION, "a marker expires, too, and leaves nothing behind")
async def test_a_marker_expires(nc: Client) -> None:
    bucket = await new_bucket(nc, limit_marker_ttl=1)
    async with bucket.watch(updates_only=True) as watcher:
        assert await watcher.next(5) is None
        assert await bucket.create("a", b"1", ttl=1) == 1
        while (entry := await watcher.next(10)) is None or entry.operation != PURGE:
            pass
        await eventually(lambda: empty(bucket))
        assert not isinstance(await gone(bucket, "a"), KeyDeletedError)
        # Nothing came after the marker: that is in the second revision, and this the third.
        assert await bucket.create("a", b"2", ttl=60) == 3
        entry = await watcher.next(5)
    assert entry is not None
    assert entry.revision == 3


@conformance("KV", SECTION, "a create after it expects the revision of the marker, not 0")
@conformance("KV", "5. Writes", "create keeps its TTL when it has to be sent again")
async def test_create_again(nc: Client, js: JetStream) -> None:
    bucket = await new_bucket(nc, limit_marker_ttl=30)
    await bucket.create("a", b"1", ttl=1)
    await gone(bucket, "a")
    answer = await nc.request(
        f"$KV.{bucket.name}.a", b"", headers={"Nats-Expected-Last-Subject-Sequence": "0"}
    )
    assert b"10071" in answer.data
    revision = await bucket.create("a", b"2", ttl=60)
    assert revision == 3
    assert await stored_ttl(js, bucket, revision) in ("60s", "60")
    with pytest.raises(KeyExistsError):
        await bucket.create("a", b"3", ttl=60)


@conformance("KV", SECTION, "the TTL of a bucket leaves markers, too")
async def test_the_ttl_of_the_bucket(nc: Client) -> None:
    bucket = await new_bucket(nc, ttl=1, limit_marker_ttl=30)
    await bucket.put("a", b"1")
    await bucket.create("b", b"2", ttl="never")
    assert isinstance(await gone(bucket, "a"), KeyDeletedError)
    assert [entry.operation for entry in await bucket.history("a")] == [PURGE]
    assert (await bucket.get("b")).value == b"2"


@conformance("KV", SECTION, "a delete that grows too old leaves a marker, a purge does not")
@conformance("KV", SECTION, "the TTL of a bucket ends the markers, too, where theirs is longer")
async def test_deletes_and_purges_expire(nc: Client) -> None:
    bucket = await new_bucket(nc, ttl=1, limit_marker_ttl=90)
    async with bucket.watch(updates_only=True) as watcher:
        assert await watcher.next(5) is None
        await bucket.delete("a")
        await bucket.purge("b")
        await bucket.put("c", b"")
        found = [await watcher.next(10) for _ in range(5)]
        await eventually(lambda: empty(bucket))
    keys = [(entry.key, entry.operation) for entry in found if entry is not None]
    assert keys[:3] == [("a", DELETE), ("b", PURGE), ("c", PUT)]
    assert sorted(keys[3:]) == [("a", PURGE), ("c", PURGE)]
    assert (await bucket.status()).stream_info.state.last_seq == 5


@conformance("KV", SECTION, "'never' outlives the TTL of the bucket")
async def test_never(nc: Client) -> None:
    bucket = await new_bucket(nc, ttl=1, limit_marker_ttl=1)
    await bucket.put("a", b"")
    await bucket.create("b", b"", ttl="never")
    async with bucket.watch("a", updates_only=True) as watcher:
        assert await watcher.next(5) is None
        assert await watcher.next(10) is not None  # the marker, after as much time
    assert (await bucket.get("b")).revision == 2


@conformance("KV", SECTION, "a purge with a TTL disappears without a marker")
async def test_purge_with_a_ttl(nc: Client) -> None:
    bucket = await new_bucket(nc, history=3, limit_marker_ttl=30)
    await bucket.put("a", b"1")
    await bucket.purge("a", ttl=1)
    # With more than one revision a shorter TTL is raised to that of markers.
    assert [entry.operation for entry in await bucket.history("a")] == [PURGE]
    bucket = await new_bucket(nc, limit_marker_ttl=1)
    await bucket.put("a", b"1")
    await bucket.purge("a", ttl=1)
    assert isinstance(await gone(bucket, "a"), KeyDeletedError)
    await eventually(lambda: empty(bucket))
    error = await gone(bucket, "a")
    assert not isinstance(error, KeyDeletedError)
    assert (await bucket.status()).stream_info.state.last_seq == 2


@conformance("KV", SECTION, "with history, a TTL below that of markers is raised to it")
@conformance("KV", SECTION, "without history, a TTL is taken as it is")
async def test_short_ttls(nc: Client, js: JetStream) -> None:
    for history, stored in ((1, ("2s", "2")), (2, ("10",))):
        bucket = await new_bucket(nc, history=history, limit_marker_ttl=10)
        revision = await bucket.create("a", b"", ttl=2)
        assert await stored_ttl(js, bucket, revision) in stored


@conformance("KV", SECTION, "a TTL is at least a second, and whole ones: checked here")
@pytest.mark.parametrize("ttl", [0, 0.5, 1.5, -1, "soon", True, None])
async def test_ttls_that_are_refused_here(nc: Client, ttl: Any) -> None:
    bucket = await new_bucket(nc, limit_marker_ttl=1)
    if ttl is None:
        await bucket.create("a", b"", ttl=None)
        return
    sent = nc.statistics.messages_out
    for call in (bucket.create("a", b"", ttl=ttl), bucket.purge("a", ttl=ttl)):
        with pytest.raises(InvalidOptionError, match="ttl"):
            await call
    assert nc.statistics.messages_out == sent


@conformance("KV", SECTION, "a TTL below a second, or of no known form: the server says 10165")
@pytest.mark.parametrize("ttl", ["0", "500ms", "1.5", "-1", "soon"])
async def test_ttls_that_the_server_refuses(nc: Client, ttl: str) -> None:
    bucket = await new_bucket(nc, limit_marker_ttl=1)
    answer = await nc.request(f"$KV.{bucket.name}.a", b"", headers={"Nats-TTL": ttl})
    assert b"10165" in answer.data, answer.data
    assert InvalidMessageTTLError.class_for(400, 10165) is InvalidMessageTTLError


@conformance("KV", SECTION, "the server takes a TTL of more than a second with a fraction")
async def test_a_ttl_with_a_fraction(nc: Client) -> None:
    bucket = await new_bucket(nc, limit_marker_ttl=30)
    assert await store(nc, f"$KV.{bucket.name}.a", b"1", {"Nats-TTL": "1500ms"}) == 1
    error = await gone(bucket, "a")
    assert isinstance(error, KeyDeletedError)
    assert error.revision == 2


@conformance("KV", CONFIG, "max_value_size counts the header of a TTL")
async def test_a_ttl_that_makes_a_value_too_large(nc: Client) -> None:
    value = bytes(20)
    bucket = await new_bucket(nc, max_value_size=80, limit_marker_ttl=30)
    await bucket.create("a", value)
    with pytest.raises(MessageTooLargeError) as caught:
        await bucket.create("b", value, ttl=60)
    assert caught.value.err_code == 10054
    assert await listed(bucket.keys()) == ["a"]


@conformance("KV", SECTION, "a bucket without the feature: 10166")
async def test_a_bucket_without_ttls(nc: Client, js: JetStream) -> None:
    bucket = await new_bucket(nc)
    answer = await nc.request(f"$KV.{bucket.name}.a", b"", headers={"Nats-TTL": "5s"})
    assert b"10166" in answer.data
    for call in (bucket.create("a", b"", ttl=5), bucket.purge("a", ttl=5)):
        with pytest.raises(MessageTTLDisabledError, match=r"key 'a'.*limit_marker_ttl"):
            await call
    assert (await bucket.status()).values == 0


@conformance("KV", SECTION, "markers can be turned on later")
async def test_turned_on_later(nc: Client, js: JetStream) -> None:
    bucket = await new_bucket(nc)
    await js.update_key_value(bucket.config, limit_marker_ttl=5)
    revision = await bucket.create("a", b"", ttl=60)  # by the handle from before
    assert await stored_ttl(js, bucket, revision) in ("60s", "60")


@conformance("KV", SECTION, "TTLs cannot be turned off: 10052; markers can")
async def test_turned_off(nc: Client, js: JetStream) -> None:
    bucket = await new_bucket(nc, limit_marker_ttl=5)
    stream = await stream_of(js, bucket)
    off = stream.config.replace(allow_msg_ttl=False, subject_delete_marker_ttl=0)
    with pytest.raises(InvalidStreamConfigError) as caught:
        await js.update_stream(off)
    assert caught.value.err_code == 10052
    updated = await js.update_key_value(bucket.config, limit_marker_ttl=0)
    assert not updated.config.limit_marker_ttl
    revision = await updated.create("a", b"", ttl=60)
    assert await stored_ttl(js, bucket, revision) in ("60s", "60")


@conformance("KV", SECTION, "a purge by the API leaves no marker")
async def test_purge_by_the_api(nc: Client, js: JetStream) -> None:
    bucket = await new_bucket(nc, limit_marker_ttl=30)
    await bucket.put("a", b"")
    await js.purge_stream(f"KV_{bucket.name}", subject=f"$KV.{bucket.name}.a")
    assert (await bucket.status()).values == 0
    assert not isinstance(await gone(bucket, "a"), KeyDeletedError)


@conformance("KV", SECTION, "markers for other reasons are understood: Purge and Remove")
@pytest.mark.parametrize("reason", ["Purge", "Remove", "MaxAge"])
async def test_markers(nc: Client, reason: str) -> None:
    bucket = await new_bucket(nc, limit_marker_ttl=30)
    await store(nc, f"$KV.{bucket.name}.a", b"", {"Nats-Marker-Reason": reason})
    await bucket.put("b", b"")
    with pytest.raises(KeyDeletedError):
        await bucket.get("a")
    assert await listed(bucket.keys()) == ["b"]
    async with bucket.watch(ignore_deletes=True) as watcher:
        assert [entry.key for entry in await initial(watcher)] == ["b"]
    assert await bucket.purge_deletes(0) == 1
    await bucket.create("a", b"")


@conformance("KV", SECTION, "a mirror with a TTL of markers: 10052")
async def test_a_mirror_with_markers(nc: Client, js: JetStream) -> None:
    origin = await new_bucket(nc)
    with pytest.raises(InvalidOptionError, match="limit_marker_ttl"):
        await js.create_key_value(
            bucket=new_name(), mirror=StreamSource(name=origin.name), limit_marker_ttl=5
        )
    name = f"KV_{new_name()}"
    body = {"name": name, "mirror": {"name": f"KV_{origin.name}"}, "storage": "memory"}
    with pytest.raises(InvalidStreamConfigError) as caught:
        await js.api.request(
            js.api.subjects.stream_create(name),
            {**body, "allow_msg_ttl": True, "subject_delete_marker_ttl": 5 * 10**9},
            context="create",
        )
    assert caught.value.err_code == 10052
