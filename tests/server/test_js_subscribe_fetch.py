"""`PullSubscription.fetch`, which asks twice: for what is there, then for what comes."""

from __future__ import annotations

import asyncio
from itertools import chain

import pytest
import pytest_asyncio

from jetspark import Client, JetStream, PullSubscription, Stream
from jetspark.errors import (
    BadPullRequestError,
    ConsumerDeletedError,
    DisconnectedError,
    InvalidArgumentError,
    LeadershipChangedError,
    MaxWaitingExceededError,
    NoRespondersError,
    RequestLimitError,
    StatusError,
    TimeoutError,
)
from jetspark.jetstream.message import JetStreamMessage
from jetspark.server import NatsServer
from tests.support.clients import Connect, eventually, monitor
from tests.support.conformance import conformance
from tests.support.forge import forger
from tests.support.js import eventually_equal, fill, make_stream, sequences
from tests.support.spy import Spy


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


@pytest_asyncio.fixture
async def spy(nats_server: NatsServer, connect: Connect, stream: Stream) -> Spy:
    nc = await connect(nats_server.url)
    requests = await nc.subscribe(f"$JS.API.CONSUMER.MSG.NEXT.{stream.name}.*")
    await nc.flush()
    return Spy(requests)


# -- fetching -----------------------------------------------------------------------------------


@conformance("ADR-13", "PullN", "the first request does not wait")
@conformance("ADR-13", "PullN", "messages that are there end it")
@conformance("ADR-13", "Pull based consumers", "messages come with their own subjects")
async def test_what_is_there(nc: Client, stream: Stream, sub: PullSubscription, spy: Spy) -> None:
    await fill(nc, stream.name, 5)
    messages = await sub.fetch(10, timeout=5)
    assert sequences(messages) == [1, 2, 3, 4, 5]
    assert [message.subject for message in messages] == [f"{stream.name}.{n}" for n in range(5)]
    body, _ = await spy.next()
    assert body == {"batch": 10, "no_wait": True}
    await spy.nothing()


async def test_a_full_batch(nc: Client, stream: Stream, sub: PullSubscription) -> None:
    await fill(nc, stream.name, 25)
    routes = len(nc._routes)
    for start in (1, 11):
        messages = await sub.fetch(10, timeout=5)
        assert sequences(messages) == list(range(start, start + 10))
        assert all(isinstance(message, JetStreamMessage) for message in messages)
        for message in messages:
            await message.ack()
    assert sequences(await sub.fetch(10)) == [21, 22, 23, 24, 25]
    assert len(nc._routes) == routes


@conformance("ADR-13", "PullN", "404: a second request waits, with the time that is left")
@conformance("ADR-13", "PullN", "both requests are sent from one inbox")
async def test_what_comes_later(
    nc: Client, stream: Stream, sub: PullSubscription, spy: Spy
) -> None:
    fetching = asyncio.ensure_future(sub.fetch(3, timeout=10))
    first, second = await spy.next(), await spy.next()
    assert first[0] == {"batch": 3, "no_wait": True}
    assert second[0].keys() == {"batch", "expires"}
    assert second[0]["batch"] == 3
    assert 9_000_000_000 < second[0]["expires"] <= 9_900_000_000
    assert first[1] == second[1]
    await fill(nc, stream.name, 3)
    assert sequences(await fetching) == [1, 2, 3]


@conformance("ADR-13", "PullN", "UNSUB after batch + 1, because the 404 counts")
async def test_automatic_unsubscribe(
    nats_server: NatsServer, nc: Client, stream: Stream, sub: PullSubscription, spy: Spy
) -> None:
    fetching = asyncio.ensure_future(sub.fetch(3, timeout=10))
    await spy.next()
    _, inbox = await spy.next()

    async def limits() -> list[int | None]:
        connections = (await monitor(nats_server, "/connz?subs=detail"))["connections"]
        return [
            found.get("max")
            for connection in connections
            for found in connection.get("subscriptions_list_detail", ())
            if found["subject"] == inbox
        ]

    assert await limits() == [4]
    await fill(nc, stream.name, 3)
    await fetching
    assert await limits() == []


@conformance("ADR-13", "PullN", "timeout: an error, and the server does not wait any more")
@pytest.mark.parametrize("batch", [1, 5])
async def test_nothing_comes(nc: Client, stream: Stream, sub: PullSubscription, batch: int) -> None:
    routes = len(nc._routes)
    with pytest.raises(TimeoutError, match="'d'") as caught:
        await sub.fetch(batch, timeout=0.3)
    assert not caught.value.may_have_taken_effect
    assert len(nc._routes) == routes
    await eventually_equal(lambda: waiting(sub), 0)
    await fill(nc, stream.name, 1)
    (message,) = await sub.fetch(batch, timeout=5)
    assert not message.metadata.redelivered  # it did not go to an inbox that is gone


@conformance("ADR-13", "PullN", "what came in time is returned, without an error")
async def test_some_come(nc: Client, stream: Stream, sub: PullSubscription) -> None:
    fetching = asyncio.ensure_future(sub.fetch(5, timeout=0.6))
    await eventually_equal(lambda: waiting(sub), 1)
    await fill(nc, stream.name, 2)
    assert sequences(await fetching) == [1, 2]


@conformance("ADR-13", "Error messages", "an error of the server is raised, never a message")
async def test_errors_of_the_server(nc: Client, js: JetStream, stream: Stream) -> None:
    sub = await js.pull_subscribe(f"{stream.name}.*", max_batch=2, max_waiting=1)
    with pytest.raises(RequestLimitError):
        await sub.fetch(3, timeout=5)
    blocking = asyncio.ensure_future(sub.fetch(2, timeout=5))
    await eventually_equal(lambda: waiting(sub), 1)
    with pytest.raises(MaxWaitingExceededError):
        await sub.fetch(2, timeout=5)
    with pytest.raises(MaxWaitingExceededError):
        await sub.fetch(1, timeout=5)
    await sub.consumer.delete()
    with pytest.raises(ConsumerDeletedError):
        await blocking
    for batch in (1, 2):
        with pytest.raises(NoRespondersError):
            await sub.fetch(batch, timeout=5)


@conformance("ADR-13", "Error messages", "400, 409, 503 and what is unknown")
@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("400 Bad Request", BadPullRequestError),
        ("409 Leadership Change", LeadershipChangedError),
        ("503", NoRespondersError),
        ("777 Who Knows", StatusError),
    ],
)
async def test_statuses_are_errors(
    nats_server: NatsServer, sub: PullSubscription, spy: Spy, line: str, error: type[Exception]
) -> None:
    async with forger(nats_server) as forge:
        fetching = asyncio.ensure_future(sub.fetch(2, timeout=5))
        await spy.next()
        _, inbox = await spy.next()
        await forge.status(inbox, line)
        with pytest.raises(error):
            await fetching
    await eventually_equal(lambda: waiting(sub), 0)


@conformance("ADR-15", "Pull Mode Statuses", "404 and 408 are not counted as messages")
@conformance("ADR-13", "PullN", "heartbeats are not counted either")
async def test_statuses_do_not_count(
    nats_server: NatsServer, nc: Client, stream: Stream, sub: PullSubscription, spy: Spy
) -> None:
    async def delivered() -> int:
        return (await stream.get_consumer("d")).cached_info.delivered.consumer_seq

    async with forger(nats_server) as forge:
        fetching = asyncio.ensure_future(sub.fetch(2, timeout=5))
        await spy.next()
        _, inbox = await spy.next()
        await forge.status(inbox, "100 Idle Heartbeat")
        await fill(nc, stream.name, 1)
        await eventually_equal(delivered, 1)  # or the forged status might overtake it
        await forge.status(inbox, "408 Request Timeout")
        assert sequences(await fetching) == [1]


@conformance("ADR-13", "Error messages", "an error after messages is not raised")
async def test_an_error_after_messages(
    nats_server: NatsServer, nc: Client, stream: Stream, sub: PullSubscription, spy: Spy
) -> None:
    async with forger(nats_server) as forge:
        fetching = asyncio.ensure_future(sub.fetch(3, timeout=5))
        await spy.next()
        _, inbox = await spy.next()
        await fill(nc, stream.name, 1)
        await forge.status(inbox, "409 Leadership Change")
        assert sequences(await fetching) == [1]


# -- a single message ---------------------------------------------------------------------------


@conformance("ADR-13", "Pull optimization", "the first request of a single message does not wait")
@conformance("ADR-13", "Pull optimization", "it needs no subscription of its own")
async def test_a_single_message(
    nc: Client, stream: Stream, sub: PullSubscription, spy: Spy
) -> None:
    await fill(nc, stream.name, 2)
    routes = len(nc._routes)
    inboxes = []
    for sequence in (1, 2):
        fetching = asyncio.ensure_future(sub.next(timeout=5))
        body, inbox = await spy.next()
        assert body == {"batch": 1, "no_wait": True}
        assert len(nc._routes) == routes
        inboxes.append(inbox)
        assert (await fetching).metadata.stream_sequence == sequence
    await spy.nothing()
    # The subscription has a wildcard for them.
    assert inboxes[0] != inboxes[1]
    assert {inbox.rpartition(".")[0] + ".*" for inbox in inboxes} == {sub.subject}


@conformance("ADR-13", "Pull optimization", "404: a longer request follows on a unique inbox")
async def test_a_single_message_that_comes_later(
    nc: Client, stream: Stream, sub: PullSubscription, spy: Spy
) -> None:
    fetching = asyncio.ensure_future(sub.fetch(1, timeout=10))
    (_, first), (body, second) = await spy.next(), await spy.next()
    assert body.keys() == {"batch", "expires"}
    assert first.rpartition(".")[0] != second.rpartition(".")[0]
    await fill(nc, stream.name, 1)
    assert sequences(await fetching) == [1]


async def test_several_at_the_same_time(nc: Client, stream: Stream, sub: PullSubscription) -> None:
    fetching = [asyncio.ensure_future(sub.fetch(batch, timeout=10)) for batch in (1, 1, 2, 1, 3)]
    await eventually_equal(lambda: waiting(sub), 5)
    await fill(nc, stream.name, 8)
    found = [sequences(messages) for messages in await asyncio.gather(*fetching)]
    assert [len(messages) for messages in found] == [1, 1, 2, 1, 3]
    assert sorted(chain.from_iterable(found)) == list(range(1, 9))


@conformance("ADR-13", "PullN", "what came too late for one fetch goes to the next")
async def test_leftovers_come_first(
    nats_server: NatsServer, nc: Client, stream: Stream, sub: PullSubscription, spy: Spy
) -> None:
    await fill(nc, stream.name, 3)
    fetching = asyncio.ensure_future(sub.next(timeout=5))
    await asyncio.sleep(0)  # the request is sent
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    await eventually(lambda: sub._leftovers)
    await spy.next()
    assert sequences(await sub.fetch(5)) == [1]
    await spy.nothing()  # nobody was asked
    assert sequences(await sub.fetch(5)) == [2, 3]
    async with forger(nats_server) as forge:  # a late answer is for nobody
        await forge.status(sub.subject.replace("*", "old"), "409 Consumer Deleted")
        await nc.flush()
    assert not sub._leftovers


@pytest.mark.parametrize("batch", [1, 4])
async def test_cancelling_gives_back(
    nc: Client, stream: Stream, sub: PullSubscription, batch: int
) -> None:
    fetching = asyncio.ensure_future(sub.fetch(batch, timeout=10))
    await eventually_equal(lambda: waiting(sub), 1)
    if batch > 1:
        await fill(nc, stream.name, 2)
        await eventually_equal(lambda: _ack_pending(sub), 2)
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    await eventually_equal(lambda: waiting(sub), 0)
    await fill(nc, stream.name, 1)
    expected = [1] if batch == 1 else [1, 2, 3]
    seen: list[int] = []
    while len(seen) < len(expected):
        seen += sequences(await sub.fetch(5, timeout=5))  # long before ack_wait
    assert sorted(seen) == expected


async def _ack_pending(sub: PullSubscription) -> int:
    return (await sub.consumer.info()).num_ack_pending


@pytest.mark.parametrize(("batch", "timeout"), [(0, 1), (-1, 1), (1, 0), (1, -1)])
async def test_wrong_arguments(sub: PullSubscription, batch: int, timeout: float) -> None:
    with pytest.raises(InvalidArgumentError):
        await sub.fetch(batch, timeout)


@pytest.mark.parametrize("batch", [1, 4])
async def test_losing_the_connection(
    nc: Client, stream: Stream, sub: PullSubscription, batch: int
) -> None:
    fetching = asyncio.ensure_future(sub.fetch(batch, timeout=10))
    await eventually_equal(lambda: waiting(sub), 1)
    await nc.force_reconnect()
    with pytest.raises(DisconnectedError):
        await fetching
    await eventually_equal(lambda: waiting(sub), 0)  # the server has noticed
    await fill(nc, stream.name, 1)
    assert len(await sub.fetch(batch, timeout=5)) == 1  # on the next connection
