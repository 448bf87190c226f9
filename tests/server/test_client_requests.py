"""Requests: one answer, many answers, none, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import aclosing
from typing import Any

import pytest

from jetspark import Client, Message
from jetspark.errors import (
    ConnectionClosedError,
    DisconnectedError,
    InvalidArgumentError,
    NoRespondersError,
    TimeoutError,
)
from jetspark.server import NatsServer
from tests.support.clients import Connect, eventually, unique


async def echo(nc: Client) -> str:
    """Answer requests with their own payload and headers; the subject."""
    subject = unique("echo")

    async def answer(message: Message) -> None:
        await message.respond(message.data, headers=message.headers)

    await nc.subscribe(subject, callback=answer)
    return subject


async def counting(nc: Client, count: int | None, last: bytes | None = None) -> str:
    """Answer each request with numbers, then with `last`; endlessly if there is no count."""
    subject = unique("count")

    async def answer(message: Message) -> None:
        for number in itertools.count() if count is None else range(count):
            await message.respond(b"%d" % number)
            if count is None:
                await asyncio.sleep(0.002)
        if last is not None:
            await message.respond(last)

    await nc.subscribe(subject, callback=answer)
    return subject


def pending(nc: Client) -> int:
    return nc._requests().pending


# -- one answer ----------------------------------------------------------------------------------


async def test_request(nats_server: NatsServer, connect: Connect) -> None:
    server, nc = await connect(nats_server.url), await connect(nats_server.url)
    subject = await echo(server)
    await server.flush()
    message = await nc.request(subject, b"hello")
    assert message.data == b"hello"
    assert message.subject.startswith("_INBOX.")
    assert message.reply is None
    with_headers = await nc.request(subject, b"hello", headers={"A": ["b", "c"]})
    assert with_headers.headers == {"A": ["b", "c"]}
    assert (await nc.request(subject)).data == b""
    assert pending(nc) == 0


async def test_no_responders(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    subject = unique()
    for _ in range(2):
        async with asyncio.timeout(5):  # at once, long before the time of the request is over
            with pytest.raises(NoRespondersError, match=f"nobody answers.*'{subject}'") as caught:
                await nc.request(subject, b"x", timeout=60)
        assert caught.value.subject == subject
        assert caught.value.retryable
    assert pending(nc) == 0


async def test_timeout(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    sub = await nc.subscribe(unique())
    with pytest.raises(TimeoutError, match=f"no answer to the request to '{sub.subject}'") as info:
        await nc.request(sub.subject, timeout=0.02)
    assert info.value.may_have_taken_effect
    assert pending(nc) == 0
    late = await sub.next()
    await late.respond(b"too late")
    await nc.flush()
    subject = await echo(nc)
    assert (await nc.request(subject, b"in time")).data == b"in time"


async def test_each_request_has_its_own_time(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    sub = await nc.subscribe(unique())
    patient = asyncio.create_task(nc.request(sub.subject, timeout=60))
    message = await sub.next(timeout=5)
    results = await asyncio.gather(
        *(nc.request(sub.subject, timeout=time) for time in (0.04, 0.02, 0.03)),
        return_exceptions=True,
    )
    texts = [str(result) for result in results]
    for text, time in zip(texts, (0.04, 0.02, 0.03), strict=True):
        assert text.endswith(f"in {time} s")
    assert not patient.done()
    assert pending(nc) == 1
    await message.respond(b"worth the wait")
    assert (await patient).data == b"worth the wait"


async def test_status_503_with_payload_is_an_answer(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    subject = unique()
    await nc.subscribe(subject, callback=lambda message: message.respond(b"503 in words"))
    assert (await nc.request(subject)).data == b"503 in words"


async def test_only_the_first_answer_counts(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    subject = await counting(nc, 3)
    for _ in range(3):
        assert (await nc.request(subject)).data == b"0"
    assert pending(nc) == 0


async def test_concurrent_requests(nats_server: NatsServer, connect: Connect) -> None:
    server, nc = await connect(nats_server.url), await connect(nats_server.url)
    subject = unique()
    waiting: list[Message] = []

    async def answer(message: Message) -> None:
        waiting.append(message)
        if len(waiting) == 100:  # in another order than they came
            for each in reversed(waiting):
                await each.respond(each.data * 2)

    await server.subscribe(subject, callback=answer)
    await server.flush()
    replies = await asyncio.gather(*(nc.request(subject, b"%d," % n) for n in range(100)))
    assert [reply.data for reply in replies] == [b"%d,%d," % (n, n) for n in range(100)]
    assert pending(nc) == 0


async def test_cancelled_requests_leave_nothing(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    sub = await nc.subscribe(unique())
    tasks = [asyncio.create_task(nc.request(sub.subject, timeout=60)) for _ in range(20)]
    await eventually(lambda: sub.pending_messages == 20)
    assert pending(nc) == 20
    for task in tasks:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results)
    assert pending(nc) == 0


async def test_many_requests_subscribe_once(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    subject = await echo(nc)
    for _ in range(10):
        await nc.request(subject)
    assert len(nc._routes) == 2


async def test_request_to_a_mute_client_of_ours(nats_server: NatsServer, connect: Connect) -> None:
    """A subscriber with echo off does not hear us, so that nobody does."""
    nc = await connect(nats_server.url, echo=False)
    sub = await nc.subscribe(unique())
    with pytest.raises((NoRespondersError, TimeoutError)):
        await nc.request(sub.subject, timeout=0.2)


async def test_request_over_a_reconnect(nats_server: NatsServer, connect: Connect) -> None:
    server, nc = await connect(nats_server.url), await connect(nats_server.url)
    subject = await echo(server)
    await server.flush()
    assert (await nc.request(subject, b"before")).data == b"before"
    sub = await server.subscribe(unique())
    await server.flush()
    asking = asyncio.create_task(nc.request(sub.subject, timeout=60))
    await sub.next(timeout=5)
    await nc.force_reconnect()
    with pytest.raises(DisconnectedError):
        await asking
    assert (await nc.request(subject, b"after")).data == b"after"
    assert pending(nc) == 0


async def test_close_fails_requests(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    sub = await nc.subscribe(unique())
    asking = asyncio.create_task(nc.request(sub.subject, timeout=60))
    many = asyncio.create_task(_collect(nc, sub.subject, timeout=60))
    await eventually(lambda: sub.pending_messages == 2)
    await nc.close()
    for task in (asking, many):
        with pytest.raises(ConnectionClosedError):
            await task
    with pytest.raises(ConnectionClosedError):
        await nc.request(sub.subject)
    with pytest.raises(ConnectionClosedError):
        await _collect(nc, sub.subject)


async def test_request_on_a_client_that_is_closed(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    await nc.close()
    with pytest.raises(ConnectionClosedError):
        await nc.request("a")


# -- many answers --------------------------------------------------------------------------------


async def _collect(nc: Client, subject: str, **options: Any) -> list[bytes]:
    return [message.data async for message in nc.request_many(subject, b"", **options)]


async def test_many_until_the_count(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    subject = await counting(nc, 10)
    assert await _collect(nc, subject, max_messages=4, timeout=60) == [b"0", b"1", b"2", b"3"]
    assert pending(nc) == 0


async def test_many_until_a_stall(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    subject = await counting(nc, 5)
    async with asyncio.timeout(30):
        answers = await _collect(nc, subject, stall=0.1, timeout=60)
    assert answers == [b"0", b"1", b"2", b"3", b"4"]
    assert pending(nc) == 0


async def test_many_waits_for_the_first_answer_longer_than_a_stall(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    sub = await nc.subscribe(unique())
    collecting = asyncio.create_task(_collect(nc, sub.subject, stall=0.02, timeout=60))
    message = await sub.next(timeout=5)
    await asyncio.sleep(0.05)
    assert not collecting.done()
    await message.respond(b"at last")
    assert await collecting == [b"at last"]


async def test_many_until_the_sentinel(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    subject = await counting(nc, 3, last=b"")
    answers = await _collect(nc, subject, sentinel=lambda message: not message.data, timeout=60)
    assert answers == [b"0", b"1", b"2"]
    assert pending(nc) == 0


async def test_many_until_the_deadline(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    responder = await connect(nats_server.url)
    subject = await counting(responder, None)
    await responder.flush()
    answers = await _collect(nc, subject, timeout=0.1)
    assert answers[:2] == [b"0", b"1"]
    assert pending(nc) == 0


async def test_many_without_an_answer(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    sub = await nc.subscribe(unique())
    assert await _collect(nc, sub.subject, timeout=0.02) == []
    assert pending(nc) == 0


async def test_many_deadline_holds_while_answers_wait(
    nats_server: NatsServer, connect: Connect
) -> None:
    """A reader that is slow does not go on for longer than it was told to."""
    nc = await connect(nats_server.url)
    subject = await counting(nc, 100)
    taken = 0
    async for _ in nc.request_many(subject, timeout=0.1):
        taken += 1
        await asyncio.sleep(0.02)
    assert 0 < taken < 50


async def test_many_no_responders(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    async with asyncio.timeout(5):
        with pytest.raises(NoRespondersError):
            await _collect(nc, unique(), timeout=60)
    assert pending(nc) == 0


async def test_many_from_several_responders(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    responders = [await connect(nats_server.url) for _ in range(3)]
    subject = unique()

    async def answer(message: Message) -> None:
        await message.respond(message.data + b"!", headers=message.headers)

    for responder in responders:
        await responder.subscribe(subject, callback=answer)
        await responder.flush()
    messages = [
        message
        async for message in nc.request_many(
            subject, b"hi", headers={"A": "b"}, max_messages=3, timeout=60
        )
    ]
    assert [message.data for message in messages] == [b"hi!"] * 3
    assert all(message.headers == {"A": "b"} for message in messages)


async def test_many_left_early(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    subject = await counting(nc, 10)
    async with aclosing(nc.request_many(subject, timeout=60)) as answers:  # type: ignore[type-var]
        async for message in answers:
            assert message.data == b"0"
            break
    assert pending(nc) == 0
    async for _ in nc.request_many(subject, timeout=60):
        break
    await eventually(lambda: pending(nc) == 0)


async def test_many_cancelled(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    sub = await nc.subscribe(unique())
    task = asyncio.create_task(_collect(nc, sub.subject, timeout=60))
    await sub.next(timeout=5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert pending(nc) == 0


async def test_many_never_begun(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    nc.request_many(unique())
    assert pending(nc) == 0


async def test_many_with_a_bad_count(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    with pytest.raises(InvalidArgumentError, match="max_messages must be at least 1"):
        await _collect(nc, unique(), max_messages=0)


async def test_many_answers_beyond_what_is_kept(
    nats_server: NatsServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jetspark.connection.requests.REPLIES_KEPT", 5)
    nc = await connect(nats_server.url)
    subject = await counting(nc, 20)
    taken = []
    with pytest.raises(Exception, match="more than 5 answers") as caught:
        async for message in nc.request_many(subject, timeout=5):
            taken.append(message.data)
            await nc.flush()
    assert type(caught.value).__name__ == "SlowConsumerError"
    assert taken[0] == b"0"
    assert pending(nc) == 0
