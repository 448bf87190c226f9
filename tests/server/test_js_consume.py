"""Callbacks with `consume`: one message after the other, whatever the callback does."""

from __future__ import annotations

import asyncio
import time
from itertools import chain

import pytest

from jetspark.errors import ConsumerDeletedError, InvalidOptionError, TimeoutError
from jetspark.jetstream.message import JetStreamMessage
from jetspark.server import NatsServer
from tests.support.clients import Connect, Events, eventually
from tests.support.conformance import conformance
from tests.support.js import (
    Warnings,
    all_acked,
    eventually_equal,
    fill,
    make_consumer,
    make_stream,
    sequences,
    served,
    waiting_requests,
)


class Seen(list[JetStreamMessage]):
    """A plain callback that collects."""

    def __call__(self, message: JetStreamMessage) -> None:
        self.append(message)


@conformance("ADR-37", "Consume", "hands message after message to a callback")
async def test_plain_callback(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 300))
    seen = Seen()
    async with await consumer.consume(seen, max_messages=50):
        await eventually(lambda: len(seen) == 300)
    assert sequences(seen) == list(range(1, 301))


async def test_async_callback_is_called_one_by_one(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 100))
    running, most, seen = 0, 0, []

    async def work(message: JetStreamMessage) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        await message.ack()
        seen.append(message)
        running -= 1

    consumption = await consumer.consume(work, stop_after=100)
    await consumption.wait()
    assert consumption.closed
    assert most == 1
    assert sequences(seen) == list(range(1, 101))
    await all_acked(consumer, 100)


async def test_slow_callback_raises_no_alarm(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await make_stream(nc, 3)
    consumer = await make_consumer(nc, stream)
    warnings, seen = Warnings(), []

    async def work(message: JetStreamMessage) -> None:
        seen.append(message)
        # Longer than the two heartbeats after which a silent server would be suspected.
        if len(seen) == 1:
            await asyncio.sleep(1.6)  # all is here: the server has nothing to send heartbeats for
        elif len(seen) == 3:
            time.sleep(1.2)  # noqa: ASYNC251  # nothing is here, and no heartbeat can be read

    consumption = await consumer.consume(
        work, max_messages=3, threshold_messages=1, expires=1, stop_after=4, on_warning=warnings
    )
    await eventually(lambda: len(seen) == 3)
    await fill(nc, stream, 1, start=3)
    await consumption.wait()
    assert len(seen) == 4
    assert warnings == []


@conformance("ADR-37", "Consume", "what a callback raises does not end it")
async def test_callback_that_raises(nats_server: NatsServer, connect: Connect) -> None:
    events = Events()
    nc = await connect(nats_server.url, on_event=events)
    consumer = await make_consumer(nc, await make_stream(nc, 4))
    seen = []

    async def work(message: JetStreamMessage) -> None:
        seen.append(message)
        if message.data == b"0":
            raise ValueError("bad message")
        if message.data == b"1":
            gone = asyncio.get_running_loop().create_future()
            gone.cancel()
            await gone
        await message.ack()

    consumption = await consumer.consume(work, stop_after=4)
    await consumption.wait()
    assert sequences(seen) == [1, 2, 3, 4]
    assert [type(error) for error in events.errors] == [ValueError, asyncio.CancelledError]
    assert [message.acked for message in seen] == [False, False, True, True]


@conformance("ADR-37", "Consume", "can be stopped, or drained of what has arrived")
async def test_stop_and_drain(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 100))
    gate = asyncio.Event()
    seen: list[JetStreamMessage] = []

    async def work(message: JetStreamMessage) -> None:
        await gate.wait()
        seen.append(message)

    async def pending() -> int:
        return (await consumer.info()).num_ack_pending

    stopped = await consumer.consume(work, max_messages=10)
    await eventually_equal(pending, 10)
    stopping = asyncio.create_task(stopped.stop())
    await served(consumer, 0)
    assert not stopping.done()  # the message in hand is finished first
    gate.set()
    await stopping
    assert stopped.closed
    assert sequences(seen) == [1]

    seen.clear()
    gate.clear()
    drained = await consumer.consume(work, max_messages=10)
    await eventually_equal(pending, 20)
    draining = asyncio.create_task(drained.drain())
    await served(consumer, 0)
    gate.set()
    await draining
    assert drained.closed
    assert sequences(seen) == list(range(11, 21))


async def test_drain_that_takes_too_long(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 1))
    gate = asyncio.Event()
    started = asyncio.Event()

    async def work(message: JetStreamMessage) -> None:
        started.set()
        await gate.wait()

    consumption = await consumer.consume(work)
    await started.wait()
    with pytest.raises(TimeoutError, match="'c'"):
        await consumption.drain(timeout=0.1)
    assert not consumption.closed
    gate.set()
    await consumption.wait()


@pytest.mark.parametrize("end", ["stop", "drain"])
async def test_ended_by_its_callback(nats_server: NatsServer, connect: Connect, end: str) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 20))
    seen = []

    async def work(message: JetStreamMessage) -> None:
        seen.append(message)
        if len(seen) == 5:
            await getattr(consumption, end)()

    consumption = await consumer.consume(work, max_messages=20)
    await consumption.wait()
    assert len(seen) == (5 if end == "stop" else 20)
    assert await waiting_requests(consumer) == 0


@conformance("ADR-37", "Consume", "ends with an error when the consumer is deleted")
async def test_deleted_consumer(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 3))
    warnings, seen = Warnings(), Seen()
    consumption = await consumer.consume(seen, on_warning=warnings)
    await eventually(lambda: len(seen) == 3)
    await consumer.delete()
    with pytest.raises(ConsumerDeletedError):
        await consumption.wait()
    assert consumption.closed
    assert warnings.kinds == [ConsumerDeletedError]
    await consumption.stop()


async def test_connection_drain_finishes_what_has_arrived(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc, other = await connect(nats_server.url), await connect(nats_server.url)
    stream = await make_stream(nc, 40)
    consumer = await make_consumer(nc, stream)
    seen = []

    async def work(message: JetStreamMessage) -> None:
        await asyncio.sleep(0.001)
        await message.ack()
        seen.append(message)

    consumption = await consumer.consume(work)
    await eventually(lambda: seen)
    await nc.drain()
    assert consumption.closed
    assert sequences(seen) == list(range(1, 41))
    same = await make_consumer(other, stream)
    await all_acked(same, 40)


async def test_connection_close_ends_it(nats_server: NatsServer, connect: Connect) -> None:
    events = Events()
    nc = await connect(nats_server.url, on_event=events)
    consumer = await make_consumer(nc, await make_stream(nc, 10))
    started = asyncio.Event()

    async def work(message: JetStreamMessage) -> None:
        started.set()
        await asyncio.Event().wait()

    consumption = await consumer.consume(work)
    await started.wait()
    await nc.close()
    assert consumption.closed
    await consumption.wait()
    assert events.errors == []


async def test_several_share_one_consumer(nats_server: NatsServer, connect: Connect) -> None:
    stream = ""
    seen: list[Seen] = [Seen() for _ in range(3)]
    clients = [await connect(nats_server.url) for _ in seen]
    stream = await make_stream(clients[0])
    consumer = await make_consumer(clients[0], stream)
    consumptions = []
    for nc, messages in zip(clients, seen, strict=True):
        same = await make_consumer(nc, stream)
        consumptions.append(await same.consume(messages, max_messages=20))
    await served(consumer, 3)
    await fill(clients[0], stream, 600)
    await eventually(lambda: sum(map(len, seen)) == 600)
    assert sorted(sequences(chain(*seen))) == list(range(1, 601))
    assert all(seen)
    for consumption in consumptions:
        await consumption.stop()


async def test_options_are_refused(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc))
    with pytest.raises(InvalidOptionError, match="max_bytes"):
        await consumer.consume(Seen(), max_bytes=0)
