"""`js.subscribe`: how it finds or creates the consumer, and what it refuses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from jetspark import (
    Client,
    ConsumerConfig,
    ConsumerInfo,
    JetStream,
    OrderedPushConsumer,
    PushConsumer,
    PushSubscription,
    Stream,
)
from jetspark.errors import (
    ConsumerAlreadyActiveError,
    ConsumerMismatchError,
    ConsumerNotFoundError,
    InvalidConsumerConfigError,
    InvalidOptionError,
    NoMatchingStreamError,
    NotPushConsumerError,
    StreamNotFoundError,
    TimeoutError,
)
from jetspark.jetstream.consumer import PullConsumer
from jetspark.jetstream.message import JetStreamMessage
from jetspark.server import NatsServer
from tests.support.clients import Connect, Events, eventually
from tests.support.conformance import conformance
from tests.support.js import eventually_equal, fill, make_stream, sequences


@pytest_asyncio.fixture
async def stream(nc: Client, js: JetStream) -> Stream:
    return await js.get_stream(await make_stream(nc, 8))


async def take(subscription: PushSubscription, count: int) -> list[int]:
    return sequences([await subscription.next(timeout=5) for _ in range(count)])


async def names(stream: Stream) -> list[str]:
    return [name async for name in stream.consumer_names()]


async def ack_pending(subscription: PushSubscription) -> int:
    return (await subscription.consumer.info()).num_ack_pending


# -- creating -----------------------------------------------------------------------------------


@conformance("ADR-15", "Stream name", "found by the subject")
@conformance("ADR-15", "Creating the JS Consumer", "an ephemeral one without a name")
@conformance("ADR-15", "Creating the JS Consumer", "the deliver subject is an inbox")
async def test_a_subject_is_enough(js: JetStream, stream: Stream) -> None:
    subscription = await js.subscribe(f"{stream.name}.3")
    assert await take(subscription, 1) == [4]
    info = await subscription.consumer.info()
    assert [info.name] == await names(stream)
    assert info.config.filter_subject == f"{stream.name}.3"
    assert info.config.deliver_subject == subscription.subject
    assert subscription.subject.startswith("_INBOX.")
    assert (str(info.config.ack_policy), info.config.durable_name) == ("explicit", "")
    assert isinstance(subscription.consumer, PushConsumer)
    assert subscription.consumer.name in repr(subscription)
    await subscription.unsubscribe()


@conformance("ADR-15", "NATS subscription", "made before the consumer is created")
async def test_it_listens_before_the_consumer_is_created(js: JetStream, stream: Stream) -> None:
    async with await js.subscribe(f"{stream.name}.*") as subscription:
        # This is the answer to the creation: somebody listened already.
        assert subscription.consumer.cached_info.push_bound
        assert await take(subscription, 8) == list(range(1, 9))


@conformance("ADR-15", "Creating the JS Consumer", "a durable one with a name")
async def test_a_durable(js: JetStream, stream: Stream) -> None:
    subscription = await js.subscribe(f"{stream.name}.*", durable="d")
    config = (await subscription.consumer.info()).config
    assert (config.durable_name, config.name) == ("d", "d")
    await subscription.unsubscribe()


@conformance("ADR-15", "Creating the JS Consumer", "asked for with CONSUMER.CREATE and its name")
async def test_how_the_consumer_is_created(
    nats_server: NatsServer, connect: Connect, js: JetStream, stream: Stream
) -> None:
    spy = await connect(nats_server.url)
    requests = await spy.subscribe("$JS.API.CONSUMER.>")
    await spy.flush()
    subject = f"{stream.name}.1"
    async with await js.subscribe(subject, durable="d"):
        looked = await requests.next(5)
        created = await requests.next(5)
    deleted = await requests.next(5)
    # Both forms of the document are from before 2.9, when only durable consumers had names.
    assert [request.subject for request in (looked, created, deleted)] == [
        f"$JS.API.CONSUMER.INFO.{stream.name}.d",
        f"$JS.API.CONSUMER.CREATE.{stream.name}.d.{subject}",
        f"$JS.API.CONSUMER.DELETE.{stream.name}.d",
    ]
    body = json.loads(created.data)
    assert (body["action"], body["config"]["durable_name"]) == ("create", "d")


@conformance("ADR-15", "Configuration", "a configuration, and a deliver subject of the user's")
async def test_a_configuration(nc: Client, js: JetStream, stream: Stream) -> None:
    inbox = nc.new_inbox()
    config = ConsumerConfig(ack_wait=7, deliver_subject=inbox)
    async with await js.subscribe(
        f"{stream.name}.*", config=config, max_ack_pending=3, description="mine"
    ) as subscription:
        assert subscription.subject == inbox
        found = (await subscription.consumer.info()).config
        assert (found.ack_wait.total_seconds(), found.max_ack_pending) == (7, 3)
        assert (found.deliver_subject, found.description) == (inbox, "mine")


async def test_all_of_a_stream(js: JetStream, stream: Stream) -> None:
    async with await js.subscribe(stream=stream.name) as subscription:
        assert await take(subscription, 8) == list(range(1, 9))
        assert (await subscription.consumer.info()).config.filter_subject == ""


async def test_several_filters(js: JetStream, stream: Stream) -> None:
    filters = [f"{stream.name}.{number}" for number in (1, 2)]
    async with await js.subscribe(stream=stream.name, filter_subjects=filters) as subscription:
        assert await take(subscription, 2) == [2, 3]


async def test_what_the_server_refuses(nc: Client, js: JetStream, stream: Stream) -> None:
    routes = len(nc._routes)
    with pytest.raises(InvalidConsumerConfigError):
        await js.subscribe(f"{stream.name}.*", deliver_subject=f"{stream.name}.loop")
    with pytest.raises(StreamNotFoundError):
        await js.subscribe("a", stream="NONE")
    with pytest.raises(InvalidOptionError, match="flow_control needs idle_heartbeat"):
        await js.subscribe(f"{stream.name}.*", flow_control=True)
    assert len(nc._routes) == routes  # nobody listens
    assert await names(stream) == []


@conformance("ADR-15", "Stream name", "no stream, or several: an error")
async def test_no_stream_has_the_subject(js: JetStream, stream: Stream) -> None:
    with pytest.raises(NoMatchingStreamError, match="no stream"):
        await js.subscribe("nobody.has.this")
    await js.create_stream(name=f"{stream.name}2", subjects=[f"{stream.name}2.a"], storage="memory")
    with pytest.raises(NoMatchingStreamError, match=stream.name):
        await js.subscribe("*.a")


@conformance("ADR-15", "Stream name", "asked for with STREAM.NAMES and the subject")
async def test_how_the_stream_is_found(
    nats_server: NatsServer, connect: Connect, js: JetStream, stream: Stream
) -> None:
    spy = await connect(nats_server.url)
    requests = await spy.subscribe("$JS.API.STREAM.NAMES")
    await spy.flush()
    async with await js.subscribe(f"{stream.name}.1"):
        asked = await requests.next(5)
    assert asked.data == b'{"subject":"%b.1","offset":0}' % stream.name.encode()
    async with await js.subscribe(f"{stream.name}.1", stream=stream.name):
        with pytest.raises(TimeoutError):
            await requests.next(0.05)


# -- consumers that exist -----------------------------------------------------------------------


async def existing(js: JetStream, stream: Stream, **config: Any) -> PullConsumer | PushConsumer:
    config = {"durable_name": "c", "deliver_subject": js.client.new_inbox(), **config}
    consumer: PullConsumer | PushConsumer = await js.create_consumer(stream.name, **config)
    return consumer


BY_NAME: tuple[dict[str, Any], ...] = ({"consumer": "c"}, {"durable": "c"})


@conformance("ADR-15", "Consumer name", "the consumer exists and is looked up")
@conformance("ADR-15", "NATS subscription", "to the deliver subject of the consumer")
@pytest.mark.parametrize(
    "options", [{"consumer": "c"}, {"durable": "c"}, {"durable": "c", "bind": True}]
)
async def test_a_consumer_that_exists(
    js: JetStream, stream: Stream, options: dict[str, Any]
) -> None:
    consumer = await existing(js, stream, ack_wait=9)
    async with await js.subscribe(f"{stream.name}.*", **options) as subscription:
        assert subscription.subject == consumer.config.deliver_subject
        assert subscription.consumer.config.ack_wait.total_seconds() == 9
        assert await take(subscription, 2) == [1, 2]
    assert await names(stream) == ["c"]  # it is not ours


async def test_binding_needs_no_subject(js: JetStream, stream: Stream) -> None:
    await existing(js, stream, filter_subject=f"{stream.name}.1")
    async with await js.subscribe(stream=stream.name, consumer="c") as subscription:
        assert await take(subscription, 1) == [2]


@conformance("ADR-15", "Consumer name", "a lookup that fails is an error")
@pytest.mark.parametrize("options", [{"consumer": "c"}, {"durable": "c", "bind": True}])
async def test_a_consumer_that_does_not_exist(
    js: JetStream, stream: Stream, options: dict[str, Any]
) -> None:
    with pytest.raises(ConsumerNotFoundError):
        await js.subscribe(f"{stream.name}.*", **options)
    assert await names(stream) == []


@conformance("ADR-15", "Other checks", "checked against what the server says")
@pytest.mark.parametrize(
    ("config", "options", "error"),
    [
        ({"filter_subject": "%.1"}, {}, ConsumerMismatchError),
        ({"deliver_subject": ""}, {}, NotPushConsumerError),
        ({"deliver_group": "g"}, {}, ConsumerMismatchError),
        ({"deliver_group": "g"}, {"queue": "h"}, ConsumerMismatchError),
        ({}, {"queue": "g"}, ConsumerMismatchError),
        ({"deliver_group": "g", "idle_heartbeat": 1}, {"queue": "g"}, ConsumerMismatchError),
        ({"ack_wait": 5}, {"ack_wait": 6}, ConsumerMismatchError),
        ({"ack_policy": "none"}, {"ack_policy": "explicit"}, ConsumerMismatchError),
        ({"metadata": {"a": "b"}}, {"metadata": {"a": "c"}}, ConsumerMismatchError),
    ],
)
async def test_a_consumer_that_does_not_suit(
    nc: Client,
    js: JetStream,
    stream: Stream,
    config: dict[str, Any],
    options: dict[str, Any],
    error: type[Exception],
) -> None:
    config = {
        name: value.replace("%", stream.name) if isinstance(value, str) else value
        for name, value in config.items()
    }
    await existing(js, stream, **config)
    routes = len(nc._routes)
    for how in BY_NAME:
        with pytest.raises(error, match="'c'"):
            await js.subscribe(f"{stream.name}.2", **how, **options)
    assert len(nc._routes) == routes


async def test_a_configuration_that_agrees(js: JetStream, stream: Stream) -> None:
    config: dict[str, Any] = {
        "ack_wait": 5,
        "max_deliver": 4,
        "metadata": {"a": "b"},
        "backoff": [1, 2],
        "sample_freq": "50%",
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": 3,
    }
    await existing(js, stream, **config)
    config["ack_wait"] = 1  # that is the first step of the backoff
    async with await js.subscribe(f"{stream.name}.*", durable="c", **config) as subscription:
        assert await take(subscription, 1) == [3]


@conformance("ADR-15", "Push bound", "the second subscription is told")
async def test_bound_already(js: JetStream, stream: Stream) -> None:
    async with await js.subscribe(f"{stream.name}.*", durable="c"):
        for how in BY_NAME:
            with pytest.raises(ConsumerAlreadyActiveError):
                await js.subscribe(f"{stream.name}.*", **how)
        assert await names(stream) == ["c"]


@conformance("ADR-15", "Queue name", "two calls with a queue share the messages")
async def test_members_of_a_queue(nc: Client, js: JetStream, stream: Stream) -> None:
    seen: list[list[int]] = [[], []]

    def collect(index: int) -> Callable[[JetStreamMessage], None]:
        return lambda message: seen[index].append(message.metadata.stream_sequence)

    first = await js.subscribe(f"{stream.name}.*", queue="q", callback=collect(0))
    second = await js.subscribe(f"{stream.name}.*", queue="q", callback=collect(1))
    assert await names(stream) == ["q"]
    await fill(nc, stream.name, 100)
    await eventually(lambda: len(seen[0]) + len(seen[1]) == 108)
    assert sorted(seen[0] + seen[1]) == list(range(1, 109))
    assert min(map(len, seen)) > 0
    # Known, and as the document says: who created it deletes it, for all.
    await second.unsubscribe()
    assert await names(stream) == ["q"]
    await first.unsubscribe()
    assert await names(stream) == []


async def test_a_queue_that_is_bound(js: JetStream, stream: Stream) -> None:
    await existing(js, stream, deliver_group="q")
    async with (
        await js.subscribe(f"{stream.name}.*", queue="q", consumer="c") as first,
        await js.subscribe(f"{stream.name}.*", queue="q", durable="c"),
    ):
        assert first.queue == "q"


# -- a race -------------------------------------------------------------------------------------


def miss_once(js: JetStream) -> None:
    """Have the first lookup find nothing, as if another process were a moment faster."""
    look: Callable[[str, str], Awaitable[ConsumerInfo]] = js._consumer_info
    looked: list[str] = []

    async def miss(stream: str, name: str) -> ConsumerInfo:
        looked.append(name)
        if len(looked) == 1:
            raise ConsumerNotFoundError("not yet")
        return await look(stream, name)

    js._consumer_info = miss  # type: ignore[method-assign]


@conformance("ADR-15", "Creating the JS Consumer", "already exists: looked up, checked and used")
@conformance("ADR-15", "Creating the JS Consumer", "already exists: the subscription is replaced")
async def test_somebody_else_creates_it(nc: Client, js: JetStream, stream: Stream) -> None:
    consumer = await existing(js, stream)
    miss_once(js)
    routes = len(nc._routes)
    subscription = await js.subscribe(f"{stream.name}.*", durable="c")
    assert subscription.subject == consumer.config.deliver_subject
    assert len(nc._routes) == routes + 1  # the first one is gone
    assert await take(subscription, 1) == [1]
    await subscription.unsubscribe()
    assert await names(stream) == ["c"]  # it is not ours


@conformance("ADR-15", "Creating the JS Consumer", "already exists: the same checks, then an error")
async def test_somebody_else_creates_another_one(nc: Client, js: JetStream, stream: Stream) -> None:
    holder = nc.jetstream()
    async with await holder.subscribe(f"{stream.name}.*", durable="c"):
        miss_once(js)
        routes = len(nc._routes)
        called: list[JetStreamMessage] = []
        with pytest.raises(ConsumerAlreadyActiveError):
            await js.subscribe(f"{stream.name}.*", durable="c", callback=called.append)
        assert len(nc._routes) == routes


async def test_somebody_else_joins_the_queue(js: JetStream, nc: Client, stream: Stream) -> None:
    holder = nc.jetstream()
    async with await holder.subscribe(f"{stream.name}.*", queue="q") as first:
        miss_once(js)
        async with await js.subscribe(f"{stream.name}.*", queue="q") as second:
            assert second.subject == first.subject
    assert await names(stream) == []


# -- callbacks ----------------------------------------------------------------------------------


@conformance("ADR-15", "Ack Handling", "acknowledged after the callback")
@pytest.mark.parametrize("asynchronous", [False, True])
async def test_acknowledged_after_the_callback(
    js: JetStream, stream: Stream, asynchronous: bool
) -> None:
    seen: list[JetStreamMessage] = []

    async def callback(message: JetStreamMessage) -> None:
        await asyncio.sleep(0)
        assert not message.acked
        seen.append(message)

    how: Any = callback if asynchronous else seen.append
    async with await js.subscribe(f"{stream.name}.*", callback=how) as subscription:
        await eventually(lambda: len(seen) == 8)
        await eventually(lambda: all(message.acked for message in seen))
        await eventually_equal(lambda: ack_pending(subscription), 0)


@conformance("ADR-15", "Ack Handling", "not if the callback failed")
async def test_not_acknowledged_if_it_failed(
    nats_server: NatsServer, connect: Connect, stream: Stream
) -> None:
    events = Events()
    nc = await connect(nats_server.url, on_event=events)

    def callback(message: JetStreamMessage) -> None:
        if message.data in (b"2", b"5"):
            raise RuntimeError(message.data.decode())

    js = nc.jetstream()
    async with await js.subscribe(f"{stream.name}.*", callback=callback) as subscription:
        await eventually(lambda: len(events.errors) == 2)
        await eventually_equal(lambda: ack_pending(subscription), 2)
    assert [str(error) for error in events.errors] == ["2", "5"]


@conformance("ADR-15", "Ack Handling", "with manual_ack the callback decides")
async def test_manual_ack(js: JetStream, stream: Stream) -> None:
    seen: list[JetStreamMessage] = []

    async def callback(message: JetStreamMessage) -> None:
        seen.append(message)
        if len(seen) == 1:
            await message.ack()

    async with await js.subscribe(
        f"{stream.name}.*", callback=callback, manual_ack=True
    ) as subscription:
        await eventually(lambda: len(seen) == 8)
        await eventually_equal(lambda: ack_pending(subscription), 7)


@conformance("ADR-15", "Ack Handling", "once acknowledged in the callback, not again after it")
async def test_what_the_callback_says_is_kept(js: JetStream, stream: Stream) -> None:
    seen: list[int] = []

    async def callback(message: JetStreamMessage) -> None:
        seen.append(message.metadata.num_delivered)
        if len(seen) == 1:
            await message.nak()

    async with await js.subscribe(f"{stream.name}.0", callback=callback) as subscription:
        await eventually(lambda: len(seen) == 3)
        await eventually_equal(lambda: ack_pending(subscription), 0)
    assert sorted(seen) == [1, 1, 2]


@conformance("ADR-15", "Ack Handling", "ack policy none: nothing is sent")
async def test_without_acks(js: JetStream, stream: Stream) -> None:
    seen: list[JetStreamMessage] = []
    async with await js.subscribe(f"{stream.name}.*", callback=seen.append, ack_policy="none"):
        await eventually(lambda: len(seen) == 8)
        assert not any(message.acked for message in seen)


async def test_iterating_acknowledges_nothing(js: JetStream, stream: Stream) -> None:
    async with await js.subscribe(f"{stream.name}.*") as subscription:
        await take(subscription, 8)
        assert await ack_pending(subscription) == 8


# -- ordered ------------------------------------------------------------------------------------


@conformance("ADR-17", "Push", "subscribe with ordered")
async def test_ordered(nc: Client, js: JetStream, stream: Stream) -> None:
    subscription = await js.subscribe(f"{stream.name}.*", ordered=True, idle_heartbeat=0.2)
    assert isinstance(subscription.consumer, OrderedPushConsumer)
    assert await take(subscription, 5) == [1, 2, 3, 4, 5]
    await subscription.consumer.delete()
    await fill(nc, stream.name, 2)
    assert await take(subscription, 5) == [6, 7, 8, 9, 10]
    await eventually(lambda: subscription.consumer.name.endswith("_2"))
    config = (await subscription.consumer.info()).config
    assert config.filter_subject == f"{stream.name}.*"
    await subscription.unsubscribe()
    await eventually_equal(lambda: _count(stream), 0)


async def _count(stream: Stream) -> int:
    return len(await names(stream))


async def test_ordered_with_a_callback(nc: Client, js: JetStream, stream: Stream) -> None:
    seen: list[JetStreamMessage] = []
    async with await js.subscribe(
        f"{stream.name}.*", ordered=True, callback=seen.append, opt_start_seq=3
    ):
        await eventually(lambda: len(seen) == 6)
        await nc.force_reconnect()
        await fill(nc, stream.name, 1)
        await eventually(lambda: len(seen) == 7)
    assert sequences(seen) == list(range(3, 10))


async def test_ordered_and_its_limits(js: JetStream, stream: Stream) -> None:
    wrong: list[dict[str, Any]] = [{"durable": "d"}, {"queue": "q"}, {"ack_policy": "explicit"}]
    for options in wrong:
        with pytest.raises(InvalidOptionError):
            await js.subscribe(f"{stream.name}.*", ordered=True, **options)
    assert await names(stream) == []
