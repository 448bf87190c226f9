"""Ordered consumers of both flavours: every message once and in order, whatever gets lost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jetspark import (
    DeliverPolicy,
)
from jetspark.errors import (
    ConsumerDeletedError,
    ConsumerNotFoundError,
    JetStreamError,
    MissingHeartbeatError,
    NoStreamResponseError,
    StreamNotFoundError,
    TimeoutError,
)
from jetspark.jetstream.message import JetStreamMessage
from jetspark.server import NatsServer
from tests.support.clients import Connect, eventually
from tests.support.conformance import conformance
from tests.support.forge import deaf, forger
from tests.support.js import eventually_equal, fill, sequences
from tests.support.ordered import Flavour, consumers, new_stream, number_of_consumers, take
from tests.support.streams import if_supported

pytestmark = pytest.mark.usefixtures("impatient")

# -- reading ------------------------------------------------------------------------------------


@conformance("RUST", "Consumer Types", "OrderedConsumer")
async def test_all_messages_in_order(
    nats_server: NatsServer, connect: Connect, flavour: Flavour
) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 2000)
    consumer = await flavour.make(stream)
    seen = []
    async for message in flavour.read(consumer):
        assert isinstance(message, JetStreamMessage)
        await message.ack()  # means nothing here
        seen.append(message.metadata.stream_sequence)
        if len(seen) == 2000:
            break
    assert seen == list(range(1, 2001))
    assert flavour.warnings == []


@conformance("ADR-17", "Pull", "the consumer on the server")
@conformance("ADR-17", "Push", "the consumer on the server")
async def test_the_consumer_on_the_server(
    nats_server: NatsServer, connect: Connect, flavour: Flavour
) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 3)
    consumer = await flavour.make(stream, name_prefix="mine", metadata={"k": "v"})
    assert consumer.name == "mine_1"
    assert await consumers(stream) == ["mine_1"]
    config = (await consumer.info()).config
    assert (str(config.ack_policy), config.mem_storage, config.num_replicas) == ("none", True, 1)
    assert config.inactive_threshold == timedelta(minutes=5)
    assert config.metadata["k"] == "v"
    assert config.durable_name == ""
    assert consumer.cached_info.num_pending == 3
    if flavour.push:
        assert (config.flow_control, config.max_deliver) == (True, 1)
        assert config.ack_wait == timedelta(hours=22)
    else:
        assert config.deliver_subject == ""
    assert repr(consumer).endswith(f"'mine_1' of stream {stream.name!r}>")


async def test_it_leaves_nothing_behind(
    nats_server: NatsServer, connect: Connect, flavour: Flavour
) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 3)
    consumer = await flavour.make(stream)
    async with flavour.read(consumer) as messages:
        await take(messages, 3)
        assert len(await consumers(stream)) == 1
    await eventually_equal(lambda: number_of_consumers(stream), 0)
    await consumer.delete()  # is gone, which is no error
    with pytest.raises(ConsumerNotFoundError):
        await consumer.info()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [1, 2, 3, 4, 5, 6, 7, 8]),
        ({"filter_subject": "%.1"}, [2]),
        ({"filter_subjects": ["%.1"]}, [2]),
        ({"filter_subjects": ["%.1", "%.2"]}, [2, 3]),
        ({"opt_start_seq": 7}, [7, 8]),
        ({"deliver_policy": "last"}, [8]),
        ({"deliver_policy": "last_per_subject"}, [2, 3, 4, 5, 6, 7, 8]),
        ({"opt_start_time": datetime(2020, 1, 1, tzinfo=UTC)}, [1, 2, 3, 4, 5, 6, 7, 8]),
    ],
)
async def test_where_it_begins(
    nats_server: NatsServer,
    connect: Connect,
    flavour: Flavour,
    options: dict[str, Any],
    expected: list[int],
) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 8)
    for name, value in options.items():
        if name == "filter_subject":
            options = {name: value.replace("%", stream.name)}
        elif name == "filter_subjects":
            options = {name: [subject.replace("%", stream.name) for subject in value]}
    consumer = await flavour.make(stream, **options)
    async with flavour.read(consumer) as messages:
        assert await take(messages, len(expected)) == expected
        with pytest.raises(TimeoutError):
            await messages.next(0.05)


async def test_headers_only(nats_server: NatsServer, connect: Connect, flavour: Flavour) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 1, size=50)
    consumer = await flavour.make(stream, headers_only=True)
    async with flavour.read(consumer) as messages:
        message = await messages.next(5)
    assert (message.data, message.headers["Nats-Msg-Size"]) == (b"", "50")


async def test_a_stream_that_does_not_exist(
    nats_server: NatsServer, connect: Connect, flavour: Flavour
) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc)
    await stream.delete()
    with pytest.raises(StreamNotFoundError):
        await flavour.make(stream)


async def test_consume(nats_server: NatsServer, connect: Connect, flavour: Flavour) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 5)
    consumer = await flavour.make(stream)
    seen: list[JetStreamMessage] = []
    async with await consumer.consume(seen.append):
        await eventually(lambda: len(seen) == 5)
        await fill(nc, stream.name, 2)
        await eventually(lambda: len(seen) == 7)
    assert sequences(seen) == list(range(1, 8))


# -- losing -------------------------------------------------------------------------------------


@conformance("ADR-17", "Reset", "a delivery that is not the next one")
@conformance("ADR-15", "Ordered Consumers", "they rely on the detection of gaps")
@conformance("RUST", "Push Consumer", "ordered consumers are recreated where they broke off")
async def test_a_gap(nats_server: NatsServer, connect: Connect, flavour: Flavour) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 3)
    # With heartbeats that are not missed while it is deaf.
    consumer = await flavour.make(stream, name_prefix="g", **flavour.slow_push)
    async with flavour.read(consumer, **flavour.slow_pull) as messages:
        assert await take(messages, 3) == [1, 2, 3]
        async with deaf(nc, messages):
            await fill(nc, stream.name, 2)
            await eventually_equal(lambda: _delivered(consumer), 5)
        await fill(nc, stream.name, 2)
        assert await take(messages, 4) == [4, 5, 6, 7]
        assert flavour.warnings.kinds == [JetStreamError]
        assert vars(flavour.warnings[0])["resume_sequence"] == 4
        # A new one goes on, and the old one is gone.
        await eventually(lambda: consumer.name == "g_2")
        assert await consumers(stream) == ["g_2"]
        config = (await consumer.info()).config
        assert config.deliver_policy == DeliverPolicy.BY_START_SEQUENCE
        assert config.opt_start_seq == 4


async def _delivered(consumer: Any) -> int:
    sequence: int = (await consumer.info()).delivered.stream_seq
    return sequence


@conformance("ADR-17", "Reset", "push: a heartbeat tells of a delivery that did not arrive")
async def test_a_gap_at_the_end(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 3)
    flavour = Flavour(push=True)
    consumer = await flavour.make(stream)
    async with flavour.read(consumer) as messages:
        assert await take(messages, 3) == [1, 2, 3]
        async with deaf(nc, messages):
            await fill(nc, stream.name, 2)
            await eventually_equal(lambda: _delivered(consumer), 5)
        assert await take(messages, 2) == [4, 5]  # nothing is published meanwhile
    assert flavour.warnings.kinds == [JetStreamError]


@conformance("ADR-17", "Reset", "missing heartbeats")
async def test_missing_heartbeats(
    nats_server: NatsServer, connect: Connect, flavour: Flavour
) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 3)
    consumer = await flavour.make(stream)
    async with flavour.read(consumer) as messages:
        assert await take(messages, 3) == [1, 2, 3]
        nc._encoder.unsubscribe(messages.sid)  # nothing arrives any more
        await fill(nc, stream.name, 2)
        assert await take(messages, 2) == [4, 5]
    assert MissingHeartbeatError in flavour.warnings.kinds


@conformance("ADR-17", "Reset", "the consumer was deleted (409, or by its heartbeats)")
async def test_a_deleted_consumer(
    nats_server: NatsServer, connect: Connect, flavour: Flavour
) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 3)
    consumer = await flavour.make(stream)
    async with flavour.read(consumer) as messages:
        assert await take(messages, 3) == [1, 2, 3]
        await stream.delete_consumer(consumer.name)
        await fill(nc, stream.name, 2)
        assert await take(messages, 2) == [4, 5]
    expected = MissingHeartbeatError if flavour.push else ConsumerDeletedError
    assert flavour.warnings.kinds == [expected]


@conformance("ADR-17", "Reset", "503: nobody answers for the consumer")
async def test_nobody_answers(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 20)
    flavour = Flavour(push=False)
    consumer = await flavour.make(stream)
    async with flavour.read(consumer, max_messages=10, threshold_messages=1) as messages:
        assert await take(messages, 9) == list(range(1, 10))
        # All that was asked for has arrived, so there is no request that could be told.
        await stream.delete_consumer(consumer.name)
        assert await take(messages, 11) == list(range(10, 21))
    assert flavour.warnings.kinds == [NoStreamResponseError]


@conformance("ADR-17", "Reset", "a reconnect")
async def test_a_reconnect(nats_server: NatsServer, connect: Connect, flavour: Flavour) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 3)
    consumer = await flavour.make(stream, name_prefix="r")
    async with flavour.read(consumer) as messages:
        assert await take(messages, 3) == [1, 2, 3]
        await nc.force_reconnect()
        await fill(nc, stream.name, 2)
        assert await take(messages, 2) == [4, 5]
        await eventually(lambda: consumer.name == "r_2")
        await eventually_equal(lambda: consumers(stream), ["r_2"])
    assert flavour.warnings == []


async def test_a_consumer_that_is_reset_by_somebody(
    nats_server: NatsServer, connect: Connect, flavour: Flavour
) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 3)
    consumer = await flavour.make(stream)
    async with flavour.read(consumer) as messages:
        assert await take(messages, 3) == [1, 2, 3]
        # It delivers all of them again.
        await if_supported(nats_server, (2, 14), stream.reset_consumer(consumer.name, 1))
        await fill(nc, stream.name, 2)
        assert await take(messages, 2) == [4, 5]


@conformance("ADR-17", "Reset", "messages and statuses of the old consumer are ignored")
async def test_what_the_old_one_sends_is_ignored(
    nats_server: NatsServer, connect: Connect, flavour: Flavour
) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 3)
    consumer = await flavour.make(stream)
    async with flavour.read(consumer) as messages, forger(nats_server) as forge:
        assert await take(messages, 3) == [1, 2, 3]
        inbox = messages.subject
        await stream.delete_consumer(consumer.name)
        await fill(nc, stream.name, 1)
        assert await take(messages, 1) == [4]
        assert messages.subject != inbox
        await forge.status(inbox, "409 Consumer Deleted")
        await forge.message(inbox, data=b"late")
        await forge.message(messages.subject, data=b"from nobody")
        await eventually(lambda: messages._renewal is None)
        name = consumer.name
        await fill(nc, stream.name, 1)
        assert await take(messages, 1) == [5]
        assert consumer.name == name


async def test_many_losses(nats_server: NatsServer, connect: Connect, flavour: Flavour) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 300)
    consumer = await flavour.make(stream)
    seen: list[int] = []
    async with flavour.read(consumer) as messages:
        for turn in range(6):
            seen += await take(messages, 40)
            if turn % 3 == 0:
                await nc.force_reconnect()
            elif turn % 3 == 1:
                await consumer.delete()
            else:
                nc._encoder.unsubscribe(messages.sid)
            await fill(nc, stream.name, 10)
        seen += await take(messages, 120)
        with pytest.raises(TimeoutError):
            await messages.next(0.1)
    assert seen == list(range(1, 361))


@conformance("ADR-17", "Reset", "before the first message, nothing is skipped either")
@pytest.mark.parametrize(
    ("policy", "expected"), [("all", [1, 2, 3, 4, 5]), ("new", [4, 5]), ("last", [3, 4, 5])]
)
async def test_a_loss_before_the_first_message(
    nats_server: NatsServer,
    connect: Connect,
    flavour: Flavour,
    policy: str,
    expected: list[int],
) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 3)
    consumer = await flavour.make(stream, deliver_policy=policy)
    await stream.delete_consumer(consumer.name)
    await fill(nc, stream.name, 2)
    async with flavour.read(consumer) as messages:
        assert await take(messages, len(expected)) == expected


async def test_only_one_consumer_is_allowed(
    nats_server: NatsServer, connect: Connect, flavour: Flavour
) -> None:
    nc = await connect(nats_server.url)
    stream = await new_stream(nc, 3, max_consumers=1)
    consumer = await flavour.make(stream)
    async with flavour.read(consumer) as messages:
        assert await take(messages, 2) == [1, 2]
        await nc.force_reconnect()  # the old one is still there
        await fill(nc, stream.name, 1)
        assert await take(messages, 2) == [3, 4]
