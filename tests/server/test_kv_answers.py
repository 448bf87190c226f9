"""What a bucket makes of answers that a server seldom gives, and of what happens between two."""

from __future__ import annotations

import pytest

from jetspark import Client, JetStream
from jetspark.connection import Message
from jetspark.errors import (
    APIError,
    BadRequestError,
    ExpectedSequenceNotReadyError,
    KeyNotFoundError,
    NoStreamResponseError,
    RequiredAPILevelError,
)
from jetspark.jetstream import StoredMessage
from jetspark.server import NatsServer
from tests.support.buckets import js, nc, stream_of
from tests.support.conformance import conformance
from tests.support.forge import forger
from tests.support.kv import new_bucket, stream_name

__all__ = ["js", "nc"]

READS = "4. Reads"
WRITES = "5. Writes"
NOT_READY = (
    b'{"error":{"code":503,"err_code":10163,"description":"expected last sequence per subject '
    b'temporarily unavailable"},"stream":"KV_B","seq":0}'
)


# -- reads --------------------------------------------------------------------------------------


@conformance("KV", READS, "the statuses 408 and 412 are errors, and not a key that is not there")
@pytest.mark.parametrize(
    ("status", "kind"),
    [("408 Bad Request", BadRequestError), ("412 Required Api Level", RequiredAPILevelError)],
)
async def test_a_get_that_is_refused(
    nc: Client, js: JetStream, nats_server: NatsServer, status: str, kind: type[APIError]
) -> None:
    bucket = await new_bucket(nc)
    await bucket.put("a", b"1")
    await (await stream_of(js, bucket)).update(allow_direct=False)  # so that only this answers
    async with forger(nats_server) as forge:

        async def refuse(message: Message) -> None:
            assert message.reply is not None
            await forge.status(message.reply, status)

        await nc.subscribe(f"$JS.API.DIRECT.GET.{stream_name(bucket)}.>", callback=refuse)
        with pytest.raises(kind, match=f"bucket {bucket.name!r}: get 'a'.*{status[4:]}") as caught:
            await bucket.get("a")
    assert not isinstance(caught.value, KeyNotFoundError)
    assert caught.value.code == int(status[:3])


# -- writes that are sent again -----------------------------------------------------------------


@conformance("KV", WRITES, "a write that nobody answers is sent again")
@pytest.mark.parametrize("first", [True, False])
async def test_a_put_is_sent_again(
    nc: Client, js: JetStream, nats_server: NatsServer, first: bool
) -> None:
    bucket = await new_bucket(nc)
    if not first:
        await bucket.put("first", b"")  # from here on in the shortest way
    await js.delete_key_value(bucket.name)
    async with forger(nats_server) as forge:

        async def nobody(message: Message) -> None:
            await substitute.unsubscribe()
            await js.create_key_value(bucket.config)
            assert message.reply is not None
            await forge.status(message.reply, "503")

        substitute = await nc.subscribe(f"$KV.{bucket.name}.>", callback=nobody)
        assert await bucket.put("a", b"1") == 1
    assert (await bucket.get("a")).value == b"1"


@conformance("KV", WRITES, "a write that nobody answers is sent again twice, and not more often")
async def test_how_often_a_put_is_sent(nc: Client, js: JetStream, nats_server: NatsServer) -> None:
    bucket = await new_bucket(nc)
    await js.delete_key_value(bucket.name)
    seen: list[Message] = []
    async with forger(nats_server) as forge:

        async def nobody(message: Message) -> None:
            seen.append(message)
            assert message.reply is not None
            await forge.status(message.reply, "503")

        await nc.subscribe(f"$KV.{bucket.name}.>", callback=nobody)
        with pytest.raises(NoStreamResponseError, match="key 'a': nobody stores it"):
            await bucket.put("a", b"1")
    assert [message.data for message in seen] == [b"1"] * 3


@conformance(
    "KV", WRITES, "10163, the sequence cannot be checked just now: the write is sent again"
)
@pytest.mark.parametrize("write", ["create", "update", "purge"])
async def test_a_sequence_that_cannot_be_checked(nc: Client, js: JetStream, write: str) -> None:
    bucket = await new_bucket(nc)
    await js.delete_key_value(bucket.name)
    seen: list[Message] = []

    async def not_ready(message: Message) -> None:
        seen.append(message)
        if len(seen) == 2:
            await substitute.unsubscribe()
            await js.create_key_value(bucket.config)
        await message.respond(NOT_READY)

    substitute = await nc.subscribe(f"$KV.{bucket.name}.>", callback=not_ready)
    if write == "create":
        assert await bucket.create("a", b"1") == 1
    elif write == "update":
        assert await bucket.update("a", b"1", 0) == 1
    else:
        await bucket.purge("a", revision=0)
    assert len(seen) == 2
    message = await (await stream_of(js, bucket)).get_message(1)
    assert message.headers == seen[0].headers == seen[1].headers
    assert message.headers["Nats-Expected-Last-Subject-Sequence"] == "0"


@conformance("KV", WRITES, "10163 until the time is up: the error says so, and may be retried")
async def test_a_sequence_that_can_never_be_checked(nc: Client, js: JetStream) -> None:
    name = (await new_bucket(nc)).name
    bucket = await nc.jetstream(timeout=1.5).key_value(name)
    await js.delete_key_value(name)
    seen: list[Message] = []

    async def not_ready(message: Message) -> None:
        seen.append(message)
        await message.respond(NOT_READY)

    await nc.subscribe(f"$KV.{name}.>", callback=not_ready)
    with pytest.raises(ExpectedSequenceNotReadyError) as caught:
        await bucket.update("a", b"1", 0)
    assert (caught.value.err_code, caught.value.code) == (10163, 503)
    assert caught.value.retryable
    assert len(seen) > 1


# -- between two requests -----------------------------------------------------------------------


@conformance("KV", WRITES, "create: a marker that is gone when it is looked up is no obstacle")
async def test_a_marker_that_is_gone_meanwhile(
    nc: Client, js: JetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = await new_bucket(nc)
    await bucket.put("a", b"1")
    await bucket.delete("a")
    look_up = bucket._origin.get_last_message
    looked_up = []

    async def gone(subject: str) -> StoredMessage:
        looked_up.append(subject)
        assert await js.purge_stream(stream_name(bucket), subject=subject) == 1
        return await look_up(subject)

    monkeypatch.setattr(bucket._origin, "get_last_message", gone)
    assert await bucket.create("a", b"2") == 3
    assert looked_up == [f"$KV.{bucket.name}.a"]
    assert (await bucket.get("a")).value == b"2"
    message = await (await stream_of(js, bucket)).get_message(3)
    assert message.headers == {"Nats-Expected-Last-Subject-Sequence": "0"}
