"""Ordered consumers that are fetched from, and their columns."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from jetspark import Client, OrderedConsumer, Stream
from jetspark.errors import (
    ConsumerInUseError,
    InvalidOptionError,
    StreamNotFoundError,
    TimeoutError,
)
from jetspark.jetstream.consumer.arrow import SCHEMA
from jetspark.server import NatsServer
from tests.support.clients import Connect, eventually
from tests.support.conformance import conformance
from tests.support.forge import deaf
from tests.support.js import Warnings, eventually_equal, fill, sequences, settled
from tests.support.ordered import consumers, new_stream

# -- fetching -----------------------------------------------------------------------------------


@conformance("ADR-17", "Pull", "fetch creates a consumer each time and goes on after the last one")
async def test_fetch_goes_on(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 10)
    consumer = await stream.ordered_consumer(name_prefix="f")
    for serial, expected in enumerate(([1, 2, 3], [4, 5, 6], [7, 8, 9]), 1):
        assert sequences(await consumer.fetch(3, timeout=5)) == expected
        assert consumer.name == f"f_{serial}"
        await eventually_equal(lambda: consumers(stream), [consumer.name])
    assert (await consumer.next(5)).metadata.stream_sequence == 10
    assert (await consumer.fetch_no_wait(5)) == []
    with pytest.raises(TimeoutError):
        await consumer.next(0.1)
    await fill(nc, stream.name, 1)
    assert (await consumer.next(5)).metadata.stream_sequence == 11


async def test_fetch_bytes_and_batches(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 30, size=100)
    consumer = await stream.ordered_consumer()
    seen = sequences(await consumer.fetch(max_bytes=1000, timeout=5))
    assert 0 < len(seen) < 10
    async for batch in consumer.sequence(8, timeout=1):
        seen += sequences(batch)
        if len(seen) >= 30:
            break
    assert seen == list(range(1, 31))


async def test_fetch_with_a_filter(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 21)
    consumer = await stream.ordered_consumer(filter_subject=f"{stream.name}.3")
    assert sequences(await consumer.fetch(2, timeout=5)) == [4, 11]
    assert sequences(await consumer.fetch_no_wait(2)) == [18]


async def test_fetch_from_the_end(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 3)
    consumer = await stream.ordered_consumer(deliver_policy="new")
    assert await consumer.fetch_no_wait(2) == []
    await fill(nc, stream.name, 2)  # while no consumer looks
    assert sequences(await consumer.fetch(2, timeout=5)) == [4, 5]


async def test_fetch_finds_the_consumer_gone(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 3)
    consumer = await stream.ordered_consumer(name_prefix="f")
    await consumer.delete()
    assert sequences(await consumer.fetch(2, timeout=5)) == [1, 2]
    assert consumer.name == "f_2"


async def test_fetch_while_the_consumer_is_deleted(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc)
    consumer = await stream.ordered_consumer(name_prefix="f")
    fetching = asyncio.ensure_future(consumer.fetch(2, timeout=5))
    await eventually_equal(lambda: _waiting(consumer), 1)
    await stream.delete_consumer("f_1")
    await fill(nc, stream.name, 2)
    assert sequences(await fetching) == [1, 2]
    assert consumer.name == "f_2"


async def _waiting(consumer: OrderedConsumer) -> int:
    return (await consumer.info()).num_waiting


async def test_fetch_returns_what_comes_before_a_gap(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 2)
    consumer = await stream.ordered_consumer()
    routes = set(nc._routes)
    fetching = asyncio.ensure_future(consumer.fetch(5, timeout=1))
    await eventually(lambda: nc._routes.keys() - routes)
    (route,) = (nc._routes[sid] for sid in nc._routes.keys() - routes)
    await eventually(lambda: route.received == 2)
    async with deaf(nc, route) as other:
        await fill(nc, stream.name, 1)
        await eventually(lambda: other.received == 1)
    await fill(nc, stream.name, 1)
    assert sequences(await fetching) == [1, 2]
    assert sequences(await consumer.fetch(2, timeout=5)) == [3, 4]


async def test_a_fetch_that_is_cancelled_loses_nothing(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 3)
    consumer = await stream.ordered_consumer()
    fetching = asyncio.ensure_future(consumer.fetch(5, timeout=5))
    await eventually_equal(lambda: _delivered(consumer), 3)
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    assert sequences(await consumer.fetch(3, timeout=5)) == [1, 2, 3]


async def _delivered(consumer: OrderedConsumer) -> int:
    return (await consumer.info()).delivered.stream_seq


async def test_fetch_from_a_stream_that_is_gone(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 3)
    consumer = await stream.ordered_consumer()
    await consumer.fetch(1, timeout=5)
    await stream.delete()
    with pytest.raises(StreamNotFoundError):
        await consumer.fetch(1, timeout=5)


@conformance("ADR-17", "Pull", "fetching and iterating do not mix")
async def test_fetching_and_iterating_do_not_mix(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 3)
    consumer = await stream.ordered_consumer()
    await consumer.fetch(1, timeout=5)
    iterating: list[Awaitable[Any]] = [consumer.messages().next(1), consumer.consume(print)]
    for attempt in iterating:
        with pytest.raises(ConsumerInUseError, match="fetch"):
            await attempt
    with pytest.raises(ConsumerInUseError, match="fetch"):
        await anext(consumer.arrow_batches())

    consumer = await stream.ordered_consumer()
    async with consumer.messages() as messages:
        await messages.next(5)
        with pytest.raises(ConsumerInUseError, match="messages"):
            await consumer.fetch(1)
    fetching: list[Awaitable[Any]] = [consumer.fetch(1), consumer.next(), consumer.fetch_arrow(1)]
    for attempt in fetching:
        with pytest.raises(ConsumerInUseError, match="messages"):
            await attempt


@conformance("ADR-17", "Pull", "one fetch at a time")
async def test_one_fetch_at_a_time(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc)
    consumer = await stream.ordered_consumer()
    fetching = asyncio.ensure_future(consumer.fetch(1, timeout=5))
    await eventually_equal(lambda: _waiting(consumer), 1)
    with pytest.raises(ConsumerInUseError, match="fetch"):
        await consumer.next(1)
    await fill(nc, stream.name, 1)
    assert len(await fetching) == 1


async def test_options_are_checked(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 1)
    with pytest.raises(InvalidOptionError, match="filter_subjects"):
        await stream.ordered_consumer(filter_subjects=["a.>", "a.b"])
    with pytest.raises(InvalidOptionError, match="opt_start_seq"):
        await stream.ordered_consumer(deliver_policy="all", opt_start_seq=5)
    consumer = await stream.ordered_consumer()
    with pytest.raises(InvalidOptionError, match="group"):
        consumer.messages(group="g")
    await consumer.delete()


# -- iterating, what only pulling has -------------------------------------------------------------


@conformance("ADR-17", "Pull", "a heartbeat every 5 seconds by default")
async def test_heartbeats(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc)
    consumer = await stream.ordered_consumer()
    assert consumer.messages()._heartbeat == 5
    assert consumer.messages(expires=4)._heartbeat == 2
    assert consumer.messages(heartbeat=7)._heartbeat == 7
    assert consumer.arrow_batches()._heartbeat == 5


@pytest.mark.parametrize("options", [{"max_messages": 10}, {"max_bytes": 2000}])
async def test_stop_after_over_losses(
    nats_server: NatsServer, connect: Connect, options: dict[str, Any]
) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 200, size=50)
    consumer = await stream.ordered_consumer()
    seen = []
    async with consumer.messages(stop_after=90, **options) as messages:
        async for message in messages:
            seen.append(message.metadata.stream_sequence)
            if len(seen) % 30 == 7:
                await nc.force_reconnect()
    assert seen == list(range(1, 91))
    async with consumer.messages(stop_after=110, **options) as messages:
        seen += [message.metadata.stream_sequence async for message in messages]
    assert seen == list(range(1, 201))


@conformance("ADR-37", "Consume: buffering", "losses do not make an ordered consumer hold more")
async def test_losses_do_not_fill_the_buffer(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 500)
    consumer = await stream.ordered_consumer(name_prefix="b")
    async with consumer.messages(20) as messages:
        await eventually(lambda: len(messages._waiting()) == 20)
        for serial in range(2, 6):
            await nc.force_reconnect()
            await nc.flush()
            await eventually(lambda serial=serial: consumer.name == f"b_{serial}")  # type: ignore[misc]
            await settled(lambda: _delivered(consumer))
        assert len(messages._waiting()) == 20
        assert [(await messages.next(5)).metadata.stream_sequence for _ in range(60)] == list(
            range(1, 61)
        )


# -- columns ------------------------------------------------------------------------------------


async def test_fetch_columns(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 5)
    consumer = await stream.ordered_consumer()
    first = await consumer.fetch_arrow(3, timeout=5)
    second = await consumer.fetch_arrow(3, timeout=0.1)
    assert first.schema == SCHEMA
    assert first["sequence"].to_pylist() + second["sequence"].to_pylist() == [1, 2, 3, 4, 5]
    assert set(first["stream"].to_pylist()) == {stream.name}


async def test_columns_over_losses(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 1000)
    consumer = await stream.ordered_consumer()
    warnings = Warnings()
    seen: list[int] = []
    batches = consumer.arrow_batches(
        rows=64, max_messages=100, heartbeat=0.2, expires=1, on_warning=warnings
    )
    async with batches:
        async for batch in batches:
            seen += batch["sequence"].to_pylist()
            if len(seen) % 5 == 1:
                await nc.force_reconnect()
            elif len(seen) % 5 == 3:
                await consumer.delete()
            elif len(seen) % 5 == 0:
                nc._encoder.unsubscribe(batches.sid)
            if len(seen) >= 1000:
                break
    assert seen == list(range(1, 1001))


async def halting_stream(nc: Client) -> Stream:
    """A stream whose messages come with a pause after the third if replayed as they were stored."""
    stream = await new_stream(nc, 3)
    await asyncio.sleep(0.5)
    await fill(nc, stream.name, 2)
    return stream


async def test_columns_when_the_reader_gives_up(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await (await halting_stream(nc)).ordered_consumer(replay_policy="original")
    async with consumer.arrow_batches(linger=60) as batches:
        waiting = asyncio.ensure_future(anext(batches))
        await eventually(lambda: batches._partial)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await anext(batches))["sequence"].to_pylist() == [1, 2, 3, 4, 5]


async def test_columns_go_on_where_they_stopped(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await (await halting_stream(nc)).ordered_consumer(replay_policy="original")
    async with consumer.arrow_batches(rows=1) as batches:
        assert (await anext(batches))["sequence"].to_pylist() == [1]
    async with consumer.arrow_batches(linger=60) as batches:
        waiting = asyncio.ensure_future(anext(batches))
        await eventually(lambda: batches._partial)
        waiting.cancel()  # with rows that nobody has seen
    async with consumer.arrow_batches(linger=60, stop_after=4) as batches:
        assert (await anext(batches))["sequence"].to_pylist() == [2, 3, 4, 5]
        with pytest.raises(StopAsyncIteration):
            await anext(batches)
