"""Priority groups (ADR-42): who of several clients of a consumer is served."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from jetspark import Client
from jetspark.errors import (
    BadPullRequestError,
    InvalidOptionError,
    NotSupportedError,
    PinIdMismatchError,
    TimeoutError,
)
from jetspark.jetstream.consumer import PullConsumer
from jetspark.jetstream.consumer.messages import pinned_size, wire_size
from jetspark.jetstream.message import JetStreamMessage
from jetspark.server import NatsServer
from tests.support.clients import Connect, eventually
from tests.support.js import (
    Warnings,
    consumer_state,
    fill,
    make_consumer,
    make_stream,
    sequences,
    served,
)
from tests.support.streams import version_of

SINCE = {"overflow": (2, 11), "pinned_client": (2, 11), "prioritized": (2, 12)}


async def two_clients(
    server: NatsServer, connect: Connect, policy: str, count: int = 0, **config: Any
) -> tuple[Client, PullConsumer, PullConsumer] | None:
    """One consumer as two clients see it; None where the server is too old, and that is said."""
    nc, other = await connect(server.url), await connect(server.url)
    stream = await make_stream(nc, count, size=100)
    config = {"priority_policy": policy, "priority_groups": ["g"], **config}
    if version_of(server) < SINCE[policy]:
        with pytest.raises(NotSupportedError, match="priority_policy"):
            await make_consumer(nc, stream, **config)
        return None
    consumer = await make_consumer(nc, stream, **config)
    same = await other.jetstream().get_consumer(stream, consumer.name)
    return nc, consumer, same


class Reader:
    """Iterates over a consumer in a task, and acknowledges."""

    def __init__(self, consumer: PullConsumer, **options: Any) -> None:
        self.warnings = Warnings()
        self.seen: list[JetStreamMessage] = []
        # Who has no request when a message comes, because one has just expired, loses its turn.
        options = {"max_messages": 10, "expires": 60, **options}
        self._stream = consumer.messages(group="g", on_warning=self.warnings, **options)
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async for message in self._stream:
            await message.ack()
            self.seen.append(message)

    async def stop(self) -> None:
        await self._stream.stop()
        await self._task


def pins(messages: list[JetStreamMessage]) -> set[str | None]:
    return {message.headers.get("Nats-Pin-Id") for message in messages}


async def test_overflow_by_pending_messages(nats_server: NatsServer, connect: Connect) -> None:
    found = await two_clients(nats_server, connect, "overflow", 5)
    if found is None:
        return
    nc, first, second = found
    assert await second.fetch(9, group="g", min_pending=20, timeout=0.2) == []
    await fill(nc, first.stream_name, 25, start=5)
    helped = await second.fetch(100, group="g", min_pending=20, timeout=0.3)
    assert sequences(helped) == list(range(1, 12))  # until fewer than 20 are left
    rest = await first.fetch(100, group="g", timeout=0.2)
    assert sequences(rest) == list(range(12, 31))


async def test_overflow_by_unacknowledged_messages(
    nats_server: NatsServer, connect: Connect
) -> None:
    found = await two_clients(nats_server, connect, "overflow", 20)
    if found is None:
        return
    _, first, second = found
    busy = await first.fetch(5, group="g")
    assert await second.fetch(5, group="g", min_ack_pending=6, timeout=0.2) == []
    assert await second.fetch_no_wait(5, group="g", min_ack_pending=6) == []
    helped = await second.fetch(5, group="g", min_ack_pending=5, timeout=5)
    assert sequences([*busy, *helped]) == list(range(1, 11))


async def test_overflow_while_iterating(nats_server: NatsServer, connect: Connect) -> None:
    found = await two_clients(nats_server, connect, "overflow")
    if found is None:
        return
    nc, first, second = found
    main, helper = Reader(first), Reader(second, min_pending=1000)
    await served(first, 2)
    await fill(nc, first.stream_name, 50)
    await eventually(lambda: len(main.seen) == 50)
    assert helper.seen == []
    await main.stop()
    await fill(nc, first.stream_name, 1100, start=50)
    await eventually(lambda: helper.seen)
    await helper.stop()
    assert (main.warnings, helper.warnings) == ([], [])


async def test_one_client_is_pinned(nats_server: NatsServer, connect: Connect) -> None:
    found = await two_clients(nats_server, connect, "pinned_client")
    if found is None:
        return
    nc, first, second = found
    stream = first.stream_name
    pinned = Reader(first)
    await served(first, 1)
    standby = Reader(second)
    await served(first, 2)
    await fill(nc, stream, 40)
    await eventually(lambda: len(pinned.seen) == 40)
    assert standby.seen == []
    (state,) = (await first.info()).priority_groups
    assert pins(pinned.seen) == {state.pinned_client_id} == {first.pin_id("g")}
    assert second.pin_id("g") is None

    await nc.jetstream().unpin_consumer(stream, first.name, "g")
    await fill(nc, stream, 40, start=40)
    await eventually(lambda: len(pinned.seen) + len(standby.seen) == 80)
    await fill(nc, stream, 20, start=80)
    await eventually(lambda: len(pinned.seen) + len(standby.seen) == 100)
    assert sorted(sequences([*pinned.seen, *standby.seen])) == list(range(1, 101))
    assert len(standby.seen) == 60
    assert pins(standby.seen) == {second.pin_id("g")}
    assert set(pinned.warnings.kinds) == {PinIdMismatchError}
    assert first.pin_id("g") is None
    assert standby.warnings == []

    await standby.stop()  # and its pin is given up by hand
    await nc.jetstream().unpin_consumer(stream, first.name, "g")
    await fill(nc, stream, 10, start=100)
    await eventually(lambda: len(pinned.seen) == 50)
    await pinned.stop()
    assert (await consumer_state(first))[0] == 0


async def test_pinned_client_is_replaced_after_a_while(
    nats_server: NatsServer, connect: Connect
) -> None:
    found = await two_clients(nats_server, connect, "pinned_client", 10, priority_timeout=1)
    if found is None:
        return
    _, first, second = found
    assert sequences(await first.fetch(2, group="g")) == [1, 2]
    assert await second.fetch_no_wait(2, group="g") == []
    assert sequences(await second.fetch(2, group="g", timeout=10)) == [3, 4]
    with pytest.raises(PinIdMismatchError, match="'c'") as caught:
        await first.fetch(2, group="g", timeout=5)
    assert caught.value.retryable
    with pytest.raises(TimeoutError):
        await first.next(group="g", timeout=0.1)  # it waits its turn now
    assert sequences(await second.fetch(2, group="g", timeout=5)) == [5, 6]


async def test_pinned_client_counts_bytes_like_the_server(
    nats_server: NatsServer, connect: Connect
) -> None:
    found = await two_clients(nats_server, connect, "pinned_client", 40)
    if found is None:
        return
    _, consumer, _ = found
    # The pin, which the server does not count, must not end the fetch too early.
    fetched = await consumer.fetch(max_bytes=2000, group="g", timeout=5)
    assert (await consumer_state(consumer))[0] == len(fetched)
    async with consumer.messages(max_bytes=2000, group="g") as messages:
        await eventually(lambda: messages._waiting() and messages._all_arrived())
        waiting = messages._waiting()
        assert messages._window.pending_bytes == sum(map(pinned_size, waiting))
        assert sum(map(wire_size, waiting)) > 2000
        await messages.next(timeout=5)
        assert messages._window.pending_bytes == sum(map(pinned_size, waiting[1:]))
    assert (await consumer_state(consumer))[0] == len(fetched) + len(waiting)


async def test_lowest_priority_number_is_served_first(
    nats_server: NatsServer, connect: Connect
) -> None:
    found = await two_clients(nats_server, connect, "prioritized")
    if found is None:
        return
    nc, first, second = found
    # So many that there is always a request: without one, the other client is served.
    later = Reader(first, priority=5, max_messages=200)
    sooner = Reader(second, priority=1, max_messages=200)
    await served(first, 2)
    for start in range(0, 60, 5):
        await fill(nc, first.stream_name, 5, start=start)
        await eventually(lambda: len(sooner.seen) == start + 5)  # noqa: B023
    assert later.seen == []
    await sooner.stop()
    await served(first, 1)
    await fill(nc, first.stream_name, 5, start=60)
    await eventually(lambda: len(later.seen) == 5)
    await later.stop()
    assert (sooner.warnings, later.warnings) == ([], [])


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({}, "group"),
        ({"group": "other"}, "group"),
        ({"group": "g", "priority": 1}, "priority"),
        ({"group": "g", "min_pending": 1}, "min_pending"),
    ],
)
async def test_options_that_do_not_fit_are_refused(
    nats_server: NatsServer, connect: Connect, options: dict[str, Any], named: str
) -> None:
    found = await two_clients(nats_server, connect, "pinned_client", 1)
    if found is None:
        return
    _, consumer, _ = found
    with pytest.raises(InvalidOptionError, match=named):
        consumer.messages(**options)
    with pytest.raises(InvalidOptionError, match=named):
        await consumer.fetch(1, **options)


async def test_server_refuses_a_request_without_its_group(
    nats_server: NatsServer, connect: Connect
) -> None:
    found = await two_clients(nats_server, connect, "overflow", 1)
    if found is None:
        return
    nc, consumer, _ = found
    unaware = PullConsumer(consumer.api, consumer.cached_info)
    config = consumer.config.replace(priority_groups=[], priority_policy="none")
    unaware.cached_info = msgspec.structs.replace(consumer.cached_info, config=config)
    with pytest.raises(BadPullRequestError, match="Priority Group missing"):
        await unaware.fetch(1, timeout=2)
    with pytest.raises(BadPullRequestError, match="Priority Group missing"):
        await unaware.messages().next(timeout=2)
    assert nc.connected
