"""Reading keys: the latest entry, a revision, many at once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jetspark import Client, JetStream, KeyValue, KeyValueConfig, KeyValueOperation
from jetspark.connection import Message
from jetspark.errors import (
    BucketNotFoundError,
    InvalidArgumentError,
    InvalidKeyError,
    InvalidOptionError,
    KeyDeletedError,
    KeyNotFoundError,
    MessageNotFoundError,
    NoStreamResponseError,
    TooManyResultsError,
)
from jetspark.server import NatsServer
from tests.support.buckets import js, nc, stream_of
from tests.support.clients import eventually
from tests.support.conformance import conformance
from tests.support.kv import new_bucket
from tests.support.streams import new_name, version_of

__all__ = ["js", "nc"]

SECTION = "4. Reads"
NAMES = "1. Names and validity"
DIRECT = pytest.mark.parametrize("direct", [True, False], ids=["direct", "leader"])


async def make(js: JetStream, direct: bool, **fields: Any) -> KeyValue[bytes]:
    """A bucket that allows direct gets, or one as older clients made them."""
    config = KeyValueConfig(bucket=new_name(), storage="memory", **fields)
    await js.create_stream(config.to_stream().replace(allow_direct=direct))
    return await js.key_value(config.bucket)


@conformance("KV", SECTION, "get: DIRECT.GET with the subject, or MSG.GET where that is off")
@DIRECT
async def test_get(js: JetStream, direct: bool) -> None:
    bucket = await make(js, direct)
    before = datetime.now(UTC) - timedelta(minutes=1)
    assert await bucket.put("a.b", b"one") == 1
    assert await bucket.put("a.b", b"two") == 2
    entry = await bucket.get("a.b")
    assert (entry.bucket, entry.key, entry.value) == (bucket.name, "a.b", b"two")
    assert (entry.revision, entry.delta, entry.operation) == (2, 0, KeyValueOperation.PUT)
    assert before < entry.created < before + timedelta(minutes=2)


@conformance("KV", SECTION, "get: many at once, each gets its own key")
async def test_gets_at_once(nc: Client) -> None:
    bucket = await new_bucket(nc)
    values = {f"k.{number}": b"%d" % number for number in range(50)}
    for key, value in values.items():
        await bucket.put(key, value)
    asked = await nc.subscribe(f"$JS.API.DIRECT.GET.KV_{bucket.name}.>")

    async def read(worker: int) -> None:
        for number in range(20):
            key = f"k.{(worker * 7 + number) % 60}"
            if key in values:
                entry = await bucket.get(key)
                assert (entry.key, entry.value) == (key, values[key])
            else:
                with pytest.raises(KeyNotFoundError, match=key):
                    await bucket.get(key)

    await asyncio.gather(*map(read, range(30)))
    # Reply subjects are used again when their answer has come, and not before.
    used = [(await asked.next(5)).reply for _ in range(600)]
    assert len(set(used)) == 30
    assert not any(hasattr(spare, "frame") for spare in nc._requests()._spare)


async def test_the_late_answer_to_a_get_that_was_given_up(nc: Client) -> None:
    bucket = await new_bucket(nc)
    for key in ("given.up", "kept"):
        await bucket.put(key, key.encode())
        await bucket.get(key)
    for _ in range(50):
        given_up = asyncio.create_task(bucket.get("given.up"))
        await asyncio.sleep(0)  # it is sent
        given_up.cancel()
        entries = await asyncio.gather(*(bucket.get("kept") for _ in range(3)))
        assert [entry.value for entry in entries] == [b"kept"] * 3
        with pytest.raises(asyncio.CancelledError):
            await given_up
    assert not nc._requests().pending


async def test_gets_that_are_answered_twice(nc: Client) -> None:
    """The second answer to one is not taken for the answer to another."""
    bucket = await new_bucket(nc)
    subjects = f"$JS.API.DIRECT.GET.KV_{bucket.name}.$KV.{bucket.name}"
    answers: dict[str, Message] = {}
    for number in range(10):
        await bucket.put(f"k.{number}", b"%d" % number)
        subject = f"{subjects}.k.{number}"
        answers[subject] = await nc.request(subject, b"")

    async def answer(message: Message) -> None:
        again = answers[message.subject]
        await message.respond(again.data, headers=again.headers)

    await nc.subscribe(f"{subjects}.>", callback=answer)
    for number in list(range(10)) * 20:
        assert (await bucket.get(f"k.{number}")).value == b"%d" % number


@conformance("KV", SECTION, "how a get is asked for")
@DIRECT
async def test_what_is_sent(nc: Client, js: JetStream, direct: bool) -> None:
    bucket = await make(js, direct)
    await bucket.put("k", b"1")
    seen: list[Message] = []
    await nc.subscribe("$JS.API.>", callback=seen.append)
    await bucket.get("k")
    await bucket.get("k", revision=1)
    await eventually(lambda: len(seen) == 2)
    stream, subject = f"KV_{bucket.name}", f"$KV.{bucket.name}.k"
    if direct:
        wanted = [
            (f"$JS.API.DIRECT.GET.{stream}.{subject}", b""),
            (f"$JS.API.DIRECT.GET.{stream}", b'{"seq":1}'),
        ]
    else:
        wanted = [
            (f"$JS.API.STREAM.MSG.GET.{stream}", b'{"last_by_subj":"%b"}' % subject.encode()),
            (f"$JS.API.STREAM.MSG.GET.{stream}", b'{"seq":1}'),
        ]
    assert [(message.subject, message.data) for message in seen] == wanted


@conformance("KV", SECTION, "get by revision: the revision must be one of the key")
@DIRECT
async def test_get_a_revision(js: JetStream, direct: bool) -> None:
    bucket = await make(js, direct, history=5)
    for value in (b"1", b"2"):
        await bucket.put("a", value)
        await bucket.put("b", value)
    entry = await bucket.get("a", revision=1)
    assert (entry.key, entry.value, entry.revision) == ("a", b"1", 1)
    assert (await bucket.get("a", 3)).value == b"2"
    for revision in (2, 4, 99):
        with pytest.raises(KeyNotFoundError, match=f"no key 'a' with revision {revision}"):
            await bucket.get("a", revision)
    with pytest.raises(InvalidOptionError, match="revision"):
        await bucket.get("a", revision=0)


@conformance("KV", SECTION, "no message: the key is not found")
@DIRECT
async def test_no_such_key(js: JetStream, direct: bool) -> None:
    bucket = await make(js, direct)
    with pytest.raises(KeyNotFoundError, match=f"bucket {bucket.name!r} has no key 'a'") as caught:
        await bucket.get("a")
    assert isinstance(caught.value, MessageNotFoundError)
    assert not isinstance(caught.value, KeyDeletedError)
    assert caught.value.code == 404


@conformance("KV", SECTION, "a deleted or purged key is not found, and its revision is told")
@DIRECT
async def test_deleted_keys(js: JetStream, direct: bool) -> None:
    bucket = await make(js, direct, history=5)
    await bucket.put("a", b"1")
    await bucket.delete("a")
    await bucket.purge("b")
    for key, revision in (("a", 2), ("b", 3)):
        with pytest.raises(KeyDeletedError, match=f"key '{key}' is gone") as caught:
            await bucket.get(key)
        assert caught.value.revision == revision
        with pytest.raises(KeyDeletedError):
            await bucket.get(key, revision)
    assert (await bucket.get("a", revision=1)).value == b"1"


@conformance("KV", SECTION, "an empty value is a value")
@DIRECT
async def test_empty_values(js: JetStream, direct: bool) -> None:
    bucket = await make(js, direct)
    await bucket.put("a", b"")
    entry = await bucket.get("a")
    assert (entry.value, entry.operation) == (b"", KeyValueOperation.PUT)
    assert (await bucket.get("a", 1)).value == b""


@conformance("KV", "3. Headers", "the expected sequence stays among the stored headers")
async def test_the_headers_of_an_update_are_stored(nc: Client, js: JetStream) -> None:
    bucket = await new_bucket(nc)
    await bucket.put("a", b"1")
    await bucket.update("a", b"2", 1)
    message = await (await stream_of(js, bucket)).get_message(2)
    assert message.headers == {"Nats-Expected-Last-Subject-Sequence": "1"}
    assert (await bucket.get("a")).value == b"2"


async def test_values_with_headers_of_others(nc: Client) -> None:
    bucket = await new_bucket(nc)
    headers = {"Nats-Stream": "OTHER", "Nats-Sequence": "99", "Nats-Time-Stamp": "x", "KV": "y"}
    await nc.request(f"$KV.{bucket.name}.a", b"1", headers=headers)
    entry = await bucket.get("a")
    assert (entry.value, entry.revision, entry.created.year > 2000) == (b"1", 1, True)


async def test_headers_that_look_like_those_which_the_server_adds(nc: Client) -> None:
    """A copy of an answer, put back as it was."""
    bucket = await new_bucket(nc)
    copied = {"Nats-Stream": f"KV_{bucket.name}", "Nats-Subject": f"$KV.{bucket.name}.k"}
    await nc.jetstream().publish(f"$KV.{bucket.name}.k", b"v", headers=copied)
    entry = await bucket.get("k")
    assert (entry.value, entry.revision, entry.deleted) == (b"v", 1, False)
    marker = {**copied, "KV-Operation": "DEL"}
    await nc.jetstream().publish(f"$KV.{bucket.name}.k", b"", headers=marker)
    with pytest.raises(KeyDeletedError):
        await bucket.get("k")


@conformance("KV", NAMES, "a key that is not valid is refused by every call, before it is sent")
@pytest.mark.parametrize(
    "key", ["", "a b", ".a", "a.", "a..b", "ä", "*", "a.>", "a\n", "$a", "a:b"]
)
async def test_invalid_keys_are_not_sent(nc: Client, key: str) -> None:
    bucket = await new_bucket(nc)
    sent = nc.statistics.messages_out
    for call in (
        bucket.get(key),
        bucket.get(key, 1),
        bucket.put(key, b""),
        bucket.create(key, b""),
        bucket.update(key, b"", 1),
        bucket.delete(key),
        bucket.purge(key),
        bucket.history(key),
    ):
        with pytest.raises(InvalidKeyError, match=f"bucket '{bucket.name}': key"):
            await call
    assert nc.statistics.messages_out == sent


async def test_no_str_at_all(nc: Client) -> None:
    bucket = await new_bucket(nc)
    for key in (None, 1, b"a", ["a"]):
        with pytest.raises(InvalidKeyError):
            await bucket.get(key)  # type: ignore[arg-type]


@conformance(
    "KV", NAMES, "keys of thousands of characters work; one too long for a line is refused"
)
@DIRECT
async def test_long_keys(js: JetStream, direct: bool) -> None:
    bucket = await make(js, direct)
    for length in (1024, 1025, 3000):
        key = "k" * length
        await bucket.put(key, b"%d" % length)
        assert (await bucket.get(key)).key == key
        assert (await bucket.history(key))[0].value == b"%d" % length
    with pytest.raises(InvalidKeyError, match="5000 characters is too long"):
        await bucket.put("k" * 5000, b"")
    with pytest.raises(InvalidKeyError, match="5000 characters is too long"):
        await bucket.create("k" * 5000, b"")
    with pytest.raises(KeyNotFoundError, match="no key 'kkk") as caught:
        await bucket.get("k" * 100_000)
    assert len(str(caught.value)) < 300


@conformance("KV", SECTION, "nobody answers a get: the bucket is gone")
async def test_the_bucket_is_gone(nc: Client, js: JetStream) -> None:
    bucket = await new_bucket(nc)
    await js.delete_key_value(bucket.name)
    for call in (bucket.get("a"), bucket.get("a", 1)):
        with pytest.raises(NoStreamResponseError, match=f"bucket {bucket.name!r}.*deleted"):
            await call
    bucket = await make(js, direct=False)
    await js.delete_key_value(bucket.name)
    calls: list[Coroutine[Any, Any, object]]
    calls = [bucket.get("a"), bucket.get("a", 1), bucket.get_many(["a", "b"])]
    for read in calls:
        with pytest.raises(BucketNotFoundError, match=bucket.name):
            await read


@conformance("KV", SECTION, "nobody answers a get: direct gets were turned off since")
async def test_direct_gets_are_turned_off(nc: Client, js: JetStream) -> None:
    bucket = await new_bucket(nc)
    await bucket.put("a", b"1")
    assert (await bucket.get("a")).value == b"1"
    await (await stream_of(js, bucket)).update(allow_direct=False)
    calls: list[Coroutine[Any, Any, object]]
    calls = [bucket.get("a"), bucket.get("a", 1), bucket.get_many(["a"])]
    for read in calls:
        match = f"bucket {bucket.name!r}: get: nobody answers.*not allow direct gets any more"
        with pytest.raises(NoStreamResponseError, match=match):
            await read
    assert (await (await js.key_value(bucket.name)).get("a")).value == b"1"


async def test_many_gets_at_once(nc: Client) -> None:
    bucket = await new_bucket(nc)
    await asyncio.gather(*(bucket.put(f"k.{n}", b"%d" % n) for n in range(5000)))
    entries = await asyncio.gather(*(bucket.get(f"k.{n}") for n in range(5000)))
    assert [int(entry.value) for entry in entries] == list(range(5000))
    assert [entry.key for entry in entries] == [f"k.{n}" for n in range(5000)]


# -- several at once ---------------------------------------------------------------------------


@DIRECT
async def test_get_many(js: JetStream, direct: bool) -> None:
    bucket = await make(js, direct, history=3)
    for key in ("a", "b.1", "b.2", "c.1"):
        await bucket.put(key, b"old")
        await bucket.put(key, key.encode())
    await bucket.delete("b.2")
    entries = await bucket.get_many(["a", "b.1", "b.2", "none", "a"])
    assert {key: entry.value for key, entry in entries.items()} == {"a": b"a", "b.1": b"b.1"}
    assert (entries["a"].key, entries["a"].revision) == ("a", 2)
    assert sorted(await bucket.get_many("b.*")) == ["b.1"]
    assert sorted(await bucket.get_many(["b.>", "c.1", "*.1"])) == ["b.1", "c.1"]
    assert sorted(await bucket.get_many(">")) == ["a", "b.1", "c.1"]
    assert sorted(await bucket.get_many("")) == ["a", "b.1", "c.1"]
    assert await bucket.get_many([]) == {}
    assert await bucket.get_many("none") == {}
    with pytest.raises(InvalidKeyError, match="key filter"):
        await bucket.get_many(["a", "b c"])
    for keys in (None, 5):
        with pytest.raises(InvalidArgumentError, match="get_many takes keys"):
            await bucket.get_many(keys)  # type: ignore[arg-type]


@conformance("KV", SECTION, "several keys in one request: multi_last, ended by 204")
async def test_get_many_is_one_request(nc: Client, js: JetStream, nats_server: NatsServer) -> None:
    if version_of(nats_server) < (2, 11):
        pytest.skip("multi_last came with 2.11")
    bucket = await new_bucket(nc)
    for key in "abc":
        await bucket.put(key, key.encode())
    sent = nc.statistics.messages_out
    assert sorted(await bucket.get_many(["a", "b", "c", "d"])) == ["a", "b", "c"]
    assert nc.statistics.messages_out == sent + 1
    subject = f"$JS.API.DIRECT.GET.KV_{bucket.name}"
    body = b'{"multi_last":["$KV.%b.a"]}' % bucket.name.encode()
    replies = [reply async for reply in nc.request_many(subject, body, max_messages=2)]
    assert (replies[0].data, replies[1].status) == (b"a", 204)
    assert replies[1].headers.description == "EOB"


@conformance("KV", SECTION, "more subjects than multi_last can answer: 413")
async def test_get_very_many(nc: Client, js: JetStream, nats_server: NatsServer) -> None:
    bucket = await new_bucket(nc)
    keys = [f"k.{number}" for number in range(1100)]
    await asyncio.gather(*(bucket.put(key, key.encode()) for key in keys))
    if version_of(nats_server) >= (2, 11):
        stream = await stream_of(js, bucket)
        with pytest.raises(TooManyResultsError):
            await anext(stream.direct_get_last_many(f"$KV.{bucket.name}.>"))
    for wanted in (keys, ">", ["k.*"]):
        entries = await bucket.get_many(wanted)
        assert {key: entry.value.decode() for key, entry in entries.items()} == {
            key: key for key in keys
        }
