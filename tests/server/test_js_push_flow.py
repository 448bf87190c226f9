"""Push consumers: gaps, statuses, flow control and limits."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from jetspark.errors import (
    ConsumerDeletedError,
    JetStreamError,
    NoStreamResponseError,
    SlowConsumerError,
    StatusError,
    TimeoutError,
)
from jetspark.server import NatsServer
from tests.support.clients import Connect, Events, eventually
from tests.support.conformance import conformance
from tests.support.forge import deaf, forger
from tests.support.js import Warnings, eventually_equal, fill, make_stream, sequences
from tests.support.push import bound, delivered, push_consumer, take
from tests.support.streams import if_supported

FLOW: dict[str, Any] = {"flow_control": True, "idle_heartbeat": 0.2}


# -- gaps ---------------------------------------------------------------------------------------


@conformance("ADR-15", "Messages Gaps", "a gap is told with the sequence to resume from")
async def test_a_gap_is_told(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await make_stream(nc, 3)
    consumer = await push_consumer(nc, stream)
    warnings = Warnings()
    async with consumer.messages(on_warning=warnings) as messages:
        await take(messages, 3)
        async with deaf(nc, messages):
            await fill(nc, stream, 2)
            await eventually_equal(lambda: delivered(consumer), 5)
        await fill(nc, stream, 2)
        assert sequences(await take(messages, 2)) == [6, 7]
    assert warnings.kinds == [JetStreamError]
    (gap,) = warnings
    assert vars(gap) == {"expected": 4, "received": 6, "resume_sequence": 4}


@conformance("ADR-15", "Messages Gaps", "heartbeats are looked at, too")
async def test_a_heartbeat_tells_of_a_gap(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await make_stream(nc, 3)
    consumer = await push_consumer(nc, stream, idle_heartbeat=0.1)
    warnings = Warnings()
    async with consumer.messages(on_warning=warnings) as messages:
        await take(messages, 3)
        async with deaf(nc, messages):
            await fill(nc, stream, 2)
            await eventually_equal(lambda: delivered(consumer), 5)
        await eventually(lambda: warnings)
        with pytest.raises(TimeoutError):
            await messages.next(0.3)  # later heartbeats tell nothing new
        await fill(nc, stream, 1)
        assert sequences(await take(messages, 1)) == [6]
    assert warnings.kinds == [JetStreamError]
    assert vars(warnings[0]) == {"expected": 4, "received": 5, "resume_sequence": 4}


async def test_heartbeats_of_old_servers_tell_less(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    consumer = await push_consumer(nc, await make_stream(nc, 3))
    warnings = Warnings()
    async with consumer.messages(on_warning=warnings) as messages, forger(nats_server) as forge:
        await take(messages, 3)
        subject = consumer.config.deliver_subject
        await forge.status(subject, "100 Idle Heartbeat")
        await forge.status(subject, "100 Idle Heartbeat", Nats_Last_Consumer="x")
        await nc.flush()
    assert warnings == []


@conformance("ADR-15", "Messages Gaps", "not for queue groups")
async def test_groups_have_no_gaps(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await make_stream(nc, 3)
    consumer = await push_consumer(nc, stream, deliver_group="g", idle_heartbeat=0.1)
    warnings = Warnings()
    async with consumer.messages(on_warning=warnings) as messages:
        await take(messages, 3)
        async with deaf(nc, messages):
            await fill(nc, stream, 2)
            await eventually_equal(lambda: delivered(consumer), 5)
        received = messages.received
        await eventually(lambda: messages.received > received)  # a heartbeat
        await fill(nc, stream, 1)
        assert sequences(await take(messages, 1)) == [6]
    assert warnings == []


async def test_a_consumer_that_is_reset_has_no_gap(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    stream = await make_stream(nc, 5)
    consumer = await push_consumer(nc, stream, idle_heartbeat=0.1)
    warnings = Warnings()
    async with consumer.messages(on_warning=warnings) as messages:
        await take(messages, 5)
        resetting = nc.jetstream().reset_consumer(stream, consumer.name)
        if await if_supported(nats_server, (2, 14), resetting) is None:
            return
        assert sequences(await take(messages, 5)) == [1, 2, 3, 4, 5]
        with pytest.raises(TimeoutError):
            await messages.next(0.3)  # heartbeats come meanwhile
    assert warnings == []


# -- statuses -----------------------------------------------------------------------------------


@conformance("ADR-15", "Pull Mode Statuses", "404 and 408 are not surfaced")
@conformance("ADR-15", "Miscellaneous Error Statuses", "409 is an error, not a message")
@conformance("ADR-15", "Miscellaneous Error Statuses", "503 is an error, not a message")
@conformance("ADR-15", "Unknown Error Statuses", "an unknown status is an error, not a message")
async def test_statuses_never_surface(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await make_stream(nc)
    consumer = await push_consumer(nc, stream)
    warnings = Warnings()
    async with consumer.messages(on_warning=warnings) as messages, forger(nats_server) as forge:
        await bound(consumer)
        for line in (
            "404 No Messages",
            "408 Request Timeout",
            "409 Consumer Deleted",
            "503",
            "777 ?",
        ):
            await forge.status(consumer.config.deliver_subject, line)
        await fill(nc, stream, 1)
        assert (await messages.next(5)).data == b"0"
        assert messages.pending_messages == 0
    assert warnings.kinds == [ConsumerDeletedError, NoStreamResponseError, StatusError]
    assert all(consumer.name in str(error) for error in warnings)


# -- flow control -------------------------------------------------------------------------------


@conformance("RUST", "Push Consumer", "flow control requests are answered")
@conformance("ADR-15", "Flow Control", "a request is answered with an empty message to its reply")
async def test_flow_control_lets_everything_through(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    stream = await make_stream(nc, 2000, size=8 * 1024)
    consumer = await push_consumer(nc, stream, ack_policy="none", **FLOW)
    warnings = Warnings()
    async with consumer.messages(on_warning=warnings) as messages:
        seen = sequences(await take(messages, 2000))
        assert messages._flow_answered
        assert messages.dropped == 0
    assert seen == list(range(1, 2001))
    assert warnings == []


@conformance("ADR-15", "Flow Control", "answered when the message would have been handed out")
async def test_flow_control_waits_for_the_application(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    stream = await make_stream(nc, 1000, size=8 * 1024)
    consumer = await push_consumer(nc, stream, ack_policy="none", **FLOW)
    async with consumer.messages() as messages:
        first = await take(messages, 1)
        await eventually(lambda: messages._flow_queued)  # a request waits in the queue

        # The window of the server is 2 MiB; heartbeats remind, and that changes nothing.
        reached = await delivered(consumer)
        await asyncio.sleep(3 * FLOW["idle_heartbeat"])
        assert messages._flow_answered == b""
        assert await delivered(consumer) == reached < 500
        first += await take(messages, 999)
    assert sequences(first) == list(range(1, 1001))


@conformance("ADR-15", "Flow Control", "a stalled consumer is answered as the heartbeat asks for")
@conformance("ADR-15", "Flow Control", "each subject is answered once")
async def test_a_stalled_consumer_is_answered_once(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    consumer = await push_consumer(nc, await make_stream(nc))
    answers: list[tuple[str, bytes]] = []
    flow = nc.new_inbox()
    await nc.subscribe(f"{flow}.*", callback=lambda m: answers.append((m.subject, m.data)))
    async with consumer.messages() as messages, forger(nats_server) as forge:
        await bound(consumer)
        subject = consumer.config.deliver_subject
        await forge.status(subject, "100 FlowControl Request", f"{flow}.1")
        for name in ("1", "2", "2", "3"):
            await forge.status(
                subject,
                "100 Idle Heartbeat",
                Nats_Last_Consumer=0,
                Nats_Last_Stream=0,
                Nats_Consumer_Stalled=f"{flow}.{name}",
            )
        await eventually(lambda: len(answers) == 3)
        await nc.flush()
        assert messages.pending_messages == 0
    assert answers == [(f"{flow}.{name}", b"") for name in "123"]


@conformance("ADR-15", "Flow Control", "the next message follows within the same wait")
async def test_flow_control_has_its_place_in_the_queue(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    stream = await make_stream(nc, 2)
    consumer = await push_consumer(nc, stream)
    answers: list[str] = []
    flow = nc.new_inbox()
    await nc.subscribe(f"{flow}.*", callback=lambda message: answers.append(message.subject))
    async with consumer.messages() as messages, forger(nats_server) as forge:
        await eventually(lambda: messages.pending_messages == 2)
        subject = consumer.config.deliver_subject
        await forge.status(subject, "100 FlowControl Request", f"{flow}.1")
        for _ in range(3):  # reminders do not pile up
            await forge.status(subject, "100 Idle Heartbeat", Nats_Consumer_Stalled=f"{flow}.1")
        await fill(nc, stream, 1, start=2)
        await eventually(lambda: messages.pending_messages == 4)
        assert sequences(await take(messages, 2)) == [1, 2]
        await nc.flush()
        assert answers == []
        assert sequences(await take(messages, 1)) == [3]
        await eventually(lambda: answers == [f"{flow}.1"])


# -- limits -------------------------------------------------------------------------------------


async def test_what_does_not_fit_is_dropped_and_counted(
    nats_server: NatsServer, connect: Connect
) -> None:
    events = Events()
    nc = await connect(nats_server.url, on_event=events)
    stream = await make_stream(nc, 50)
    consumer = await push_consumer(nc, stream, ack_policy="none")
    async with consumer.messages(pending_messages=10) as messages:
        await eventually(lambda: messages.dropped == 40)
        assert sequences(await take(messages, 10)) == list(range(1, 11))
        await fill(nc, stream, 1)
        assert sequences(await take(messages, 1)) == [51]
    # Not a gap: it is known where these messages went.
    assert [type(error) for error in events.errors] == [SlowConsumerError]
    assert nc.statistics.dropped == 40


async def test_flow_control_survives_limits(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await make_stream(nc, 1500, size=8 * 1024)
    consumer = await push_consumer(nc, stream, ack_policy="none", **FLOW)
    # Smaller than the window of the server, so that requests of flow control are dropped as well.
    async with consumer.messages(pending_messages=20) as messages:

        async def left() -> int:
            with suppress(TimeoutError):
                while True:
                    await messages.next(0.02)
            return (await consumer.info()).num_pending

        await eventually_equal(left, 0)
        assert messages.dropped
