"""Atomic batches: all or nothing, and the rules that a server checks at the commit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from jetspark import AtomicBatch, Client, JetStream, Message, Stream
from jetspark.errors import (
    APIError,
    AtomicPublishError,
    ConnectionClosedError,
    InvalidAckError,
    InvalidArgumentError,
    InvalidOptionError,
    MaxPayloadError,
    NoStreamResponseError,
    NotSupportedError,
    PermissionsError,
    PublisherClosedError,
    RollupError,
    TimeoutError,
    WrongLastSequenceError,
)
from jetspark.jetstream import atomic_batch
from jetspark.server import NatsServer
from tests.support.clients import Connect
from tests.support.proxy import Proxy
from tests.support.servers import StartServer
from tests.support.streams import new_name, version_of

SINCE = (2, 12)


@pytest_asyncio.fixture
async def stream(nats_server: NatsServer, js: JetStream) -> Stream:
    if version_of(nats_server) < SINCE:
        pytest.skip("atomic batches came with 2.12; what older servers do has its own test")
    name = new_name()
    return await js.create_stream(
        name=name,
        subjects=[f"{name}.>"],
        allow_atomic=True,
        allow_rollup_hdrs=True,
        storage="memory",
    )


@pytest_asyncio.fixture
async def proxy(nats_server: NatsServer) -> AsyncIterator[Proxy]:
    async with Proxy(nats_server.host, nats_server.port) as proxy:
        yield proxy


async def messages(stream: Stream) -> int:
    return (await stream.info()).state.messages


async def test_a_batch_is_stored_as_a_whole(js: JetStream, stream: Stream) -> None:
    await js.publish(f"{stream.name}.before", b"")
    async with js.batch() as batch:
        for number in range(5):
            await batch.add(f"{stream.name}.{number}", b"%d" % number, headers={"A": "b"})
            assert batch.size == number + 1
        assert await messages(stream) == 1
        ack = await batch.commit()
    assert (ack.stream, ack.sequence) == (stream.name, 6)
    assert (ack.batch_id, ack.batch_size) == (batch.id, 5)
    first = ack.sequence - ack.batch_size + 1
    for number in range(5):
        stored = await stream.get_message(first + number)
        assert (stored.subject, stored.data) == (f"{stream.name}.{number}", b"%d" % number)
        assert stored.headers["A"] == "b"
        assert stored.headers["Nats-Batch-Id"] == batch.id
        assert stored.headers["Nats-Batch-Sequence"] == str(number + 1)
    assert batch.closed


async def test_a_batch_of_one(js: JetStream, stream: Stream) -> None:
    async with js.batch() as batch:
        await batch.add(f"{stream.name}.a", b"alone")
        ack = await batch.commit()
    assert (ack.sequence, ack.batch_size) == (1, 1)


async def test_the_largest_batch(js: JetStream, stream: Stream) -> None:
    async with js.batch() as batch:
        for number in range(1000):
            await batch.add(f"{stream.name}.a", b"%d" % number)
        with pytest.raises(InvalidOptionError, match="at most 1000"):
            await batch.add(f"{stream.name}.a", b"one too many")
        assert (await batch.commit()).batch_size == 1000
    assert await messages(stream) == 1000


async def test_leaving_without_a_commit_stores_nothing(js: JetStream, stream: Stream) -> None:
    async with js.batch() as batch:
        for _ in range(3):
            await batch.add(f"{stream.name}.a", b"")
    assert batch.closed
    with pytest.raises(ZeroDivisionError):
        async with js.batch() as failed:
            await failed.add(f"{stream.name}.a", b"")
            raise ZeroDivisionError
    assert await messages(stream) == 0


@pytest.mark.parametrize("finish", ["commit", "abandon"])
async def test_a_batch_that_is_over_takes_nothing(
    js: JetStream, stream: Stream, finish: str
) -> None:
    batch = js.batch()
    await batch.add(f"{stream.name}.a", b"")
    if finish == "commit":
        await batch.commit()
    else:
        batch.abandon()
    for call in (batch.add(f"{stream.name}.a", b""), batch.commit()):
        with pytest.raises(PublisherClosedError, match="begin another"):
            await call


async def test_an_empty_batch_cannot_be_committed(js: JetStream) -> None:
    with pytest.raises(InvalidOptionError, match="empty"):
        await js.batch().commit()


async def test_tasks_may_share_a_batch(js: JetStream, stream: Stream) -> None:
    batch = js.batch()
    await asyncio.gather(*[batch.add(f"{stream.name}.{number}", b"") for number in range(250)])
    assert (await batch.commit()).batch_size == 250


# --- conditions


async def test_conditions_are_checked_against_the_time_before_the_batch(
    js: JetStream, stream: Stream
) -> None:
    name = stream.name
    async with js.batch() as batch:
        await batch.add(f"{name}.a", b"", expected_last_sequence=0)
        await batch.add(f"{name}.b", b"", expected_last_subject_sequence=0)
        await batch.commit()
    async with js.batch() as batch:
        await batch.add(f"{name}.c", b"")
        await batch.add(f"{name}.b", b"", expected_last_subject_sequence=2, msg_id="1")
        assert (await batch.commit()).sequence == 4


async def test_a_condition_that_fails_is_told_at_the_commit(js: JetStream, stream: Stream) -> None:
    await js.publish(f"{stream.name}.a", b"")
    batch = js.batch()
    await batch.add(f"{stream.name}.a", b"", expected_last_subject_sequence=7)
    await batch.add(f"{stream.name}.b", b"")
    with pytest.raises(WrongLastSequenceError):
        await batch.commit()
    assert batch.closed
    assert await messages(stream) == 1


async def test_a_known_message_id_refuses_the_batch(js: JetStream, stream: Stream) -> None:
    await js.publish(f"{stream.name}.a", b"", msg_id="17")
    batch = js.batch()
    await batch.add(f"{stream.name}.b", b"")
    await batch.add(f"{stream.name}.a", b"", msg_id="17")
    with pytest.raises(AtomicPublishError) as caught:
        await batch.commit()
    assert caught.value.err_code == 10201
    assert await messages(stream) == 1


async def test_rollup_in_a_batch(js: JetStream, stream: Stream) -> None:
    for _ in range(3):
        await js.publish(f"{stream.name}.a", b"")
    async with js.batch() as batch:
        await batch.add(f"{stream.name}.b", b"")
        await batch.add(f"{stream.name}.a", b"", rollup="sub")
        await batch.commit()
    assert await messages(stream) == 2


@pytest.mark.parametrize(
    ("subject", "options", "word", "err_code"),
    [
        ("c", {"expected_last_msg_id": "x"}, "expected_last_msg_id", 10177),
        ("c", {"expected_last_sequence": 0}, "first message", 10071),
        ("a", {"expected_last_subject_sequence": 0}, "'.*a' is in the batch", 10164),
        ("c", {"rollup": "all"}, "first message", 10111),
        ("a", {"rollup": "sub"}, "'.*a' is in the batch", 10111),
        ("c", {"msg_id": "1"}, "'1' is in the batch", 10201),
    ],
)
async def test_what_no_batch_can_have_is_refused_before_it_is_sent(
    js: JetStream, stream: Stream, subject: str, options: dict[str, Any], word: str, err_code: int
) -> None:
    name = stream.name

    async def begin(msg_id: str) -> AtomicBatch:
        batch = js.batch()
        await batch.add(f"{name}.a", b"", msg_id=msg_id)
        await batch.add(f"{name}.b", b"")
        return batch

    batch = await begin("1")
    with pytest.raises(InvalidOptionError, match=word):
        await batch.add(f"{name}.{subject}", b"", **options)
    assert (await batch.commit()).batch_size == 2  # it is as it was
    await stream.purge()

    batch = await begin("2")  # the server says the same, at the end
    batch._refusal = lambda *_: None  # type: ignore[method-assign]
    with pytest.raises(APIError) as caught:
        await batch.add(f"{name}.{subject}", b"", **options)
        await batch.commit()
    assert caught.value.err_code == err_code
    assert isinstance(caught.value, AtomicPublishError | WrongLastSequenceError | RollupError)
    assert await messages(stream) == 0


@pytest.mark.parametrize(
    ("subject", "data", "options", "error"),
    [
        ("a b", b"", {}, InvalidArgumentError),
        ("a", "text", {}, InvalidArgumentError),
        ("a", b"", {"ttl": 0}, InvalidOptionError),
        ("a", b"x" * (1024 * 1024), {}, MaxPayloadError),
    ],
)
async def test_bad_arguments_leave_the_batch_as_it_was(
    js: JetStream, stream: Stream, subject: str, data: Any, options: Any, error: type[Exception]
) -> None:
    batch = js.batch()
    await batch.add(f"{stream.name}.a", b"")
    with pytest.raises(error):
        await batch.add(f"{stream.name}.{subject}", data, **options)
    assert (await batch.commit()).batch_size == 1


# --- what the server refuses


async def test_a_stream_without_batches(nats_server: NatsServer, js: JetStream, nc: Client) -> None:
    if version_of(nats_server) < SINCE:
        pytest.skip("what older servers do has its own test")
    plain = await js.create_stream(name=new_name(), storage="memory")
    batch = js.batch()
    await batch.add(plain.name, b"")
    with pytest.raises(AtomicPublishError) as caught:
        await batch.add(plain.name, b"")
    assert caught.value.err_code == 10174
    with pytest.raises(PublisherClosedError, match="has failed"):
        await batch.commit()
    assert await messages(plain) == 0


async def test_a_server_that_is_too_old(nc: Client, js: JetStream) -> None:
    sent = nc.statistics.messages_out
    nc._connection.server_info = msgspec.structs.replace(nc.server_info, version="2.11.9")
    with pytest.raises(NotSupportedError, match=r"no atomic batches; its version is 2\.11\.9"):
        await js.batch().add("orders", b"")
    assert nc.statistics.messages_out == sent


async def test_a_stream_on_a_server_that_is_too_old(
    nats_server: NatsServer, nc: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    js = nc.jetstream(prefix="$JS.API")
    # Behind a prefix, the server in use need not be that of the stream: the answer tells.
    monkeypatch.setattr(atomic_batch, "DEFAULT_PREFIX", "")
    name = new_name()
    if version_of(nats_server) < SINCE:
        await js.create_stream(name=name, storage="memory")
    else:

        async def store(message: Message) -> None:
            await message.respond(b'{"stream":"OLD", "seq":1}')

        await nc.subscribe(name, callback=store)
    batch = js.batch()
    await batch.add(name, b"")
    with pytest.raises(NotSupportedError, match="stored the message by itself") as caught:
        await batch.add(name, b"")
    assert caught.value.may_have_taken_effect
    single = js.batch()
    await single.add(name, b"")
    with pytest.raises(InvalidAckError, match="1 messages was acknowledged with"):
        await single.commit()


async def test_no_stream(js: JetStream, nats_server: NatsServer) -> None:
    if version_of(nats_server) < SINCE:
        pytest.skip("what older servers do has its own test")
    batch = js.batch()
    await batch.add("nobody.here", b"")
    with pytest.raises(NoStreamResponseError):
        await batch.commit()
    assert batch.closed


async def test_a_batch_goes_to_one_stream(js: JetStream, stream: Stream) -> None:
    other = await js.create_stream(name=new_name(), allow_atomic=True, storage="memory")
    batch = js.batch()
    await batch.add(f"{stream.name}.a", b"")
    await batch.add(other.name, b"")
    await batch.add(f"{stream.name}.a", b"")
    with pytest.raises(AtomicPublishError) as caught:
        await batch.commit()
    assert caught.value.err_code == 10176
    assert await messages(stream) == await messages(other) == 0


async def test_a_message_missing_on_the_way(js: JetStream, stream: Stream) -> None:
    batch = js.batch()
    await batch.add(f"{stream.name}.a", b"")
    await batch.add(f"{stream.name}.a", b"")
    batch._held = batch._checked(f"{stream.name}.a", b"", {})  # the second was never sent
    with pytest.raises(AtomicPublishError) as caught:
        await batch.commit()
    assert caught.value.err_code == 10176
    assert await messages(stream) == 0


async def test_every_hundredth_message_finds_out(js: JetStream, stream: Stream) -> None:
    batch = js.batch()
    for _ in range(50):
        await batch.add(f"{stream.name}.a", b"")
    await stream.update(allow_atomic=False)
    with pytest.raises(AtomicPublishError):
        for _ in range(100):
            await batch.add(f"{stream.name}.a", b"")
    assert batch.size < 120


async def test_too_many_batches_at_once(
    nats_server: NatsServer, js: JetStream, stream: Stream
) -> None:
    batches = [js.batch() for _ in range(51)]
    for batch in batches:
        await batch.add(f"{stream.name}.a", b"")
    for batch in batches[:50]:
        await batch.add(f"{stream.name}.a", b"")
    with pytest.raises(AtomicPublishError) as caught:
        await batches[50].add(f"{stream.name}.a", b"")
    if version_of(nats_server) >= (2, 14):
        assert (caught.value.err_code, caught.value.retryable) == (10210, True)
    else:
        assert caught.value.err_code == 10176
    for batch in batches[:50]:
        assert (await batch.commit()).batch_size == 2


async def test_a_stalled_server(
    js: JetStream, stream: Stream, proxy: Proxy, connect: Connect
) -> None:
    nc = await connect(proxy.url)
    batch = nc.jetstream().batch(timeout=0.1)
    await batch.add(f"{stream.name}.a", b"")
    await batch.add(f"{stream.name}.a", b"")
    proxy.stall()
    with pytest.raises(TimeoutError) as caught:
        await batch.commit()
    assert caught.value.may_have_taken_effect
    assert batch.closed
    proxy.unstall()


async def test_cancelling_ends_the_batch(
    js: JetStream, stream: Stream, proxy: Proxy, connect: Connect
) -> None:
    nc = await connect(proxy.url)
    batch = nc.jetstream().batch()
    await batch.add(f"{stream.name}.a", b"")
    proxy.stall()
    with pytest.raises(asyncio.TimeoutError):
        async with asyncio.timeout(0.05):
            await batch.add(f"{stream.name}.a", b"")
    assert batch.closed
    proxy.unstall()


async def test_a_closed_client(nats_server: NatsServer, stream: Stream, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    batch = nc.jetstream().batch()
    await batch.add(f"{stream.name}.a", b"")
    await nc.close()
    with pytest.raises(ConnectionClosedError):
        await batch.commit()


async def test_missing_permissions(start_server: StartServer, connect: Connect) -> None:
    permissions = {"publish": {"deny": ["secret"]}}
    server = start_server(users=[{"user": "ann", "password": "a", "permissions": permissions}])
    if version_of(server) < SINCE:
        pytest.skip("what older servers do has its own test")
    nc = await connect(server.url, user="ann", password="a")
    batch = nc.jetstream().batch()
    await batch.add("secret", b"")
    with pytest.raises(PermissionsError):
        await batch.commit()
