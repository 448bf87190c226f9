"""Endless pulling with `messages`: how much is on order, how it ends, what it survives."""

from __future__ import annotations

import asyncio
import builtins
import json
from datetime import timedelta
from typing import Any

import pytest

from jetspark import Message
from jetspark.errors import (
    BadPullRequestError,
    ConnectionClosedError,
    ConsumerDeletedError,
    ConsumerIsPushError,
    InvalidArgumentError,
    InvalidOptionError,
    IteratorClosedError,
    MaxBytesExceededError,
    MaxWaitingExceededError,
    MissingHeartbeatError,
    NoStreamResponseError,
    RequestLimitError,
    TimeoutError,
)
from jetspark.jetstream.consumer import PullConsumer
from jetspark.jetstream.consumer.messages import MessageStream
from jetspark.jetstream.message import JetStreamMessage
from jetspark.server import NatsServer
from tests.support.clients import Connect, Events, eventually
from tests.support.conformance import conformance
from tests.support.js import (
    Warnings,
    all_acked,
    consumer_state,
    eventually_equal,
    fill,
    make_consumer,
    make_stream,
    sequences,
    served,
    settled,
)
from tests.support.streams import version_of


async def take(stream: MessageStream, count: int) -> list[JetStreamMessage]:
    return [await stream.next(timeout=10) for _ in range(count)]


async def ack_pending(consumer: PullConsumer) -> int:
    return (await consumer.info()).num_ack_pending


@conformance("RUST", "Pull Consumer", "messages() iterates over all messages")
@conformance("ADR-37", "Consume: algorithm", "one subscription takes the answers to all requests")
async def test_all_messages_in_order(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 1200))
    routes = len(nc._routes)
    seen = []
    async with consumer.messages(100) as messages:
        assert len(nc._routes) == routes + 1
        async for message in messages:
            await message.ack()
            seen.append(message.metadata.stream_sequence)
            if len(seen) == 1200:
                break
    assert seen == list(range(1, 1201))
    await all_acked(consumer, 1200)
    assert len(nc._routes) == routes
    await served(consumer, 0)


@conformance("ADR-37", "Consume: buffering", "no more than max_messages are on order or wait")
@conformance("ADR-37", "Consume: buffering", "a request follows when the threshold is reached")
@pytest.mark.parametrize(
    ("limit", "threshold", "expected"),
    [
        # delivered after so many were taken
        (10, None, {0: 10, 5: 10, 6: 16, 11: 16, 12: 22}),
        (10, 10, {0: 10, 1: 11, 2: 12}),
        (10, 1, {0: 10, 9: 10, 10: 20}),
        (1, None, {0: 1, 1: 2, 2: 3}),
    ],
)
async def test_window(
    nats_server: NatsServer,
    connect: Connect,
    limit: int,
    threshold: int | None,
    expected: dict[int, int],
) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 100))
    async with consumer.messages(limit, threshold_messages=threshold) as messages:
        taken = 0
        for count, delivered in expected.items():
            await take(messages, count - taken)
            taken = count
            await eventually_equal(lambda: ack_pending(consumer), delivered)
            assert await settled(lambda: ack_pending(consumer), turns=2) == delivered


@conformance("ADR-37", "Consume: options", "max_messages=1 does not get stuck")
async def test_window_of_one(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 30))
    async with consumer.messages(1) as messages:
        assert sequences(await take(messages, 30)) == list(range(1, 31))


@conformance("ADR-37", "Consume: buffering", "max_bytes bounds the bytes on order")
async def test_window_of_bytes(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 100, size=100))
    reply = len("$JS.ACK..c.1.11.11.1700000000000000000.99") + len(consumer.stream_name)
    size = len(f"{consumer.stream_name}.1") + reply + 100
    warnings = Warnings()
    async with consumer.messages(max_bytes=10 * size, on_warning=warnings) as messages:
        stalled = await settled(lambda: ack_pending(consumer))
        assert 9 <= stalled <= 10
        await take(messages, 3)  # less than half of it
        assert await settled(lambda: ack_pending(consumer), turns=2) == stalled
        assert sequences(await take(messages, 97)) == list(range(4, 101))
        assert messages._window.pending_bytes <= 10 * size
    assert warnings == []


@conformance("ADR-37", "Message size", "client and server count the same bytes")
async def test_bytes_are_counted_like_the_server_does(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    stream = await make_stream(nc)
    consumer = await make_consumer(nc, stream)
    async with consumer.messages(max_bytes=5000, threshold_bytes=1, expires=1) as messages:
        await fill(nc, stream, 4, size=300, headers=lambda number: {"N": str(number)})
        await take(messages, 4)
        ordered = 5000 - messages._window.pending_bytes
        assert ordered > 4 * 300
        # When the request expires, the server says how many bytes are left of it: all the rest.
        await eventually(lambda: messages._window.pending_bytes == 5000)
        assert messages._window.pending_messages == 1_000_000


async def test_small_and_large_messages_in_a_window_of_bytes(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    stream = await make_stream(nc)
    for size in (10, 900, 10, 10, 600, 700, 10, 900, 900, 10) * 3:
        await nc.request(f"{stream}.x", bytes(size))
    consumer = await make_consumer(nc, stream)
    warnings = Warnings()
    async with consumer.messages(max_bytes=1100, on_warning=warnings) as messages:
        # None of them is too large, though some are for what is left of the window.
        assert sequences(await take(messages, 30)) == list(range(1, 31))
    assert warnings == []


async def test_message_that_does_not_fit_yet(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await make_stream(nc)
    for size in (300, 700):
        await nc.request(f"{stream}.x", bytes(size))
    consumer = await make_consumer(nc, stream)
    warnings = Warnings()
    async with consumer.messages(max_bytes=1100, on_warning=warnings) as messages:
        await eventually(lambda: messages._window.min_bytes)  # the second one was asked for in vain
        sent = nc.statistics.messages_out
        await asyncio.sleep(0.1)
        assert nc.statistics.messages_out == sent  # it waits until the first one is taken
        assert sequences(await take(messages, 2)) == [1, 2]
    assert warnings == []


@conformance("ADR-37", "Consume: status handling", "409 Message Size Exceeds MaxBytes is survived")
async def test_message_larger_than_the_window(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await make_stream(nc, 2, size=10)
    await nc.request(f"{stream}.x", bytes(5000))
    await fill(nc, stream, 1, start=3)
    consumer = await make_consumer(nc, stream)
    warnings = Warnings()
    async with consumer.messages(max_bytes=1000, on_warning=warnings) as messages:
        await take(messages, 2)
        await warnings.wait(MaxBytesExceededError)
        await asyncio.sleep(0.3)
        assert len(warnings) <= 3  # it does not spin
        await (await nc.jetstream().get_stream(stream)).delete_message(3)
        assert sequences(await take(messages, 1)) == [4]
    assert set(warnings.kinds) == {MaxBytesExceededError}


@pytest.mark.parametrize("limits", [{}, {"max_messages": 3}, {"max_bytes": 400}, {"expires": 1}])
async def test_stop_after(
    nats_server: NatsServer, connect: Connect, limits: dict[str, Any]
) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 100))
    seen = [message async for message in consumer.messages(stop_after=7, **limits)]
    assert sequences(seen) == list(range(1, 8))
    assert await settled(lambda: ack_pending(consumer)) == 7  # not one more was asked for
    await served(consumer, 0)


async def test_bytes_used_up_exactly(nats_server: NatsServer, connect: Connect) -> None:
    """Of which the server does not tell."""
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 9, size=100))
    (first,) = await consumer.fetch(1)
    assert first.raw_reply is not None
    two = 2 * (len(first.raw_subject) + len(first.raw_reply) + 100)
    warnings = Warnings()
    messages = consumer.messages(max_bytes=two, stop_after=6, expires=1, on_warning=warnings)
    seen = await take(messages, 1)
    await asyncio.sleep(1.6)  # the next one waits here, and nothing is on order
    assert await ack_pending(consumer) == 3
    seen += [message async for message in messages]
    assert sequences(seen) == list(range(2, 8))
    assert warnings == []


async def test_stop_drops_and_drain_delivers(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 100), ack_wait=60)
    stopped = consumer.messages(10)
    await take(stopped, 1)
    await eventually_equal(lambda: ack_pending(consumer), 10)
    await stopped.stop()
    assert [message async for message in stopped] == []
    await stopped.stop()  # a second time changes nothing

    drained = consumer.messages(10)
    first = await take(drained, 1)
    await eventually_equal(lambda: ack_pending(consumer), 20)
    await drained.drain()
    await served(consumer, 0)
    rest = [message async for message in drained]
    assert sequences([*first, *rest]) == list(range(11, 21))
    await drained.drain()


async def test_stop_while_somebody_waits(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc))
    messages = consumer.messages()
    waiting = asyncio.create_task(anext(messages, None))
    await served(consumer)
    await messages.stop()
    assert await waiting is None
    with pytest.raises(IteratorClosedError, match="'c'"):
        await messages.next(timeout=1)


@pytest.mark.parametrize("end", ["stop", "drain"])
async def test_ended_before_it_began(nats_server: NatsServer, connect: Connect, end: str) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 1))
    routes, sent = len(nc._routes), nc.statistics.messages_out
    messages = consumer.messages()
    await getattr(messages, end)()
    assert [message async for message in messages] == []
    assert (len(nc._routes), nc.statistics.messages_out) == (routes, sent)
    async with messages:
        assert (len(nc._routes), nc.statistics.messages_out) == (routes, sent)


async def test_next_with_a_timeout(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await make_stream(nc)
    consumer = await make_consumer(nc, stream)
    async with consumer.messages() as messages:
        for _ in range(2):
            with pytest.raises(TimeoutError, match="'c'") as caught:
                await messages.next(timeout=0.05)
            assert isinstance(caught.value, builtins.TimeoutError)
        await fill(nc, stream, 2)
        assert sequences(await take(messages, 2)) == [1, 2]


async def test_two_tasks_on_one_iterator(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await make_stream(nc)
    consumer = await make_consumer(nc, stream)
    async with consumer.messages() as messages:
        first = asyncio.create_task(messages.next(timeout=10))
        await served(consumer)
        with pytest.raises(InvalidArgumentError, match="two tasks"):
            await messages.next()
        await fill(nc, stream, 1)
        assert sequences([await first]) == [1]


@conformance("ADR-37", "Consume: algorithm", "an expired request is replaced by a new one")
@conformance("ADR-37", "Consume: status handling", "408 Request Timeout is not telegraphed")
async def test_idle_over_several_expiries(nats_server: NatsServer, connect: Connect) -> None:
    events = Events()
    nc = await connect(nats_server.url, on_event=events)
    stream = await make_stream(nc)
    consumer = await make_consumer(nc, stream)
    async with consumer.messages(50, expires=1) as messages:
        waiting = asyncio.create_task(messages.next(timeout=10))
        await asyncio.sleep(2.2)
        await served(consumer)
        assert not waiting.done()
        await fill(nc, stream, 60)
        assert sequences([await waiting, *await take(messages, 59)]) == list(range(1, 61))
    assert events.errors == []


async def test_requests_go_on_while_the_application_is_busy(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    stream = await make_stream(nc, 3)
    consumer = await make_consumer(nc, stream)
    warnings = Warnings()
    async with consumer.messages(10, expires=1, on_warning=warnings) as messages:
        await take(messages, 1)
        await asyncio.sleep(2.2)  # two wait here and eight are on order, which expires twice
        await served(consumer)
        await fill(nc, stream, 20, start=3)
        await eventually_equal(lambda: ack_pending(consumer), 10 + 1)
        assert sequences(await take(messages, 22)) == list(range(2, 24))
    assert warnings == []


@conformance("ADR-37", "Consume: status handling", "409 Consumer Deleted ends with an error")
@pytest.mark.parametrize("what", ["consumer", "stream"])
async def test_deleted(nats_server: NatsServer, connect: Connect, what: str) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 3))
    messages = consumer.messages(5)
    first = await take(messages, 1)
    await eventually_equal(lambda: ack_pending(consumer), 3)
    if what == "consumer":
        await consumer.delete()
    else:
        await nc.jetstream().delete_stream(consumer.stream_name)
    seen = list(first)
    with pytest.raises(ConsumerDeletedError, match="'c'"):
        async for message in messages:
            seen.append(message)  # noqa: PERF401
    assert sequences(seen) == [1, 2, 3]
    with pytest.raises(ConsumerDeletedError):
        await messages.next()
    assert messages.sid not in nc._routes


@conformance("ADR-37", "Consume: status handling", "409 Consumer is push based ends with an error")
async def test_push_consumer(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    js = nc.jetstream()
    stream = await make_stream(nc, 1)
    pushing = await js.create_consumer(stream, durable_name="c", deliver_subject=nc.new_inbox())
    with pytest.raises(ConsumerIsPushError):
        await PullConsumer(js.api, pushing.cached_info).messages().next(timeout=5)


@conformance("ADR-37", "Consume: status handling", "400 Bad Request ends with an error")
async def test_bad_request(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 1))
    messages = consumer.messages()
    messages._options._fields["idle_heartbeat"] = 10**12  # which the option check would refuse
    with pytest.raises(BadPullRequestError, match="heartbeat"):
        await messages.next(timeout=5)


@conformance("ADR-37", "Consume: status handling", "409 Exceeded MaxRequest... is a warning")
@pytest.mark.parametrize(
    ("limits", "options"),
    [
        ({"max_batch": 5}, {"max_messages": 6}),
        ({"max_expires": timedelta(seconds=2)}, {"expires": 3}),
        ({"max_bytes": 1000}, {"max_bytes": 1001}),
    ],
    ids=["batch", "expires", "bytes"],
)
async def test_limits_of_the_consumer(
    nats_server: NatsServer, connect: Connect, limits: dict[str, Any], options: dict[str, Any]
) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 2), **limits)
    warnings = Warnings()
    async with consumer.messages(heartbeat=0.5, on_warning=warnings, **options) as messages:
        waiting = asyncio.create_task(messages.next(timeout=10))
        await warnings.wait(RequestLimitError)
        await asyncio.sleep(0.2)
        assert len(warnings) <= 3  # it waits before it asks again
        config = consumer.config.replace(max_batch=0, max_expires=timedelta(0), max_bytes=0)
        await nc.jetstream().update_consumer(consumer.stream_name, config)
        assert sequences([await waiting]) == [1]
    assert set(warnings.kinds) == {RequestLimitError}


@pytest.mark.parametrize("max_batch", [1, 5, 100])
async def test_the_default_keeps_to_the_limit_of_the_consumer(
    nats_server: NatsServer, connect: Connect, max_batch: int
) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 200), max_batch=max_batch)
    warnings = Warnings()
    async with consumer.messages(stop_after=200, on_warning=warnings) as messages:
        assert sequences([message async for message in messages]) == list(range(1, 201))
    assert warnings == []


async def test_the_default_is_as_much_as_makes_up_a_size(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    for size, most in ((1, 1000), (50_000, 400)):
        name = await make_stream(nc, 2000, size=size)
        consumer = await make_consumer(nc, name)
        requests: list[int] = []

        def asked(message: Message, requests: list[int] = requests) -> None:
            requests.append(json.loads(message.data)["batch"])

        subject = f"$JS.API.CONSUMER.MSG.NEXT.{name}.{consumer.name}"
        async with await nc.subscribe(subject, callback=asked), consumer.messages() as messages:
            for _ in range(1500):
                await (await messages.next(10)).ack()
        assert requests[0] == 16  # their size is not known yet
        assert most / 3 < max(requests) <= most


@conformance("ADR-37", "Consume: status handling", "409 Exceeded MaxWaiting is a warning")
async def test_too_many_requests_wait(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await make_stream(nc)
    consumer = await make_consumer(nc, stream, max_waiting=1)
    other = asyncio.create_task(consumer.fetch(1, timeout=30))
    await served(consumer)
    warnings = Warnings()
    async with consumer.messages(expires=1, on_warning=warnings) as messages:
        waiting = asyncio.create_task(messages.next(timeout=20))
        # A newer server says nothing to a request with heartbeats, whose absence then tells it.
        silent = version_of(nats_server) >= (2, 12)
        await warnings.wait(MissingHeartbeatError if silent else MaxWaitingExceededError)
        await fill(nc, stream, 1)
        assert sequences(await other) == [1]
        await fill(nc, stream, 1, start=1)
        assert sequences([await waiting]) == [2]
    assert len(set(warnings.kinds)) == 1


@conformance("ADR-37", "Consume: status handling", "503 is survived")
async def test_nobody_answers_for_a_while(nats_server: NatsServer, connect: Connect) -> None:
    events = Events()
    nc = await connect(nats_server.url, on_event=events)
    stream = await make_stream(nc, 2)
    consumer = await make_consumer(nc, stream)
    await consumer.delete()
    async with consumer.messages(expires=1) as messages:
        waiting = asyncio.create_task(messages.next(timeout=20))
        await eventually(lambda: len(events.errors) >= 2)
        await make_consumer(nc, stream)
        assert sequences([await waiting]) == [1]
    # Without a handler of its own, warnings are events of the connection.
    assert {type(error) for error in events.errors} == {NoStreamResponseError}


async def test_warning_handler_that_fails(nats_server: NatsServer, connect: Connect) -> None:
    events = Events()
    nc = await connect(nats_server.url, on_event=events)
    stream = await make_stream(nc, 1)
    consumer = await make_consumer(nc, stream)
    await consumer.delete()

    def fail(error: Exception) -> None:
        raise RuntimeError("no time for warnings")

    async with consumer.messages(expires=1, on_warning=fail) as messages:
        waiting = asyncio.create_task(messages.next(timeout=20))
        await eventually(lambda: events.errors)
        await make_consumer(nc, stream)
        assert sequences([await waiting]) == [1]
    assert {str(error) for error in events.errors} == {"no time for warnings"}


async def test_closed_connection_ends_it(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 10))
    messages = consumer.messages()
    await take(messages, 1)
    await eventually_equal(lambda: ack_pending(consumer), 10)
    await nc.close()
    assert [message async for message in messages] == []
    with pytest.raises(ConnectionClosedError):
        await consumer.messages().next()
    with pytest.raises(ConnectionClosedError):
        await consumer.next()


async def test_drained_connection_leaves_what_has_arrived(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc, other = await connect(nats_server.url), await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 50), ack_policy="none")
    messages = consumer.messages(20)
    first = await take(messages, 1)
    await eventually(lambda: len(messages._waiting()) == 19)
    await nc.drain()
    rest = [message async for message in messages]
    assert sequences([*first, *rest]) == list(range(1, 21))
    same = await other.jetstream().get_consumer(consumer.stream_name, consumer.name)
    assert await consumer_state(same) == (0, 30, 20)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"max_messages": 1, "max_bytes": 1}, "max_bytes"),
        ({"expires": 0.9}, "expires"),
        ({"heartbeat": 16}, "heartbeat"),
        ({"stop_after": 0}, "stop_after"),
        ({"priority": 1}, "priority"),
    ],
)
async def test_options_are_refused(
    nats_server: NatsServer, connect: Connect, options: dict[str, Any], named: str
) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc))
    with pytest.raises(InvalidOptionError, match=named):
        consumer.messages(**options)


async def test_max_bytes_is_refused_where_the_server_would_lose_messages(
    nats_server: NatsServer, connect: Connect
) -> None:
    """What does not fit into the rest of a request never comes (seen up to 2.15)."""
    nc = await connect(nats_server.url)
    consumer = await make_consumer(
        nc, await make_stream(nc), deliver_policy="last_per_subject", filter_subject=">"
    )
    with pytest.raises(InvalidOptionError, match="max_messages instead"):
        consumer.messages(max_bytes=100_000)
    with pytest.raises(InvalidOptionError, match="max_messages instead"):
        await consumer.fetch(max_bytes=100_000)
