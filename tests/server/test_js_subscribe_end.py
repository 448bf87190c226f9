"""The end of `js.subscribe`: unsubscribe, a limit, drain, and who deletes the consumer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import pytest_asyncio

from jetspark import Client, JetStream, PushSubscription, Stream
from jetspark.errors import APIError, InvalidArgumentError, SubscriptionClosedError, TimeoutError
from jetspark.jetstream.message import JetStreamMessage
from jetspark.server import NatsServer
from tests.support.clients import Connect, Events, eventually
from tests.support.conformance import conformance
from tests.support.js import eventually_equal, fill, make_stream, sequences


@pytest_asyncio.fixture
async def stream(nc: Client, js: JetStream) -> Stream:
    return await js.get_stream(await make_stream(nc, 5))


async def names(stream: Stream) -> list[str]:
    return [name async for name in stream.consumer_names()]


async def arrived(subscription: PushSubscription, count: int) -> None:
    await eventually(lambda: subscription.pending_messages == count)


# -- unsubscribe --------------------------------------------------------------------------------


@conformance("ADR-15", "Unsubscribe", "the consumer is deleted if the library created it")
@pytest.mark.parametrize("options", [{}, {"durable": "d"}, {"queue": "q"}])
async def test_unsubscribe_deletes_what_was_created(
    nc: Client, js: JetStream, stream: Stream, options: dict[str, Any]
) -> None:
    routes = len(nc._routes)
    subscription = await js.subscribe(f"{stream.name}.*", **options)
    assert len(await names(stream)) == 1
    await arrived(subscription, 5)
    await subscription.unsubscribe()
    assert await names(stream) == []
    assert len(nc._routes) == routes
    assert subscription.pending_messages == 0
    with pytest.raises(SubscriptionClosedError):
        await subscription.next(1)
    await subscription.unsubscribe()  # again


@conformance("ADR-15", "Unsubscribe", "a consumer that existed is left alone")
@pytest.mark.parametrize("options", [{"durable": "d"}, {"consumer": "d"}])
async def test_unsubscribe_leaves_what_existed(
    nc: Client, js: JetStream, stream: Stream, options: dict[str, Any]
) -> None:
    await js.create_consumer(stream.name, durable_name="d", deliver_subject=nc.new_inbox())
    subscription = await js.subscribe(f"{stream.name}.*", **options)
    await subscription.unsubscribe()
    subscription = await js.subscribe(f"{stream.name}.*", **options)
    await subscription.drain()
    assert await names(stream) == ["d"]


@conformance("ADR-15", "Unsubscribe", "an error of the deletion is raised")
async def test_unsubscribe_raises_what_the_deletion_does(js: JetStream, stream: Stream) -> None:
    subscription = await js.subscribe(f"{stream.name}.*")
    await stream.delete()
    with pytest.raises(APIError):
        await subscription.unsubscribe()
    assert subscription.closed


async def test_a_consumer_that_is_gone_need_not_be_deleted(js: JetStream, stream: Stream) -> None:
    subscription = await js.subscribe(f"{stream.name}.*")
    await subscription.consumer.delete()
    await subscription.unsubscribe()


async def test_unsubscribe_ends_the_callback(js: JetStream, stream: Stream) -> None:
    started = asyncio.Event()

    async def callback(message: JetStreamMessage) -> None:
        started.set()
        await asyncio.sleep(60)

    subscription = await js.subscribe(f"{stream.name}.*", callback=callback)
    await started.wait()
    await subscription.unsubscribe()
    assert await names(stream) == []


async def test_a_block_unsubscribes(js: JetStream, stream: Stream) -> None:
    async with await js.subscribe(f"{stream.name}.*") as subscription:
        await subscription.next(5)
    assert subscription.closed
    assert await names(stream) == []


# -- a limit ------------------------------------------------------------------------------------


@conformance("ADR-15", "Automatic unsubscribe", "statuses do not count")
async def test_a_limit_counts_messages_only(nc: Client, js: JetStream) -> None:
    stream = await make_stream(nc)
    subscription = await js.subscribe(f"{stream}.*", idle_heartbeat=0.1, flow_control=True)
    await subscription.unsubscribe(limit=3)
    await eventually(lambda: subscription.received >= 4)  # heartbeats
    await fill(nc, stream, 5)
    assert sequences([message async for message in subscription]) == [1, 2, 3]
    assert subscription.closed
    with pytest.raises(SubscriptionClosedError):
        await subscription.next(1)


@pytest.mark.parametrize("heartbeat", [0, 5])
async def test_a_limit_that_is_reached_already(
    js: JetStream, stream: Stream, heartbeat: int
) -> None:
    subscription = await js.subscribe(f"{stream.name}.*", idle_heartbeat=heartbeat)
    await arrived(subscription, 5)
    await subscription.unsubscribe(limit=2)
    # What has arrived before the limit was set can be taken.
    assert sequences([message async for message in subscription]) == [1, 2, 3, 4, 5]
    with pytest.raises(InvalidArgumentError):
        await subscription.unsubscribe(limit=0)
    await subscription.unsubscribe()
    assert await names(stream) == []


async def test_a_limit_in_the_middle_of_a_batch(nc: Client, js: JetStream, stream: Stream) -> None:
    seen: list[JetStreamMessage] = []
    subscription = await js.subscribe(
        f"{stream.name}.*",
        idle_heartbeat=5,
        opt_start_seq=6,
        deliver_policy="by_start_sequence",
        callback=seen.append,
    )
    await subscription.unsubscribe(limit=30)
    await fill(nc, stream.name, 100)
    await eventually(lambda: subscription.closed and len(seen) == 30)
    assert sequences(seen) == list(range(6, 36))
    await subscription.unsubscribe()


async def test_a_limit_survives_losses(nc: Client, js: JetStream, stream: Stream) -> None:
    subscription = await js.subscribe(f"{stream.name}.*", ordered=True, idle_heartbeat=0.2)
    await subscription.unsubscribe(limit=7)
    seen = [await subscription.next(5)]
    await nc.force_reconnect()
    await fill(nc, stream.name, 5)
    seen += [message async for message in subscription]
    assert sequences(seen) == [1, 2, 3, 4, 5, 6, 7]


# -- drain --------------------------------------------------------------------------------------


@conformance("ADR-15", "Drain", "the callback gets what has arrived, then the consumer is deleted")
async def test_drain_with_a_callback(js: JetStream, stream: Stream) -> None:
    seen: list[tuple[int, list[str]]] = []
    go_on = asyncio.Event()

    async def callback(message: JetStreamMessage) -> None:
        await go_on.wait()
        seen.append((message.metadata.stream_sequence, await names(stream)))

    subscription = await js.subscribe(f"{stream.name}.*", callback=callback)
    name = subscription.consumer.name
    await eventually(lambda: subscription.received == 5)
    draining = asyncio.ensure_future(subscription.drain())
    await eventually(lambda: subscription.closed)
    assert await names(stream) == [name]
    go_on.set()
    await draining
    # It was there until the last message had been processed, and acknowledged.
    assert seen == [(sequence, [name]) for sequence in range(1, 6)]
    assert await names(stream) == []


@conformance("ADR-15", "Drain", "the deletion waits until the last message is taken")
async def test_drain_while_iterating(nc: Client, js: JetStream, stream: Stream) -> None:
    subscription = await js.subscribe(f"{stream.name}.*")
    await arrived(subscription, 5)
    await subscription.drain()
    assert await names(stream) == [subscription.consumer.name]
    seen = []
    async for message in subscription:
        await message.double_ack()  # somebody answers
        seen.append(message.metadata.stream_sequence)
    assert seen == [1, 2, 3, 4, 5]
    assert await names(stream) == []


async def test_drain_with_nothing_left(js: JetStream, stream: Stream) -> None:
    subscription = await js.subscribe(f"{stream.name}.*")
    for _ in range(5):
        await subscription.next(5)
    await subscription.drain()
    assert await names(stream) == []


@conformance("ADR-15", "Drain", "an error of the deletion is reported")
async def test_drain_reports_what_the_deletion_raises(
    nats_server: NatsServer, connect: Connect, js: JetStream, stream: Stream
) -> None:
    events = Events()
    nc = await connect(nats_server.url, on_event=events)
    subscription = await nc.jetstream().subscribe(f"{stream.name}.*", callback=lambda _: None)
    await eventually(lambda: subscription.received == 5)
    await stream.delete()
    await subscription.drain()
    assert [type(error).__mro__[1] for error in events.errors if isinstance(error, APIError)] != []
    assert len(events.errors) == 1


@conformance("ADR-15", "Drain", "draining the connection deletes the consumer, too")
@pytest.mark.parametrize("with_callback", [False, True])
async def test_draining_the_connection(
    nats_server: NatsServer, connect: Connect, js: JetStream, stream: Stream, with_callback: bool
) -> None:
    nc = await connect(nats_server.url)
    seen: list[JetStreamMessage] = []
    subscription = await nc.jetstream().subscribe(
        f"{stream.name}.*", durable="d", callback=seen.append if with_callback else None
    )
    await eventually(lambda: subscription.received == 5)
    await nc.drain()
    assert await names(stream) == []
    if with_callback:
        assert sequences(seen) == [1, 2, 3, 4, 5]


@conformance("ADR-15", "Unsubscribe", "closing the connection leaves the consumer to its threshold")
async def test_closing_the_connection(
    nats_server: NatsServer, connect: Connect, js: JetStream, stream: Stream
) -> None:
    nc = await connect(nats_server.url)
    subscription = await nc.jetstream().subscribe(
        f"{stream.name}.*", inactive_threshold=0.3, idle_heartbeat=1
    )
    name = subscription.consumer.name
    await nc.close()
    assert await names(stream) == [name]
    with pytest.raises((SubscriptionClosedError, TimeoutError)):
        while True:
            await subscription.next(1)
    await eventually_equal(lambda: _count(stream), 0)


async def _count(stream: Stream) -> int:
    return len(await names(stream))
