"""The life of ordered consumers: attempts that fail, one iteration at a time, and the end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from jetspark import (
    Client,
    ConsumerInfo,
    Stream,
)
from jetspark.errors import (
    ConsumerInUseError,
    JetSparkError,
    MissingHeartbeatError,
    OrderedConsumerResetError,
    StreamNotFoundError,
    SubscriptionClosedError,
)
from jetspark.jetstream.message import JetStreamMessage
from jetspark.server import NatsServer
from tests.support.clients import Connect, eventually
from tests.support.conformance import conformance
from tests.support.js import fill, sequences
from tests.support.ordered import Flavour, consumers, new_stream, take

pytestmark = pytest.mark.usefixtures("impatient")

# -- when it cannot be created again --------------------------------------------------------------


@conformance("ADR-17", "Reset", "pull: creating is tried again and again")
async def test_without_a_limit_it_is_tried_for_ever(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 3)
    flavour = Flavour(push=False)
    consumer = await flavour.make(stream)
    async with flavour.read(consumer) as messages:
        assert await take(messages, 3) == [1, 2, 3]
        await stream.delete()
        await flavour.warnings.wait(StreamNotFoundError, 3)
        await nc.jetstream().create_stream(stream.config.replace(first_seq=4))
        await fill(nc, stream.name, 2)
        assert await take(messages, 2) == [4, 5]


@conformance("ADR-17", "Reset", "after max_reset_attempts it ends with an error")
@pytest.mark.parametrize("attempts", [1, 3])
async def test_a_limit_of_attempts(
    nats_server: NatsServer, connect: Connect, attempts: int
) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 3)
    flavour = Flavour(push=False)
    consumer = await flavour.make(stream, max_reset_attempts=attempts)
    async with flavour.read(consumer) as messages:
        assert await take(messages, 1) == [1]
        await eventually(lambda: len(messages._waiting()) == 2)
        await stream.delete()
        assert await take(messages, 2) == [2, 3]  # what has arrived is not lost
        with pytest.raises(OrderedConsumerResetError, match=stream.name) as caught:
            await messages.next(10)
        assert isinstance(caught.value.__cause__, StreamNotFoundError)
    assert flavour.warnings.kinds.count(StreamNotFoundError) == attempts - 1


@conformance("ADR-17", "Reset", "push: an error that does not pass ends it")
async def test_push_ends_when_there_is_no_hope(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 2)
    flavour = Flavour(push=True)
    consumer = await flavour.make(stream)
    consumption = await consumer.consume(lambda _: None, on_warning=flavour.warnings)
    await stream.delete()
    with pytest.raises(OrderedConsumerResetError):
        await consumption.wait()
    assert flavour.warnings.kinds == [MissingHeartbeatError, OrderedConsumerResetError]


# -- one at a time ------------------------------------------------------------------------------


@conformance("ADR-17", "Pull", "one iteration at a time")
async def test_one_iteration_at_a_time(
    nats_server: NatsServer, connect: Connect, flavour: Flavour
) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 3)
    consumer = await flavour.make(stream)
    async with flavour.read(consumer) as messages:
        other = flavour.read(consumer)
        for attempt in (other.next(1), other.__aenter__(), consumer.consume(print)):
            with pytest.raises(ConsumerInUseError, match="stop that first"):
                await attempt
        await other.stop()  # does not disturb the first one
        assert await take(messages, 3) == [1, 2, 3]
    assert flavour.warnings == []


@pytest.mark.parametrize("taken", [0, 2, 5])
async def test_the_next_iteration_goes_on(
    nats_server: NatsServer, connect: Connect, flavour: Flavour, taken: int
) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 5)
    consumer = await flavour.make(stream)
    async with flavour.read(consumer) as messages:
        seen = await take(messages, taken)
        await eventually(lambda: len(list(messages._waiting())) == 5 - taken)
    await fill(nc, stream.name, 1)
    async with flavour.read(consumer) as messages:
        seen += await take(messages, 6 - taken)
    assert seen == [1, 2, 3, 4, 5, 6]


async def test_stop_after(nats_server: NatsServer, connect: Connect, flavour: Flavour) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 10)
    consumer = await flavour.make(stream)
    seen: list[int] = []
    for count in (1, 4, 5):
        async with flavour.read(consumer, stop_after=count) as messages:
            seen += sequences([message async for message in messages])
    assert seen == list(range(1, 11))


async def test_the_next_iteration_goes_on_after_a_drain(
    nats_server: NatsServer, connect: Connect, flavour: Flavour
) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 5)
    consumer = await flavour.make(stream)
    messages = flavour.read(consumer)
    seen = await take(messages, 2)
    await eventually(lambda: len(list(messages._waiting())) == 3)
    await messages.drain()
    seen += await take(messages, 1)
    async with flavour.read(consumer) as again:
        assert await take(again, 2) == [4, 5]
    assert seen == [1, 2, 3]
    assert sequences([message async for message in messages]) == [4, 5]


# -- ending -------------------------------------------------------------------------------------


async def broken(nc: Client, flavour: Flavour) -> tuple[Any, asyncio.Task[JetStreamMessage]]:
    """An iteration whose consumer cannot be created again for now, and somebody who waits."""
    stream = await new_stream(nc, 1)
    consumer = await flavour.make(stream)
    messages = flavour.read(consumer)
    assert await take(messages, 1) == [1]
    waiting = asyncio.ensure_future(messages.next())
    await asyncio.sleep(0)

    async def busy(name: str, start: int | None, deliver_subject: str = "") -> ConsumerInfo:
        raise JetSparkError("not now")

    consumer.series.create = busy  # type: ignore[method-assign]
    await nc.force_reconnect()
    await flavour.warnings.wait(JetSparkError)
    return messages, waiting


@pytest.mark.parametrize("end", ["stop", "drain"])
async def test_ending_while_it_is_created_again(
    nats_server: NatsServer, connect: Connect, flavour: Flavour, end: str
) -> None:
    nc = await connect(nats_server.url)
    messages, waiting = await broken(nc, flavour)
    await getattr(messages, end)()
    with pytest.raises(SubscriptionClosedError):
        await waiting
    assert [message async for message in messages] == []


@pytest.mark.parametrize("end", ["close", "drain"])
async def test_the_client_ends_while_it_is_created_again(
    nats_server: NatsServer, connect: Connect, flavour: Flavour, end: str
) -> None:
    nc = await connect(nats_server.url)
    _, waiting = await broken(nc, flavour)
    await getattr(nc, end)()
    with pytest.raises(SubscriptionClosedError):
        await waiting


@pytest.mark.parametrize("end", ["close", "drain"])
async def test_the_client_ends(
    nats_server: NatsServer, connect: Connect, flavour: Flavour, end: str
) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 1)
    consumer = await flavour.make(stream)
    messages = flavour.read(consumer)
    assert await take(messages, 1) == [1]
    waiting = asyncio.ensure_future(messages.next())
    await asyncio.sleep(0)
    await getattr(nc, end)()
    with pytest.raises(SubscriptionClosedError):
        await waiting
    await assert_none_left(await connect(nats_server.url), stream)


@pytest.mark.parametrize("end", ["close", "drain"])
async def test_the_client_ends_before_it_is_read(
    nats_server: NatsServer, connect: Connect, flavour: Flavour, end: str
) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 1)
    consumer = await flavour.make(stream)
    assert await consumers(stream) == [consumer.name]
    await getattr(nc, end)()
    await assert_none_left(await connect(nats_server.url), stream)


async def assert_none_left(nc: Client, stream: Stream) -> None:
    """Ask another client, as that of the stream has ended."""
    found = await nc.jetstream().get_stream(stream.name)

    async def none() -> bool:
        return await consumers(found) == []

    await eventually(none)


async def test_an_iteration_that_never_begins(
    nats_server: NatsServer, connect: Connect, flavour: Flavour
) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 1)
    consumer = await flavour.make(stream)
    for end in ("stop", "drain"):
        messages = flavour.read(consumer)
        await getattr(messages, end)()
        assert [message async for message in messages] == []
    assert len(await consumers(stream)) == 1
    async with flavour.read(consumer) as messages:
        assert await take(messages, 1) == [1]
