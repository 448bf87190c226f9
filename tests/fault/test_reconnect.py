"""What an application sees of an outage: what is restored, kept, refused and failed.

The outages here are made by a proxy, so that the server and other clients go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from jetspark import Client, EventKind, Message, connect
from jetspark.errors import (
    ConnectionClosedError,
    DisconnectedError,
    NoRespondersError,
    ReconnectBufferFullError,
    SubscriptionClosedError,
    TimeoutError,
)
from jetspark.server import NatsServer
from tests.support.clients import monitor
from tests.support.faults import FAST
from tests.support.leaks import GUARD, EventLog, until
from tests.support.proxy import Proxy


@pytest.fixture
async def direct(nats_server: NatsServer, nothing_left: None) -> AsyncIterator[Client]:
    """A client that no outage touches."""
    client = await connect(nats_server.url)
    yield client
    await client.close()


class Shaky:
    """A client behind a proxy, and the power to cut it off."""

    def __init__(self, proxy: Proxy, client: Client, log: EventLog) -> None:
        self.proxy = proxy
        self.client = client
        self.log = log
        self.outages = 0

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        """Cut the client off; at the end of the block it is connected again."""
        self.outages += 1
        await self.proxy.refuse()
        await self.proxy.cut()
        await self.log.wait(EventKind.DISCONNECTED, self.outages)
        assert not self.client.connected
        yield
        self.proxy.accept()
        await self.back()

    async def back(self) -> None:
        await self.log.wait(EventKind.CONNECTED, self.outages + 1)
        await self.client.flush()


@asynccontextmanager
async def shaken(proxy: Proxy, **options: Any) -> AsyncIterator[Shaky]:
    log = EventLog()
    client = await connect(proxy.url, on_event=log, name="shaky", **FAST, **options)
    try:
        yield Shaky(proxy, client, log)
    finally:
        await client.close()


@pytest.fixture
async def shaky(proxy: Proxy) -> AsyncIterator[Shaky]:
    async with shaken(proxy) as shaky:
        yield shaky


async def numbers(messages: AsyncIterator[Message], count: int) -> list[int]:
    """The numbers in the next messages; then there must be no more for now."""
    found: list[int] = []
    async with asyncio.timeout(GUARD):
        async for message in messages:
            found.append(int(message.data))
            if len(found) == count:
                break
    return found


async def server_subscriptions(server: NatsServer, name: str) -> list[str]:
    """What the server says a client is subscribed to."""
    connections = (await monitor(server, "/connz?subs=true"))["connections"]
    (found,) = [each for each in connections if each.get("name") == name]
    return sorted(found.get("subscriptions_list", []))


# -- subscriptions


async def test_subscriptions_are_restored(shaky: Shaky, direct: Client) -> None:
    exact = await shaky.client.subscribe("restored.exact")
    wild = await shaky.client.subscribe("restored.wild.*")
    seen: list[bytes] = []
    called = await shaky.client.subscribe("restored.called", callback=lambda m: seen.append(m.data))
    for round_ in range(3):
        async with shaky.outage():
            pass
        for subject in ("restored.exact", "restored.wild.x", "restored.called"):
            await direct.publish(subject, b"%d" % round_)
        await direct.flush()
        assert (await exact.next(timeout=GUARD)).data == b"%d" % round_
        assert (await wild.next(timeout=GUARD)).subject == "restored.wild.x"
        await until(lambda: len(seen) == round_ + 1)  # noqa: B023
    assert seen == [b"0", b"1", b"2"]
    assert [sub.pending_messages for sub in (exact, wild, called)] == [0, 0, 0]
    assert shaky.client.statistics.reconnects == 3


async def test_queue_groups_are_restored_as_groups(shaky: Shaky, direct: Client) -> None:
    members = [await shaky.client.subscribe("shared", queue="workers") for _ in range(2)]
    everything = await shaky.client.subscribe("shared")
    async with shaky.outage():
        pass
    for number in range(40):
        await direct.publish("shared", b"%d" % number)
    await direct.flush()
    await until(lambda: everything.pending_messages == 40)
    await shaky.client.flush()
    shares = [await numbers(member, member.pending_messages) for member in members]
    assert sorted(shares[0] + shares[1]) == list(range(40))


async def test_auto_unsubscribe_counts_on(
    shaky: Shaky, direct: Client, nats_server: NatsServer
) -> None:
    subscription = await shaky.client.subscribe("limited")
    await subscription.unsubscribe(limit=10)
    await shaky.client.flush()
    for number in range(4):
        await direct.publish("limited", b"%d" % number)
    await direct.flush()
    await until(lambda: subscription.pending_messages == 4)
    for _ in range(2):
        async with shaky.outage():
            pass
    for number in range(4, 20):
        await direct.publish("limited", b"%d" % number)
    await direct.flush()
    assert [int(message.data) async for message in subscription] == list(range(10))
    assert subscription.closed
    await shaky.client.flush()
    assert await server_subscriptions(nats_server, "shaky") == []


async def test_limits_set_during_an_outage(shaky: Shaky, direct: Client) -> None:
    reached = await shaky.client.subscribe("limit.reached")
    ahead = await shaky.client.subscribe("limit.ahead")
    await shaky.client.flush()
    for _ in range(3):
        await direct.publish("limit.reached", b"0")
        await direct.publish("limit.ahead", b"0")
    await direct.flush()
    await until(lambda: reached.pending_messages == ahead.pending_messages == 3)
    async with shaky.outage():
        await reached.unsubscribe(limit=2)
        await ahead.unsubscribe(limit=5)
        assert reached.closed
    for _ in range(5):
        await direct.publish("limit.reached", b"1")
        await direct.publish("limit.ahead", b"1")
    await direct.flush()
    assert [m.data async for m in ahead] == [b"0", b"0", b"0", b"1", b"1"]
    assert [m.data async for m in reached] == [b"0", b"0", b"0"]


async def test_changes_during_an_outage(
    shaky: Shaky, direct: Client, nats_server: NatsServer
) -> None:
    old = await shaky.client.subscribe("change.old")
    drained = await shaky.client.subscribe("change.drained")
    kept = await shaky.client.subscribe("change.kept")
    await shaky.client.flush()
    async with shaky.outage():
        await old.unsubscribe()
        new = await shaky.client.subscribe("change.new", queue="q")
        short = await shaky.client.subscribe("change.short")
        await short.unsubscribe()
        draining = asyncio.create_task(drained.drain())
        await asyncio.sleep(0)
    await draining
    listed = await server_subscriptions(nats_server, "shaky")
    assert listed == ["change.kept", "change.new"]
    await direct.publish("change.new", b"1")
    assert (await new.next(timeout=GUARD)).data == b"1"
    with pytest.raises(SubscriptionClosedError):
        await old.next(timeout=GUARD)
    assert not kept.closed


# -- publishing


async def test_published_meanwhile_arrives_once_and_in_order(shaky: Shaky, direct: Client) -> None:
    mirror = await direct.subscribe("meanwhile")
    await direct.flush()
    await shaky.client.publish("meanwhile", b"0")
    await shaky.client.flush()
    async with shaky.outage():
        for number in range(1, 1001):
            await shaky.client.publish("meanwhile", b"%d" % number)
    await shaky.client.publish("meanwhile", b"1001")
    await shaky.client.flush()
    assert await numbers(mirror, 1002) == list(range(1002))
    await direct.flush()
    assert mirror.pending_messages == 0


async def test_own_messages_reach_own_restored_subscription(shaky: Shaky) -> None:
    subscription = await shaky.client.subscribe("own")
    async with shaky.outage():
        for number in range(100):
            await shaky.client.publish("own", b"%d" % number)
    assert await numbers(subscription, 100) == list(range(100))


async def test_full_buffer_refuses_and_recovers(proxy: Proxy, direct: Client) -> None:
    mirror = await direct.subscribe("full")
    await direct.flush()
    taken: list[int] = []
    refused: list[int] = []
    async with shaken(proxy, reconnect_buffer_size=10_000) as shaky:
        async with shaky.outage():
            for number in range(200):
                try:
                    await shaky.client.publish("full", b"%0100d" % number)
                except ReconnectBufferFullError:
                    refused.append(number)
                else:
                    taken.append(number)
            assert shaky.client._encoder.size <= 10_000 + 200
        assert taken
        assert refused == list(range(len(taken), 200))
        await shaky.client.publish("full", b"1000")
        assert await numbers(mirror, len(taken) + 1) == [*taken, 1000]
        async with shaky.outage():
            await shaky.client.publish("full", b"1001")
        assert await numbers(mirror, 1) == [1001]


async def test_no_buffer_refuses_at_once(proxy: Proxy, direct: Client) -> None:
    mirror = await direct.subscribe("unbuffered")
    await direct.flush()
    async with shaken(proxy, reconnect_buffer_size=0) as shaky:
        async with shaky.outage():
            for data in (b"x", b""):
                with pytest.raises(ReconnectBufferFullError, match="buffer_size") as caught:
                    await shaky.client.publish("unbuffered", data)
                assert caught.value.retryable
                assert not caught.value.may_have_taken_effect
            with pytest.raises(ReconnectBufferFullError):
                await shaky.client.request("unbuffered")
        await shaky.client.publish("unbuffered", b"1")
        assert await numbers(mirror, 1) == [1]


# -- calls that wait


async def test_pending_calls_fail_at_once(shaky: Shaky, direct: Client) -> None:
    await direct.subscribe("silent", callback=lambda _: None)
    await direct.flush()

    async def many() -> None:
        async for _ in shaky.client.request_many("silent", timeout=3600):
            raise AssertionError("nobody answers")

    calls = [
        asyncio.create_task(shaky.client.request("silent", timeout=3600)),
        asyncio.create_task(shaky.client.request("silent", timeout=3600)),
        asyncio.create_task(many()),
    ]
    await asyncio.sleep(0)
    await shaky.client.flush()
    shaky.proxy.stall("down")
    calls.append(asyncio.create_task(shaky.client.flush(timeout=3600)))
    await asyncio.sleep(0.01)
    async with shaky.outage():
        shaky.proxy.unstall()
        async with asyncio.timeout(GUARD):
            results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) for result in results] == [DisconnectedError] * 4
    assert len({id(result) for result in results}) == 4, "each caller has an exception of its own"
    for result in results:
        assert isinstance(result, DisconnectedError)
        assert result.retryable
        assert result.may_have_taken_effect


async def test_requests_during_an_outage_complete_after_it(shaky: Shaky, direct: Client) -> None:
    async def answer(message: Message) -> None:
        await message.respond(b"re:" + message.data)

    await direct.subscribe("service", callback=answer)
    await direct.flush()
    async with shaky.outage():
        calls = [
            asyncio.create_task(shaky.client.request("service", b"%d" % number, timeout=GUARD))
            for number in range(10)
        ]
        await asyncio.sleep(0.02)
        assert not any(call.done() for call in calls)
    answers = await asyncio.gather(*calls)
    assert [each.data for each in answers] == [b"re:%d" % number for number in range(10)]
    assert (await shaky.client.request("service", b"x")).data == b"re:x"


async def test_requests_during_an_outage_time_out(shaky: Shaky) -> None:
    async with shaky.outage():
        with pytest.raises(TimeoutError):
            await shaky.client.request("service", timeout=0.02)
        answers = [m async for m in shaky.client.request_many("service", timeout=0.02)]
        assert answers == []
    assert shaky.client._mux is not None
    assert shaky.client._mux.pending == 0
    with pytest.raises(NoRespondersError):
        await shaky.client.request("nobody.at.home")


async def test_flush_waits_for_the_reconnect(shaky: Shaky) -> None:
    async with shaky.outage():
        flushing = asyncio.create_task(shaky.client.flush(timeout=GUARD))
        with pytest.raises(TimeoutError):
            await shaky.client.flush(timeout=0.02)
        assert not flushing.done()
    await flushing
    assert await shaky.client.rtt() > 0


# -- reconnecting on request


async def test_force_reconnect_when_connected(shaky: Shaky, direct: Client) -> None:
    subscription = await shaky.client.subscribe("forced")
    await shaky.client.flush()
    for round_ in range(1, 4):
        await shaky.client.publish("forced", b"%d" % round_)
        await shaky.client.force_reconnect()
        assert not shaky.client.connected
        await shaky.client.flush()
        assert shaky.client.statistics.reconnects == round_
    await direct.publish("forced", b"99")
    await until(lambda: shaky.proxy.active == 1)
    assert shaky.proxy.connections == 4
    while int((await subscription.next(timeout=GUARD)).data) != 99:
        pass


async def test_force_reconnect_keeps_the_order(shaky: Shaky, direct: Client) -> None:
    """What the socket did not take yet goes out before what is published afterwards."""
    mirror = await direct.subscribe("forced.order")
    await direct.flush()
    shaky.proxy.delay(0.05, "up")
    for number in range(100):
        await shaky.client.publish("forced.order", b"%d" % number)
    await asyncio.sleep(0)
    await shaky.client.force_reconnect()
    await shaky.client.publish("forced.order", b"100")
    shaky.proxy.delay(0, "up")
    await shaky.client.flush()
    await direct.flush()
    found = await numbers(mirror, mirror.pending_messages)
    assert found == sorted(set(found))
    assert found[-1] == 100


async def test_force_reconnect_in_other_states(shaky: Shaky) -> None:
    async with shaky.outage():
        await shaky.client.force_reconnect()  # that is what it is at already
        assert not shaky.client.connected
    reconnects = shaky.client.statistics.reconnects
    await asyncio.gather(shaky.client.force_reconnect(), shaky.client.force_reconnect())
    await shaky.client.flush()
    assert shaky.client.statistics.reconnects == reconnects + 1
    await shaky.client.force_reconnect()
    await shaky.client.drain()  # waits for the new connection
    with pytest.raises(ConnectionClosedError):
        await shaky.client.force_reconnect()


async def test_state_within_events(proxy: Proxy) -> None:
    """Who asks the client from an event callback gets an answer that fits the event."""
    seen: list[tuple[EventKind, bool]] = []
    client: Client | None = None

    def note(event: Any) -> None:
        log(event)
        if client is not None:
            seen.append((event.kind, client.connected))

    log = EventLog()
    client = await connect(proxy.url, on_event=note, **FAST)
    try:
        await proxy.cut()
        await log.wait(EventKind.CONNECTED, 2)
    finally:
        await client.close()
    assert seen == [
        (EventKind.DISCONNECTED, False),
        (EventKind.RECONNECTING, False),
        (EventKind.CONNECTED, True),
        (EventKind.DISCONNECTED, False),
        (EventKind.CLOSED, False),
    ]
