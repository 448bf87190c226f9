"""Publishing: what arrives at a subscriber, and what is refused before anything is sent."""

from __future__ import annotations

import array
import asyncio
from typing import Any

import pytest

from jetspark import Client, Headers, Message
from jetspark.errors import (
    InvalidArgumentError,
    InvalidHeaderError,
    InvalidSubjectError,
    MaxPayloadError,
    TimeoutError,
)
from jetspark.server import NatsServer
from tests.support.clients import Connect, monitor, unique
from tests.support.servers import StartServer


async def round_trip(nc: Client, data: Any = b"", **options: Any) -> Message:
    """Publish to a subscription of one's own and return what arrives."""
    subject = unique()
    async with await nc.subscribe(subject) as sub:
        await nc.publish(subject, data, **options)
        message = await sub.next(timeout=5)
    assert message.subject == subject
    return message


async def test_payload_alone(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    message = await round_trip(nc, b"hello")
    assert message.data == b"hello"
    assert message.reply is None
    assert message.headers == {}
    assert message.raw_headers is None
    assert message.status is None
    assert message.size == 5


async def test_empty_payload(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    assert (await round_trip(nc)).data == b""


async def test_reply_and_headers(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    headers = {"Trace": "a:b, c", "Tag": ["x", "y"], "Empty": "", "Umlaut": "grün"}
    message = await round_trip(nc, b"data", headers=headers, reply="answers.here")
    assert message.data == b"data"
    assert message.reply == "answers.here"
    assert message.headers == headers
    assert message.headers.get_all("Tag") == ["x", "y"]
    assert message.headers["Umlaut"] == "grün"
    assert "answers.here" in repr(message)
    assert "Trace" in repr(message)


async def test_headers_object_and_empty_headers(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    headers = Headers({"One": "1"})
    headers.add("One", "2")
    assert (await round_trip(nc, headers=headers)).headers.get_all("One") == ["1", "2"]
    empty = await round_trip(nc, b"x", headers={})
    assert len(empty.headers) == 0
    assert empty.data == b"x"


async def test_reply_without_headers(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    message = await round_trip(nc, b"q", reply="r")
    assert (message.reply, message.data) == ("r", b"q")
    await message.respond(b"nobody listens, and that is no error")


async def test_respond_without_reply(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    message = await round_trip(nc, b"x")
    with pytest.raises(InvalidArgumentError, match="no reply subject"):
        await message.respond(b"y")


async def test_status_message(nats_server: NatsServer, connect: Connect) -> None:
    """What the server itself answers when nobody listens."""
    nc = await connect(nats_server.url)
    sub = await nc.subscribe(nc.new_inbox())
    await nc.publish(unique(), b"is anybody there?", reply=sub.subject)
    message = await sub.next(timeout=5)
    assert message.status == message.headers.status == 503
    assert message.data == b""
    user = await round_trip(nc, b"x", headers={"Status": "503"})
    assert user.status is None


BYTES_LIKE = {
    "bytearray": bytearray(b"12345678"),
    "memoryview": memoryview(b"012345678")[1:],
    "strided memoryview": memoryview(b"1x2x3x4x5x6x7x8x")[::2],
    "wide memoryview": memoryview(array.array("H", b"12345678")),
    "subclass": type("Data", (bytes,), {})(b"12345678"),
}


@pytest.mark.parametrize("extra", [{}, {"headers": {"A": "b"}}, {"reply": "r"}], ids=str)
@pytest.mark.parametrize("kind", BYTES_LIKE)
async def test_bytes_like_payloads(
    nats_server: NatsServer, connect: Connect, kind: str, extra: dict[str, Any]
) -> None:
    nc = await connect(nats_server.url)
    assert (await round_trip(nc, BYTES_LIKE[kind], **extra)).data == b"12345678"
    assert (await round_trip(nc, b"after")).data == b"after"


async def test_payload_changed_afterwards(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    subject = unique()
    sub = await nc.subscribe(subject)
    data: Any = bytearray(b"before")
    await nc.publish(subject, data)
    data[:] = b"after!"
    assert (await sub.next(timeout=5)).data == b"before"


NOT_BYTES = ["text", None, 5, [1, 2], {"a": 1}, (1,), range(3), array.array("I", b"12345678")]


@pytest.mark.parametrize("data", NOT_BYTES, ids=repr)
@pytest.mark.parametrize("extra", [{}, {"headers": {"A": "b"}}], ids=["plain", "headers"])
async def test_payload_that_is_not_bytes(
    nats_server: NatsServer, connect: Connect, data: Any, extra: dict[str, Any]
) -> None:
    nc = await connect(nats_server.url)
    with pytest.raises(InvalidArgumentError, match="data must be bytes, not"):
        await nc.publish("a", data, **extra)
    assert (await round_trip(nc, b"still works")).data == b"still works"
    assert nc.statistics.messages_out == 1


@pytest.mark.parametrize(
    "subject",
    ["", " ", "a b", "a\tb", "a\r\nPUB b 0\r\n\r\n", "a\nb", ".a", "a.", "a..b", "a.*", "a.>", "*"],
)
async def test_bad_subjects(nats_server: NatsServer, connect: Connect, subject: str) -> None:
    nc = await connect(nats_server.url)
    with pytest.raises(InvalidSubjectError):
        await nc.publish(subject, b"x")
    with pytest.raises(InvalidSubjectError):
        await nc.publish("good", b"x", reply=subject)
    with pytest.raises(InvalidSubjectError):
        await nc.request(subject, b"x")
    assert (await round_trip(nc, b"x")).data == b"x"
    assert nc.connected
    assert nc.statistics.messages_out == 1


async def test_subject_that_is_no_text(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    subjects: list[Any] = [None, b"a", 7, ["a"], "\ud800"]
    for subject in subjects:
        with pytest.raises(InvalidSubjectError):
            await nc.publish(subject, b"x")


async def test_subject_beyond_the_control_line(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    fits = "a" * 3900
    sub = await nc.subscribe(fits)
    await nc.publish(fits, b"x")
    assert (await sub.next(timeout=5)).subject == fits
    with pytest.raises(InvalidSubjectError, match="4096 bytes"):
        await nc.publish("a" * 4090)
    with pytest.raises(InvalidSubjectError, match="4096 bytes"):
        await nc.publish("a" * 2050, reply="b" * 2050)
    with pytest.raises(InvalidSubjectError, match="4096 bytes"):
        await nc.subscribe("a" * 4090)
    with pytest.raises(InvalidSubjectError, match="4096 bytes"):
        await nc.request("a" * 4040)  # the inbox has to fit in as well
    await nc.flush()
    assert nc.statistics.reconnects == 0


async def test_raised_control_line(start_server: StartServer, connect: Connect) -> None:
    server = start_server(jetstream=False, max_control_line=16384)
    nc = await connect(server.url, max_control_line=16384)
    long = "a" * 10000
    sub = await nc.subscribe(long)
    await nc.publish(long, b"x")
    assert (await sub.next(timeout=5)).subject == long


INJECTIONS: list[Any] = [
    {"A": "b\r\nEvil: yes"},
    {"A": "b\nEvil: yes"},
    {"A": "b\r"},
    {"A": ["good", "b\r\n\r\nbody"]},
    {"A\r\nEvil": "b"},
    {"A: b\r\nEvil": "c"},
    {"A B": "c"},
    {"A:": "c"},
    {"": "c"},
    {"Ä": "c"},
    {"A": 5},
    {"A": b"bytes"},
    {"A": [b"bytes"]},
    {"A": None},
    {"A": "\ud800"},
]


@pytest.mark.parametrize("headers", INJECTIONS, ids=repr)
async def test_header_injection(nats_server: NatsServer, connect: Connect, headers: Any) -> None:
    nc = await connect(nats_server.url)
    with pytest.raises(InvalidHeaderError):
        await nc.publish("a", b"x", headers=headers)
    assert (await round_trip(nc, b"x", headers={"A": "b"})).headers == {"A": "b"}


async def test_max_payload(start_server: StartServer, connect: Connect) -> None:
    server = start_server(jetstream=False, max_payload=1000)
    nc = await connect(server.url)
    assert nc.max_payload == 1000
    assert len((await round_trip(nc, bytes(1000))).data) == 1000
    with pytest.raises(MaxPayloadError, match=r"1001 bytes to 'a' is over.* 1000") as caught:
        await nc.publish("a", bytes(1001))
    assert (caught.value.size, caught.value.limit) == (1001, 1000)
    with pytest.raises(MaxPayloadError):  # headers count too
        await nc.publish("a", bytes(990), headers={"A": "b"})
    with pytest.raises(MaxPayloadError):
        await nc.request("a", bytes(1001))
    assert (await round_trip(nc, b"usable")).data == b"usable"
    assert nc.statistics.reconnects == 0
    assert (await monitor(server, "/varz"))["in_msgs"] == nc.statistics.messages_out == 2


async def test_max_payload_of_the_next_connection(
    start_server: StartServer, connect: Connect
) -> None:
    server = start_server(jetstream=False, max_payload=1000)
    nc = await connect(server.url)
    await server.areload(max_payload=2000)
    await nc.force_reconnect()
    await nc.flush()
    assert nc.max_payload == 2000
    assert len((await round_trip(nc, bytes(2000))).data) == 2000


async def test_many_messages_arrive_in_order(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    subject = unique()
    sub = await nc.subscribe(f"{subject}.*")
    count = 20_000
    for number in range(count):
        await nc.publish(f"{subject}.{number % 7}", b"%d" % number)
    for number in range(count):
        message = await sub.next(timeout=10)
        assert message.data == b"%d" % number
        assert message.subject == f"{subject}.{number % 7}"
    assert nc.statistics.messages_out == nc.statistics.messages_in == count


async def test_large_messages(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    subject = unique()
    sub = await nc.subscribe(subject)
    payloads = [bytes([number]) * (1024 * 1024 - 100) for number in range(20)]
    for payload in payloads:
        await nc.publish(subject, payload, headers={"A": "b"})
    for payload in payloads:
        assert (await sub.next(timeout=10)).data == payload


async def test_two_publishers_make_progress_together(
    nats_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    subject = unique()
    sub = await nc.subscribe(subject)

    async def publish(name: bytes) -> None:
        for _ in range(200):
            await nc.publish(subject, name * 10_000)

    async with asyncio.TaskGroup() as group:
        group.create_task(publish(b"a"))
        group.create_task(publish(b"b"))
    seen = [(await sub.next(timeout=10)).data[:1] for _ in range(400)]
    assert seen.count(b"a") == seen.count(b"b") == 200
    assert seen != sorted(seen)  # neither kept the other waiting until its end


async def test_flush_and_rtt(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    assert 0 < await nc.rtt() < 10
    sub = await nc.subscribe(unique())
    for _ in range(10):
        await nc.publish(sub.subject)
    await nc.flush()
    assert sub.pending_messages == 10
    await asyncio.gather(*(nc.flush() for _ in range(50)))
    await asyncio.gather(nc.flush(timeout=None), nc.rtt(timeout=5))
    flushing = asyncio.create_task(nc.flush())
    await asyncio.sleep(0)
    flushing.cancel()
    await asyncio.gather(flushing, return_exceptions=True)
    await nc.flush()  # the answer to the cancelled one does not count for this one


async def test_flush_times_out(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    with pytest.raises(TimeoutError, match="flush: no answer from the server in 0 s"):
        await nc.flush(timeout=0)
    await nc.flush()
