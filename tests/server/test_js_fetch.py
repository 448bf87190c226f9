"""One pull request: `fetch`, `fetch_no_wait`, `next` and `sequence`, and how each of them ends."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from jetspark.errors import (
    BadPullRequestError,
    ConsumerDeletedError,
    ConsumerIsPushError,
    ConsumerNotFoundError,
    InvalidOptionError,
    JetSparkError,
    MaxBytesExceededError,
    MaxWaitingExceededError,
    NoStreamResponseError,
    RequestLimitError,
    TimeoutError,
)
from jetspark.jetstream import ConsumerConfig
from jetspark.jetstream.consumer import PullConsumer
from jetspark.jetstream.consumer.fetch import FetchedMessages, fetch_frames
from jetspark.jetstream.consumer.pull_options import PriorityOptions, PullOptions
from jetspark.server import NatsServer
from tests.support.clients import Connect
from tests.support.conformance import conformance
from tests.support.js import (
    consumer_state,
    fill,
    make_consumer,
    make_stream,
    sequences,
    served,
    waiting_requests,
)
from tests.support.streams import version_of


@conformance("ADR-37", "Fetch", "ends when the number of messages asked for has arrived")
@conformance("RUST", "Pull Consumer", "a batch request delivers up to the batch")
async def test_fetch_by_messages(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 10))
    messages = await consumer.fetch(4)
    assert sequences(messages) == [1, 2, 3, 4]
    assert [message.data for message in messages] == [b"0", b"1", b"2", b"3"]
    assert messages.error is None
    assert [message.metadata.num_pending for message in messages] == [9, 8, 7, 6]


@conformance("ADR-37", "Fetch", "ends when the request expires, with what has arrived")
async def test_fetch_times_out_with_a_part(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 3))
    messages = await consumer.fetch(10, timeout=0.2)
    assert sequences(messages) == [1, 2, 3]
    assert messages.error is None


@conformance("ADR-37", "Status handling", "408 Request Timeout is not telegraphed")
async def test_fetch_times_out_with_nothing(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc))
    messages = await consumer.fetch(10, timeout=timedelta(milliseconds=150))
    assert messages == []
    assert messages.error is None


async def test_fetch_waits_for_messages_to_come(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await make_stream(nc)
    consumer = await make_consumer(nc, stream)
    fetching = asyncio.create_task(consumer.fetch(2, timeout=60))
    await served(consumer)
    await fill(nc, stream, 1)
    await fill(nc, stream, 1, start=1)
    async with asyncio.timeout(10):
        assert sequences(await fetching) == [1, 2]


@conformance("ADR-37", "Fetch", "takes an amount of data (max_bytes) instead of a number")
@conformance("ADR-37", "Status handling", "409 Message Size Exceeds MaxBytes is not telegraphed")
async def test_fetch_by_bytes(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 9, size=100))
    (first,) = await consumer.fetch(1)
    reply = first.raw_reply
    assert reply is not None
    size = len(first.raw_subject) + len(reply) + len(first.data)  # as the server counts it
    three = await consumer.fetch(max_bytes=3 * size + size // 2)
    assert (sequences(three), three.error) == ([2, 3, 4], None)
    exactly_two = await consumer.fetch(max_bytes=2 * size)
    assert (sequences(exactly_two), exactly_two.error) == ([5, 6], None)
    rest = await consumer.fetch(max_bytes=100 * size, timeout=0.2)
    assert (sequences(rest), rest.error) == ([7, 8, 9], None)


@conformance("ADR-37", "Fetch", "max_messages and max_bytes may both be given")
async def test_fetch_by_messages_and_bytes(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 9, size=100))
    assert sequences(await consumer.fetch(2, max_bytes=100_000)) == [1, 2]
    assert sequences(await consumer.fetch(100, max_bytes=400, timeout=5)) == [3, 4]
    assert sequences(await consumer.fetch(1, max_bytes=100_000)) == [5]


async def test_message_larger_than_max_bytes(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 2, size=1000))
    with pytest.raises(MaxBytesExceededError, match="'c'") as caught:
        await consumer.fetch(max_bytes=500)
    assert caught.value.status == 409
    assert await consumer_state(consumer) == (0, 2, 0)
    assert sequences(await consumer.fetch(2)) == [1, 2]


@conformance("RUST", "Pull Consumer", "no_wait gives what the consumer has now")
async def test_fetch_no_wait(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await make_stream(nc)
    consumer = await make_consumer(nc, stream)
    async with asyncio.timeout(3):
        empty = await consumer.fetch_no_wait(10)
        assert (empty, empty.error) == ([], None)
        await fill(nc, stream, 5)
        assert sequences(await consumer.fetch_no_wait(2)) == [1, 2]
        rest = await consumer.fetch_no_wait(10)
        assert (sequences(rest), rest.error) == ([3, 4, 5], None)
        assert await consumer.fetch_no_wait(max_bytes=1000) == []


async def test_messages_that_look_like_statuses(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await make_stream(nc)
    await fill(nc, stream, 3, size=10, headers=lambda number: {"Number": str(number)})
    await nc.request(f"{stream}.empty", b"", headers={"Status": "409", "Description": "none"})
    headers_only = await make_consumer(nc, stream, headers_only=True)
    messages = await headers_only.fetch(4)
    assert [message.data for message in messages] == [b""] * 4
    assert [message.headers.get("Nats-Msg-Size") for message in messages] == ["10"] * 3 + ["0"]
    assert [message.headers.get("Number") for message in messages[:3]] == ["0", "1", "2"]


@conformance("ADR-37", "Fetch", "heartbeats show that an idle request is alive")
async def test_idle_fetch_with_heartbeats(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc))
    before = nc.statistics.messages_in
    messages = await consumer.fetch(5, timeout=1.0, heartbeat=0.2)
    assert (messages, messages.error) == ([], None)
    assert nc.statistics.messages_in - before >= 3  # heartbeats, and the status at the end


@conformance("ADR-37", "Next", "gets a single message")
@conformance("RUST", "Pull Consumer", "fetch of a single message")
async def test_next(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 2))
    assert (await consumer.next()).data == b"0"
    assert (await consumer.next(timeout=timedelta(seconds=1))).data == b"1"
    with pytest.raises(TimeoutError, match=r"'c' of stream .* in 0\.1 s") as caught:
        await consumer.next(timeout=0.1)
    assert isinstance(caught.value, builtins.TimeoutError)
    assert not caught.value.may_have_taken_effect
    with pytest.raises(TimeoutError, match=r"in 0\.1 s"):
        await consumer.next(timeout=timedelta(milliseconds=100))


@conformance("RUST", "Pull Consumer", "sequence(batch) gives batch after batch")
async def test_sequence(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await make_stream(nc, 7)
    consumer = await make_consumer(nc, stream)
    batches = consumer.sequence(3, timeout=0.1)
    assert [sequences(await anext(batches)) for _ in range(3)] == [[1, 2, 3], [4, 5, 6], [7]]
    waiting = asyncio.ensure_future(anext(batches))
    await asyncio.sleep(0.25)  # more than two empty fetches, which are not shown
    assert not waiting.done()
    await fill(nc, stream, 3, start=7)
    assert sequences(await waiting)[0] == 8
    await batches.aclose()  # type: ignore[attr-defined]


async def test_many_fetches_at_once_share(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 200))
    batches = await asyncio.gather(*(consumer.fetch(10) for _ in range(20)))
    assert sorted(sequences(sum(batches, FetchedMessages()))) == list(range(1, 201))
    assert all(len(batch) == 10 for batch in batches)


@pytest.mark.parametrize(
    ("limits", "request_", "text"),
    [
        ({"max_batch": 5}, {"max_messages": 6}, "MaxRequestBatch of 5"),
        ({"max_expires": 2}, {"max_messages": 1, "timeout": 3}, "MaxRequestExpires of 2s"),
        ({"max_bytes": 100}, {"max_bytes": 101}, "MaxRequestMaxBytes of 100"),
    ],
)
@conformance("ADR-37", "Status handling", "409 Exceeded MaxRequestBatch, -Expires, -MaxBytes")
async def test_limits_of_the_consumer(
    nats_server: NatsServer,
    connect: Connect,
    limits: dict[str, Any],
    request_: dict[str, Any],
    text: str,
) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 1), **limits)
    with pytest.raises(RequestLimitError, match=text):
        await consumer.fetch(**request_)


@conformance("ADR-37", "Status handling", "409 Exceeded MaxWaiting ends a fetch with an error")
async def test_too_many_requests_wait(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await make_stream(nc)
    consumer = await make_consumer(nc, stream, max_waiting=1)
    first = asyncio.create_task(consumer.fetch(1, timeout=30))
    await served(consumer)
    with pytest.raises(MaxWaitingExceededError) as caught:
        await consumer.fetch(1, timeout=5)
    assert caught.value.retryable
    await fill(nc, stream, 1)
    assert sequences(await first) == [1]


@conformance("ADR-37", "Status handling", "409 Consumer is push based is an error")
async def test_pull_from_a_push_consumer(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    js = nc.jetstream()
    stream = await make_stream(nc, 1)
    pushing = await js.create_consumer(stream, durable_name="c", deliver_subject=nc.new_inbox())
    consumer = PullConsumer(js.api, pushing.cached_info)
    with pytest.raises(ConsumerIsPushError):
        await consumer.fetch(1, timeout=1)


@conformance("ADR-37", "Status handling", "400 Bad Request is an error")
async def test_bad_request(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 1))
    options = PullOptions(
        max_messages=1, max_bytes=None, timeout=1, heartbeat=None, priority=PriorityOptions()
    )
    options.heartbeat = timedelta(seconds=30)  # which the option check would have refused
    with pytest.raises(BadPullRequestError, match="heartbeat"):
        await fetch_frames(consumer, options)


Delete = Callable[[PullConsumer, Any], Awaitable[None]]


@pytest.mark.parametrize(
    "delete",
    [
        lambda consumer, js: consumer.delete(),
        lambda consumer, js: js.delete_stream(consumer.stream_name),
    ],
    ids=["consumer", "stream"],
)
@conformance("ADR-37", "Status handling", "409 Consumer Deleted is an error")
async def test_deleted_while_fetching(
    nats_server: NatsServer, connect: Connect, delete: Delete
) -> None:
    nc = await connect(nats_server.url)
    js = nc.jetstream()
    consumer = await make_consumer(nc, await make_stream(nc, 2))
    fetching = asyncio.create_task(consumer.fetch(5, timeout=60))
    await served(consumer)
    await delete(consumer, js)
    messages = await fetching  # an error does not take away what has arrived
    assert sequences(messages) == [1, 2]
    assert isinstance(messages.error, ConsumerDeletedError)
    with pytest.raises(NoStreamResponseError) as caught:
        await consumer.fetch(1, timeout=5)
    assert caught.value.retryable


async def test_deleted_with_nothing_fetched(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc))
    fetching = asyncio.create_task(consumer.next(timeout=60))
    await served(consumer)
    await consumer.delete()
    with pytest.raises(ConsumerDeletedError):
        await fetching


async def test_paused_consumer_gives_nothing(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    js = nc.jetstream()
    consumer = await make_consumer(nc, await make_stream(nc, 1))
    if version_of(nats_server) < (2, 11):
        assert len(await consumer.fetch_no_wait(1)) == 1
        return
    await js.pause_consumer(consumer.stream_name, consumer.name, 60)
    assert await consumer.fetch(1, timeout=0.1) == []
    assert await consumer.fetch_no_wait(1) == []
    await js.resume_consumer(consumer.stream_name, consumer.name)
    assert len(await consumer.fetch(1, timeout=5)) == 1


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda consumer: consumer.fetch(), "max_messages"),
        (lambda consumer: consumer.fetch(0), "max_messages"),
        (lambda consumer: consumer.fetch(1, timeout=0), "timeout"),
        (lambda consumer: consumer.fetch(1, timeout=1, heartbeat=0.6), "heartbeat"),
        (lambda consumer: consumer.fetch_no_wait(max_bytes=0), "max_bytes"),
        (lambda consumer: consumer.next(timeout=-1), "timeout"),
        (lambda consumer: consumer.next(group="g"), "group"),
        (lambda consumer: anext(consumer.sequence(0)), "max_messages"),
    ],
)
async def test_options_are_refused_before_anything_is_sent(
    nats_server: NatsServer,
    connect: Connect,
    call: Callable[[PullConsumer], Awaitable[object]],
    named: str,
) -> None:
    nc = await connect(nats_server.url)
    info = await make_consumer(nc, await make_stream(nc, 1))
    sent = nc.statistics.messages_out
    with pytest.raises(InvalidOptionError, match=named):
        await call(info)
    assert nc.statistics.messages_out == sent


async def test_requests_end_with_the_fetch(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 4))
    await consumer.fetch(4)
    await consumer.fetch(3, timeout=0.1)
    await consumer.fetch_no_wait(3)
    with pytest.raises(JetSparkError):
        await consumer.next(timeout=0.1)
    assert await waiting_requests(consumer) == 0


@conformance("ADR-37", "Info", "asks the server, and keeps the answer")
@conformance("ADR-37", "Delete", "deletes the consumer")
async def test_info_and_delete(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 3))
    assert consumer.cached_info.num_pending == 3
    await consumer.fetch(2)
    assert consumer.cached_info.num_pending == 3
    info = await consumer.info()
    assert (info.num_pending, info.num_ack_pending) == (1, 2)
    assert consumer.cached_info is info
    await consumer.delete()
    with pytest.raises(ConsumerNotFoundError):
        await consumer.info()


@conformance("ADR-37", "Consumer", "an ephemeral consumer can be pulled from")
async def test_ephemeral_consumer(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await make_stream(nc, 3)
    consumer = await make_consumer(nc, stream, name="short", ack_policy="none")
    assert not consumer.config.durable_name
    assert isinstance(consumer.config, ConsumerConfig)
    assert sequences(await consumer.fetch(3)) == [1, 2, 3]
    assert (await consumer.info()).num_ack_pending == 0
