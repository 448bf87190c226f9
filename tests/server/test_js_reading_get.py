"""Reading one stored message: from the leader, and by a direct get."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from jetspark import Client, JetStream, StoredMessage, Stream, StreamSource
from jetspark.errors import (
    InvalidOptionError,
    MessageNotFoundError,
    NoStreamResponseError,
    StreamNotFoundError,
)
from jetspark.server import NatsServer
from tests.support.clients import eventually
from tests.support.conformance import conformance
from tests.support.streams import has_messages, if_supported, new_name, store

HOUR = timedelta(hours=1)


@pytest_asyncio.fixture
async def stream(nc: Client, js: JetStream) -> Stream:
    """Six messages on the subjects a, b, a, b, a, b, the third of which is deleted."""
    name = new_name()
    stream = await js.create_stream(name=name, subjects=[f"{name}.>"], allow_direct=True)
    for number, token in enumerate("ababab", 1):
        await store(nc, f"{name}.{token}", b"%d" % number, {"Number": str(number)})
    await stream.delete_message(3)
    return stream


Read = Callable[..., Coroutine[Any, Any, StoredMessage]]
BOTH = pytest.mark.parametrize("way", ["get_", "direct_get_"])


def reader(stream: Stream, way: str, what: str) -> Read:
    """`get_last_message` or `direct_get_last`, and so on."""
    name = f"get_{what}_message" if way == "get_" else f"direct_get_{what}"
    read: Read = getattr(stream, name.replace("__", "_").removesuffix("_"))
    return read


@conformance("RUST", "Stream operations", "get_raw_message(seq): STREAM.MSG.GET.<name>")
@conformance("RUST", "Stream operations", "direct_get(seq): DIRECT.GET.<name>")
@conformance("ADR-37", "Stream", "a message is got")
@BOTH
async def test_a_message_by_its_sequence(stream: Stream, way: str) -> None:
    before = datetime.now(UTC) - HOUR
    message = await reader(stream, way, "")(2)
    assert isinstance(message, StoredMessage)
    assert (message.stream, message.subject) == (stream.name, f"{stream.name}.b")
    assert (message.sequence, message.data) == (2, b"2")
    assert message.headers == {"Number": "2"}
    assert before < message.timestamp < before + 2 * HOUR
    assert message.num_pending is None
    assert repr(message) == (
        f"<StoredMessage 2 of stream {stream.name!r} subject='{stream.name}.b' data=b'2'>"
    )


@conformance("RUST", "Stream operations", "get_last_message(subject): STREAM.MSG.GET.<name>")
@conformance("RUST", "Stream operations", "direct_get_last(subject): DIRECT.GET.<name>")
@BOTH
@pytest.mark.parametrize(("token", "sequence"), [("a", 5), ("b", 6), ("*", 6), (">", 6)])
async def test_the_last_message_of_a_subject(
    stream: Stream, way: str, token: str, sequence: int
) -> None:
    message = await reader(stream, way, "last")(f"{stream.name}.{token}")
    assert message.sequence == sequence
    assert message.headers == {"Number": str(sequence)}


@BOTH
@pytest.mark.parametrize(
    ("token", "seq", "sequence"),
    [("a", None, 1), ("a", 2, 5), ("b", 2, 2), ("b", 3, 4), ("*", 3, 4), (None, 3, 4)],
)
async def test_the_next_message_of_a_subject(
    stream: Stream, way: str, token: str | None, seq: int | None, sequence: int
) -> None:
    subject = () if token is None else (f"{stream.name}.{token}",)
    message = await reader(stream, way, "next")(*subject, seq=seq)
    assert message.sequence == sequence


@BOTH
async def test_the_next_message_at_a_time(
    nats_server: NatsServer, stream: Stream, way: str
) -> None:
    read = reader(stream, way, "next")
    fourth = await stream.get_message(4)
    call = read(start_time=fourth.timestamp + timedelta(microseconds=1))
    message = await if_supported(nats_server, (2, 11), call, "start_time")
    if message is None:
        # What is right in any case is not refused.
        past = fourth.timestamp - HOUR
        assert (await read(f"{stream.name}.b", start_time=past)).sequence == 2
        return
    assert message.sequence == 5
    assert (await read(f"{stream.name}.b", start_time=fourth.timestamp)).sequence == 4
    with pytest.raises(MessageNotFoundError):
        await read(start_time=fourth.timestamp + HOUR)


@BOTH
async def test_messages_that_are_not_there(stream: Stream, way: str) -> None:
    for call in (
        reader(stream, way, "")(3),
        reader(stream, way, "")(7),
        reader(stream, way, "last")(f"{stream.name}.c"),
        reader(stream, way, "next")(f"{stream.name}.a", seq=6),
        reader(stream, way, "next")(f"{stream.name}.c"),
    ):
        with pytest.raises(MessageNotFoundError, match=f"stream '{stream.name}': .*message"):
            await call


@BOTH
@pytest.mark.parametrize(
    ("what", "arguments", "options", "named"),
    [
        ("", (0,), {}, "seq"),
        ("", (2**64,), {}, "seq"),
        ("last", ("",), {}, "subject"),
        ("last", ("a..b",), {}, "subject"),
        ("next", ("a b",), {}, "subject"),
        ("next", (), {"seq": 0}, "seq"),
        ("next", (), {"start_time": datetime(2020, 1, 1)}, "start_time"),
        ("next", (), {"start_time": "now"}, "start_time"),
        ("next", (), {"seq": 1, "start_time": datetime.now(UTC)}, "not both"),
    ],
)
async def test_bad_arguments_are_refused_by_name_and_nothing_is_sent(
    nc: Client,
    stream: Stream,
    way: str,
    what: str,
    arguments: tuple[Any, ...],
    options: dict[str, Any],
    named: str,
) -> None:
    sent = nc.statistics.messages_out
    with pytest.raises(InvalidOptionError, match=named):
        await reader(stream, way, what)(*arguments, **options)
    assert nc.statistics.messages_out == sent


@BOTH
async def test_headers_and_data_are_those_of_the_publisher(
    nc: Client, stream: Stream, way: str
) -> None:
    subject = f"{stream.name}.copy"
    read = reader(stream, way, "last")
    # A copy of a message that was read elsewhere brings the headers of that place along.
    copied = {
        "Nats-Stream": "OTHER",
        "Nats-Subject": "other",
        "Nats-Sequence": "77",
        "Nats-Time-Stamp": "2020-01-01T00:00:00Z",
        "Nats-Num-Pending": "5",
        "Tag": ["x", "y: z", ""],
    }
    await store(nc, subject, b"data", copied)
    message = await read(subject)
    assert message.headers == copied
    assert (message.stream, message.subject, message.sequence) == (stream.name, subject, 7)
    assert message.timestamp.year > 2020
    await store(nc, subject, b"", {"Only": "headers"})
    message = await read(subject)
    assert message.data == b""
    assert message.headers == {"Only": "headers"}
    await store(nc, subject, b"")
    message = await read(subject)
    assert (message.data, message.raw_headers) == (b"", None)
    assert message.headers == {}
    await store(nc, subject, bytes(range(256)) * 100)
    assert (await read(subject)).data == bytes(range(256)) * 100
    await store(nc, f"{stream.name}.größe", b"utf-8")
    assert (await read(f"{stream.name}.größe")).subject == f"{stream.name}.größe"
    await store(nc, long := f"{stream.name}.{'x' * 3500}", b"long")
    assert (await read(long)).data == b"long"


async def test_both_ways_give_the_same(stream: Stream) -> None:
    for sequence in (1, 2, 4, 5, 6):
        one, two = await stream.get_message(sequence), await stream.direct_get(sequence)
        assert (one.subject, one.data, one.headers) == (two.subject, two.data, two.headers)
        assert (one.sequence, one.timestamp) == (two.sequence, two.timestamp)
        assert (one.raw_time, one.raw_headers) == (two.raw_time, two.raw_headers)


async def test_a_stream_without_direct_gets(nc: Client, js: JetStream) -> None:
    stream = await js.create_stream(name=new_name())
    await store(nc, stream.name)
    for call in (
        stream.direct_get(1),
        stream.direct_get_last(stream.name),
        stream.direct_get_next(),
        anext(stream.direct_get_batch()),
    ):
        with pytest.raises(NoStreamResponseError, match=f"{stream.name}.*allow_direct"):
            await call
    assert (await stream.get_message(1)).sequence == 1


async def test_a_stream_that_is_gone(js: JetStream, stream: Stream) -> None:
    await stream.delete()
    with pytest.raises(NoStreamResponseError, match=stream.name):
        await stream.direct_get(1)
    with pytest.raises(StreamNotFoundError, match=stream.name):
        await stream.get_message(1)


async def test_a_mirror_answers_for_its_stream(js: JetStream, stream: Stream) -> None:
    mirror = await js.create_stream(
        name=new_name(), mirror=StreamSource(name=stream.name), mirror_direct=True
    )
    await eventually(lambda: has_messages(mirror, 5))

    async def answered() -> bool:
        return (await stream.direct_get(2)).stream == mirror.name

    await eventually(answered)
    assert (await stream.direct_get_last(f"{stream.name}.a")).data == b"5"
