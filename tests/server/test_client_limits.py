"""Limits: what a subscription may hold, when reading pauses, and what permissions refuse."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from jetspark import Client, Message
from jetspark.errors import (
    NoRespondersError,
    PermissionsError,
    ServerError,
    SlowConsumerError,
    TimeoutError,
)
from jetspark.server import NatsServer
from tests.support.clients import Connect, Events, eventually, unique
from tests.support.servers import StartServer


async def flood(nc: Client, subject: str, count: int, size: int = 10) -> None:
    for number in range(count):
        await nc.publish(subject, b"%0*d" % (size, number))
    await nc.flush()


def slow_errors(events: Events) -> list[SlowConsumerError]:
    return [error for error in events.errors if isinstance(error, SlowConsumerError)]


async def take_all(sub: Any) -> list[int]:
    taken = []
    while sub.pending_messages:
        taken.append(int((await sub.next(timeout=5)).data))
    return taken


# -- what a subscription may hold ----------------------------------------------------------------


async def test_pending_messages(nats_server: NatsServer, connect: Connect) -> None:
    events = Events()
    nc = await connect(nats_server.url, on_event=events)
    sub = await nc.subscribe(unique(), pending_messages=10)
    other = await nc.subscribe(sub.subject)
    await flood(nc, sub.subject, 25)
    assert sub.pending_messages == 10
    assert sub.dropped == nc.statistics.dropped == 15
    assert other.pending_messages == 25  # the limit is that of one subscription
    assert other.dropped == 0
    (error,) = slow_errors(events)
    assert error.subject == sub.subject
    assert "holds 10 messages" in str(error)
    assert await take_all(sub) == list(range(10))  # the newest are dropped
    await flood(nc, sub.subject, 3)
    assert await take_all(sub) == [0, 1, 2]
    assert sub.dropped == 15
    assert "dropped=15" in repr(sub)


async def test_pending_messages_while_some_are_taken(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    sub = await nc.subscribe(unique(), pending_messages=10)
    await flood(nc, sub.subject, 10)
    for _ in range(4):
        await sub.next()
    assert sub.pending_messages == 6
    await flood(nc, sub.subject, 10)  # 4 fit in
    assert sub.pending_messages == 10
    assert sub.dropped == 6
    assert await take_all(sub) == [4, 5, 6, 7, 8, 9, 0, 1, 2, 3]


async def test_pending_messages_one_by_one(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    sub = await nc.subscribe(unique(), pending_messages=3)
    for _ in range(5):
        await flood(nc, sub.subject, 1)
    assert (sub.pending_messages, sub.dropped) == (3, 2)


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize("headers", [None, {"A": "b"}], ids=["plain", "headers"])
@pytest.mark.parametrize("reply", [None, "answers.to.this"], ids=["no reply", "reply"])
async def test_pending_bytes(
    nats_server: NatsServer, connect: Connect, one_by_one: bool, headers: Any, reply: Any
) -> None:
    """The count is the same however the messages come in, alone or many in one read."""
    nc = await connect(nats_server.url)
    probe = await nc.subscribe(unique("same.length"))
    await nc.publish(probe.subject, bytes(500), headers=headers, reply=reply)
    await nc.flush()
    size = probe.pending_bytes
    assert size > 500
    sub = await nc.subscribe(unique("same.length"), pending_bytes=10 * size + size // 2)
    for _ in range(25):
        await nc.publish(sub.subject, bytes(500), headers=headers, reply=reply)
        if one_by_one:
            await nc.flush()
    await nc.flush()
    assert sub.pending_messages == 10
    assert sub.pending_bytes == 10 * size
    assert sub.dropped == nc.statistics.dropped == 15


async def test_limits_of_the_connection(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url, pending_messages=2)
    sub = await nc.subscribe(unique())
    unlimited = await nc.subscribe(sub.subject, pending_messages=0, pending_bytes=0)
    await flood(nc, sub.subject, 5)
    assert (sub.pending_messages, sub.dropped) == (2, 3)
    assert (unlimited.pending_messages, unlimited.dropped) == (5, 0)


async def test_one_event_for_each_episode(nats_server: NatsServer, connect: Connect) -> None:
    events = Events()
    nc = await connect(nats_server.url, on_event=events)
    sub = await nc.subscribe(unique(), pending_messages=5)
    for _ in range(4):
        await flood(nc, sub.subject, 10)
        await sub.next()  # one is taken, so that one more fits: still the same trouble
    assert len(slow_errors(events)) == 1
    dropped = sub.dropped
    await take_all(sub)
    with pytest.raises(TimeoutError):
        await sub.next(timeout=0.01)  # the application has caught up
    await flood(nc, sub.subject, 10)
    assert len(slow_errors(events)) == 2
    assert slow_errors(events)[1].dropped == 5
    assert sub.dropped == dropped + 5 == nc.statistics.dropped
    assert nc.statistics.errors == 2


async def test_slow_callback_drops_too(nats_server: NatsServer, connect: Connect) -> None:
    events = Events()
    nc = await connect(nats_server.url, on_event=events)
    release = asyncio.Event()
    got: list[bytes] = []

    async def callback(message: Message) -> None:
        got.append(message.data)
        await release.wait()

    sub = await nc.subscribe(unique(), callback=callback, pending_messages=5)
    await flood(nc, sub.subject, 1)
    await eventually(lambda: len(got) == 1)
    await flood(nc, sub.subject, 9)
    assert sub.dropped == 4
    release.set()
    await eventually(lambda: len(got) == 6)
    assert len(slow_errors(events)) == 1


# -- reading pauses ------------------------------------------------------------------------------


async def test_reading_pauses_and_nothing_is_lost(
    nats_server: NatsServer, connect: Connect
) -> None:
    high = 200_000
    nc = await connect(nats_server.url, read_high_water=high, pending_messages=0, pending_bytes=0)
    publisher = await connect(nats_server.url)
    sub = await nc.subscribe(unique())
    await nc.flush()
    await flood(publisher, sub.subject, 2000, size=1000)  # ten times what may be held
    await eventually(lambda: sub.pending_bytes > high)
    held = sub.pending_bytes
    assert held < high + 512 * 1024  # no more than the read that crossed the mark
    await asyncio.sleep(0.02)
    assert sub.pending_bytes == held
    taken = [int((await sub.next(timeout=5)).data) for _ in range(2000)]
    assert taken == list(range(2000))
    assert sub.dropped == 0
    assert nc.statistics.reconnects == 0
    await nc.flush()


async def test_paused_reading_ends_with_unsubscribe(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url, read_high_water=100_000)
    publisher = await connect(nats_server.url)
    sub = await nc.subscribe(unique())
    await nc.flush()
    await flood(publisher, sub.subject, 1000, size=1000)
    await eventually(lambda: sub.pending_bytes > 100_000)
    await sub.unsubscribe()
    await nc.flush()  # its answer is behind all the messages
    assert (await nc.subscribe(unique())).pending_messages == 0


async def test_paused_reading_and_close(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url, read_high_water=100_000)
    publisher = await connect(nats_server.url)
    sub = await nc.subscribe(unique())
    await nc.flush()
    await flood(publisher, sub.subject, 5000, size=1000)
    await eventually(lambda: sub.pending_bytes > 100_000)
    await nc.close()
    assert nc.closed


async def test_nobody_calls_a_paused_connection_stale(
    start_server: StartServer, connect: Connect
) -> None:
    server = start_server(jetstream=False, ping_interval=1.0, ping_max=1, write_deadline=60)
    events = Events()
    nc = await connect(
        server.url,
        read_high_water=100_000,
        pending_bytes=0,
        ping_interval=0.2,
        max_outstanding_pings=1,
        on_event=events,
    )
    publisher = await connect(server.url)
    sub = await nc.subscribe(unique())
    await nc.flush()
    count = 20_000  # more than the buffers of the sockets take, so that a PING would get stuck
    for number in range(count):
        await publisher.publish(sub.subject, b"%01000d" % number)
    await eventually(lambda: sub.pending_bytes > 100_000)
    await asyncio.sleep(3)  # long enough for the server to lose its patience, were we silent
    assert nc.connected
    for number in range(count):
        assert int((await sub.next(timeout=10)).data) == number
    await nc.flush()
    assert nc.statistics.reconnects == 0
    assert events.errors == []


# -- permissions ---------------------------------------------------------------------------------


def limited_user(**permissions: Any) -> dict[str, Any]:
    return {"user": "ann", "password": "secret", "permissions": permissions}


async def test_publish_denied(start_server: StartServer, connect: Connect) -> None:
    server = start_server(
        jetstream=False,
        users=[limited_user(publish={"deny": ["closed.>"]})],
    )
    events = Events()
    nc = await connect(server.url, user="ann", password="secret", on_event=events)
    await nc.publish("closed.a", b"x")
    await nc.flush()
    (error,) = events.errors
    assert isinstance(error, PermissionsError)
    assert (error.operation, error.subject, error.server) == ("publish", "closed.a", server.url)
    assert "Permissions Violation" in str(error)
    assert nc.connected
    assert nc.statistics.errors == 1


async def test_request_denied(start_server: StartServer, connect: Connect) -> None:
    server = start_server(
        jetstream=False,
        users=[limited_user(publish={"deny": ["closed.>"]})],
    )
    nc = await connect(server.url, user="ann", password="secret")
    open_ = await nc.subscribe("open")
    asking = asyncio.create_task(nc.request("open", timeout=20))
    with pytest.raises(PermissionsError, match=r"closed\.a"):
        await nc.request("closed.a", timeout=20)
    with pytest.raises(PermissionsError, match=r"closed\.b"):
        async for _ in nc.request_many("closed.b", timeout=20):
            pass
    assert not asking.done()  # only requests to that subject fail
    await (await open_.next(timeout=5)).respond(b"answer")
    assert (await asking).data == b"answer"
    assert nc._requests().pending == 0


@pytest.mark.parametrize("queue", [None, "workers"])
async def test_subscription_denied(
    start_server: StartServer, connect: Connect, queue: str | None
) -> None:
    server = start_server(
        jetstream=False,
        users=[limited_user(subscribe={"deny": ["closed.>"]})],
    )
    events = Events()
    nc = await connect(server.url, user="ann", password="secret", on_event=events)
    sub = await nc.subscribe("closed.*", queue=queue)
    with pytest.raises(PermissionsError) as caught:
        async for _ in sub:
            pass
    assert caught.value.operation == "subscribe"
    assert (caught.value.subject, caught.value.queue) == ("closed.*", queue)
    with pytest.raises(PermissionsError):
        await sub.next()
    assert sub.closed
    assert len(events.errors) == 1
    calls: list[Message] = []
    with_callback = await nc.subscribe("closed.*", callback=calls.append)
    await eventually(lambda: with_callback.closed and not nc._callback_tasks)
    await nc.force_reconnect()  # a dead subscription is not restored
    await nc.flush()
    assert len(events.errors) == 2


async def test_subscription_denied_for_one_queue(
    start_server: StartServer, connect: Connect
) -> None:
    server = start_server(
        jetstream=False,
        users=[limited_user(subscribe={"allow": ["jobs good", "_INBOX.>"]})],
    )
    nc = await connect(server.url, user="ann", password="secret")
    good = await nc.subscribe("jobs", queue="good")
    bad = await nc.subscribe("jobs", queue="bad")
    none = await nc.subscribe("jobs")
    for sub, queue in ((bad, "bad"), (none, None)):
        with pytest.raises(PermissionsError) as caught:
            await sub.next(timeout=5)
        assert caught.value.queue == queue
    await nc.publish("jobs", b"work")
    assert (await good.next(timeout=5)).data == b"work"


async def test_inbox_denied(start_server: StartServer, connect: Connect) -> None:
    server = start_server(
        jetstream=False,
        users=[limited_user(subscribe={"allow": ["_MINE.>", "service"]})],
    )
    nc = await connect(server.url, user="ann", password="secret")
    for _ in range(2):  # not only the first request says why
        with pytest.raises(PermissionsError, match=r"_INBOX\."):
            await nc.request("service", timeout=20)
    mine = await connect(server.url, user="ann", password="secret", inbox_prefix="_MINE")
    with pytest.raises(NoRespondersError):
        await mine.request("service", timeout=20)


async def test_permission_removed_while_subscribed(
    start_server: StartServer, connect: Connect
) -> None:
    def users(*denied: str) -> list[dict[str, Any]]:
        return [limited_user(subscribe={"deny": ["nothing", *denied]})]

    server = start_server(jetstream=False, users=users())
    events = Events()
    nc = await connect(server.url, user="ann", password="secret", on_event=events)
    kept = await nc.subscribe("kept")
    subs = [await nc.subscribe("lost"), await nc.subscribe("lost", queue="workers")]
    await nc.publish("lost", b"before")
    await nc.flush()
    await server.areload(users=users("lost"))
    for sub in subs:
        assert (await sub.next(timeout=5)).data == b"before"  # what has arrived is not taken away
        with pytest.raises(PermissionsError, match="lost"):
            await sub.next(timeout=10)
    await nc.publish("kept", b"still here")
    assert (await kept.next(timeout=10)).data == b"still here"


async def test_max_subscriptions(start_server: StartServer, connect: Connect) -> None:
    server = start_server(jetstream=False, max_subscriptions=2)
    events = Events()
    nc = await connect(server.url, on_event=events)
    subs = [await nc.subscribe(unique()) for _ in range(3)]
    await eventually(lambda: events.errors)
    (error,) = events.errors
    assert isinstance(error, ServerError)
    assert "maximum subscriptions exceeded" in str(error)
    await nc.publish(subs[0].subject, b"works")
    assert (await subs[0].next(timeout=5)).data == b"works"
    assert nc.statistics.reconnects == 0


async def test_max_connections(start_server: StartServer, connect: Connect) -> None:
    server = start_server(jetstream=False, max_connections=1)
    await connect(server.url)
    with pytest.raises(ServerError, match="maximum connections exceeded"):
        await connect(server.url)
