"""Push consumers: delivery, heartbeats and the ways to end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from jetspark import PushConsumer
from jetspark.errors import (
    ConnectionClosedError,
    InvalidOptionError,
    JetSparkError,
    MissingHeartbeatError,
    NotJetStreamMessageError,
    SubscriptionClosedError,
    TimeoutError,
)
from jetspark.jetstream.message import JetStreamMessage
from jetspark.server import NatsServer
from tests.support.clients import Connect, Events, eventually
from tests.support.conformance import conformance
from tests.support.js import Warnings, eventually_equal, fill, make_stream, sequences
from tests.support.push import bound, push_consumer, take

# -- delivery -----------------------------------------------------------------------------------


@conformance("RUST", "Push Consumer", "messages arrive on the delivery subject by themselves")
async def test_iteration(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await push_consumer(nc, await make_stream(nc, 300))
    seen = []
    async with consumer.messages() as messages:
        async for message in messages:
            assert isinstance(message, JetStreamMessage)
            await message.double_ack()
            seen.append(message.metadata.stream_sequence)
            if len(seen) == 300:
                break
    assert seen == list(range(1, 301))
    info = await consumer.info()
    assert (info.num_ack_pending, info.ack_floor.stream_seq) == (0, 300)


async def test_nothing_is_delivered_before_somebody_asks(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    consumer = await push_consumer(nc, await make_stream(nc, 3))
    messages = consumer.messages()
    await nc.flush()
    assert not (await consumer.info()).push_bound
    assert sequences(await take(messages, 3)) == [1, 2, 3]
    await messages.stop()


async def test_consume_calls_back(nats_server: NatsServer, connect: Connect) -> None:
    events = Events()
    nc = await connect(nats_server.url, on_event=events)
    stream = await make_stream(nc, 5)
    consumer = await push_consumer(nc, stream)
    seen: list[bytes] = []

    async def callback(message: JetStreamMessage) -> None:
        seen.append(message.data)
        if message.data == b"2":
            raise RuntimeError("no twos")
        await message.ack()

    async with await consumer.consume(callback) as consumption:
        await eventually(lambda: len(seen) == 5)
        await eventually(lambda: not consumption.closed)
    await consumption.wait()
    assert [str(error) for error in events.errors] == ["no twos"]
    await eventually_equal(lambda: _ack_pending(consumer), 1)


async def _ack_pending(consumer: PushConsumer) -> int:
    return (await consumer.info()).num_ack_pending


@conformance("ADR-15", "Push bound", "members of a queue group share the messages")
async def test_members_of_a_group_share(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await make_stream(nc)
    consumer = await push_consumer(nc, stream, deliver_group="g", ack_policy="none")
    warnings = Warnings()
    seen: list[list[int]] = [[], []]

    def collect(index: int) -> Any:
        return lambda message: seen[index].append(message.metadata.stream_sequence)

    async with (
        await consumer.consume(collect(0), on_warning=warnings),
        await consumer.consume(collect(1), on_warning=warnings),
    ):
        await bound(consumer)
        await fill(nc, stream, 200)
        await eventually(lambda: len(seen[0]) + len(seen[1]) == 200)
    assert sorted(seen[0] + seen[1]) == list(range(1, 201))
    assert seen[0] and seen[1]  # noqa: PT018
    # Each member misses what the others get, which is no gap.
    assert warnings == []


@conformance("ADR-15", "Heartbeats", "members of a queue group do not watch them")
async def test_members_of_a_group_do_not_watch_heartbeats(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    stream = await make_stream(nc)
    consumer = await push_consumer(nc, stream, deliver_group="g", idle_heartbeat=0.1)
    warnings = Warnings()
    first = consumer.messages(on_warning=warnings)
    with pytest.raises(TimeoutError):
        await first.next(0.5)
    await consumer.delete()
    with pytest.raises(TimeoutError):
        await first.next(0.5)
    assert warnings == []
    await first.stop()


async def test_stop_after(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await make_stream(nc, 10)
    consumer = await push_consumer(nc, stream, ack_policy="none", idle_heartbeat=0.1)
    async with consumer.messages(stop_after=3) as messages:
        assert sequences([message async for message in messages]) == [1, 2, 3]
    seen: list[JetStreamMessage] = []
    consumption = await consumer.consume(seen.append, stop_after=1)
    await fill(nc, stream, 2)
    await consumption.wait()
    assert len(seen) == 1
    with pytest.raises(InvalidOptionError, match="stop_after"):
        consumer.messages(stop_after=0)


async def test_acks_of_a_consumer_without_acks_do_nothing(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    consumer = await push_consumer(nc, await make_stream(nc, 1), ack_policy="none")
    async with consumer.messages() as messages:
        message = await messages.next(5)
        await message.ack()
        await message.double_ack()
        assert not message.acked


async def test_an_empty_message_with_headers_is_a_message(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    stream = await make_stream(nc)
    await nc.publish(f"{stream}.a", b"", headers={"K": "v"})
    consumer = await push_consumer(nc, stream)
    async with consumer.messages() as messages:
        message = await messages.next(5)
    assert (message.data, message.headers["K"]) == (b"", "v")


@conformance("ADR-15", "JSAck", "a message without a JSAck is no JetStream message")
async def test_a_stranger_on_the_deliver_subject(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await push_consumer(nc, await make_stream(nc, 1))
    async with consumer.messages() as messages:
        assert (await messages.next(5)).metadata.stream_sequence == 1
        await nc.publish(consumer.config.deliver_subject, b"hello")
        stranger = await messages.next(5)
        assert stranger.data == b"hello"
        with pytest.raises(NotJetStreamMessageError):
            _ = stranger.metadata
        with pytest.raises(NotJetStreamMessageError):
            await stranger.ack()


# -- heartbeats ---------------------------------------------------------------------------------


@conformance("RUST", "Push Consumer", "idle heartbeats (status 100) are handled, not delivered")
@conformance("ADR-15", "Automatic Status Management", "heartbeats are handled by the client")
async def test_heartbeats_are_not_messages(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await push_consumer(nc, await make_stream(nc), idle_heartbeat=0.1)
    warnings = Warnings()
    async with consumer.messages(on_warning=warnings) as messages:
        received = messages.received
        with pytest.raises(TimeoutError):
            await messages.next(0.5)
        assert messages.received >= received + 2
        assert messages.pending_messages == 0
    assert warnings == []


@conformance("ADR-15", "Heartbeats", "missing for two intervals: the user is told, and it goes on")
@conformance("ADR-15", "Push consumers", "that the consumer was deleted shows by its heartbeats")
async def test_missing_heartbeats_are_told(nats_server: NatsServer, connect: Connect) -> None:
    events = Events()
    nc = await connect(nats_server.url, on_event=events)
    consumer = await push_consumer(nc, await make_stream(nc), idle_heartbeat=0.1)
    async with consumer.messages() as messages:
        waiting = asyncio.ensure_future(messages.next())
        await bound(consumer)
        assert events.errors == []
        await consumer.delete()
        await eventually(lambda: len(events.errors) >= 2)
        assert {type(error) for error in events.errors} == {MissingHeartbeatError}
        assert consumer.name in str(events.errors[0])
        assert not waiting.done()
        waiting.cancel()


async def test_a_warning_handler_that_fails_is_reported(
    nats_server: NatsServer, connect: Connect
) -> None:
    events = Events()
    nc = await connect(nats_server.url, on_event=events)
    consumer = await push_consumer(nc, await make_stream(nc), idle_heartbeat=0.1)

    def fail(error: JetSparkError) -> None:
        raise RuntimeError("broken")

    async with consumer.messages(on_warning=fail) as messages:
        waiting = asyncio.ensure_future(messages.next())
        await bound(consumer)
        await consumer.delete()
        await eventually(lambda: [str(error) for error in events.errors][:1] == ["broken"])
        waiting.cancel()


@conformance("ADR-15", "Heartbeats", "a message counts like a heartbeat")
async def test_messages_count_like_heartbeats(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await push_consumer(nc, await make_stream(nc, 1), idle_heartbeat=0.2)
    warnings = Warnings()
    async with consumer.messages(on_warning=warnings) as messages:
        await messages.next(5)
        await consumer.delete()
        for _ in range(8):
            await asyncio.sleep(0.1)
            await nc.publish(consumer.config.deliver_subject, b"from somebody else")
            await messages.next(5)
        assert warnings == []
        waiting = asyncio.ensure_future(messages.next())
        await warnings.wait(MissingHeartbeatError)
        waiting.cancel()


async def test_without_heartbeats_nothing_is_watched(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    consumer = await push_consumer(nc, await make_stream(nc, 1))
    async with consumer.messages() as messages:
        await messages.next(5)
        assert messages._monitor is None


# -- ending -------------------------------------------------------------------------------------


@conformance("ADR-15", "Unsubscribe", "stop drops what waits, which comes again")
async def test_stop(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await push_consumer(nc, await make_stream(nc, 5), ack_wait=0.5)
    async with consumer.messages() as messages:
        await (await messages.next(5)).double_ack()
        await eventually(lambda: messages.pending_messages == 4)
        await messages.stop()
        assert messages.pending_messages == 0
        with pytest.raises(SubscriptionClosedError):
            await messages.next(1)
    assert [message async for message in messages] == []
    await consumer.info()  # it is not ours to delete
    again = consumer.messages()
    seen = await take(again, 4)
    assert sorted(sequences(seen)) == [2, 3, 4, 5]
    assert all(message.metadata.redelivered for message in seen)
    await again.stop()


@conformance("ADR-15", "Drain", "what has arrived is processed, then it ends")
async def test_drain(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await make_stream(nc, 5)
    consumer = await push_consumer(nc, stream)
    messages = consumer.messages()
    await messages.next(5)
    await eventually(lambda: messages.pending_messages == 4)
    await messages.drain()
    await fill(nc, stream, 3)
    assert sequences([message async for message in messages]) == [2, 3, 4, 5]
    await consumer.info()


async def test_drain_with_a_callback(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await push_consumer(nc, await make_stream(nc, 20))
    seen: list[int] = []
    started, go_on = asyncio.Event(), asyncio.Event()

    async def callback(message: JetStreamMessage) -> None:
        started.set()
        await go_on.wait()
        seen.append(message.metadata.stream_sequence)

    consumption = await consumer.consume(callback)
    await started.wait()
    await eventually(lambda: consumption._stream.received == 20)
    draining = asyncio.ensure_future(consumption.drain())
    go_on.set()
    await draining
    assert seen == list(range(1, 21))
    assert consumption.closed


@pytest.mark.parametrize("end", ["stop", "drain", "unsubscribe"])
async def test_ending_before_the_beginning(
    nats_server: NatsServer, connect: Connect, end: str
) -> None:
    nc = await connect(nats_server.url)
    consumer = await push_consumer(nc, await make_stream(nc, 1))
    routes = len(nc._routes)
    messages = consumer.messages()
    await getattr(messages, end)()
    assert [message async for message in messages] == []
    assert len(nc._routes) == routes


@conformance("ADR-15", "Unsubscribe", "the end of the connection ends everything")
async def test_the_end_of_the_connection(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await push_consumer(nc, await make_stream(nc))
    messages = consumer.messages()
    waiting = asyncio.ensure_future(messages.next())
    await bound(consumer)
    await nc.close()
    with pytest.raises(SubscriptionClosedError):
        await waiting
    with pytest.raises(ConnectionClosedError):
        await consumer.messages().next()


async def test_draining_the_connection(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await push_consumer(nc, await make_stream(nc, 5))
    seen: list[int] = []

    async def callback(message: JetStreamMessage) -> None:
        await asyncio.sleep(0)
        seen.append(message.metadata.stream_sequence)

    consumption = await consumer.consume(callback)
    await eventually(lambda: consumption._stream.received == 5)
    await nc.drain()
    assert seen == [1, 2, 3, 4, 5]
