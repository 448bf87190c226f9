"""Tasks go on within the read that brings their answers, and what they send leaves in one write."""

from __future__ import annotations

import asyncio

import pytest

from jetspark import Client, Message, connect
from jetspark.connection.link import Link
from jetspark.errors import ConnectionClosedError, DisconnectedError
from jetspark.server import NatsServer
from tests.support.clients import Connect, unique
from tests.support.leaks import GUARD, assert_client_gone

COUNT = 20


async def gathering(nc: Client) -> str:
    """Answer requests when `COUNT` of them have come, all in one write; the subject."""
    subject = unique("gathering")
    requests: list[Message] = []

    async def answer(message: Message) -> None:
        requests.append(message)
        if len(requests) == COUNT:
            waiting, requests[:] = requests[:], []
            for each in waiting:
                await each.respond(each.data)

    await nc.subscribe(subject, callback=answer)
    await nc.flush()
    return subject


async def test_what_all_of_them_send_next_is_one_write(
    nats_server: NatsServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, nc = await connect(nats_server.url), await connect(nats_server.url)
    subject = await gathering(server)
    link = nc._connection._link
    writes: list[int] = []
    led_to: list[int] = []  # how many writes each read has led to, before its end

    write, buffer_updated = Link.write, Link.buffer_updated

    def counted_write(self: Link, data: bytes | bytearray) -> None:
        if self is link:
            writes.append(data.count(b"PUB "))
        write(self, data)

    def counted_read(self: Link, nbytes: int) -> None:
        before = len(writes)
        buffer_updated(self, nbytes)
        if self is link:
            led_to.append(len(writes) - before)

    monkeypatch.setattr(Link, "write", counted_write)
    monkeypatch.setattr(Link, "buffer_updated", counted_read)

    async def ask(number: int) -> None:
        for turn in range(5):
            answer = await nc.request(subject, b"%d.%d" % (number, turn), timeout=GUARD)
            assert answer.data == b"%d.%d" % (number, turn)

    await asyncio.gather(*map(ask, range(COUNT)))
    assert sum(writes) == 5 * COUNT
    assert set(led_to) == {0, 1}  # the last answers lead to nothing
    assert len(writes) == 1 + sum(led_to)


async def test_one_of_them_cancels_others(nats_server: NatsServer, connect: Connect) -> None:
    server, nc = await connect(nats_server.url), await connect(nats_server.url)
    subject = await gathering(server)

    async def ask(number: int) -> int:
        await nc.request(subject, b"", timeout=GUARD)
        if not number:
            for task in tasks[COUNT // 2 :]:
                task.cancel()
        return number

    tasks = [asyncio.create_task(ask(number)) for number in range(COUNT)]
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert results[: COUNT // 2] == list(range(COUNT // 2))
    assert all(isinstance(result, asyncio.CancelledError) for result in results[COUNT // 2 :])
    assert not nc._requests().pending


@pytest.mark.parametrize("end", ["close", "drain", "force_reconnect"])
async def test_one_of_them_ends_the_connection(
    nats_server: NatsServer, connect: Connect, end: str
) -> None:
    """Who has been answered gets the answer; nobody waits any longer."""
    server, nc = await connect(nats_server.url), await connect(nats_server.url)
    subject = await gathering(server)
    received: list[int] = []

    async def ask(number: int) -> None:
        answer = await nc.request(subject, b"%d" % number, timeout=GUARD)
        assert answer.data == b"%d" % number
        if not received:  # the connection has brought so much, and brings no more
            received.append(nc.statistics.messages_in)
            await getattr(nc, end)()

    tasks = [asyncio.create_task(ask(number)) for number in range(COUNT)]
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert results.count(None) >= received[0]
    lost = [result for result in results if result is not None]
    assert all(isinstance(error, ConnectionClosedError | DisconnectedError) for error in lost)
    if end == "force_reconnect":
        await asyncio.gather(*map(ask, range(COUNT)))
    else:
        await server.close()
        assert_client_gone(nc)


def test_one_of_them_ends_the_loop(nats_server: NatsServer) -> None:
    """The others go on when the loop runs again, on a connection that is as it was."""
    loop = asyncio.new_event_loop()
    answers: list[bytes] = []

    async def begin() -> tuple[Client, Client, str]:
        server, nc = await connect(nats_server.url), await connect(nats_server.url)
        return server, nc, await gathering(server)

    async def ask(number: int) -> None:
        answer = await nc.request(subject, b"%d" % number, timeout=GUARD)
        if number == 3:
            raise SystemExit("enough")
        answers.append(answer.data)

    async def finish() -> None:
        done, _ = await asyncio.wait(tasks, timeout=GUARD)
        assert done == set(tasks)
        await asyncio.gather(*map(ask, range(10, 10 + COUNT)))
        await nc.close()
        await server.close()

    try:
        server, nc, subject = loop.run_until_complete(begin())
        tasks = [loop.create_task(ask(number)) for number in range(COUNT)]
        with pytest.raises(SystemExit, match="enough"):
            loop.run_until_complete(asyncio.wait(tasks, timeout=GUARD))
        assert answers == [b"0", b"1", b"2"]
        loop.run_until_complete(finish())
        assert len(answers) == 2 * COUNT - 1
        assert isinstance(tasks[3].exception(), SystemExit)
    finally:
        loop.close()
