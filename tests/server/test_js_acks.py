"""Acknowledgements against a real server: what each kind makes of a message."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

import pytest

from jetspark.errors import (
    ConnectionClosedError,
    MessageAlreadyAckedError,
    NoStreamResponseError,
    NotJetStreamMessageError,
    TimeoutError,
)
from jetspark.jetstream.consumer import PullConsumer
from jetspark.jetstream.message import AckKind, JetStreamMessage
from jetspark.server import NatsServer
from tests.support.clients import Connect
from tests.support.conformance import conformance
from tests.support.js import (
    all_acked,
    consumer_state,
    eventually_equal,
    fill,
    make_consumer,
    make_stream,
    sequences,
    settled,
)
from tests.support.servers import StartServer
from tests.support.streams import version_of


async def pending(consumer: PullConsumer) -> int:
    return (await consumer.info()).num_ack_pending


@conformance("RUST", "Acknowledgment", "ack: the message is done")
async def test_ack(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 3), ack_wait=0.3)
    for message in await consumer.fetch(3):
        await message.ack()
        assert message.acked
    await all_acked(consumer, 3)
    assert await consumer.fetch(1, timeout=0.5) == []


@conformance("RUST", "Acknowledgment", "double_ack: the server confirms it")
async def test_double_ack(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 2))
    first, second = await consumer.fetch(2)
    await first.double_ack()
    assert await consumer_state(consumer) == (1, 0, 1)  # without any wait
    await second.double_ack()
    await second.double_ack()
    assert await consumer_state(consumer) == (0, 0, 2)


async def test_double_ack_of_a_deleted_consumer(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 1))
    message = await consumer.next()
    await consumer.delete()
    with pytest.raises(NoStreamResponseError, match="deleted, or has no leader") as caught:
        await message.double_ack()
    assert caught.value.retryable
    assert not message.acked
    await message.ack()  # which nobody hears


@conformance("RUST", "Acknowledgment", "nack: the message is delivered again")
async def test_nak(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 1), ack_wait=60)
    first = await consumer.next()
    assert not first.metadata.redelivered
    await first.nak()
    second = await consumer.next(timeout=5)
    assert (second.metadata.num_delivered, second.metadata.redelivered) == (2, True)
    assert second.metadata.stream_sequence == 1
    assert second.metadata.consumer_sequence == 2
    await second.ack_with(AckKind.NAK)
    assert (await consumer.next(timeout=5)).metadata.num_delivered == 3


@pytest.mark.parametrize("delay", [0.4, timedelta(milliseconds=400)])
async def test_nak_with_a_delay(
    nats_server: NatsServer, connect: Connect, delay: float | timedelta
) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 1), ack_wait=60)
    await (await consumer.next()).nak(delay)
    assert await consumer.fetch(1, timeout=0.15) == []
    assert (await consumer.next(timeout=5)).metadata.num_delivered == 2


@conformance("RUST", "Acknowledgment", "in_progress: the time to acknowledge starts anew")
async def test_in_progress_keeps_the_message(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await make_stream(nc, 1)
    kept = await make_consumer(nc, stream, durable_name="kept", ack_wait=0.5)
    left = await make_consumer(nc, stream, durable_name="left", ack_wait=0.5)
    message = await kept.next()
    await left.next()
    again = asyncio.create_task(left.next(timeout=5))
    for _ in range(5):
        await asyncio.sleep(0.2)
        await message.in_progress()
    assert await kept.fetch_no_wait(1) == []
    assert (await again).metadata.num_delivered == 2  # without it, the message came again
    await message.double_ack()
    assert await consumer_state(kept) == (0, 0, 1)


@conformance("RUST", "Acknowledgment", "term: the message is not delivered again")
async def test_term(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await make_stream(nc, 2)
    consumer = await make_consumer(nc, stream, ack_wait=0.3)
    advisories = await nc.subscribe(f"$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.{stream}.c")
    first, second = await consumer.fetch(2)
    await first.term("not a number")
    advisory = json.loads((await advisories.next(timeout=5)).data)
    assert advisory["reason"] == "not a number"
    assert (advisory["consumer"], advisory["stream_seq"]) == ("c", 1)
    await second.term()
    assert json.loads((await advisories.next(timeout=5)).data)["stream_seq"] == 2
    assert await consumer.fetch(1, timeout=0.5) == []
    assert await consumer_state(consumer) == (0, 0, 2)


@conformance("RUST", "Acknowledgment", "next: acknowledges and gets the next message")
async def test_ack_next(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await make_stream(nc, 3)
    consumer = await make_consumer(nc, stream)
    routes = len(nc._routes)
    message = await consumer.next()
    for number in (1, 2):
        message = await message.ack_next()
        assert isinstance(message, JetStreamMessage)
        assert message.data == b"%d" % number
    last = message
    with pytest.raises(TimeoutError):
        await last.ack_next(timeout=0.1)
    assert last.acked
    with pytest.raises(MessageAlreadyAckedError):
        await last.ack_next()
    await all_acked(consumer, 3)
    assert len(nc._routes) == routes
    # What it asked for in vain must not take the next message away.
    await fill(nc, stream, 1, start=3)
    assert (await consumer.next(timeout=5)).metadata.num_delivered == 1


async def test_ack_next_waits_for_a_message(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await make_stream(nc, 1)
    consumer = await make_consumer(nc, stream)
    message = await consumer.next()
    waiting = asyncio.create_task(message.ack_next(timeout=10))
    await eventually_equal(lambda: pending(consumer), 0)
    await fill(nc, stream, 1, start=1)
    assert sequences([await waiting]) == [2]


@conformance("RUST", "Acknowledgment", "a message is acknowledged once, whatever is called later")
async def test_the_first_word_counts(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 1), ack_wait=60)
    message = await consumer.next()
    await message.ack()
    await message.nak()
    await message.term()
    await nc.flush()
    assert await settled(lambda: consumer_state(consumer)) == (0, 0, 1)
    assert (await consumer.info()).num_redelivered == 0


@conformance("RUST", "Acknowledgment", "all: one ack stands for all messages before it")
async def test_ack_all(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 10), ack_policy="all")
    messages = await consumer.fetch(10)
    assert await pending(consumer) == 10
    await messages[6].double_ack()
    assert await consumer_state(consumer) == (3, 0, 7)
    await messages[9].double_ack()
    assert await consumer_state(consumer) == (0, 0, 10)


async def test_consumer_that_takes_no_acks(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 4), ack_policy="none")
    first, second, third, fourth = await consumer.fetch(4)
    sent = nc.statistics.messages_out
    await first.ack()
    await second.double_ack()  # nobody would answer
    await third.nak()
    await third.in_progress()
    await fourth.term()
    assert nc.statistics.messages_out == sent
    async with consumer.messages() as messages:
        await fill(nc, consumer.stream_name, 1, start=4)
        await (await messages.next(timeout=5)).double_ack()
    assert nc.statistics.messages_out > sent


async def test_message_that_no_consumer_delivered(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    async with await nc.subscribe(nc.new_inbox()) as subscription:
        await nc.publish(subscription.subject, b"hello")
        plain = await subscription.next(timeout=5)
    message = JetStreamMessage(
        plain.raw_subject, plain.raw_reply, plain.raw_headers, plain.data, plain.client
    )
    with pytest.raises(NotJetStreamMessageError, match="not delivered by a JetStream consumer"):
        await message.ack()
    with pytest.raises(NotJetStreamMessageError):
        assert message.metadata


async def test_max_deliver(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await make_stream(nc, 1)
    advisories = await nc.subscribe(f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{stream}.c")
    consumer = await make_consumer(nc, stream, max_deliver=2, ack_wait=60)
    for delivery in (1, 2):
        message = await consumer.next(timeout=5)
        assert message.metadata.num_delivered == delivery
        await message.nak()
    assert await consumer.fetch(1, timeout=0.2) == []
    assert json.loads((await advisories.next(timeout=5)).data)["deliveries"] == 2


@conformance("RUST", "JetStream Message", "stream, consumer, sequences, time and pending count")
async def test_metadata(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await make_stream(nc, 3)
    consumer = await make_consumer(nc, stream, filter_subject=f"{stream}.1")
    metadata = (await consumer.next()).metadata
    assert (metadata.stream, metadata.consumer, metadata.domain) == (stream, "c", "")
    assert (metadata.stream_sequence, metadata.consumer_sequence) == (2, 1)
    assert (metadata.num_delivered, metadata.num_pending) == (1, 0)
    stored = await (await nc.jetstream().get_stream(stream)).get_message(2)
    assert metadata.timestamp == stored.timestamp
    assert abs(datetime.now(UTC) - metadata.timestamp) < timedelta(minutes=1)


async def test_acks_in_the_long_form(start_server: StartServer, connect: Connect) -> None:
    """A server of 2.14 may name domain and account in its reply subjects."""
    flag = {"feature_flags": {"js_ack_fc_v2": True}}
    server = start_server(domain="hub")
    long = version_of(server) >= (2, 14)
    if long:
        server.close()
        server = start_server(domain="hub", config=flag)
    nc = await connect(server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 4), ack_wait=60)
    first, second, third, fourth = await consumer.fetch(4)
    assert first.raw_reply is not None
    assert first.raw_reply.count(b".") + 1 == (11 if long else 9)
    assert first.metadata.domain == ("hub" if long else "")
    assert sequences([first, second, third, fourth]) == [1, 2, 3, 4]
    assert (first.metadata.stream, first.metadata.consumer) == (consumer.stream_name, "c")
    await first.ack()
    await second.double_ack()
    await third.nak()
    again = await fourth.ack_next()
    assert (again.metadata.stream_sequence, again.metadata.num_delivered) == (3, 2)
    await again.term()
    await all_acked(consumer, 4)
    await fill(nc, consumer.stream_name, 5, start=4)
    columns = await consumer.fetch_arrow(5)
    assert columns.column("sequence").to_pylist() == [5, 6, 7, 8, 9]
    assert set(columns.column("stream").to_pylist()) == {consumer.stream_name}


async def test_acks_of_a_closed_connection(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 1))
    message = await consumer.next()
    await nc.close()
    for call in (message.ack, message.nak, message.term, message.double_ack, message.ack_next):
        with pytest.raises(ConnectionClosedError):
            await call()
        assert not message.acked
