"""`js.pull_subscribe`: how it finds or creates the consumer, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import pytest_asyncio

from jetspark import Client, ConsumerConfig, ConsumerInfo, JetStream, PullSubscription, Stream
from jetspark.errors import (
    ConsumerMismatchError,
    ConsumerNotFoundError,
    InvalidOptionError,
    JetStreamNotEnabledError,
    NoMatchingStreamError,
    NoRespondersError,
    NotPullConsumerError,
    SubscriptionClosedError,
)
from jetspark.server import NatsServer
from tests.support.clients import Connect, eventually
from tests.support.conformance import conformance
from tests.support.js import eventually_equal, fill, make_stream, sequences
from tests.support.servers import StartServer


@pytest_asyncio.fixture
async def stream(nc: Client, js: JetStream) -> Stream:
    return await js.get_stream(await make_stream(nc))


@pytest_asyncio.fixture
async def sub(js: JetStream, stream: Stream) -> PullSubscription:
    return await js.pull_subscribe(f"{stream.name}.*", durable="d")


async def names(stream: Stream) -> list[str]:
    return [name async for name in stream.consumer_names()]


async def waiting(sub: PullSubscription) -> int:
    return (await sub.consumer.info()).num_waiting


# -- finding and creating -----------------------------------------------------------------------


@conformance("ADR-15", "Creating the JS Consumer", "a pull consumer for a pull subscription")
async def test_creating(js: JetStream, stream: Stream) -> None:
    sub = await js.pull_subscribe(
        f"{stream.name}.1", durable="d", config=ConsumerConfig(ack_wait=7), max_deliver=3
    )
    config = (await sub.consumer.info()).config
    assert (config.deliver_subject, config.durable_name) == ("", "d")
    assert config.filter_subject == f"{stream.name}.1"
    assert (config.ack_wait.total_seconds(), config.max_deliver) == (7, 3)
    assert str(config.ack_policy) == "explicit"
    assert "'d'" in repr(sub)
    await sub.unsubscribe()
    assert await names(stream) == []


@conformance("ADR-13", "Pull based consumers", "may be ephemeral on today's servers")
async def test_without_a_name(nc: Client, js: JetStream, stream: Stream) -> None:
    async with await js.pull_subscribe(f"{stream.name}.*") as sub:
        await fill(nc, stream.name, 1)
        assert len(await sub.fetch()) == 1
        assert (await sub.consumer.info()).config.durable_name == ""
    assert await names(stream) == []


@pytest.mark.parametrize("options", [{"durable": "c"}, {"consumer": "c"}])
async def test_a_consumer_that_exists(
    nc: Client, js: JetStream, stream: Stream, options: dict[str, Any]
) -> None:
    await js.create_consumer(stream.name, durable_name="c")
    await fill(nc, stream.name, 1)
    async with await js.pull_subscribe(f"{stream.name}.*", **options) as sub:
        assert len(await sub.fetch(1)) == 1
    assert await names(stream) == ["c"]


async def test_what_does_not_suit(nc: Client, js: JetStream, stream: Stream) -> None:
    await js.create_consumer(stream.name, durable_name="p", deliver_subject=nc.new_inbox())
    await js.create_consumer(stream.name, durable_name="c", filter_subject=f"{stream.name}.1")
    subject = f"{stream.name}.2"
    with pytest.raises(NotPullConsumerError):
        await js.pull_subscribe(subject, durable="p")
    with pytest.raises(ConsumerMismatchError):
        await js.pull_subscribe(subject, consumer="c")
    with pytest.raises(ConsumerMismatchError, match="ack_wait"):
        await js.pull_subscribe(f"{stream.name}.1", durable="c", ack_wait=5)
    with pytest.raises(ConsumerNotFoundError):
        await js.pull_subscribe(subject, consumer="x")
    with pytest.raises(NoMatchingStreamError):
        await js.pull_subscribe("nobody.has.this", durable="d")
    with pytest.raises(InvalidOptionError, match="ack_policy"):
        await js.pull_subscribe(subject, ack_policy="none")


@conformance("ADR-15", "Consumer name", "a pull subscription goes on if the lookup is not possible")
async def test_a_lookup_that_nobody_answers(nc: Client, stream: Stream) -> None:
    js = nc.jetstream(prefix="nobody.here", timeout=0.2)
    sub = await js.pull_subscribe(f"{stream.name}.*", stream=stream.name, consumer="c")
    with pytest.raises(NoRespondersError):
        await sub.fetch(1)
    with pytest.raises(NoRespondersError):
        await sub.fetch(5)
    with pytest.raises(JetStreamNotEnabledError):  # who wants it created needs an answer
        await js.pull_subscribe(f"{stream.name}.*", stream=stream.name, durable="c")
    with pytest.raises(JetStreamNotEnabledError):
        await js.subscribe(f"{stream.name}.*", stream=stream.name, consumer="c")


@conformance("ADR-15", "Consumer name", "... or not permitted")
async def test_a_lookup_that_is_not_permitted(start_server: StartServer, connect: Connect) -> None:
    allowed = ["$JS.API.CONSUMER.MSG.NEXT.>", "$JS.ACK.>"]
    puller = {
        "user": "puller",
        "password": "p",
        "permissions": {"publish": allowed, "subscribe": ["_INBOX.>"]},
    }
    server = start_server(users=[{"user": "admin", "password": "a"}, puller])
    admin = await connect(server.url, user="admin", password="a")
    stream = await make_stream(admin, 1)
    await admin.jetstream().create_consumer(stream, durable_name="c")
    nc = await connect(server.url, user="puller", password="p")
    sub = await nc.jetstream().pull_subscribe(stream=stream, consumer="c")
    (message,) = await sub.fetch(5)
    await message.ack()


@conformance("ADR-15", "Creating the JS Consumer", "pull: already exists, so it is looked up")
async def test_somebody_else_creates_it(js: JetStream, stream: Stream) -> None:
    await js.create_consumer(stream.name, durable_name="c", ack_wait=5)
    look = js._consumer_info
    looked: list[str] = []

    async def miss(stream: str, name: str) -> ConsumerInfo:
        looked.append(name)
        if len(looked) == 1:
            raise ConsumerNotFoundError("not yet")
        return await look(stream, name)

    js._consumer_info = miss  # type: ignore[method-assign]
    sub = await js.pull_subscribe(f"{stream.name}.*", durable="c")
    assert sub.consumer.config.ack_wait.total_seconds() == 5
    await sub.unsubscribe()
    assert await names(stream) == ["c"]


# -- ending -------------------------------------------------------------------------------------


@conformance("ADR-15", "Unsubscribe", "pull: the consumer is deleted if the library created it")
@pytest.mark.parametrize("end", ["unsubscribe", "drain"])
async def test_ending(nc: Client, stream: Stream, sub: PullSubscription, end: str) -> None:
    ending: Callable[[], Any] = getattr(sub, end)
    await ending()
    assert sub.closed
    assert await names(stream) == []
    with pytest.raises(SubscriptionClosedError):
        await sub.fetch(1)
    assert sub.sid not in nc._routes
    assert "ended" in repr(sub)


@pytest.mark.parametrize("batch", [1, 4])
async def test_unsubscribe_ends_a_fetch(sub: PullSubscription, batch: int) -> None:
    fetching = asyncio.ensure_future(sub.fetch(batch, timeout=10))
    await eventually_equal(lambda: waiting(sub), 1)
    await sub.unsubscribe()
    with pytest.raises(SubscriptionClosedError):
        await fetching


@conformance("ADR-15", "Drain", "pull: a fetch that waits is finished first")
async def test_drain_waits_for_a_fetch(nc: Client, stream: Stream, sub: PullSubscription) -> None:
    fetching = asyncio.ensure_future(sub.fetch(4, timeout=1))
    await eventually_equal(lambda: waiting(sub), 1)
    draining = asyncio.ensure_future(sub.drain())
    await fill(nc, stream.name, 2)
    assert sequences(await fetching) == [1, 2]
    await draining
    assert await names(stream) == []


@pytest.mark.parametrize("end", ["drain", "close"])
async def test_the_end_of_the_connection(
    nats_server: NatsServer, connect: Connect, js: JetStream, stream: Stream, end: str
) -> None:
    nc = await connect(nats_server.url)
    sub = await nc.jetstream().pull_subscribe(f"{stream.name}.*", durable="d")
    fetching = asyncio.ensure_future(sub.fetch(3, timeout=10))
    await eventually_equal(lambda: waiting(sub), 1)
    ending: Callable[[], Any] = getattr(nc, end)
    await ending()
    with pytest.raises(SubscriptionClosedError):
        await fetching
    # Draining deletes what was created; closing leaves it, and a durable one stays.
    assert await names(stream) == ([] if end == "drain" else ["d"])


async def test_leftovers_are_given_back(nc: Client, js: JetStream, stream: Stream) -> None:
    await js.create_consumer(stream.name, durable_name="c")
    sub = await js.pull_subscribe(f"{stream.name}.*", consumer="c")
    await fill(nc, stream.name, 1)
    fetching = asyncio.ensure_future(sub.next(timeout=5))
    await asyncio.sleep(0)
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    await eventually(lambda: sub._leftovers)
    await sub.unsubscribe()
    async with await js.pull_subscribe(f"{stream.name}.*", consumer="c") as other:
        assert (await other.next(timeout=5)).metadata.num_delivered == 2
