"""`messages` and `consume` in trouble: cut, stalled, restarted, cancelled, closed.

Whatever happens: no message is lost, none comes twice without `num_delivered` saying so, and in the
end the acknowledgements add up.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from jetspark import Client
from jetspark.errors import (
    ConnectionClosedError,
    MissingHeartbeatError,
    NoStreamResponseError,
    PermissionsError,
    ServerShutdownError,
    TimeoutError,
)
from jetspark.jetstream.consumer import PullConsumer
from jetspark.jetstream.consumer.messages import MessageStream
from jetspark.jetstream.message import JetStreamMessage
from tests.support.conformance import conformance
from tests.support.faults import connected
from tests.support.js import (
    Warnings,
    all_acked,
    eventually_equal,
    fill,
    make_consumer,
    make_stream,
    sequences,
    served,
    settled,
    waiting_requests,
)
from tests.support.leaks import until
from tests.support.proxy import Proxy
from tests.support.servers import StartServer


async def shared(
    near: Client, far: Client, count: int = 0, **config: Any
) -> tuple[PullConsumer, PullConsumer]:
    """One consumer as both clients see it."""
    stream = await make_stream(near, count)
    consumer = await make_consumer(near, stream, **{"ack_wait": 60, **config})
    return consumer, await far.jetstream().get_consumer(stream, consumer.name)


class Ledger:
    """All messages that an application got; any number of times, if that is what they say."""

    def __init__(self) -> None:
        self.deliveries: Counter[tuple[int, int]] = Counter()

    def add(self, message: JetStreamMessage) -> None:
        metadata = message.metadata
        self.deliveries[metadata.stream_sequence, metadata.num_delivered] += 1

    @property
    def seen(self) -> set[int]:
        return {sequence for sequence, _ in self.deliveries}

    def check(self, count: int) -> None:
        assert self.seen == set(range(1, count + 1))
        assert set(self.deliveries.values()) == {1}, "the same delivery twice"


COUNT = 1500


# -- the connection is lost


@conformance("ADR-37", "Consume: reconnect", "a new request is sent on the next connection")
@pytest.mark.parametrize("how", ["messages", "consume"])
async def test_cut_again_and_again(proxy: Proxy, near: Client, far: Client, how: str) -> None:
    ours, theirs = await shared(near, far, COUNT, ack_wait=0.5)
    ledger, done = Ledger(), asyncio.Event()

    async def work(message: JetStreamMessage) -> None:
        await message.ack()
        ledger.add(message)
        if len(ledger.seen) % 10 == 0:
            await asyncio.sleep(0)

    async def iterate() -> None:
        async with theirs.messages(50) as messages:
            while not done.is_set():
                with suppress(TimeoutError):
                    await work(await messages.next(timeout=0.1))

    async def consume() -> None:
        async with await theirs.consume(work, max_messages=50):
            await done.wait()

    running = asyncio.create_task(iterate() if how == "messages" else consume())
    for part in (0.2, 0.4, 0.6, 0.8):
        await until(lambda: len(ledger.seen) >= part * COUNT)  # noqa: B023
        await proxy.cut()
    # Acks that were under way are lost with the connection, and their messages come again.
    await all_acked(ours, COUNT)
    done.set()
    await running
    ledger.check(COUNT)
    await served(ours, 0)
    assert far.statistics.reconnects >= 4


async def test_cut_without_acks(proxy: Proxy, near: Client, far: Client) -> None:
    """What was under way is lost then, and nothing else: it goes on behind it."""
    _, theirs = await shared(near, far, COUNT, ack_policy="none", ack_wait=0)
    seen: list[int] = []
    async with theirs.messages(50) as messages:
        while not seen or seen[-1] < COUNT:
            seen.append((await messages.next(timeout=20)).metadata.stream_sequence)
            if len(seen) in (300, 900):
                await proxy.cut()
    assert seen == sorted(set(seen))
    assert COUNT - len(seen) <= 2 * 50  # no more than was on order


@conformance("ADR-37", "Consume: reconnect", "the requests of the old connection are given up")
async def test_old_requests_do_not_live_on(proxy: Proxy, near: Client, far: Client) -> None:
    ours, theirs = await shared(near, far)
    warnings = Warnings()
    async with theirs.messages(10, on_warning=warnings) as messages:
        await served(ours)
        for _ in range(3):
            await proxy.cut()
            reconnects = far.statistics.reconnects
            await until(lambda: far.connected and far.statistics.reconnects > reconnects)  # noqa: B023
            await far.flush()
        await served(ours)  # one, not four
        await fill(near, ours.stream_name, 60)
        await eventually_equal(lambda: _ack_pending(ours), 10)
        await asyncio.sleep(0.1)
        assert await _ack_pending(ours) == 10
        assert sequences([await messages.next(5) for _ in range(60)]) == list(range(1, 61))
    assert warnings == []


async def _ack_pending(consumer: PullConsumer) -> int:
    return (await consumer.info()).num_ack_pending


async def test_what_waits_counts_after_a_reconnect(proxy: Proxy, near: Client, far: Client) -> None:
    ours, theirs = await shared(near, far, 100)
    async with theirs.messages(10) as messages:
        await until(lambda: len(messages._waiting()) == 10)
        await proxy.cut()
        await until(lambda: not far.connected)
        await far.flush()
        await asyncio.sleep(0.1)
        assert await _ack_pending(ours) == 10  # the application has not taken one of them
        for number in range(1, 31):
            message = await messages.next(5)
            await message.ack()  # those of the old connection, too
            assert message.metadata.stream_sequence == number
            assert len(messages._waiting()) <= 10
    await eventually_equal(lambda: _ack_floor(ours), 30)


async def _ack_floor(consumer: PullConsumer) -> int:
    return (await consumer.info()).ack_floor.stream_seq


@pytest.mark.parametrize("graceful", [True, False], ids=["stop", "kill"])
async def test_server_restarts(start_server: StartServer, graceful: bool) -> None:
    server = start_server()
    async with connected(server.url) as nc:
        stream = await make_stream(nc, 1000, storage="file")
        consumer = await make_consumer(nc, stream, ack_wait=0.5)
        ledger, warnings = Ledger(), Warnings()

        async def work(message: JetStreamMessage) -> None:
            await message.ack()
            ledger.add(message)
            await asyncio.sleep(0)

        options: dict[str, Any] = {"max_messages": 20, "expires": 2, "on_warning": warnings}
        async with await consumer.consume(work, **options):
            await until(lambda: len(ledger.seen) >= 300)
            if not graceful:
                await server.akill()
            await server.arestart()
            await until(lambda: len(ledger.seen) == 1000)
            await all_acked(consumer, 1000)
        if graceful:  # a server that is killed may forget what it has delivered
            ledger.check(1000)
        assert {type(warning) for warning in warnings} <= {
            ServerShutdownError,
            NoStreamResponseError,
        }


@conformance("ADR-37", "Consume: reconnect", "no heartbeat is missed while disconnected")
async def test_begun_while_disconnected(proxy: Proxy, near: Client, far: Client) -> None:
    _, theirs = await shared(near, far, 3)
    warnings = Warnings()
    await proxy.refuse()
    await proxy.cut()
    await until(lambda: not far.connected)
    async with theirs.messages(expires=1, on_warning=warnings) as messages:
        waiting = asyncio.create_task(messages.next(timeout=20))
        await asyncio.sleep(1.3)  # more than two heartbeats
        proxy.accept()
        assert sequences([await waiting, await messages.next(5)]) == [1, 2]
        assert messages._monitor is not None
    assert warnings == []


@pytest.mark.parametrize("end", ["stop", "drain"])
async def test_ended_while_disconnected(proxy: Proxy, near: Client, far: Client, end: str) -> None:
    ours, theirs = await shared(near, far, 30)
    messages = theirs.messages(10)
    await messages.next(5)
    await until(lambda: len(messages._waiting()) == 9)
    await proxy.refuse()
    await proxy.cut()
    await until(lambda: not far.connected)
    async with asyncio.timeout(5):
        await getattr(messages, end)()
        left = [message async for message in messages]
    assert len(left) == (0 if end == "stop" else 9)
    proxy.accept()
    await far.flush()
    assert await waiting_requests(ours) == 0


async def test_connection_lost_for_good(proxy: Proxy, near: Client) -> None:
    async with connected(proxy.url, allow_reconnect=False) as far:
        _, theirs = await shared(near, far, 5)
        messages = theirs.messages()
        first = await messages.next(5)
        await until(lambda: len(messages._waiting()) == 4)
        consumption = await theirs.consume(lambda message: None)
        await proxy.cut()
        seen = [first]
        with pytest.raises(ConnectionClosedError):
            async for message in messages:
                seen.append(message)  # noqa: PERF401
        assert sequences(seen) == [1, 2, 3, 4, 5]
        with pytest.raises(ConnectionClosedError):
            await consumption.wait()


# -- the connection stalls


@conformance("ADR-37", "Consume: heartbeats", "a warning follows after two missing heartbeats")
@conformance("ADR-37", "Consume: heartbeats", "missing heartbeats are not terminal")
@pytest.mark.parametrize("polling", [False, True], ids=["waiting", "polling"])
async def test_missing_heartbeats(proxy: Proxy, near: Client, far: Client, polling: bool) -> None:
    ours, theirs = await shared(near, far)
    warnings = Warnings()

    async def next_message(messages: MessageStream) -> JetStreamMessage:
        while True:
            try:
                return await messages.next(timeout=0.1 if polling else 20)
            except TimeoutError:
                continue

    async with theirs.messages(10, expires=1, on_warning=warnings) as messages:
        waiting = asyncio.create_task(next_message(messages))
        await served(ours)
        proxy.stall("down")
        await warnings.wait(MissingHeartbeatError)
        await asyncio.sleep(0.6)
        assert len(warnings) <= 2  # not with every look at the clock
        assert not waiting.done()
        proxy.unstall()
        await fill(near, ours.stream_name, 100)
        seen = [await waiting, *[await messages.next(5) for _ in range(99)]]
        for message in seen:
            await message.ack()
    assert sequences(seen) == list(range(1, 101))
    await all_acked(ours, 100)
    assert set(warnings.kinds) == {MissingHeartbeatError}


async def test_stop_after_is_exact_when_orders_were_repeated(
    proxy: Proxy, near: Client, far: Client
) -> None:
    ours, theirs = await shared(near, far)
    warnings = Warnings()
    options: dict[str, Any] = {"expires": 10, "heartbeat": 0.3, "on_warning": warnings}
    async with theirs.messages(10, stop_after=3, **options) as messages:
        await served(ours)
        proxy.stall("down")
        await warnings.wait(MissingHeartbeatError)
        await fill(near, ours.stream_name, 10)  # more than one request is there to be served
        delivered = await settled(lambda: _ack_pending(ours))
        assert delivered > 3
        proxy.unstall()
        await until(lambda: len(messages._waiting()) == delivered)
        assert sequences([message async for message in messages]) == [1, 2, 3]
    rest = await ours.fetch(7, timeout=10)  # the surplus was given back
    assert sorted(sequences(rest)) == [4, 5, 6, 7, 8, 9, 10]


async def test_drain_over_a_stalled_connection(proxy: Proxy, near: Client, far: Client) -> None:
    _, theirs = await shared(near, far, 5)
    messages = theirs.messages(5)
    await messages.next(5)
    await until(lambda: len(messages._waiting()) == 4)
    proxy.stall()
    draining = asyncio.create_task(messages.drain(timeout=0.1))
    await asyncio.sleep(0)
    sent = far.statistics.messages_out
    assert sequences([await messages.next(5) for _ in range(3)]) == [2, 3, 4]
    assert far.statistics.messages_out == sent  # no more is asked for
    with pytest.raises(TimeoutError, match="'c'"):
        await draining
    assert sequences([message async for message in messages]) == [5]
    proxy.unstall()
    await far.flush()


# -- slow readers


@pytest.mark.parametrize("ordered", [False, True], ids=["pull", "ordered"])
async def test_a_reader_of_large_messages_stalls(
    proxy: Proxy, near: Client, far: Client, ordered: bool
) -> None:
    """Where no limit is given, what is on order does not make the server hang up."""
    count, size = 120, 1_000_000
    stream = await make_stream(near, count, size=size)
    if ordered:
        theirs: PullConsumer = await (await far.jetstream().get_stream(stream)).ordered_consumer()
    else:
        theirs = await make_consumer(far, stream, ack_wait=60)
    before = proxy.bytes_down
    async with theirs.messages() as messages:
        found = [await messages.next(10) for _ in range(20)]

        async def arrived() -> int:
            return proxy.bytes_down - before

        assert await settled(arrived, turns=10) < 45 * size
        found += [await messages.next(10) for _ in range(count - 20)]
    assert sequences(found) == list(range(1, count + 1))
    assert {message.metadata.num_delivered for message in found} == {1}
    assert far.statistics.reconnects == 0


# -- cancellation


async def test_cancelled_waits_lose_nothing(near: Client) -> None:
    ours, _ = await shared(near, near)
    routes = len(near._routes)
    seen: list[int] = []
    messages = ours.messages(4)
    filling = asyncio.create_task(fill(near, ours.stream_name, 300))
    turns = 0
    while len(seen) < 300:
        task = asyncio.create_task(messages.next(5) if turns % 3 else _anext(messages))
        for _ in range(turns % 7):
            await asyncio.sleep(0)
        if turns % 2:
            task.cancel()
        (result,) = await asyncio.gather(task, return_exceptions=True)
        if isinstance(result, JetStreamMessage):
            seen.append(result.metadata.stream_sequence)
            await result.ack()
        else:
            assert isinstance(result, asyncio.CancelledError)
        turns += 1
    await filling
    await messages.stop()
    assert seen == list(range(1, 301))
    await all_acked(ours, 300)
    assert len(near._routes) == routes


async def _anext(messages: MessageStream) -> JetStreamMessage:
    return await anext(messages)


@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("call", ["stop", "drain", "wait"])
async def test_cancelled_end_of_consume(near: Client, call: str, turns: int) -> None:
    ours, _ = await shared(near, near, 20)
    routes = len(near._routes)
    ledger = Ledger()

    async def work(message: JetStreamMessage) -> None:
        await asyncio.sleep(0)
        await message.ack()
        ledger.add(message)

    consumption = await ours.consume(work, max_messages=20)
    await until(lambda: ledger.seen)
    task = asyncio.create_task(getattr(consumption, call)())
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await consumption.drain()
    assert consumption.closed
    assert len(near._routes) == routes
    assert set(ledger.deliveries.values()) == {1}
    if call == "wait":
        ledger.check(20)


@pytest.mark.parametrize("turns", range(5))
async def test_cancelled_drain(near: Client, turns: int) -> None:
    ours, _ = await shared(near, near, 20)
    routes = len(near._routes)
    messages = ours.messages(10)
    seen = [await messages.next(5)]
    await until(lambda: len(messages._waiting()) == 9)
    task = asyncio.create_task(messages.drain())
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await messages.drain()
    seen += [message async for message in messages]
    assert sequences(seen) == list(range(1, 11))
    assert len(near._routes) == routes


# -- permissions


async def test_inbox_that_is_not_permitted(start_server: StartServer) -> None:
    deny = {"subscribe": {"deny": "secret.>"}}
    server = start_server(
        users=[
            {"user": "all", "password": "x"},
            {"user": "some", "password": "x", "permissions": deny},
        ]
    )
    async with connected(server.url, user="some", password="x") as nc:
        consumer = await make_consumer(nc, await make_stream(nc, 1))
        messages = consumer.messages()
        messages.subject, messages._inbox = "secret.inbox", b"secret.inbox"
        with pytest.raises(PermissionsError, match=r"secret\.inbox"):
            await messages.next(timeout=5)
        assert len(nc._routes) == 1
