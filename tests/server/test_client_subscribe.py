"""Subscribing: wildcards, queues, callbacks, iteration, and how subscriptions end."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from jetspark import Client, EventKind, Message, Subscription
from jetspark.errors import (
    ConnectionClosedError,
    InvalidArgumentError,
    InvalidSubjectError,
    SubscriptionClosedError,
    TimeoutError,
)
from jetspark.server import NatsServer
from tests.support.clients import Connect, Events, eventually, monitor, unique


async def publish_numbers(nc: Client, subject: str, count: int, start: int = 0) -> None:
    for number in range(start, start + count):
        await nc.publish(subject, b"%d" % number)
    await nc.flush()


def numbers(messages: list[Message]) -> list[int]:
    return [int(message.data) for message in messages]


async def subscriptions_of(server: NatsServer, nc: Client) -> int:
    """How many subscriptions the server has of a client."""
    await nc.flush()
    answer = await monitor(server, f"/connz?cid={nc.server_info.client_id}")
    return int(answer["connections"][0]["subscriptions"])


async def test_wildcards(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    base = unique()
    one = await nc.subscribe(f"{base}.*.c")
    rest = await nc.subscribe(f"{base}.>")
    for subject in ("a.c", "b.c", "a.b.c", "c"):
        await nc.publish(f"{base}.{subject}")
    await nc.flush()
    assert one.pending_messages == 2
    assert [(await one.next()).subject for _ in range(2)] == [f"{base}.a.c", f"{base}.b.c"]
    assert rest.pending_messages == 4


async def test_two_subscriptions_to_one_subject(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    subject = unique()
    subs = [await nc.subscribe(subject) for _ in range(2)]
    await nc.publish(subject, b"for both")
    assert [(await sub.next(timeout=5)).data for sub in subs] == [b"for both"] * 2


async def test_unicode_subject(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    subject = unique("größe")
    sub = await nc.subscribe(subject)
    await nc.publish(subject)
    assert (await sub.next(timeout=5)).subject == subject


@pytest.mark.parametrize("subject", ["", "a b", "a..b", ".a", "a.", ">.a", "a.>.b", "a\r\nb"])
async def test_bad_subjects(nats_server: NatsServer, connect: Connect, subject: str) -> None:
    nc = await connect(nats_server.url)
    with pytest.raises(InvalidSubjectError):
        await nc.subscribe(subject, callback=lambda message: None)
    assert await subscriptions_of(nats_server, nc) == 0


@pytest.mark.parametrize("queue", ["", "a b", "a\r\nb", 5])
async def test_bad_queues(nats_server: NatsServer, connect: Connect, queue: Any) -> None:
    nc = await connect(nats_server.url)
    with pytest.raises(InvalidSubjectError, match="queue name"):
        await nc.subscribe("a", queue=queue)


async def test_bad_limits(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    cases: list[dict[str, Any]] = [{"pending_messages": -1}, {"pending_bytes": -1}]
    for limits in cases:
        with pytest.raises(InvalidArgumentError, match="must not be negative"):
            await nc.subscribe("a", callback=lambda message: None, **limits)
    sub = await nc.subscribe("a")
    with pytest.raises(InvalidArgumentError, match="at least 1"):
        await sub.unsubscribe(limit=0)


async def test_queue_group(nats_server: NatsServer, connect: Connect) -> None:
    members = [await connect(nats_server.url) for _ in range(3)]
    publisher = await connect(nats_server.url)
    subject = unique()
    seen: Counter[int] = Counter()
    by_member: Counter[int] = Counter()

    def member(index: int) -> Any:
        def callback(message: Message) -> None:
            seen[int(message.data)] += 1
            by_member[index] += 1

        return callback

    for index, nc in enumerate(members):
        await nc.subscribe(subject, queue="workers", callback=member(index))
        await nc.flush()
    others = await publisher.subscribe(subject, queue="others")
    await publish_numbers(publisher, subject, 600)
    await eventually(lambda: seen.total() >= 600)
    for nc in members:
        await nc.flush()
    assert seen == Counter(range(600))  # each message once
    assert len(by_member) == 3
    assert others.pending_messages == 600  # another group gets all of them
    assert "queue='others'" in repr(others)


async def test_sync_callback(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    subject = unique()
    got: list[Message] = []
    sub = await nc.subscribe(subject, callback=got.append)
    await publish_numbers(nc, subject, 100)
    await eventually(lambda: len(got) == 100)
    assert numbers(got) == list(range(100))
    assert sub.pending_messages == 0


async def test_async_callback_gets_one_at_a_time(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    subject = unique()
    got: list[int] = []
    running = 0

    async def callback(message: Message) -> None:
        nonlocal running
        running += 1
        assert running == 1
        await asyncio.sleep(0)
        running -= 1
        got.append(int(message.data))

    await nc.subscribe(subject, callback=callback)
    await publish_numbers(nc, subject, 100)
    await eventually(lambda: len(got) == 100)
    assert got == list(range(100))


async def test_callback_that_raises(nats_server: NatsServer, connect: Connect) -> None:
    events = Events()
    nc = await connect(nats_server.url, on_event=events)
    subject = unique()
    got: list[int] = []

    async def callback(message: Message) -> None:
        got.append(int(message.data))
        if got[-1] % 2:
            raise ValueError(f"no {got[-1]}")

    await nc.subscribe(subject, callback=callback)
    await publish_numbers(nc, subject, 6)
    await eventually(lambda: len(got) == 6)
    assert [str(error) for error in events.errors] == ["no 1", "no 3", "no 5"]
    assert nc.statistics.errors == 3
    assert nc.connected


async def test_callback_excludes_iteration(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    sub = await nc.subscribe(unique(), callback=lambda message: None)
    with pytest.raises(InvalidArgumentError, match="has a callback"):
        await sub.next(timeout=1)
    with pytest.raises(InvalidArgumentError, match="has a callback"):
        async for _ in sub:
            pass


async def test_slow_callback_does_not_hold_up_others(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    blocked, subject = unique(), unique()
    release = asyncio.Event()

    async def wait(message: Message) -> None:
        await release.wait()

    await nc.subscribe(blocked, callback=wait)
    sub = await nc.subscribe(subject)
    await nc.publish(blocked)
    await nc.publish(subject, b"through")
    assert (await sub.next(timeout=5)).data == b"through"
    release.set()


async def test_iteration(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    subject = unique()
    got = []
    async with await nc.subscribe(subject) as sub:
        await publish_numbers(nc, subject, 10)
        async for message in sub:
            got.append(message)
            if len(got) == 10:
                break
    assert numbers(got) == list(range(10))
    assert sub.closed
    assert "ended" in repr(sub)
    assert await subscriptions_of(nats_server, nc) == 0


async def test_next_waits(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    sub = await nc.subscribe(unique())
    task = asyncio.create_task(sub.next())
    await nc.flush()
    assert not task.done()
    await nc.publish(sub.subject, b"now")
    async with asyncio.timeout(5):
        assert (await task).data == b"now"


async def test_next_times_out_and_loses_nothing(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    sub = await nc.subscribe(unique())
    for _ in range(3):
        with pytest.raises(TimeoutError, match=f"no message on '{sub.subject}' in 0.01 s") as info:
            await sub.next(timeout=0.01)
        assert not info.value.may_have_taken_effect
    await publish_numbers(nc, sub.subject, 2)
    assert (await sub.next(timeout=0)).data == b"0"  # what waits is there at once
    assert (await sub.next(timeout=1)).data == b"1"
    with pytest.raises(TimeoutError):
        await sub.next(timeout=0)


async def test_cancelled_next_loses_nothing(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    sub = await nc.subscribe(unique())
    await nc.flush()
    got = []
    for number in range(50):
        task = asyncio.create_task(sub.next())
        await asyncio.sleep(0)
        await nc.publish(sub.subject, b"%d" % number)
        for _ in range(number % 5):  # cancel at all stages of an arrival
            await asyncio.sleep(0)
        task.cancel()
        try:
            got.append(await task)
        except asyncio.CancelledError:
            pass
    await nc.flush()
    while sub.pending_messages:
        got.append(await sub.next())
    assert numbers(got) == list(range(50))


async def test_concurrent_next(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    sub = await nc.subscribe(unique())
    got: list[int] = []

    async def take(count: int) -> None:
        for _ in range(count):
            message = await sub.next(timeout=5)
            got.append(int(message.data))

    async with asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(take(20))
        await asyncio.sleep(0)
        for start in range(0, 200, 10):  # in small portions, so that takers have to wait again
            await publish_numbers(nc, sub.subject, 10, start)
    assert sorted(got) == list(range(200))


async def test_unsubscribe_drops_what_waits(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    sub = await nc.subscribe(unique())
    await publish_numbers(nc, sub.subject, 5)
    assert (await sub.next()).data == b"0"
    assert sub.pending_messages == 4
    assert sub.pending_bytes > 0
    await sub.unsubscribe()
    assert (sub.pending_messages, sub.pending_bytes) == (0, 0)
    with pytest.raises(SubscriptionClosedError, match="has ended"):
        await sub.next()
    assert [message async for message in sub] == []
    await publish_numbers(nc, sub.subject, 5)
    assert sub.pending_messages == 0
    await sub.unsubscribe()  # once more does no harm
    await sub.drain()
    assert await subscriptions_of(nats_server, nc) == 0


async def test_unsubscribe_in_the_middle_of_iteration(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    sub = await nc.subscribe(unique())
    await publish_numbers(nc, sub.subject, 10)
    got = []
    async for message in sub:
        got.append(message)
        if len(got) == 3:
            await sub.unsubscribe()
    assert numbers(got) == [0, 1, 2]


async def test_unsubscribe_wakes_whoever_waits(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    sub = await nc.subscribe(unique())
    waiting = asyncio.create_task(sub.next())
    iterating = asyncio.create_task(_collect(sub))
    await asyncio.sleep(0)
    await sub.unsubscribe()
    with pytest.raises(SubscriptionClosedError):
        await waiting
    assert await iterating == []


async def test_unsubscribe_in_the_callback(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    subject = unique()
    got: list[Message] = []

    async def callback(message: Message) -> None:
        got.append(message)
        if len(got) == 2:
            await sub.unsubscribe()

    sub = await nc.subscribe(subject, callback=callback)
    await publish_numbers(nc, subject, 10)
    await eventually(lambda: sub.closed)
    await nc.flush()
    assert numbers(got) == [0, 1]


async def test_unsubscribe_cancels_the_callback(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    subject = unique()
    begun = asyncio.Event()
    cancelled = asyncio.Event()

    async def callback(message: Message) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    sub = await nc.subscribe(subject, callback=callback)
    await nc.publish(subject)
    await begun.wait()
    await sub.unsubscribe()
    assert cancelled.is_set()


async def _collect(sub: Subscription) -> list[Message]:
    return [message async for message in sub]


async def test_auto_unsubscribe_before_messages(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    sub = await nc.subscribe(unique())
    await sub.unsubscribe(limit=3)
    await publish_numbers(nc, sub.subject, 10)
    assert numbers(await _collect(sub)) == [0, 1, 2]
    assert sub.closed
    assert await subscriptions_of(nats_server, nc) == 0


async def test_auto_unsubscribe_after_some_messages(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    sub = await nc.subscribe(unique())
    await publish_numbers(nc, sub.subject, 4)
    await sub.unsubscribe(limit=6)
    await publish_numbers(nc, sub.subject, 10, start=4)
    assert numbers(await _collect(sub)) == [0, 1, 2, 3, 4, 5]


async def test_auto_unsubscribe_while_messages_are_on_their_way(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    sub = await nc.subscribe(unique())
    for number in range(100):  # the server sends all of them before it hears of the limit
        await nc.publish(sub.subject, b"%d" % number)
    await sub.unsubscribe(limit=60)
    assert numbers(await _collect(sub)) == list(range(60))


@pytest.mark.parametrize("limit", [1, 4, 5])
async def test_auto_unsubscribe_with_fewer_than_already_received(
    nats_server: NatsServer, connect: Connect, limit: int
) -> None:
    nc = await connect(nats_server.url)
    sub = await nc.subscribe(unique())
    await publish_numbers(nc, sub.subject, 5)
    await sub.unsubscribe(limit=limit)
    await publish_numbers(nc, sub.subject, 5, start=5)
    assert numbers(await _collect(sub)) == [0, 1, 2, 3, 4]
    assert await subscriptions_of(nats_server, nc) == 0


async def test_auto_unsubscribe_over_a_reconnect(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    publisher = await connect(nats_server.url)
    sub = await nc.subscribe(unique())
    await publish_numbers(nc, sub.subject, 3)
    await sub.unsubscribe(limit=5)
    await nc.force_reconnect()
    await nc.flush()
    await publish_numbers(publisher, sub.subject, 2, start=3)  # the server counts anew
    async with asyncio.timeout(5):
        assert numbers(await _collect(sub)) == [0, 1, 2, 3, 4]
    await nc.flush()
    assert await subscriptions_of(nats_server, nc) == 0


async def test_auto_unsubscribe_set_after_a_reconnect(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    sub = await nc.subscribe(unique())
    await publish_numbers(nc, sub.subject, 3)
    await nc.force_reconnect()
    await nc.flush()
    await sub.unsubscribe(limit=5)
    await publish_numbers(nc, sub.subject, 2, start=3)
    assert numbers(await _collect(sub)) == [0, 1, 2, 3, 4]
    assert await subscriptions_of(nats_server, nc) == 0


async def test_auto_unsubscribe_with_a_callback(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    subject = unique()
    got: list[Message] = []
    sub = await nc.subscribe(subject, callback=got.append)
    await sub.unsubscribe(limit=2)
    await publish_numbers(nc, subject, 5)
    await eventually(lambda: sub.closed and not nc._callback_tasks)
    assert numbers(got) == [0, 1]


async def test_subscribe_while_reconnecting(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    await nc.force_reconnect()
    kept = await nc.subscribe(unique())
    given_up = await nc.subscribe(unique())
    await given_up.unsubscribe()
    await publish_numbers(nc, kept.subject, 2)
    assert kept.pending_messages == 2
    assert await subscriptions_of(nats_server, nc) == 1


async def test_subscribe_after_close(nats_server: NatsServer, connect: Connect) -> None:
    events = Events()
    nc = await connect(nats_server.url, on_event=events)
    await nc.close()
    with pytest.raises(ConnectionClosedError, match="the connection is closed"):
        await nc.subscribe("a")
    assert events.kinds[-1] is EventKind.CLOSED
