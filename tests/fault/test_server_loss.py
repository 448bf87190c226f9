"""Servers that crash and come back under load, with the books balanced.

Every message has a number. When a connection is lost, those published since the last flush may or
may not have arrived, and nobody can know; about all others the books must agree: nothing is lost,
nothing arrives twice or out of order, and what was refused does not arrive.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from jetspark import (
    Backoff,
    Client,
    ConnectionEvent,
    ConnectionState,
    EventKind,
    Message,
    connect,
)
from jetspark.errors import (
    AuthenticationError,
    ConnectionClosedError,
    ConnectionError,
    DisconnectedError,
    NoServersError,
    ReconnectBufferFullError,
    TimeoutError,
)
from jetspark.server import NatsServer
from tests.support.faults import FAST, connected
from tests.support.leaks import GUARD, EventLog, assert_client_gone, until
from tests.support.proxy import Proxy
from tests.support.servers import StartServer


@pytest.fixture
def server(start_server: StartServer) -> NatsServer:
    return start_server(jetstream=False)


class Books:
    """Publishes numbers and keeps account of what has become of them."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.receiver: Client | None = None  # if that is another client
        self.log = EventLog()
        self.sent: list[int] = []
        self.refused: list[int] = []
        self.uncertain: set[int] = set()
        self.arrived: list[int] = []
        self.buffered = 0  # accepted while there was no connection
        self._next = 0
        self._open: list[int] = []  # sent since the last flush that succeeded

    def on_event(self, event: ConnectionEvent) -> None:
        # In the very moment of the loss: what is published from now on is not uncertain.
        if event.kind is EventKind.DISCONNECTED:
            self.uncertain.update(self._open)
            self._open.clear()
        self.log(event)

    def on_message(self, message: Message) -> None:
        self.arrived.append(int(message.data))

    async def publish(self, client: Client) -> None:
        number = self._next
        self._next += 1
        self._open.append(number)
        self.sent.append(number)
        connected = client.connected
        try:
            await client.publish(self.subject, b"%d" % number)
        except ReconnectBufferFullError:
            self.sent.remove(number)
            self._open.remove(number)
            self.refused.append(number)
        else:
            self.buffered += not connected

    async def flush(self, client: Client) -> None:
        covered = len(self._open)
        losses = len(self.log.of(EventKind.DISCONNECTED))
        try:
            await client.flush(timeout=GUARD)
            if self.receiver is not None:
                # The server has taken them, but may hold them for another client when it dies.
                await self.receiver.flush(timeout=GUARD)
        except DisconnectedError:
            return  # told by an event as well
        if losses == len(self.log.of(EventKind.DISCONNECTED)):
            del self._open[:covered]

    async def load(self, client: Client, stop: asyncio.Event) -> None:
        """Publish and flush until told to stop, also while there is no connection."""
        while not stop.is_set():
            for _ in range(20):
                await self.publish(client)
            if client.connected:
                await self.flush(client)
            else:
                await asyncio.sleep(0.001)

    def check(self) -> None:
        assert self.arrived == sorted(set(self.arrived)), "twice, or out of order"
        arrived, sent = set(self.arrived), set(self.sent)
        assert arrived <= sent, f"arrived without being sent: {sorted(arrived - sent)[:10]}"
        missing = sent - arrived
        assert missing <= self.uncertain, f"lost: {sorted(missing - self.uncertain)[:10]}"


async def test_own_messages_over_crashes(server: NatsServer) -> None:
    """One client that publishes to itself: its subscription is back before its messages are."""
    books = Books("own")
    async with connected(
        server.url, on_event=books.on_event, reconnect_buffer_size=8 * 1024
    ) as client:
        await client.subscribe("own", callback=books.on_message)
        await client.flush()
        stop = asyncio.Event()
        load = asyncio.create_task(books.load(client, stop))
        for round_ in range(1, 7):
            before = len(books.arrived)
            await until(lambda: len(books.arrived) > before + 200)  # noqa: B023
            await server.akill()
            await books.log.wait(EventKind.DISCONNECTED, round_)
            if round_ % 2:
                await until(lambda: books.refused)
            await server.astart()
            await books.log.wait(EventKind.CONNECTED, round_ + 1)
        stop.set()
        await load
        await books.flush(client)
        last = books.sent[-1]
        await until(lambda: books.arrived[-1] == last)
    books.check()
    assert books.buffered
    assert books.refused
    assert last not in books.uncertain


async def test_publisher_and_subscriber_over_crashes(server: NatsServer) -> None:
    """The publisher is let back in only when the subscriber is: then nothing may be missing."""
    books = Books("numbers")
    sub_log = EventLog()
    async with (
        Proxy(server.host, server.port) as proxy,
        connected(proxy.url, on_event=books.on_event) as publisher,
        connected(server.url, on_event=sub_log) as subscriber,
    ):
        books.receiver = subscriber
        subscription = await subscriber.subscribe("numbers", callback=books.on_message)
        await subscriber.flush()
        stop = asyncio.Event()
        load = asyncio.create_task(books.load(publisher, stop))
        for round_ in range(1, 6):
            before = len(books.arrived)
            await until(lambda: len(books.arrived) > before + 200)  # noqa: B023
            await proxy.refuse()
            await server.akill()
            await books.log.wait(EventKind.DISCONNECTED, round_)
            await server.astart()
            await sub_log.wait(EventKind.CONNECTED, round_ + 1)
            await subscriber.flush()
            buffered = books.buffered
            await until(lambda: books.buffered > buffered + 100)  # noqa: B023
            proxy.accept()
            await books.log.wait(EventKind.CONNECTED, round_ + 1)
        stop.set()
        await load
        await books.flush(publisher)
        await subscriber.flush()
        last = books.sent[-1]
        await until(lambda: books.arrived[-1] == last)
        assert subscription.dropped == 0
    books.check()
    assert not books.refused


async def test_cut_at_random_moments_under_load(server: NatsServer) -> None:
    chance = random.Random(20)
    books = Books("cut")
    async with (
        Proxy(server.host, server.port) as proxy,
        connected(
            proxy.url, on_event=books.on_event, reconnect_delay=Backoff(0.001, 0.01)
        ) as publisher,
        connected(server.url) as subscriber,
    ):
        await subscriber.subscribe("cut", callback=books.on_message)
        await subscriber.flush()
        stop = asyncio.Event()
        load = asyncio.create_task(books.load(publisher, stop))
        async with asyncio.timeout(GUARD):
            while len(books.log.of(EventKind.DISCONNECTED)) < 40:
                await asyncio.sleep(chance.random() * 0.05)
                if chance.random() < 0.5:
                    await proxy.cut()
                else:
                    proxy.truncate_after(chance.randint(1, 5000), chance.choice(("up", "down")))
        for direction in ("up", "down"):
            proxy.truncate_after(2**62, direction)  # no more of it
        stop.set()
        await load
        await until(lambda: publisher.connected)
        last = books.sent[-1]
        if last in books.uncertain:
            await books.publish(publisher)
            last = books.sent[-1]
        await books.flush(publisher)
        await until(lambda: books.arrived and books.arrived[-1] == last)
    books.check()


async def test_subscriber_over_cuts_sees_no_message_twice(server: NatsServer) -> None:
    """A subscriber misses what is published while it is away, and nothing else goes wrong."""
    chance = random.Random(21)
    log = EventLog()
    arrived: list[int] = []
    sent = 0
    async with (
        Proxy(server.host, server.port) as proxy,
        connected(proxy.url, on_event=log) as subscriber,
        connected(server.url) as publisher,
    ):
        await subscriber.subscribe("s.*", callback=lambda m: arrived.append(int(m.data)))
        await subscriber.flush()
        for _ in range(30):
            for _ in range(chance.randint(1, 300)):
                await publisher.publish("s.x", b"%d" % sent)
                sent += 1
            await publisher.flush()
            await proxy.cut()
        await until(lambda: subscriber.connected)
        await subscriber.flush()
        await publisher.publish("s.x", b"%d" % sent)
        await until(lambda: arrived and arrived[-1] == sent)
    assert arrived == sorted(set(arrived))
    assert log.of(EventKind.DISCONNECTED)


async def test_requests_over_crashes(server: NatsServer) -> None:
    """Each request is answered, fails at once, or times out; and afterwards they work again."""
    log = EventLog()
    outcomes: dict[str, int] = {}
    stop = asyncio.Event()
    async with connected(server.url, on_event=log) as client:

        async def answer(message: Message) -> None:
            await message.respond(message.data)

        async def ask(name: int) -> None:
            number = 0
            while not stop.is_set():
                question = b"%d/%d" % (name, number)
                number += 1
                try:
                    assert (await client.request("echo", question, timeout=GUARD)).data == question
                    outcome = "answered"
                except DisconnectedError:
                    outcome = "disconnected"
                outcomes[outcome] = outcomes.get(outcome, 0) + 1

        await client.subscribe("echo", callback=answer)
        asking = [asyncio.create_task(ask(name)) for name in range(10)]
        for round_ in range(1, 5):
            before = outcomes.get("answered", 0)
            await until(lambda: outcomes.get("answered", 0) > before + 100)  # noqa: B023
            await server.akill()
            await log.wait(EventKind.DISCONNECTED, round_)
            await server.astart()
            await log.wait(EventKind.CONNECTED, round_ + 1)
        stop.set()
        async with asyncio.timeout(GUARD):
            await asyncio.gather(*asking)
        assert outcomes["disconnected"] >= 4
        assert client._mux is not None
        assert client._mux.pending == 0


# -- giving up


async def test_gives_up_after_the_maximum_of_attempts(server: NatsServer) -> None:
    log = EventLog()
    async with connected(server.url, on_event=log, max_reconnect_attempts=3) as client:
        subscription = await client.subscribe("given.up")
        await client.publish("given.up", b"kept")
        await until(lambda: subscription.pending_messages == 1)
        await server.akill()
        await log.wait(EventKind.DISCONNECTED)
        waiting = [
            asyncio.ensure_future(client.flush(timeout=None)),
            asyncio.ensure_future(client.request("given.up", timeout=3600)),
        ]
        closed = await log.wait(EventKind.CLOSED)
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in results] == [ConnectionClosedError] * 2
        assert [event.attempt for event in log.of(EventKind.RECONNECTING)] == [1, 2, 3]
        assert isinstance(closed.error, NoServersError)
        assert client.closed
        assert client.last_error is closed.error
        for call in (client.publish("x"), client.flush(), client.subscribe("x")):
            with pytest.raises(ConnectionClosedError) as caught:
                await call
            assert caught.value.__cause__ is closed.error
        assert (await subscription.next()).data == b"kept"
        with pytest.raises(ConnectionClosedError):
            await subscription.next()
        with pytest.raises(ConnectionClosedError):
            async for _ in subscription:
                pass
        assert_client_gone(client)
        await client.close()
        await client.drain()
    assert len(log.of(EventKind.CLOSED)) == 1


async def test_reconnect_not_allowed(server: NatsServer) -> None:
    log = EventLog()
    async with connected(server.url, on_event=log, allow_reconnect=False) as client:
        subscription = await client.subscribe("x")
        await client.flush()
        waiting = asyncio.ensure_future(anext(subscription))
        await server.akill()
        closed = await log.wait(EventKind.CLOSED)
        assert isinstance(closed.error, DisconnectedError)
        with pytest.raises(ConnectionClosedError):
            await waiting
        assert client.state is ConnectionState.CLOSED
        assert log.of(EventKind.RECONNECTING) == []
        assert_client_gone(client)


async def test_tries_forever(server: NatsServer) -> None:
    log = EventLog()
    options = {"max_reconnect_attempts": None, "reconnect_delay": Backoff(0.001, 0.002)}
    async with connected(server.url, on_event=log, **options) as client:
        await server.akill()
        await log.wait(EventKind.RECONNECTING, 100)
        await server.astart()
        await client.flush(timeout=GUARD)
        # The next loss begins from the start.
        await server.akill()
        await log.wait(EventKind.DISCONNECTED, 2)
        await server.astart()
        await client.flush(timeout=GUARD)
    attempts = [event.attempt for event in log.of(EventKind.RECONNECTING)]
    assert attempts[:100] == list(range(1, 101))
    assert attempts.count(1) == 2


async def test_callable_delay_gets_the_attempts(server: NatsServer) -> None:
    log = EventLog()
    asked: list[int] = []

    def delay(attempt: int) -> float:
        asked.append(attempt)
        if attempt == 2:
            raise ValueError("an application's mistake")
        return 0.001

    async with connected(server.url, on_event=log, reconnect_delay=delay) as client:
        await until(lambda: client.statistics.connects)
        await server.akill()
        await until(lambda: len(asked) >= 5)
        await server.astart()
        await client.flush(timeout=GUARD)
    # A connection that was lost within a second counts as the first failure.
    assert asked[:5] == [1, 2, 3, 4, 5]
    errors = [event.error for event in log.of(EventKind.ERROR)]
    assert any(isinstance(error, ValueError) for error in errors)


async def test_password_changed_during_an_outage(start_server: StartServer) -> None:
    before, after = (
        start_server(jetstream=False, user="u", password=password) for password in ("old", "new")
    )
    log = EventLog()
    async with (
        Proxy(before.host, before.port) as proxy,
        connected(proxy.url, on_event=log, user="u", password="old") as client,
    ):
        proxy.retarget(after.host, after.port)
        await proxy.cut()
        await log.wait(EventKind.DISCONNECTED)
        flushing = asyncio.ensure_future(client.flush(timeout=GUARD))
        closed = await log.wait(EventKind.CLOSED)
        assert isinstance(closed.error, NoServersError)
        assert isinstance(closed.error.__cause__, AuthenticationError)
        with pytest.raises(ConnectionClosedError, match="Authorization Violation"):
            await flushing
        refusals = [event.error for event in log.of(EventKind.ERROR)]
        assert [type(error) for error in refusals] == [AuthenticationError] * 2
        assert_client_gone(client)
        assert proxy.connections == 3


async def test_password_renewed_by_a_callable(start_server: StartServer) -> None:
    before, after = (
        start_server(jetstream=False, user="u", password=password) for password in ("old", "new")
    )
    passwords = ["new", "old", "old"]
    log = EventLog()
    async with (
        Proxy(before.host, before.port) as proxy,
        connected(proxy.url, on_event=log, user="u", password=passwords.pop) as client,
    ):
        proxy.retarget(after.host, after.port)
        await proxy.cut()
        await log.wait(EventKind.CONNECTED, 2)
        assert [type(event.error) for event in log.of(EventKind.ERROR)] == [AuthenticationError]
        await client.flush()
    assert passwords == []


async def test_initial_connect_is_retried_in_the_background(server: NatsServer) -> None:
    url = server.url
    server.kill()
    with pytest.raises(ConnectionError):
        await connect(url, **FAST)
    log = EventLog()
    async with connected(url, retry_initial_connect=True, on_event=log) as client:
        assert client.state is ConnectionState.RECONNECTING
        with pytest.raises(DisconnectedError):
            _ = client.server_info
        subscription = await client.subscribe("early")
        await client.publish("early", b"bird")
        with pytest.raises(TimeoutError):
            await client.flush(timeout=0.02)
        await server.astart()
        assert (await subscription.next(timeout=GUARD)).data == b"bird"
        assert log.of(EventKind.CONNECTED)[0].reconnect is False
        assert client.server_info.version == server.version


async def test_server_that_drops_connections_at_once(server: NatsServer) -> None:
    """It is not connected to over and over without a pause, and the pauses grow."""
    log = EventLog()
    delays: list[int] = []

    def delay(attempt: int) -> float:
        delays.append(attempt)
        return Backoff(initial=0.01, maximum=1.0, jitter=0.0).delay(attempt, 0.0)

    async with (
        Proxy(server.host, server.port) as proxy,
        connected(proxy.url, on_event=log, reconnect_delay=delay) as client,
    ):
        for count in range(1, 7):
            await log.wait(EventKind.CONNECTED, count)
            await proxy.cut()
        await log.wait(EventKind.CONNECTED, 7)
        await client.flush(timeout=GUARD)
        assert proxy.connections == 7
    assert delays == [1, 2, 3, 4, 5, 6]


async def test_server_that_drops_handshakes(server: NatsServer) -> None:
    log = EventLog()
    async with (
        Proxy(server.host, server.port) as proxy,
        connected(proxy.url, on_event=log, reconnect_delay=Backoff(0.1, 0.1, jitter=0)) as client,
    ):
        await server.akill()
        await log.wait(EventKind.DISCONNECTED)
        # The proxy accepts and then finds no server behind it.
        await asyncio.sleep(0.5)
        assert 2 <= proxy.connections <= 7
        assert all(event.error.retryable for event in log.of(EventKind.ERROR))  # type: ignore[union-attr]
        await server.astart()
        await client.flush(timeout=GUARD)
