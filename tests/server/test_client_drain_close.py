"""The end: draining a subscription or a client loses nothing, closing leaves nothing."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections import Counter

import pytest

import jetspark
from jetspark import Client, ConnectionState, Message
from jetspark.errors import (
    ConnectionClosedError,
    ConnectionDrainingError,
    NoRespondersError,
    SubscriptionClosedError,
    TimeoutError,
)
from jetspark.server import NatsServer
from tests.support.clients import Connect, Events, eventually, unique


async def publish_numbers(nc: Client, subject: str, count: int) -> None:
    for number in range(count):
        await nc.publish(subject, b"%d" % number)


# -- a subscription ------------------------------------------------------------------------------


async def test_drain_subscription_with_callback(nats_server: NatsServer, connect: Connect) -> None:
    nc, publisher = await connect(nats_server.url), await connect(nats_server.url)
    got: list[int] = []

    async def callback(message: Message) -> None:
        await asyncio.sleep(0)
        got.append(int(message.data))

    sub = await nc.subscribe(unique(), callback=callback)
    await nc.flush()
    await publish_numbers(publisher, sub.subject, 500)
    await publisher.flush()  # the server has sent them, we have not read them
    await sub.drain()
    assert got == list(range(500))
    assert sub.closed
    await publish_numbers(publisher, sub.subject, 5)
    await publisher.flush()
    await nc.flush()
    assert len(got) == 500
    assert not nc._routes
    assert not nc._callback_tasks
    assert nc.connected


async def test_drain_subscription_with_iterator(nats_server: NatsServer, connect: Connect) -> None:
    nc, publisher = await connect(nats_server.url), await connect(nats_server.url)
    sub = await nc.subscribe(unique())
    await nc.flush()
    await publish_numbers(publisher, sub.subject, 100)
    await publisher.flush()
    await sub.drain()
    await publish_numbers(publisher, sub.subject, 100)
    await publisher.flush()
    assert [int(message.data) async for message in sub] == list(range(100))
    with pytest.raises(SubscriptionClosedError):
        await sub.next()


async def test_drain_subscription_that_is_being_iterated(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    sub = await nc.subscribe(unique())

    async def iterate() -> list[int]:
        return [int(message.data) async for message in sub]

    task = asyncio.create_task(iterate())
    await publish_numbers(nc, sub.subject, 10)
    await sub.drain()
    assert await task == list(range(10))


async def test_drain_subscription_in_its_callback(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    got: list[int] = []

    async def callback(message: Message) -> None:
        got.append(int(message.data))
        if len(got) == 3:
            await sub.drain()

    sub = await nc.subscribe(unique(), callback=callback)
    await publish_numbers(nc, sub.subject, 10)
    await eventually(lambda: sub.closed and not nc._callback_tasks)
    assert got == list(range(10))


async def test_drain_subscription_times_out(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    release = asyncio.Event()

    async def callback(message: Message) -> None:
        await release.wait()

    sub = await nc.subscribe(unique(), callback=callback)
    await nc.publish(sub.subject)
    with pytest.raises(TimeoutError, match=f"'{sub.subject}' was not drained in 0.05 s"):
        await sub.drain(timeout=0.05)
    assert sub.closed
    release.set()
    await sub.drain()  # now it can finish


async def test_drain_subscription_twice_at_once(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    sub = await nc.subscribe(unique())
    await publish_numbers(nc, sub.subject, 3)
    await asyncio.gather(sub.drain(), sub.drain())
    assert sub.pending_messages == 3


async def test_drain_subscription_while_reconnecting(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    sub = await nc.subscribe(unique())
    await publish_numbers(nc, sub.subject, 3)
    await nc.flush()
    await nc.force_reconnect()
    await sub.drain(timeout=10)
    assert [int(message.data) async for message in sub] == [0, 1, 2]


# -- a client ------------------------------------------------------------------------------------


async def test_drain_client_loses_nothing(nats_server: NatsServer, connect: Connect) -> None:
    events = Events()
    nc = await connect(nats_server.url, on_event=events)
    other = await connect(nats_server.url)
    answers = await other.subscribe(unique())
    await other.flush()
    states: set[ConnectionState] = set()

    async def callback(message: Message) -> None:
        states.add(nc.state)
        await asyncio.sleep(0)
        await nc.publish(answers.subject, message.data)  # handlers may still answer

    with_callback = await nc.subscribe(unique(), callback=callback)
    iterated = await nc.subscribe(with_callback.subject)
    await nc.flush()
    await publish_numbers(other, with_callback.subject, 500)
    await other.flush()
    await nc.drain()
    assert nc.closed
    assert nc.last_error is None
    assert ConnectionState.DRAINING in states
    assert [int(message.data) async for message in iterated] == list(range(500))
    await other.flush()
    got = [int((await answers.next(timeout=5)).data) for _ in range(500)]
    assert got == list(range(500))
    assert events.errors == []


async def test_drain_client_sends_what_was_published(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc, other = await connect(nats_server.url), await connect(nats_server.url)
    sub = await other.subscribe(unique())
    await other.flush()
    for number in range(100):
        await nc.publish(sub.subject, b"%d" % number + bytes(50_000))
    await nc.drain()
    await other.flush()
    assert sub.pending_messages == 100


async def test_draining_client_takes_nothing_new(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    begun, release = asyncio.Event(), asyncio.Event()

    async def callback(message: Message) -> None:
        begun.set()
        await release.wait()

    sub = await nc.subscribe(unique(), callback=callback)
    await nc.publish(sub.subject)
    await begun.wait()
    draining = asyncio.create_task(nc.drain())
    await asyncio.sleep(0)
    assert nc.state is ConnectionState.DRAINING
    assert "draining" in repr(nc)
    with pytest.raises(ConnectionDrainingError):
        await nc.subscribe("a")
    with pytest.raises(ConnectionDrainingError):
        await nc.drain()
    release.set()
    await draining
    assert nc.closed
    with pytest.raises(ConnectionClosedError):
        await nc.publish("a")
    await nc.drain()  # of a closed client: nothing to do


async def test_publishing_ends_with_the_last_callback(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    draining = asyncio.create_task(nc.drain())
    with pytest.raises(ConnectionDrainingError):  # not ConnectionClosedError: that comes later
        while True:
            await nc.publish("a")
            await asyncio.sleep(0)
    await draining


async def test_drain_one_of_a_queue(nats_server: NatsServer, connect: Connect) -> None:
    """What the server gives to a member that drains is processed like all the rest."""
    publisher, staying = await connect(nats_server.url), await connect(nats_server.url)
    seen: Counter[int] = Counter()
    subject = unique()

    def callback(message: Message) -> None:
        seen[int(message.data)] += 1

    await staying.subscribe(subject, queue="workers", callback=callback)
    await staying.flush()
    done = asyncio.Event()
    count = 0

    async def publish() -> None:
        nonlocal count
        while not done.is_set():
            for _ in range(20):
                await publisher.publish(subject, b"%d" % count)
                count += 1
            await asyncio.sleep(0)

    publishing = asyncio.create_task(publish())
    for _ in range(10):
        leaving = await connect(nats_server.url)
        await leaving.subscribe(subject, queue="workers", callback=callback)
        await leaving.flush()
        await asyncio.sleep(0.005)
        await leaving.drain()
    done.set()
    await publishing
    await publisher.flush()
    await eventually(lambda: seen.total() >= count)
    assert seen == Counter(range(count))


async def test_requests_in_callbacks_while_draining(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc, other = await connect(nats_server.url), await connect(nats_server.url)
    service = await other.subscribe(unique(), callback=lambda message: message.respond(b"answer"))
    await other.flush()
    got: list[bytes] = []

    async def callback(message: Message) -> None:
        await eventually(lambda: nc.state is ConnectionState.DRAINING)
        got.append((await nc.request(service.subject)).data)
        with pytest.raises(NoRespondersError):
            await nc.request(unique())

    sub = await nc.subscribe(unique(), callback=callback)
    await nc.publish(sub.subject)
    await nc.flush()
    await nc.drain()
    assert got == [b"answer"]


@pytest.mark.parametrize("moment", ["at the beginning", "while callbacks run"])
async def test_drain_client_over_a_reconnect(
    nats_server: NatsServer, connect: Connect, moment: str
) -> None:
    nc, other = await connect(nats_server.url), await connect(nats_server.url)
    answers = await other.subscribe(unique())
    await other.flush()
    begun, release = asyncio.Event(), asyncio.Event()

    async def callback(message: Message) -> None:
        begun.set()
        await release.wait()
        await nc.publish(answers.subject, message.data)

    sub = await nc.subscribe(unique(), callback=callback)
    await publish_numbers(nc, sub.subject, 5)
    await nc.flush()
    await begun.wait()
    draining = asyncio.create_task(nc.drain())
    await asyncio.sleep(0)
    if moment == "while callbacks run":
        await eventually(lambda: sub.closed)
    await nc.force_reconnect()
    release.set()
    await draining
    await other.flush()
    assert [int((await answers.next(timeout=5)).data) for _ in range(5)] == list(range(5))


async def test_drain_client_in_a_callback(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    done = asyncio.Event()

    async def callback(message: Message) -> None:
        await nc.drain()
        done.set()

    sub = await nc.subscribe(unique(), callback=callback)
    await nc.publish(sub.subject)
    await asyncio.wait_for(done.wait(), 5)
    assert nc.closed


async def test_drain_client_times_out_and_closes_all_the_same(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url, drain_timeout=0.05)
    cancelled = asyncio.Event()

    async def callback(message: Message) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    sub = await nc.subscribe(unique(), callback=callback)
    await nc.publish(sub.subject)
    await nc.flush()
    with pytest.raises(TimeoutError, match=r"the connection was not drained in 0\.05 s"):
        await nc.drain()
    assert nc.closed
    assert cancelled.is_set()


async def test_drain_client_without_subscriptions(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    await nc.drain()
    assert nc.closed


async def test_context_manager(nats_server: NatsServer, connect: Connect) -> None:
    got: list[bytes] = []
    async with await jetspark.connect(nats_server.url) as nc:
        sub = await nc.subscribe(unique(), callback=lambda message: got.append(message.data))
        await nc.publish(sub.subject, b"processed before the end")
    assert nc.closed
    assert got == [b"processed before the end"]


async def test_context_manager_with_an_error(nats_server: NatsServer) -> None:
    with pytest.raises(ZeroDivisionError):
        async with await jetspark.connect(nats_server.url) as nc:
            _ = 1 / 0
    assert nc.closed


# -- close ---------------------------------------------------------------------------------------


async def test_close_writes_what_was_published(nats_server: NatsServer, connect: Connect) -> None:
    nc, other = await connect(nats_server.url), await connect(nats_server.url)
    sub = await other.subscribe(unique())
    await other.flush()
    await publish_numbers(nc, sub.subject, 1000)
    await nc.publish(sub.subject, bytes(1_000_000))
    await nc.close()
    await eventually(lambda: sub.pending_messages == 1001)


async def test_close_ends_subscriptions_and_calls(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    sub, idle = await nc.subscribe(unique()), await nc.subscribe(unique())
    await publish_numbers(nc, sub.subject, 5)
    await nc.flush()
    waiting = asyncio.create_task(idle.next())

    async def iterate() -> list[Message]:
        return [message async for message in idle]

    iterating = asyncio.create_task(iterate())
    await asyncio.sleep(0)
    flushing = asyncio.create_task(nc.flush())
    await asyncio.sleep(0)
    await nc.close()
    with pytest.raises(SubscriptionClosedError):
        await waiting
    assert await iterating == []
    with pytest.raises(ConnectionClosedError):
        await flushing
    assert sub.closed
    assert sub.pending_messages == 0  # dropped; drain would have kept them
    with pytest.raises(ConnectionClosedError):
        await nc.publish("a")
    with pytest.raises(ConnectionClosedError):
        await nc.flush()
    with pytest.raises(ConnectionClosedError):
        await nc.rtt()
    await sub.unsubscribe()
    await sub.drain()


async def test_close_twice_and_at_once(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    await asyncio.gather(nc.close(), nc.close())
    await nc.close()
    assert nc.closed


async def test_close_while_draining(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    begun = asyncio.Event()

    async def callback(message: Message) -> None:
        begun.set()
        await asyncio.Event().wait()

    sub = await nc.subscribe(unique(), callback=callback)
    await nc.publish(sub.subject)
    await begun.wait()
    draining = asyncio.create_task(nc.drain())
    await asyncio.sleep(0.01)
    await nc.close()
    assert nc.closed
    with pytest.raises(ConnectionClosedError):
        await draining


async def test_close_while_reconnecting() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        nc = await jetspark.connect(
            f"nats://127.0.0.1:{holder.getsockname()[1]}",
            retry_initial_connect=True,
            reconnect_delay=lambda attempts: 60.0,
        )
        assert nc.state is ConnectionState.RECONNECTING
        sub = await nc.subscribe("a")
        flushing = asyncio.create_task(nc.flush())
        await asyncio.sleep(0)
        await nc.close()
    assert sub.closed
    with pytest.raises(ConnectionClosedError):
        await flushing


async def test_close_in_the_middle_of_an_attempt() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        nc = await jetspark.connect(
            f"nats://127.0.0.1:{silent.getsockname()[1]}",
            retry_initial_connect=True,
            connect_timeout=0.05,
            reconnect_delay=lambda attempts: 0.0,
            max_reconnect_attempts=None,
        )
        await asyncio.sleep(0.02)  # the second attempt waits for INFO
        await nc.close()
        assert nc.closed
    gc.collect()


async def test_close_in_a_callback(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    got: list[bytes] = []

    async def callback(message: Message) -> None:
        got.append(message.data)
        await nc.close()

    sub = await nc.subscribe(unique(), callback=callback)
    await publish_numbers(nc, sub.subject, 5)
    await eventually(lambda: nc.closed and not nc._callback_tasks)
    assert got == [b"0"]


async def test_cancelled_close_leaves_no_socket(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    link = nc._connection._link
    assert link is not None
    closing = asyncio.create_task(nc.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    await eventually(lambda: link.closed)
    await nc.close()
