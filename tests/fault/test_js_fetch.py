"""Fetches that go wrong: what arrived is kept, what did not comes to the next one at once.

An acknowledgement wait of a minute tells a message that was given back from one that was lost and
came again by itself.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from jetspark import Client
from jetspark.errors import (
    ConnectionClosedError,
    ConnectionDrainingError,
    DisconnectedError,
    JetSparkError,
    MissingHeartbeatError,
    TimeoutError,
)
from jetspark.jetstream.consumer import PullConsumer, fetch
from jetspark.server import NatsServer
from tests.support.conformance import conformance
from tests.support.faults import connected
from tests.support.js import (
    consumer_state,
    eventually_equal,
    fill,
    make_consumer,
    make_stream,
    sequences,
    served,
)
from tests.support.leaks import until
from tests.support.proxy import Proxy
from tests.support.servers import StartServer, monitor


async def shared(near: Client, far: Client, count: int = 0) -> tuple[PullConsumer, PullConsumer]:
    """One consumer as both clients see it."""
    stream = await make_stream(near, count)
    consumer = await make_consumer(near, stream, ack_wait=60)
    return consumer, await far.jetstream().get_consumer(stream, consumer.name)


# -- the connection is lost


async def test_cut_in_a_fetch(proxy: Proxy, near: Client, far: Client) -> None:
    ours, theirs = await shared(near, far)
    fetching = asyncio.create_task(theirs.fetch(5, timeout=60))
    await served(ours)
    await proxy.cut()
    with pytest.raises(DisconnectedError, match="'c'") as caught:
        await fetching
    assert caught.value.retryable
    await served(ours, 0)  # the server has noticed it, too
    await fill(near, ours.stream_name, 3)
    assert sequences(await theirs.fetch(3, timeout=10)) == [1, 2, 3]  # over the next connection


async def test_cut_with_a_part_fetched(proxy: Proxy, near: Client, far: Client) -> None:
    ours, theirs = await shared(near, far, 3)
    fetching = asyncio.create_task(theirs.fetch(5, timeout=60))
    await eventually_equal(lambda: consumer_state(ours), (3, 0, 0))
    await far.flush()
    await proxy.cut()
    messages = await fetching
    assert sequences(messages) == [1, 2, 3]
    assert isinstance(messages.error, DisconnectedError)
    for message in messages:
        await message.ack()  # which waits for the next connection
    await eventually_equal(lambda: consumer_state(ours), (0, 0, 3))


async def test_fetch_waits_for_the_connection(proxy: Proxy, near: Client, far: Client) -> None:
    _, theirs = await shared(near, far, 3)
    await proxy.refuse()
    await proxy.cut()
    await until(lambda: not far.connected)
    fetching = asyncio.create_task(theirs.fetch(3, timeout=30))
    with pytest.raises(TimeoutError, match="no connection") as caught:
        await theirs.fetch(3, timeout=0.1)
    assert not caught.value.may_have_taken_effect
    proxy.accept()
    assert sequences(await fetching) == [1, 2, 3]


async def test_server_restarts_in_a_fetch(start_server: StartServer) -> None:
    server = start_server()
    async with connected(server.url) as nc:
        consumer = await make_consumer(nc, await make_stream(nc, 2, storage="file"))
        fetching = asyncio.create_task(consumer.fetch(5, timeout=60))
        await served(consumer)
        await server.arestart()
        messages = await fetching
        assert sequences(messages) == [1, 2]
        # The server says that it goes, if there is time for it.
        assert messages.error is not None
        assert messages.error.retryable
        for message in messages:
            await message.double_ack()
        await fill(nc, consumer.stream_name, 1, start=2)
        assert sequences(await consumer.fetch(1, timeout=10)) == [3]


@pytest.mark.parametrize(
    ("end", "kind"), [("close", ConnectionClosedError), ("drain", ConnectionDrainingError)]
)
async def test_client_ends_in_a_fetch(
    near: Client, nats_server: NatsServer, end: str, kind: type[JetSparkError]
) -> None:
    async with connected(nats_server.url) as client:
        ours, theirs = await shared(near, client)
        fetching = asyncio.create_task(theirs.next(timeout=60))
        await served(ours)
        await getattr(client, end)()
        with pytest.raises(kind):
            await fetching
    await served(ours, 0)


# -- no request may live on and take messages that nobody sees


async def test_fetch_that_timed_out_takes_nothing(near: Client) -> None:
    ours, _ = await shared(near, near)
    assert await ours.fetch(10, timeout=0.05) == []
    await fill(near, ours.stream_name, 1)
    message = await ours.next(timeout=5)
    assert message.metadata.num_delivered == 1


@conformance("ADR-37", "Consumer", "the client's own timeout is larger than that of the request")
@pytest.mark.parametrize("direction", ["up", "down"])
async def test_fetch_over_a_stalled_connection_takes_nothing(
    proxy: Proxy, near: Client, far: Client, monkeypatch: pytest.MonkeyPatch, direction: Any
) -> None:
    monkeypatch.setattr(fetch, "SLACK", 0.1)
    ours, theirs = await shared(near, far)
    proxy.stall(direction)
    assert await theirs.fetch(10, timeout=0.2) == []
    proxy.unstall()
    await far.flush()
    await fill(near, ours.stream_name, 1)
    assert (await ours.next(timeout=5)).data == b"0"
    assert (await ours.info()).num_ack_pending == 1
    await until(lambda: theirs.api.client._routes.keys() <= {1})


async def test_messages_that_arrive_too_late_are_given_back(
    proxy: Proxy, near: Client, far: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "SLACK", 0.1)
    ours, theirs = await shared(near, far, 3)
    proxy.stall("down")
    assert await theirs.fetch(5, timeout=0.2) == []
    assert await ours.fetch_no_wait(5) == []  # they are on their way to the other one
    proxy.unstall()
    again = await ours.fetch(3, timeout=10)
    assert sequences(again) == [1, 2, 3]
    assert {message.metadata.num_delivered for message in again} == {2}
    await until(lambda: far._routes.keys() <= {1})


async def test_no_wait_without_an_answer(
    proxy: Proxy, near: Client, far: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "NO_WAIT", 0.2)
    monkeypatch.setattr(fetch, "SLACK", 0.1)
    _, theirs = await shared(near, far, 3)
    proxy.stall()
    with pytest.raises(TimeoutError, match="no answer"):  # not an empty list: nobody said so
        await theirs.fetch_no_wait(5)
    proxy.unstall()
    assert sequences(await theirs.fetch(3, timeout=10)) == [1, 2, 3]


async def test_missing_heartbeats(proxy: Proxy, near: Client, far: Client) -> None:
    ours, theirs = await shared(near, far, 2)
    fetching = asyncio.create_task(theirs.fetch(5, timeout=60, heartbeat=0.2))
    await eventually_equal(lambda: consumer_state(ours), (2, 0, 0))
    await far.flush()
    proxy.stall("down")
    messages = await fetching
    assert sequences(messages) == [1, 2]
    assert isinstance(messages.error, MissingHeartbeatError)
    with pytest.raises(MissingHeartbeatError, match="'c'") as caught:
        await theirs.fetch(5, timeout=60, heartbeat=0.1)
    assert caught.value.retryable
    proxy.unstall()
    await served(ours, 0)


async def test_many_fetches_leave_nothing(start_server: StartServer) -> None:
    server = start_server()
    async with connected(server.url) as nc:
        # Half of them find a message and half find none. (Where a round finds some and some not,
        # a server of 2.10 may answer one of them not at all.)
        consumer = await make_consumer(nc, await make_stream(nc, 1501), ack_policy="none")
        await consumer.fetch(1)
        await nc.flush()
        routes = set(nc._routes)

        def subscriptions() -> int:
            (connection,) = monitor(server, "/connz")["connections"]
            return int(connection["subscriptions"])

        before = subscriptions()
        for _ in range(10):
            await asyncio.gather(*(consumer.fetch_no_wait(1) for _ in range(300)))
        assert set(nc._routes) == routes
        await nc.flush()
        assert subscriptions() == before
        assert (await consumer.info()).num_waiting == 0
        gc.collect()
        kinds = [type(found) for found in gc.get_objects()]
        assert kinds.count(fetch._Fetch) == 0


# -- cancellation

TURNS = [*range(8), *range(8, 40, 4)]


async def cancelled(call: Coroutine[Any, Any, Any], turns: int) -> Any:
    """Cancel a call after some turns of the loop; what it returned or raised."""
    task = asyncio.create_task(call)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    return (await asyncio.gather(task, return_exceptions=True))[0]


@pytest.mark.parametrize(
    "call",
    [
        lambda consumer: consumer.fetch(5, timeout=60),
        lambda consumer: consumer.fetch(3, timeout=60),
        lambda consumer: consumer.fetch_no_wait(5),
        lambda consumer: consumer.next(),
        lambda consumer: anext(consumer.sequence(5)),
    ],
    ids=["part", "full", "no_wait", "next", "sequence"],
)
async def test_cancelled_fetch_gives_its_messages_back(
    near: Client, call: Callable[[PullConsumer], Coroutine[Any, Any, Any]]
) -> None:
    ours, _ = await shared(near, near, 3)
    routes = len(near._routes)

    async def run() -> Any:
        return await call(ours)

    for turns in TURNS:
        result = await cancelled(run(), turns)
        taken = []
        if not isinstance(result, BaseException):  # it was faster
            taken = result if isinstance(result, list) else [result]
        left = await ours.fetch(3 - len(taken), timeout=10) if len(taken) < 3 else []
        assert sorted(sequences([*taken, *left])) == [1, 2, 3]
        for message in (*taken, *left):
            await message.nak()
        await until(lambda: len(near._routes) == routes)
    assert (await ours.info()).num_waiting == 0


async def test_cancelled_while_disconnected(proxy: Proxy, near: Client, far: Client) -> None:
    _, theirs = await shared(near, far, 1)
    await proxy.refuse()
    await proxy.cut()
    await until(lambda: not far.connected)
    for turns in range(4):
        assert isinstance(await cancelled(theirs.next(), turns), asyncio.CancelledError)
    assert far._routes.keys() <= {1}
    proxy.accept()
    assert (await theirs.next(timeout=10)).metadata.num_delivered == 1


async def test_cancelled_acks_can_be_repeated(proxy: Proxy, near: Client, far: Client) -> None:
    ours, theirs = await shared(near, far, 1)
    message = await theirs.next()
    proxy.stall()
    for turns in range(5):
        assert isinstance(await cancelled(message.double_ack(), turns), asyncio.CancelledError)
        assert not message.acked
    proxy.unstall()
    await message.double_ack()
    assert await consumer_state(ours) == (0, 0, 1)
    assert far._mux is not None
    assert far._mux.pending == 0
