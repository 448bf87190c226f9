"""The life of a consumer: created, found, changed, listed, paused, reset and deleted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from jetspark import Client, ConsumerConfig, JetStream, Message, Stream
from jetspark.errors import (
    ConsumerCreateError,
    ConsumerDoesNotExistError,
    ConsumerExistsError,
    ConsumerNotFoundError,
    ConsumerResetError,
    InvalidConsumerConfigError,
    InvalidConsumerNameError,
    InvalidNameError,
    InvalidOptionError,
    InvalidStreamNameError,
    StreamNotFoundError,
)
from jetspark.jetstream.consumer import PullConsumer, PushConsumer
from jetspark.server import NatsServer
from tests.support.clients import Connect
from tests.support.conformance import conformance
from tests.support.servers import StartServer
from tests.support.streams import if_supported, new_name, store

FUTURE = datetime.now(UTC).replace(microsecond=0) + timedelta(days=100)


@pytest_asyncio.fixture
async def stream(js: JetStream) -> Stream:
    name = new_name()
    return await js.create_stream(name=name, subjects=[f"{name}.>"], storage="memory")


@asynccontextmanager
async def requests(nc: Client, js: JetStream, stream: Stream) -> AsyncIterator[list[Message]]:
    """The requests that create consumers of a stream, as they are sent."""
    seen: list[Message] = []
    subject = f"$JS.API.CONSUMER.CREATE.{stream.name}.>"
    spy = await nc.subscribe(subject, callback=seen.append)
    yield seen
    await spy.drain()


# --- creating


@conformance("RUST", "Stream operations", "create_consumer: CONSUMER.CREATE.<stream>")
@conformance("ADR-37", "Stream", "a consumer is created")
async def test_a_consumer_is_created_from_a_config(
    nc: Client, js: JetStream, stream: Stream
) -> None:
    config = ConsumerConfig(durable_name="C", ack_wait=5, max_deliver=3)
    async with requests(nc, js, stream) as sent:
        consumer = await stream.create_consumer(config)
    assert isinstance(consumer, PullConsumer)
    assert (consumer.name, consumer.stream_name) == ("C", stream.name)
    assert consumer.config.ack_wait == timedelta(seconds=5)
    assert consumer.config.durable_name == consumer.config.name == "C"
    assert (await consumer.info()).num_pending == 0
    [request] = sent
    assert request.subject == f"$JS.API.CONSUMER.CREATE.{stream.name}.C"
    body = json.loads(request.data)
    assert body["action"] == "create"
    assert body["stream_name"] == stream.name
    assert body["config"]["ack_policy"] == "explicit"  # a server would take none for "none"


@conformance("ADR-37", "JetStreamContext", "a consumer is created by the name of its stream")
async def test_a_consumer_is_created_from_fields(js: JetStream, stream: Stream) -> None:
    consumer = await js.create_consumer(stream.name, name="E", inactive_threshold=60)
    assert (consumer.name, consumer.config.durable_name) == ("E", "")
    changed = await js.create_consumer(stream.name, consumer.config, name="F")
    assert changed.name == "F"
    push = await stream.create_consumer(deliver_subject=f"deliver.{stream.name}")
    assert isinstance(push, PushConsumer)


async def test_a_consumer_without_a_name_gets_one(
    nc: Client, js: JetStream, stream: Stream
) -> None:
    async with requests(nc, js, stream) as sent:
        consumers = [await stream.create_consumer() for _ in range(20)]
    names = {consumer.name for consumer in consumers}
    assert len(names) == 20
    assert {len(name) for name in names} == {8}
    assert {request.subject.rpartition(".")[2] for request in sent} == names
    assert consumers[0].config.inactive_threshold == timedelta(seconds=5)


async def test_creating_the_same_consumer_again_does_no_harm(stream: Stream) -> None:
    config = ConsumerConfig(durable_name="C", backoff=[1, 2], max_deliver=4)
    one, two = await stream.create_consumer(config), await stream.create_consumer(config)
    assert one.cached_info.created == two.cached_info.created
    assert one.config == two.config
    three = await stream.create_consumer(one.config)  # as the server tells it
    assert three.cached_info.created == one.cached_info.created


@pytest.mark.parametrize("fields", [{}, {"deliver_subject": "d"}, {"inactive_threshold": 7}])
async def test_creating_the_same_ephemeral_consumer_again_does_no_harm(
    stream: Stream, fields: dict[str, Any]
) -> None:
    config = ConsumerConfig(name="E", ack_policy="none", **fields)
    one, two = await stream.create_consumer(config), await stream.create_consumer(config)
    assert one.cached_info.created == two.cached_info.created
    assert one.config == two.config
    with pytest.raises(ConsumerExistsError):
        await stream.create_consumer(config, ack_policy="all")
    updated = await stream.create_or_update_consumer(config, description="new")
    assert updated.cached_info.created == one.cached_info.created
    assert updated.config.inactive_threshold == one.config.inactive_threshold


async def test_creating_another_consumer_of_that_name_is_refused(stream: Stream) -> None:
    consumer = await stream.create_consumer(durable_name="C")
    with pytest.raises(ConsumerExistsError, match=f"'C' of stream '{stream.name}'") as caught:
        await stream.create_consumer(consumer.config, max_deliver=5)
    assert caught.value.err_code == 10148


@pytest.mark.parametrize("token", ["a", "*", "a.*.b", ">"])
async def test_one_filter_is_part_of_the_subject(
    nc: Client, js: JetStream, stream: Stream, token: str
) -> None:
    filter_subject = f"{stream.name}.{token}"
    for fields in ({"filter_subject": filter_subject}, {"filter_subjects": [filter_subject]}):
        async with requests(nc, js, stream) as sent:
            consumer = await stream.create_consumer(durable_name="C", **fields)
        assert consumer.config.filter_subject == filter_subject
        assert consumer.config.filter_subjects == []
        [request] = sent
        assert request.subject == f"$JS.API.CONSUMER.CREATE.{stream.name}.C.{filter_subject}"


async def test_several_filters(nc: Client, js: JetStream, stream: Stream) -> None:
    filters = [f"{stream.name}.a", f"{stream.name}.b.*"]
    async with requests(nc, js, stream) as sent:
        consumer = await stream.create_consumer(durable_name="C", filter_subjects=filters)
    assert consumer.config.filter_subjects == filters
    assert sent[0].subject == f"$JS.API.CONSUMER.CREATE.{stream.name}.C"
    for token in ("a", "b.1", "c"):
        await store(nc, f"{stream.name}.{token}")
    assert (await consumer.info()).num_pending == 2


async def test_permissions_see_the_filter(start_server: StartServer, connect: Connect) -> None:
    allowed = ["$JS.API.CONSUMER.CREATE.S.*.mine.>"]
    bob = {
        "user": "bob",
        "password": "p",
        "permissions": {"publish": allowed, "subscribe": "_INBOX.>"},
    }
    server = start_server(users=[{"user": "ann", "password": "p"}, bob])
    ann = (await connect(server.url, user="ann", password="p")).jetstream()
    await ann.create_stream(name="S", subjects=["mine.>", "yours.>"])
    js = (await connect(server.url, user="bob", password="p")).jetstream(strict=True)
    consumer = await js.create_consumer("S", durable_name="C", filter_subject="mine.>")
    assert consumer.config.filter_subject == "mine.>"


@pytest.mark.parametrize("length", [1500, 2100, 3900, 5000])
@pytest.mark.parametrize("end", ["", ".*"])
async def test_a_filter_that_is_too_long_for_a_subject(
    stream: Stream, length: int, end: str
) -> None:
    long = f"{stream.name}.{'x' * length}{end}"
    consumer = await stream.create_consumer(filter_subject=long)
    assert consumer.config.filter_subject == long


FIELDS: list[tuple[tuple[int, int], dict[str, Any]]] = [
    ((2, 2), {"description": "who does what"}),
    ((2, 2), {"deliver_policy": "last"}),
    ((2, 2), {"deliver_policy": "new"}),
    ((2, 2), {"deliver_policy": "last_per_subject", "filter_subject": ">"}),
    ((2, 2), {"deliver_policy": "by_start_sequence", "opt_start_seq": 7}),
    ((2, 2), {"deliver_policy": "by_start_time", "opt_start_time": FUTURE}),
    ((2, 2), {"ack_policy": "none"}),
    ((2, 2), {"ack_policy": "all"}),
    ((2, 2), {"ack_wait": timedelta(seconds=0.25), "max_ack_pending": -1}),
    ((2, 2), {"max_deliver": 3, "backoff": [timedelta(seconds=1), timedelta(minutes=1)]}),
    ((2, 2), {"replay_policy": "original"}),
    ((2, 2), {"sample_freq": "50%"}),
    ((2, 2), {"max_waiting": 5, "max_batch": 6, "max_bytes": 7000}),
    ((2, 2), {"max_expires": timedelta(seconds=9)}),
    ((2, 2), {"headers_only": True}),
    ((2, 2), {"inactive_threshold": timedelta(minutes=3)}),
    ((2, 2), {"num_replicas": 1, "mem_storage": True}),
    ((2, 2), {"deliver_subject": "d", "deliver_group": "g", "rate_limit_bps": 100_000}),
    (
        (2, 2),
        {"deliver_subject": "d", "flow_control": True, "idle_heartbeat": timedelta(seconds=1)},
    ),
    ((2, 10), {"filter_subjects": ["a", "b"]}),
    ((2, 10), {"metadata": {"team": "a"}}),
    ((2, 11), {"pause_until": FUTURE}),
    ((2, 11), {"priority_groups": ["g"], "priority_policy": "overflow"}),
    (
        (2, 11),
        {
            "priority_timeout": timedelta(seconds=30),
            "priority_groups": ["g"],
            "priority_policy": "pinned_client",
        },
    ),
    ((2, 12), {"priority_policy": "prioritized", "priority_groups": ["g"]}),
    (
        (2, 14),
        {
            "ack_policy": "flow_control",
            "deliver_subject": "d",
            "flow_control": True,
            "idle_heartbeat": timedelta(seconds=1),
            "max_ack_pending": 10,
        },
    ),
]


@pytest.mark.parametrize(("since", "fields"), FIELDS, ids=lambda value: str(value)[:40])
async def test_the_server_takes_a_field_or_is_too_old_for_it(
    nats_server: NatsServer, stream: Stream, since: tuple[int, int], fields: dict[str, Any]
) -> None:
    call = stream.create_consumer(durable_name="C", **fields)
    consumer = await if_supported(nats_server, since, call, next(iter(fields)), "consumer 'C'")
    if consumer is None:
        return
    for config in (consumer.config, (await consumer.info()).config):
        for field, value in fields.items():
            if field == "metadata":
                assert value.items() <= config.metadata.items()
            else:
                assert getattr(config, field) == value
    # What came back can be sent again.
    updated = await stream.update_consumer(consumer.config, description="changed")
    assert updated.config.description == "changed"


BAD: list[tuple[dict[str, Any], str]] = [
    ({"name": "a.b"}, "name"),
    ({"durable_name": "a b"}, "durable_name"),
    ({"name": "a", "durable_name": "b"}, "durable_name"),
    ({"name": "a", "filter": "x"}, "did you mean filter"),
    ({"name": "a", "ack_policy": "maybe"}, "ack_policy"),
    ({"name": "a", "ack_wait": "5s"}, "ack_wait"),
    ({"name": "a", "opt_start_seq": 5}, "deliver_policy"),
    ({"name": "a", "filter_subjects": ["a.>", "a.b"]}, "overlap"),
    ({"name": "a", "filter_subject": "a", "filter_subjects": ["b", "c"]}, "not both"),
    ({"name": "a", "deliver_subject": "a.*"}, "deliver_subject"),
    ({"name": "a", "priority_groups": ["a b"], "priority_policy": "overflow"}, "group"),
]


@pytest.mark.parametrize(("fields", "named"), BAD)
async def test_bad_configs_are_refused_by_name_and_nothing_is_sent(
    nc: Client, stream: Stream, fields: dict[str, Any], named: str
) -> None:
    sent = nc.statistics.messages_out
    for call in (
        stream.create_consumer,
        stream.update_consumer,
        stream.create_or_update_consumer,
        stream.get_or_create_consumer,
    ):
        with pytest.raises(InvalidOptionError, match=named):
            await call(**fields)
    assert nc.statistics.messages_out == sent


async def test_bad_names_are_refused_and_nothing_is_sent(nc: Client, js: JetStream) -> None:
    sent = nc.statistics.messages_out
    for name in ("", "a.b", "a b", "*", "x" * 256):
        for call in (js.get_consumer, js.delete_consumer, js.reset_consumer):
            with pytest.raises(InvalidConsumerNameError):
                await call("S", name)
            with pytest.raises(InvalidStreamNameError):
                await call(name, "C")
    with pytest.raises(InvalidOptionError, match="name is not set"):
        await js.update_consumer("S")
    with pytest.raises(InvalidOptionError, match="give a ConsumerConfig"):
        await js.create_consumer("S", "C")  # type: ignore[call-overload]
    assert nc.statistics.messages_out == sent


# --- finding, changing, deleting


@conformance("RUST", "Stream operations", "get_consumer: CONSUMER.INFO.<stream>.<name>")
@conformance("ADR-37", "Stream", "a consumer is got, updated, created or updated, deleted")
async def test_get_update_and_delete(js: JetStream, stream: Stream) -> None:
    created = await stream.create_consumer(durable_name="C", max_deliver=2)
    found = await js.get_consumer(stream.name, "C")
    assert isinstance(found, PullConsumer)
    assert found.config == created.config
    updated = await stream.update_consumer(found.config, max_deliver=3)
    assert updated.config.max_deliver == 3
    again = await stream.create_or_update_consumer(durable_name="C", max_deliver=4)
    assert again.config.max_deliver == 4
    assert again.cached_info.created == created.cached_info.created
    await stream.delete_consumer("C")
    new = await stream.create_or_update_consumer(durable_name="C")
    assert new.cached_info.created != created.cached_info.created
    await js.delete_consumer(stream.name, "C")
    assert [name async for name in stream.consumer_names()] == []


async def test_consumers_that_are_missing(js: JetStream, stream: Stream) -> None:
    for call in (stream.get_consumer("C"), stream.delete_consumer("C")):
        with pytest.raises(ConsumerNotFoundError, match=f"'C' of stream '{stream.name}'"):
            await call
    with pytest.raises(ConsumerDoesNotExistError) as caught:
        await stream.update_consumer(name="C")
    assert caught.value.err_code == 10149


async def test_streams_that_are_missing(js: JetStream) -> None:
    name = new_name()
    for call in (
        js.create_consumer(name),
        js.update_consumer(name, name="C"),
        js.get_consumer(name, "C"),
        js.get_or_create_consumer(name, name="C"),
        js.delete_consumer(name, "C"),
        anext(aiter(js.consumers(name))),
        anext(aiter(js.consumer_names(name))),
        js.pause_consumer(name, "C", 1),
        js.reset_consumer(name, "C"),
    ):
        with pytest.raises(StreamNotFoundError, match=name):
            await call


async def test_an_update_that_is_not_allowed(stream: Stream) -> None:
    consumer = await stream.create_consumer(durable_name="C")
    with pytest.raises(ConsumerCreateError, match="ack policy"):
        await stream.update_consumer(consumer.config, ack_policy="none")


@conformance("RUST", "Stream operations", "get_or_create_consumer")
async def test_get_or_create(stream: Stream) -> None:
    created = await stream.get_or_create_consumer(durable_name="C", max_deliver=2)
    found = await stream.get_or_create_consumer(ConsumerConfig(durable_name="C", max_deliver=3))
    assert created.config.max_deliver == found.config.max_deliver == 2
    one, two = [await stream.get_or_create_consumer() for _ in range(2)]
    assert one.name != two.name


async def test_get_or_create_at_the_same_time(stream: Stream) -> None:
    calls = [stream.get_or_create_consumer(name="C", max_deliver=n) for n in range(1, 9)]
    consumers = await asyncio.gather(*calls)
    assert len({consumer.config.max_deliver for consumer in consumers}) == 1


async def test_consumers_are_listed_with_their_infos(js: JetStream, stream: Stream) -> None:
    await stream.create_consumer(durable_name="B", max_deliver=5)
    await stream.create_consumer(durable_name="A", deliver_subject="d")
    one, two = [consumer async for consumer in js.consumers(stream.name)]
    assert (one.name, two.name) == ("A", "B")
    assert isinstance(one, PushConsumer)
    assert (await two.info()).config.max_deliver == 5


# --- pause, reset, unpin


async def test_a_pause(nats_server: NatsServer, nc: Client, stream: Stream) -> None:
    consumer = await stream.create_consumer(durable_name="C")
    call = stream.pause_consumer("C", FUTURE)
    pause = await if_supported(nats_server, (2, 11), call, "2.11", "consumer 'C'")
    if pause is None:
        await if_supported(nats_server, (2, 11), stream.resume_consumer("C"), "2.11")
        return
    assert pause.paused
    assert pause.pause_until == FUTURE
    assert timedelta(days=99) < pause.pause_remaining < timedelta(days=101)
    info = await consumer.info()
    assert info.paused
    assert info.config.pause_until == FUTURE
    # An update does not end it.
    await stream.update_consumer(durable_name="C", max_deliver=3)
    assert (await consumer.info()).paused
    assert not (await stream.resume_consumer("C")).paused
    assert not (await consumer.info()).paused
    for until in (60, 60.5, timedelta(minutes=1)):
        pause = await stream.pause_consumer("C", until)
        assert timedelta(seconds=50) < pause.pause_remaining < timedelta(seconds=61)
    past = await stream.pause_consumer("C", datetime(2020, 1, 1, tzinfo=UTC))
    assert not past.paused


@pytest.mark.parametrize("until", [datetime(2030, 1, 1), "soon", float("nan"), None, 1e30])
async def test_bad_times_of_a_pause_are_refused(stream: Stream, until: Any) -> None:
    with pytest.raises(InvalidOptionError, match="until"):
        await stream.pause_consumer("C", until)


async def test_a_reset(nats_server: NatsServer, nc: Client, stream: Stream) -> None:
    for number in range(6):
        await store(nc, f"{stream.name}.{number}")
    consumer = await stream.create_consumer(durable_name="C")
    reset = await if_supported(nats_server, (2, 14), stream.reset_consumer("C", 4), "2.14")
    if reset is None:
        await if_supported(nats_server, (2, 14), stream.reset_consumer("C"), "2.14")
        return
    assert (reset.name, reset.num_pending, reset.delivered.stream_seq) == ("C", 3, 3)
    assert (await consumer.info()).num_pending == 3
    assert (await stream.reset_consumer("C")).num_pending == 3
    assert (await stream.reset_consumer("C", 1)).num_pending == 6
    await stream.create_consumer(durable_name="N", deliver_policy="new")
    with pytest.raises(ConsumerResetError, match="consumer 'N'"):
        await stream.reset_consumer("N", 2)
    with pytest.raises(InvalidOptionError, match="seq"):
        await stream.reset_consumer("C", 0)


async def test_what_is_asked_of_a_consumer_that_is_missing(stream: Stream) -> None:
    for call in (
        stream.pause_consumer("C", 60),
        stream.resume_consumer("C"),
        stream.unpin_consumer("C", "g"),
        stream.reset_consumer("C", 5),  # the server itself would say nothing
    ):
        with pytest.raises(ConsumerNotFoundError, match=f"'C' of stream '{stream.name}'"):
            await call


async def test_unpin(nats_server: NatsServer, nc: Client, js: JetStream, stream: Stream) -> None:
    config = ConsumerConfig(
        durable_name="C", priority_groups=["jobs"], priority_policy="pinned_client"
    )
    consumer = await if_supported(
        nats_server, (2, 11), stream.create_consumer(config), "priority_policy", "priority_groups"
    )
    if consumer is None:
        await if_supported(nats_server, (2, 11), stream.unpin_consumer("C", "jobs"), "2.11")
        return
    await store(nc, f"{stream.name}.a")
    pull = json.dumps({"batch": 1, "group": "jobs", "expires": 5_000_000_000}).encode()
    async with await nc.subscribe(inbox := nc.new_inbox()) as messages:
        await nc.publish(js.api.subjects.consumer_next(stream.name, "C"), pull, reply=inbox)
        message = await messages.next(5)
    [group] = (await consumer.info()).priority_groups
    assert group.pinned_client_id == message.headers["Nats-Pin-Id"]
    await stream.unpin_consumer("C", "jobs")
    [group] = (await consumer.info()).priority_groups
    assert group.pinned_client_id == ""
    with pytest.raises(InvalidConsumerConfigError):
        await stream.unpin_consumer("C", "other")
    with pytest.raises(InvalidNameError, match="group"):
        await stream.unpin_consumer("C", "no group")
