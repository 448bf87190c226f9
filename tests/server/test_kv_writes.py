"""Writing keys: put, create, update, delete, purge, and cleaning up after them."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jetspark import Client, JetStream, KeyValueOperation, Message
from jetspark.errors import (
    InvalidAckError,
    InvalidArgumentError,
    InvalidOptionError,
    KeyDeletedError,
    KeyExistsError,
    KeyNotFoundError,
    MaxPayloadError,
    MessageDeleteError,
    MessageTooLargeError,
    NoStreamResponseError,
    RevisionMismatchError,
    StoreFailedError,
    WrongLastSequenceError,
)
from jetspark.server import NatsCluster, NatsServer
from tests.support.buckets import js, nc, stream_of
from tests.support.clients import Connect, eventually
from tests.support.conformance import conformance
from tests.support.kv import listed, new_bucket
from tests.support.servers import StartServer
from tests.support.streams import store, version_of

__all__ = ["js", "nc"]

SECTION = "5. Writes"
CONFIG = "2. Bucket -> stream config"
PUT, DELETE, PURGE = KeyValueOperation


@conformance("KV", SECTION, "put: no headers, and the revision is the sequence")
async def test_put(nc: Client, js: JetStream) -> None:
    bucket = await new_bucket(nc)
    assert [await bucket.put(key, b"x") for key in "aab"] == [1, 2, 3]
    message = await (await stream_of(js, bucket)).get_message(3)
    assert (message.subject, message.raw_headers) == (f"$KV.{bucket.name}.b", None)


@conformance("KV", SECTION, "put: many at once, each gets the revision of its own value")
async def test_puts_at_once(nc: Client, js: JetStream) -> None:
    bucket = await new_bucket(nc, history=64)
    await bucket.put("first", b"")  # from here on in the shortest way
    replies = await nc.subscribe(f"$KV.{bucket.name}.>")

    async def put(worker: int) -> dict[int, bytes]:
        values = [b"%d.%d" % (worker, number) for number in range(20)]
        return {await bucket.put(f"k.{worker % 15}", value): value for value in values}

    put_values: dict[int, bytes] = {}
    for some in await asyncio.gather(*map(put, range(30))):
        put_values |= some
    assert sorted(put_values) == list(range(2, 602))
    stream = await stream_of(js, bucket)
    stored = stream.direct_get_batch(seq=2)
    assert {message.sequence: message.data async for message in stored} == put_values
    # Reply subjects are used again when their answer has come, and not before.
    used = [(await replies.next(5)).reply for _ in range(600)]
    assert len(set(used)) == 30


@pytest.mark.parametrize("moment", [0, 0.01])
async def test_the_event_loop_sleeps_again_after_many_puts(
    nats_server: NatsServer, connect: Connect, moment: float
) -> None:
    nc = await connect(nats_server.url, busy_poll=moment)
    bucket = await new_bucket(nc)
    lookout = nc._connection._lookout
    awake = set()

    async def put() -> None:
        for _ in range(20):
            await bucket.put("k", b"")
            awake.add(lookout._looking)

    await asyncio.gather(*(put() for _ in range(50)))
    assert awake == ({False} if moment == 0 else {False, True})
    await eventually(lambda: not lookout._looking)


async def test_puts_after_the_inbox_of_their_acknowledgements_is_lost(nc: Client) -> None:
    """As when the server refuses its subscription after a reconnect."""
    bucket = await new_bucket(nc)
    await asyncio.gather(*(bucket.put("k", b"") for _ in range(20)))
    inbox = bucket._acks._inbox
    assert inbox is not None
    nc._unsubscribe(inbox)
    # No reply subject of the lost inbox is used again.
    assert sorted([await bucket.put("k", b"") for _ in range(3)]) == [21, 22, 23]
    async with asyncio.timeout(5):
        await asyncio.gather(*(bucket.put("k", b"") for _ in range(30)))


async def test_the_late_answer_to_a_put_that_was_given_up(nc: Client) -> None:
    bucket = await new_bucket(nc)
    await bucket.put("first", b"")  # from here on in the shortest way
    for number in range(50):
        given_up = asyncio.create_task(bucket.put("given.up", b"%d" % number))
        await asyncio.sleep(0)  # it is sent
        given_up.cancel()
        kept = await asyncio.gather(*(bucket.put("kept", b"%d" % n) for n in range(3)))
        assert kept == sorted(kept)
        assert (await bucket.get("kept")).revision == kept[-1]
        with pytest.raises(asyncio.CancelledError):
            await given_up


@pytest.mark.parametrize("answer", [b"stored", b'{"stream":"OTHER", "seq":1}'])
async def test_somebody_else_answers_puts_as_well(nc: Client, answer: bytes) -> None:
    """A put may fail then, but none is taken to be stored that is not, or somewhere else."""
    bucket = await new_bucket(nc, history=64)

    async def meddle(message: Message) -> None:
        await message.respond(answer)

    await nc.subscribe(f"$KV.{bucket.name}.>", callback=meddle)
    failures = []
    for number in range(200):
        try:
            revision = await bucket.put("k", b"%d" % number)
        except InvalidAckError as error:
            failures.append(error)
            continue
        assert (await bucket.get("k", revision=revision)).value == b"%d" % number
    assert len(failures) < 200
    assert all(error.may_have_taken_effect for error in failures)


@pytest.mark.parametrize("size", [0, 1, 4096, 4097, 1_000_000])
async def test_values_of_all_sizes(nc: Client, size: int) -> None:
    bucket = await new_bucket(nc)
    for kind in (bytes, bytearray, memoryview):
        await bucket.put("a", kind(bytes(range(256)) * 4000)[:size])  # type: ignore[arg-type]
        assert (await bucket.get("a")).value == (bytes(range(256)) * 4000)[:size]


async def test_values_that_are_no_bytes(nc: Client) -> None:
    bucket = await new_bucket(nc)
    value: Any
    for value in ("text", None, 1):
        with pytest.raises(InvalidArgumentError, match="must be bytes"):
            await bucket.put("a", value)
    with pytest.raises(MaxPayloadError):
        await bucket.put("a", bytes(nc.max_payload + 1))
    assert (await bucket.status()).values == 0


@conformance("KV", SECTION, "update: only the expected revision is replaced")
async def test_update(nc: Client) -> None:
    bucket = await new_bucket(nc, history=5)
    first = await bucket.put("a", b"1")
    second = await bucket.update("a", b"2", first)
    assert second > first
    with pytest.raises(RevisionMismatchError, match=f"key 'a' is {second}, not {first}") as caught:
        await bucket.update("a", b"3", first)
    assert isinstance(caught.value, WrongLastSequenceError)
    assert (caught.value.err_code, caught.value.last_sequence) == (10071, second)
    assert (await bucket.get("a")).value == b"2"
    with pytest.raises(RevisionMismatchError, match="key 'b' is none, not 7"):
        await bucket.update("b", b"", 7)
    assert await bucket.update("b", b"", 0) == 3
    with pytest.raises(InvalidOptionError, match="revision"):
        await bucket.update("a", b"", -1)


@pytest.mark.parametrize("revision", [None, "1", 1.0, True, -1])
async def test_update_needs_a_revision(nc: Client, revision: Any) -> None:
    bucket = await new_bucket(nc)
    await bucket.put("a", b"1")
    with pytest.raises(InvalidOptionError, match="revision must be"):
        await bucket.update("a", b"2", revision)
    if revision is not None:
        for call in (
            bucket.delete("a", revision=revision),
            bucket.purge("a", revision=revision),
            bucket.get("a", revision),
        ):
            with pytest.raises(InvalidOptionError, match="revision must be"):
                await call
    assert (await bucket.get("a")).value == b"1"


@conformance("KV", SECTION, "a wrong sequence: 10071 with the one that is right, 0 for none")
async def test_wrong_last_sequence(nc: Client, js: JetStream) -> None:
    bucket = await new_bucket(nc)
    subject = f"$KV.{bucket.name}.a"
    for last in (0, 1):
        with pytest.raises(WrongLastSequenceError) as caught:
            await js.publish(subject, b"", expected_last_subject_sequence=99)
        assert caught.value.err_code == 10071
        assert caught.value.description.endswith(f": {last}")
        await bucket.put("a", b"")


@conformance("KV", SECTION, "an acknowledgement that refuses has the sequence 0")
async def test_the_acknowledgement_of_a_refusal(nc: Client) -> None:
    bucket = await new_bucket(nc)
    await bucket.put("a", b"")
    headers = {"Nats-Expected-Last-Subject-Sequence": "99"}
    answer = json.loads((await nc.request(f"$KV.{bucket.name}.a", b"", headers=headers)).data)
    assert answer == {
        "error": {"code": 400, "err_code": 10071, "description": "wrong last sequence: 1"},
        "stream": f"KV_{bucket.name}",
        "seq": 0,
    }


@conformance("KV", SECTION, "a settled conflict on replicas is 10071")
@conformance(
    "KV", SECTION, "a conflict with a write in flight on replicas is 10164, without a number"
)
async def test_conflicts_on_replicas(nats_cluster: NatsCluster, connect: Connect) -> None:
    nc = await connect(nats_cluster.urls)
    bucket = await new_bucket(nc, replicas=3)
    await bucket.put("a", b"1")
    with pytest.raises(RevisionMismatchError) as caught:
        await bucket.update("a", b"2", 99)
    assert caught.value.err_code == 10071
    with pytest.raises(KeyExistsError):
        await bucket.create("a", b"2")
    in_flight = 0
    for _ in range(20):
        revision = await bucket.put("a", b"")
        results = await asyncio.gather(
            *(bucket.update("a", b"%d" % n, revision) for n in range(20)), return_exceptions=True
        )
        errors = [result for result in results if isinstance(result, BaseException)]
        assert len(errors) == 19
        for error in errors:
            assert isinstance(error, RevisionMismatchError), error
            if error.err_code == 10071:
                assert error.last_sequence
                continue
            assert (error.err_code, error.last_sequence) == (10164, None)
            assert f"key 'a' is another one, not {revision}" in str(error)
            in_flight += 1
    assert in_flight or version_of(nats_cluster[0]) < (2, 11)
    await bucket._context.delete_key_value(bucket.name)


@conformance("KV", SECTION, "create: only what does not exist")
async def test_create(nc: Client) -> None:
    bucket = await new_bucket(nc)
    assert await bucket.create("a", b"1") == 1
    with pytest.raises(KeyExistsError, match=f"bucket {bucket.name!r}: key 'a' exists") as caught:
        await bucket.create("a", b"2")
    assert isinstance(caught.value, WrongLastSequenceError)
    assert caught.value.err_code == 10071
    assert (await bucket.get("a")).value == b"1"


@conformance("KV", SECTION, "create after a delete or a purge expects the marker")
@pytest.mark.parametrize("history", [1, 5])
async def test_create_after_it_is_gone(nc: Client, history: int) -> None:
    bucket = await new_bucket(nc, history=history)
    for number, gone in enumerate((bucket.delete, bucket.purge, bucket.delete)):
        revision = await bucket.create("a", b"%d" % number)
        assert (await bucket.get("a")).revision == revision
        await gone("a")
    await bucket.create("a", b"last")
    assert (await bucket.history("a"))[-1].value == b"last"


async def test_one_of_many_creates(nc: Client) -> None:
    bucket = await new_bucket(nc)
    await bucket.put("a", b"")
    await bucket.delete("a")
    calls = [bucket.create("a", b"%d" % number) for number in range(50)]
    results = await asyncio.gather(*calls, return_exceptions=True)
    made = [result for result in results if isinstance(result, int)]
    assert made == [3]
    assert sum(isinstance(result, KeyExistsError) for result in results) == 49


@conformance("KV", SECTION, "delete: a marker, and the history stays")
async def test_delete(nc: Client, js: JetStream) -> None:
    bucket = await new_bucket(nc, history=5)
    await bucket.put("a", b"1")
    await bucket.delete("a")
    with pytest.raises(KeyDeletedError):
        await bucket.get("a")
    assert [entry.operation for entry in await bucket.history("a")] == [PUT, DELETE]
    message = await (await stream_of(js, bucket)).get_message(2)
    assert message.headers == {"KV-Operation": "DEL"}
    assert message.data == b""
    await bucket.delete("never-there")
    assert [entry.operation for entry in await bucket.history("never-there")] == [DELETE]


@conformance("KV", SECTION, "purge: a marker that replaces all earlier revisions")
async def test_purge(nc: Client, js: JetStream) -> None:
    bucket = await new_bucket(nc, history=5)
    for _ in range(3):
        await bucket.put("a", b"1")
    await bucket.purge("a")
    assert [entry.operation for entry in await bucket.history("a")] == [PURGE]
    message = await (await stream_of(js, bucket)).get_message(4)
    assert message.headers == {"KV-Operation": "PURGE", "Nats-Rollup": "sub"}
    assert (await bucket.status()).values == 1


async def test_delete_and_purge_of_a_revision(nc: Client) -> None:
    bucket = await new_bucket(nc, history=5)
    for gone in (bucket.delete, bucket.purge):
        revision = await bucket.put("a", b"1")
        with pytest.raises(RevisionMismatchError, match=f"is {revision}, not {revision + 1}"):
            await gone("a", revision=revision + 1)
        assert (await bucket.get("a")).revision == revision
        await gone("a", revision=revision)
        with pytest.raises(KeyDeletedError):
            await bucket.get("a")


@conformance("KV", SECTION, "a TTL is for create and purge only")
async def test_no_ttl_elsewhere(nc: Client) -> None:
    bucket: Any = await new_bucket(nc)
    for call in (bucket.put, bucket.update, bucket.delete):
        with pytest.raises(TypeError, match="ttl"):
            await call("a", ttl=5)


@conformance("KV", SECTION, "purge_deletes removes old markers, and the data of young ones")
async def test_purge_deletes(nc: Client) -> None:
    bucket = await new_bucket(nc, history=5)
    for key in ("a", "b", "c"):
        await bucket.put(key, b"1")
        await bucket.put(key, b"2")
    await bucket.delete("a")
    await bucket.purge("b")
    assert await bucket.purge_deletes() == 2
    assert [entry.operation for entry in await bucket.history("a")] == [DELETE]
    assert [entry.operation for entry in await bucket.history("b")] == [PURGE]
    assert await bucket.purge_deletes(older_than=timedelta(hours=1)) == 0
    assert await bucket.purge_deletes(older_than=0) == 2
    for key in ("a", "b"):
        with pytest.raises(KeyNotFoundError):
            await bucket.history(key)
    assert [entry.value for entry in await bucket.history("c")] == [b"1", b"2"]
    assert await bucket.purge_deletes(older_than=-1) == 0
    with pytest.raises(InvalidOptionError, match="older_than"):
        await bucket.purge_deletes(older_than="1h")  # type: ignore[arg-type]


@conformance("KV", SECTION, "a purge by the API is allowed, although deletes are denied")
@conformance("KV", SECTION, "after purge_deletes a create expects nothing")
async def test_after_purge_deletes(nc: Client, js: JetStream) -> None:
    bucket = await new_bucket(nc)
    await bucket.put("a", b"1")
    await bucket.delete("a")
    stream = await stream_of(js, bucket)
    assert stream.config.deny_delete
    assert await bucket.purge_deletes(-1) == 1
    assert await store(
        nc, f"$KV.{bucket.name}.a", b"2", {"Nats-Expected-Last-Subject-Sequence": "0"}
    )
    await bucket.purge("a")
    await bucket.purge_deletes(-1)
    await bucket.create("a", b"3")
    assert await listed(bucket.keys()) == ["a"]


@conformance(
    "KV", SECTION, "purge_deletes tells old markers from young ones by when they were made"
)
async def test_purge_deletes_by_age(nc: Client) -> None:
    bucket = await new_bucket(nc, history=5)
    for key in ("old", "young"):
        await bucket.put(key, b"1")
    await bucket.delete("old")
    old = (await bucket.history("old"))[-1]
    await eventually(lambda: datetime.now(UTC) - old.created > timedelta(seconds=0.5))
    await bucket.delete("young")
    assert await bucket.purge_deletes(older_than=datetime.now(UTC) - old.created) == 3
    with pytest.raises(KeyNotFoundError):
        await bucket.history("old")
    assert [entry.operation for entry in await bucket.history("young")] == [DELETE]


@conformance("KV", SECTION, "a message of a bucket cannot be deleted by itself: 10057")
async def test_delete_a_message(nc: Client, js: JetStream) -> None:
    bucket = await new_bucket(nc)
    revision = await bucket.put("a", b"1")
    with pytest.raises(MessageDeleteError) as caught:
        await (await stream_of(js, bucket)).delete_message(revision)
    assert (caught.value.err_code, caught.value.code) == (10057, 500)
    assert (await bucket.get("a")).value == b"1"


async def test_purge_deletes_spares_what_is_set_meanwhile(nc: Client) -> None:
    bucket = await new_bucket(nc)
    keys = [f"k.{number}" for number in range(100)]
    for key in keys:
        await bucket.delete(key)
    purging = asyncio.create_task(bucket.purge_deletes(0))
    for key in reversed(keys):
        await bucket.put(key, b"new")
        await asyncio.sleep(0)
    await purging
    assert sorted(await bucket.get_many(">")) == sorted(keys)


async def test_purge_deletes_and_a_marker_of_all_keys(
    nc: Client, js: JetStream, nats_server: NatsServer
) -> None:
    """Whoever does not check keys can store one that the server takes for all of them."""
    bucket = await new_bucket(nc)
    await bucket.put("a", b"")
    header = b"NATS/1.0\r\nKV-Operation: DEL\r\n\r\n"
    size = len(header)
    head = f"HPUB $KV.{bucket.name}.* {size} {size}\r\n".encode()
    reader, writer = await asyncio.open_connection(nats_server.host, nats_server.port)
    writer.write(b'CONNECT {"headers":true,"verbose":false}\r\n' + head + header + b"\r\nPING\r\n")
    while b"PONG" not in await reader.readline():
        pass
    writer.close()
    await writer.wait_closed()
    stream = await stream_of(js, bucket)

    async def stored() -> bool:
        return (await stream.info()).state.messages == 2

    await eventually(stored)
    await bucket.delete("b")
    assert await bucket.purge_deletes(0) == 1
    assert await listed(bucket.keys()) == ["a"]


async def test_create_without_the_permission_to_ask_the_leader(
    start_server: StartServer, connect: Connect
) -> None:
    may = ["$KV.B.>", "$JS.API.STREAM.INFO.KV_B", "$JS.API.DIRECT.GET.KV_B.>"]
    some = {"user": "some", "password": "x", "permissions": {"publish": may}}
    server = start_server(users=[{"user": "all", "password": "x"}, some])
    admin = await connect(server.url, user="all", password="x")
    await admin.jetstream().create_key_value(bucket="B")
    nc = await connect(server.url, user="some", password="x")
    bucket = await nc.jetstream().key_value("B")
    await bucket.create("a", b"1")
    with pytest.raises(KeyExistsError):
        await bucket.create("a", b"2")
    await bucket.delete("a")
    revision = await bucket.create("a", b"3")
    assert (await bucket.get("a")).revision == revision == 3


@conformance("KV", SECTION, "a full bucket: 10077 with code 503, and no outage")
async def test_a_full_bucket(nc: Client) -> None:
    bucket = await new_bucket(nc, max_bytes=1000)
    with pytest.raises(StoreFailedError) as caught:
        for number in range(20):
            await bucket.put(f"k.{number}", bytes(100))
    assert (caught.value.err_code, caught.value.code) == (10077, 503)
    assert "maximum bytes" in caught.value.description
    assert not caught.value.retryable
    assert (await bucket.get("k.0")).value == bytes(100)


@conformance("KV", CONFIG, "max_value_size counts headers and payload: 10054")
async def test_values_that_are_too_large(nc: Client) -> None:
    bucket = await new_bucket(nc, max_value_size=100)
    await bucket.put("a", bytes(100))
    with pytest.raises(MessageTooLargeError) as caught:
        await bucket.put("a", bytes(101))
    assert caught.value.err_code == 10054
    with pytest.raises(MessageTooLargeError):
        await bucket.update("a", bytes(60), 1)  # the headers need the rest
    await bucket.update("a", bytes(40), 1)
    bucket = await new_bucket(nc, max_value_size=50)
    await bucket.put("a", bytes(50))
    with pytest.raises(MessageTooLargeError) as caught:
        await bucket.purge("a")  # its headers alone are more
    assert caught.value.err_code == 10054
    assert (await bucket.get("a")).value == bytes(50)


@conformance("KV", SECTION, "a bucket that is gone: no stream answers")
async def test_a_bucket_that_is_gone(nc: Client, js: JetStream) -> None:
    bucket = await new_bucket(nc)
    await bucket.put("a", b"")
    await js.delete_key_value(bucket.name)
    for call in (bucket.put("a", b""), bucket.create("a", b""), bucket.delete("a")):
        with pytest.raises(NoStreamResponseError, match=f"bucket {bucket.name!r}: key 'a'"):
            await call


async def test_a_put_that_is_cancelled(nc: Client) -> None:
    bucket = await new_bucket(nc)
    await bucket.put("a", b"")
    task = asyncio.create_task(bucket.put("a", b""))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not bucket._acks.pending
    await bucket.put("a", b"")
