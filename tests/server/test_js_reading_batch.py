"""Direct gets of many messages: batches, and the last messages of many subjects."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from jetspark import Client, JetStream, StoredMessage, Stream
from jetspark.errors import InvalidOptionError, NotSupportedError, TooManyResultsError
from jetspark.jetstream.reading import StreamReader
from jetspark.server import NatsServer
from tests.support.streams import if_supported, new_name, store, version_of

MULTI = (2, 11)  # the first server with batches and the last messages of many subjects


@pytest_asyncio.fixture
async def stream(nc: Client, js: JetStream) -> Stream:
    """Messages 1 to 10 on the subjects 1, 2, 3, 1, 2, 3, ...; number 5 is deleted."""
    name = new_name()
    stream = await js.create_stream(
        name=name, subjects=[f"{name}.*"], storage="memory", allow_direct=True
    )
    for number in range(1, 11):
        await store(nc, f"{name}.{(number - 1) % 3 + 1}", b"%d" % number, {"N": str(number)})
    await stream.delete_message(5)
    return stream


async def sequences(messages: AsyncIterator[StoredMessage]) -> list[int]:
    return [message.sequence async for message in messages]


# --- batches


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [1, 2, 3, 4, 6, 7, 8, 9, 10]),
        ({"batch": 3}, [1, 2, 3]),
        ({"batch": 100}, [1, 2, 3, 4, 6, 7, 8, 9, 10]),
        ({"seq": 4, "batch": 3}, [4, 6, 7]),
        ({"seq": 5, "batch": 2}, [6, 7]),
        ({"seq": 10}, [10]),
        ({"seq": 11}, []),
        ({"subject": "1"}, [1, 4, 7, 10]),
        ({"subject": "2"}, [2, 8]),
        ({"subject": "2", "seq": 3, "batch": 1}, [8]),
        ({"subject": "*", "batch": 2}, [1, 2]),
        ({"subject": "4"}, []),
        ({"max_bytes": 1}, [1, 2, 3, 4, 6, 7, 8, 9, 10]),
        ({"max_bytes": 1, "batch": 2, "subject": "3"}, [3, 6]),
    ],
)
async def test_a_batch(stream: Stream, options: dict[str, Any], expected: list[int]) -> None:
    if "subject" in options:
        options = {**options, "subject": f"{stream.name}.{options['subject']}"}
    messages = [message async for message in stream.direct_get_batch(**options)]
    assert [message.sequence for message in messages] == expected
    for message in messages:
        assert message.data == b"%d" % message.sequence
        assert message.headers == {"N": str(message.sequence)}
        assert message.stream == stream.name
        assert message.subject == f"{stream.name}.{(message.sequence - 1) % 3 + 1}"


async def test_a_batch_from_a_time_on(nats_server: NatsServer, stream: Stream) -> None:
    eighth = await stream.get_message(8)
    call = sequences(stream.direct_get_batch(start_time=eighth.timestamp, max_bytes=1))
    assert await if_supported(nats_server, MULTI, call, "start_time") in (None, [8, 9, 10])
    if version_of(nats_server) >= MULTI:
        later = eighth.timestamp + timedelta(hours=1)
        assert await sequences(stream.direct_get_batch(start_time=later)) == []
    past = eighth.timestamp - timedelta(hours=1)
    assert await sequences(stream.direct_get_batch(start_time=past, batch=2)) == [1, 2]


async def test_pages_are_asked_for_as_they_are_read(nc: Client, stream: Stream) -> None:
    sent = nc.statistics.messages_out
    batch = stream.direct_get_batch(max_bytes=1)
    assert nc.statistics.messages_out == sent
    assert (await anext(batch)).sequence == 1
    assert nc.statistics.messages_out == sent + 1
    assert (await anext(batch)).sequence == 2
    assert nc.statistics.messages_out == sent + 2


async def test_many_messages_in_several_pages(
    nats_server: NatsServer, nc: Client, js: JetStream
) -> None:
    stream = await js.create_stream(name=new_name(), storage="memory", allow_direct=True)
    count = 10_000
    for number in range(count - 1):
        await nc.publish(stream.name, b"%d" % number)
    await store(nc, stream.name)
    messages = [message async for message in stream.direct_get_batch()]
    assert [message.sequence for message in messages] == list(range(1, count + 1))
    assert messages[4321].data == b"4321"
    if version_of(nats_server) >= MULTI:
        assert messages[0].num_pending == count - 1
        assert messages[-1].num_pending == 0


async def test_a_batch_ends_although_the_stream_grows(
    nats_server: NatsServer, nc: Client, stream: Stream
) -> None:
    found = []
    async for message in stream.direct_get_batch(max_bytes=1):
        found.append(message.sequence)
        if len(found) < 20:
            await store(nc, f"{stream.name}.1", b"new")
    if version_of(nats_server) >= MULTI:
        assert found == [1, 2, 3, 4, 6, 7, 8, 9, 10]
    else:
        assert found[:9] == [1, 2, 3, 4, 6, 7, 8, 9, 10]


async def test_a_batch_of_a_stream_that_is_emptied_meanwhile(stream: Stream) -> None:
    batch = stream.direct_get_batch(max_bytes=1)
    assert (await anext(batch)).sequence == 1
    await stream.purge()
    assert await sequences(batch) == []


async def test_an_empty_stream(js: JetStream) -> None:
    stream = await js.create_stream(name=new_name(), allow_direct=True)
    assert await sequences(stream.direct_get_batch()) == []


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"batch": 0}, "batch"),
        ({"max_bytes": 0}, "max_bytes"),
        ({"seq": 0}, "seq"),
        ({"subject": ""}, "subject"),
        ({"start_time": datetime(2020, 1, 1)}, "start_time"),
        ({"seq": 1, "start_time": datetime(2020, 1, 1, tzinfo=UTC)}, "not both"),
    ],
)
async def test_bad_options_of_a_batch_are_refused_at_once(
    stream: Stream, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidOptionError, match=named):
        stream.direct_get_batch(**options)


# --- the last messages of many subjects


async def last_many(stream: StreamReader, *tokens: str, **options: Any) -> list[int]:
    subjects = [f"{stream.name}.{token}" for token in tokens]
    return await sequences(stream.direct_get_last_many(subjects, **options))


async def test_the_last_messages_of_many_subjects(nats_server: NatsServer, stream: Stream) -> None:
    call = last_many(stream, "1", "3", "nothing")
    found = await if_supported(nats_server, MULTI, call, "2.11")
    if found is None:
        return
    assert found == [9, 10]
    assert await last_many(stream, "*") == [8, 9, 10]
    assert await sequences(stream.direct_get_last_many(f"{stream.name}.2")) == [8]
    assert await last_many(stream, "*", max_bytes=1) == [8, 9, 10]
    assert await last_many(stream, "nothing") == []
    assert await last_many(stream) == []
    messages = [m async for m in stream.direct_get_last_many(f"{stream.name}.>")]
    assert [message.data for message in messages] == [b"8", b"9", b"10"]
    assert [message.headers["N"] for message in messages] == ["8", "9", "10"]


async def test_the_last_messages_of_the_past(nats_server: NatsServer, stream: Stream) -> None:
    call = last_many(stream, "*", up_to_sequence=6, max_bytes=1)
    found = await if_supported(nats_server, MULTI, call, "2.11")
    if found is None:
        return
    assert found == [2, 4, 6]  # number 5 is deleted
    # Up to a time is before that time.
    seventh = await stream.get_message(7)
    time = seventh.timestamp + timedelta(microseconds=1)
    assert await last_many(stream, "*", up_to_time=time, max_bytes=1) == [2, 6, 7]
    assert await last_many(stream, "*", up_to_time=time - timedelta(days=1)) == []


async def test_the_last_messages_are_of_one_moment(
    nats_server: NatsServer, nc: Client, stream: Stream
) -> None:
    subjects = [f"{stream.name}.*"]
    found: list[int] = []
    try:
        async for message in stream.direct_get_last_many(subjects, max_bytes=1):
            found.append(message.sequence)
            await store(nc, f"{stream.name}.1")
            await store(nc, f"{stream.name}.new")
    except NotSupportedError:
        assert version_of(nats_server) < MULTI
        return
    assert found == [8, 9, 10]


async def test_more_subjects_than_a_server_looks_up(
    nats_server: NatsServer, nc: Client, js: JetStream
) -> None:
    name = new_name()
    stream = await js.create_stream(
        name=name, subjects=[f"{name}.*"], storage="memory", allow_direct=True
    )
    count = 2500
    for number in range(count - 1):
        await nc.publish(f"{name}.{number}")
    await store(nc, f"{name}.{count - 1}")
    tokens = [str(number) for number in range(count)]
    missing = [f"missing{number}" for number in range(1100)]
    found: list[int] = []
    try:
        async for message in stream.direct_get_last_many([f"{name}.{t}" for t in tokens + missing]):
            found.append(message.sequence)
            if len(found) in (1, 1500):
                await nc.publish(f"{name}.0", b"later")
                await store(nc, f"{name}.{count - 1}", b"later")
    except NotSupportedError:
        assert version_of(nats_server) < MULTI
        return
    assert found == list(range(1, count + 1))
    assert await last_many(stream, *missing, *tokens[:5], up_to_sequence=count) == [1, 2, 3, 4, 5]
    assert await last_many(stream, *missing) == []
    with pytest.raises(TooManyResultsError, match=f"{name}.*1024 subjects") as caught:
        await last_many(stream, "*")
    assert caught.value.status == 413


@pytest.mark.parametrize(
    ("subjects", "options", "named"),
    [
        (["a", ""], {}, r"subjects\[1\]"),
        ("a b", {}, r"subjects\[0\]"),
        ("a", {"max_bytes": 0}, "max_bytes"),
        ("a", {"up_to_sequence": 0}, "up_to_sequence"),
        ("a", {"up_to_time": datetime(2020, 1, 1)}, "up_to_time"),
        ("a", {"up_to_sequence": 1, "up_to_time": datetime.now(UTC)}, "not both"),
    ],
)
async def test_bad_options_of_many_subjects_are_refused_at_once(
    stream: Stream, subjects: Any, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidOptionError, match=named):
        stream.direct_get_last_many(subjects, **options)
