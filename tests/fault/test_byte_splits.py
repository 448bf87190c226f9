"""Byte streams in pieces: split anywhere, late, and cut off in the middle of a frame."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from jetspark import Backoff, Client, EventKind, Message, connect
from jetspark.errors import ConnectionError, NoRespondersError
from jetspark.server import NatsServer
from tests.support.leaks import GUARD, EventLog, until
from tests.support.proxy import Direction, Proxy
from tests.support.servers import StartServer

EAGER: dict[str, Any] = {"reconnect_delay": Backoff(initial=0.001, maximum=0.002)}


@pytest.fixture
async def direct(nats_server: NatsServer, nothing_left: None) -> AsyncIterator[Client]:
    """A client whose bytes arrive as they were sent."""
    async with connected(nats_server.url) as client:
        yield client


@asynccontextmanager
async def connected(url: str, **options: Any) -> AsyncIterator[Client]:
    client = await connect(url, **{**EAGER, **options})
    try:
        yield client
    finally:
        await client.close()


async def exercise(client: Client, other: Client, chance: random.Random) -> None:
    """Use everything that has a frame of its own, and compare every byte."""

    async def answer(message: Message) -> None:
        await message.respond(message.data, headers=message.headers or None)

    async with (
        await other.subscribe("split.echo", callback=answer),
        await client.subscribe("split.>") as everything,
        await other.subscribe("mirror") as mirror,
    ):
        await asyncio.gather(client.flush(timeout=GUARD), other.flush())
        sent: list[tuple[str, bytes, str | None]] = []
        for number in range(30):
            subject = f"split.{'x' * chance.randint(1, 20)}.{number}"
            # Payloads that look like the protocol must not be taken for it.
            data = chance.choice(
                [b"", b"\r\n", b"PING\r\n", b"MSG a 1 2\r\n", chance.randbytes(40)]
            )
            value = chance.choice([None, "v", "ü" * 10])
            headers = None if value is None else {"Name": value}
            await other.publish(subject, data, headers=headers)
            await client.publish("mirror", data, headers=headers)
            sent.append((subject, data, value))
        for subject, data, value in sent:
            received = await everything.next(timeout=GUARD)
            assert (received.subject, received.data) == (subject, data)
            assert received.headers.get("Name") == value
            reflected = await mirror.next(timeout=GUARD)
            assert (reflected.data, reflected.headers.get("Name")) == (data, value)
        for size in (0, 1, 1000):
            data = chance.randbytes(size)
            assert (await client.request("split.echo", data, timeout=GUARD)).data == data
        with pytest.raises(NoRespondersError):
            await client.request("nobody", timeout=GUARD)


@pytest.mark.parametrize("direction", ["up", "down", None])
async def test_single_bytes(proxy: Proxy, direct: Client, direction: Direction | None) -> None:
    log = EventLog()
    proxy.split(1, direction)
    async with connected(proxy.url, on_event=log) as client:
        await exercise(client, direct, random.Random(1))
        assert log.of(EventKind.DISCONNECTED) == []


@pytest.mark.parametrize("size", [2, 3, 5, 7, 13, 64])
async def test_small_pieces(proxy: Proxy, direct: Client, size: int) -> None:
    proxy.split(size)
    async with connected(proxy.url) as client:
        await exercise(client, direct, random.Random(size))


async def test_single_bytes_over_web_socket(start_server: StartServer) -> None:
    server = start_server(jetstream=False, websocket=True)
    port = int(server.ws_url.rpartition(":")[2])
    async with Proxy(server.host, port) as proxy:
        proxy.split(1)
        async with (
            connected(proxy.url.replace("nats:", "ws:")) as client,
            connected(server.ws_url) as other,
        ):
            await exercise(client, other, random.Random(2))


async def test_large_message_in_pieces(proxy: Proxy, direct: Client) -> None:
    payload = random.Random(3).randbytes(300_000)
    proxy.split(1000)
    async with connected(proxy.url) as client, await client.subscribe("large") as subscription:
        await client.flush()
        await direct.publish("large", payload)
        await client.publish("large", payload)
        for _ in range(2):
            assert (await subscription.next(timeout=GUARD)).data == payload


async def test_delays(proxy: Proxy, direct: Client) -> None:
    proxy.delay(0.005)
    async with connected(proxy.url) as client:
        await exercise(client, direct, random.Random(4))


# -- cut off


async def test_cut_at_every_byte_of_a_message(proxy: Proxy, direct: Client) -> None:
    """It arrives whole or not at all, and what comes after it is not taken for its rest."""
    log = EventLog()
    async with connected(proxy.url, on_event=log) as client:
        subscription = await client.subscribe("cut.here")
        await client.flush()
        headers, payload = {"A": "1"}, b"MSG cut.here 1 1\r\n"
        block = b"NATS/1.0\r\nA: 1\r\n\r\n"
        line = b"HMSG cut.here %d %d %d\r\n"
        frame = line % (subscription.sid, len(block), len(block) + len(payload))
        size = len(frame) + len(block) + len(payload) + 2
        for cut in range(1, size + 1):
            proxy.truncate_after(cut, "down")
            await direct.publish("cut.here", payload, headers=headers)
            await direct.flush()
            await log.wait(EventKind.CONNECTED, cut + 1)
            await client.flush(timeout=GUARD)
            whole = cut == size
            assert subscription.pending_messages == whole, f"cut after {cut} of {size} bytes"
        await direct.publish("cut.here", b"last")
        assert (await subscription.next(timeout=GUARD)).data == payload
        assert (await subscription.next(timeout=GUARD)).data == b"last"


async def test_cut_in_a_batch(proxy: Proxy, direct: Client) -> None:
    """Those before the cut arrive, those after it do not."""
    chance = random.Random(5)
    log = EventLog()
    async with connected(proxy.url, on_event=log) as client:
        subscription = await client.subscribe("batch")
        await client.flush()
        line = len(b"MSG batch %d 4\r\n0000\r\n" % subscription.sid)
        for round_ in range(1, 31):
            cut = chance.randint(1, 100 * line)
            proxy.truncate_after(cut, "down")
            for number in range(100):
                await direct.publish("batch", b"%04d" % number)
            await direct.flush()
            await log.wait(EventKind.CONNECTED, round_ + 1)
            await client.flush(timeout=GUARD)
            expected = cut // line
            found = [(await subscription.next()).data for _ in range(subscription.pending_messages)]
            assert found == [b"%04d" % number for number in range(expected)]


async def test_cut_at_every_byte_of_a_publish(proxy: Proxy, direct: Client) -> None:
    """Half a message does not reach anybody, and the next connection does not begin with it."""
    log = EventLog()
    async with (
        connected(proxy.url, on_event=log) as client,
        await direct.subscribe(">") as everything,
    ):
        await direct.flush()
        size = len(b"PUB up 3\r\n123\r\n")
        cuts = range(1, size + 1)
        for cut in cuts:
            proxy.truncate_after(cut, "up")
            await client.publish("up", b"%03d" % cut)
            await log.wait(EventKind.CONNECTED, cut + 1)
            await client.publish("up", b"after %d" % cut)
            await client.flush(timeout=GUARD)
        await direct.flush()
        arrived = [await everything.next() for _ in range(everything.pending_messages)]
        # The server may have something to say to streams and consumers meanwhile.
        others = ("$", "_INBOX.")
        found = [message.data for message in arrived if not message.subject.startswith(others)]
        assert len(found) == len(set(found))
        # The CRLF at the end is not part of the message for the server either. It may read the end
        # of a lost connection late, or not at all.
        whole = {b"%03d" % cut for cut in cuts if cut >= size - 2}
        assert [data for data in found if data not in whole] == [b"after %d" % cut for cut in cuts]


async def test_cut_in_the_handshake(proxy: Proxy) -> None:
    """Wherever a handshake breaks off, the next attempt begins afresh."""
    chance = random.Random(6)
    with pytest.raises(ConnectionError, match="reset by peer"):
        proxy.truncate_after(10, "down")
        await connect(proxy.url, **EAGER)
    log = EventLog()
    async with connected(proxy.url, on_event=log) as client:
        subscription = await client.subscribe("handshake")
        handshake = proxy.bytes_down
        for round_ in range(1, 41):
            direction: Direction = chance.choice(("up", "down"))
            await proxy.refuse()
            await proxy.cut()
            await log.wait(EventKind.DISCONNECTED, round_)
            proxy.truncate_after(chance.randint(1, min(handshake, 150)), direction)
            before = len(log.of(EventKind.ERROR))
            await client.publish("handshake", b"%d" % round_)
            proxy.accept()
            await log.wait(EventKind.CONNECTED, round_ + 1)
            assert len(log.of(EventKind.ERROR)) > before
            await client.flush(timeout=GUARD)
            assert (await subscription.next(timeout=GUARD)).data == b"%d" % round_


async def test_half_closed(proxy: Proxy) -> None:
    """The server seems to say no more while it still listens: that is a lost connection."""
    log = EventLog()
    async with connected(proxy.url, on_event=log) as client:
        proxy.half_close("down")
        await log.wait(EventKind.CONNECTED, 2)
        await client.flush(timeout=GUARD)
        proxy.half_close("up")  # the server answers with its own end
        await log.wait(EventKind.CONNECTED, 3)
        await client.flush(timeout=GUARD)
        await until(lambda: proxy.active == 1)
