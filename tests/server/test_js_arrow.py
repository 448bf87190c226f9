"""Messages as record batches: the same as one by one, in columns."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from jetspark.errors import (
    ConsumerDeletedError,
    InvalidOptionError,
    MaxBytesExceededError,
    NotJetStreamMessageError,
)
from jetspark.jetstream.consumer.arrow import SCHEMA, _Columns, record_batch
from jetspark.jetstream.message import JetStreamMessage
from jetspark.protocol import Frame, MessageBatch, Parser, Run
from jetspark.server import NatsServer
from tests.support.clients import Connect, eventually
from tests.support.js import Warnings, fill, make_consumer, make_stream, served


def columns(messages: list[JetStreamMessage]) -> dict[str, list[Any]]:
    """What the columns should be, made from messages one by one."""
    return {
        "stream": [message.metadata.stream for message in messages],
        "subject": [message.subject for message in messages],
        "sequence": [message.metadata.stream_sequence for message in messages],
        "timestamp": [message.metadata.timestamp for message in messages],
        "headers": [
            list(message.headers.to_dict().items()) if message.raw_headers else None
            for message in messages
        ],
        "data": [message.data for message in messages],
    }


def some_headers(number: int) -> dict[str, str | list[str]] | None:
    if number % 3 == 0:
        return None
    return {"Number": str(number), "Twice": ["ä", f"b{number}"]}


async def test_schema() -> None:
    assert SCHEMA.names == ["stream", "subject", "sequence", "timestamp", "headers", "data"]
    assert SCHEMA.field("sequence").type == pa.int64()
    assert SCHEMA.field("timestamp").type == pa.timestamp("us", tz="UTC")
    assert SCHEMA.field("headers").type == pa.map_(pa.string(), pa.list_(pa.string()))
    assert SCHEMA.field("data").type == pa.binary()


@pytest.mark.parametrize("with_headers", [False, True])
async def test_same_values_as_messages(
    nats_server: NatsServer, connect: Connect, with_headers: bool
) -> None:
    nc = await connect(nats_server.url)
    stream = await make_stream(nc)
    headers = some_headers if with_headers else (lambda number: None)
    await fill(nc, stream, 300, headers=headers)
    one_by_one = await make_consumer(nc, stream, durable_name="one", ack_policy="none")
    expected = columns([m async for m in one_by_one.messages(stop_after=300)])
    in_columns = await make_consumer(nc, stream, durable_name="arrow", ack_policy="none")
    fetched = await in_columns.fetch_arrow(100)
    batches = [fetched, *[batch async for batch in in_columns.arrow_batches(stop_after=200)]]
    for batch in batches:
        assert batch.schema == SCHEMA
        batch.validate(full=True)
    assert pa.Table.from_batches(batches).to_pydict() == expected


async def test_fetch_arrow_ends_like_fetch(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 10, size=200), ack_policy="none")
    assert (await consumer.fetch_arrow(3)).num_rows == 3
    assert (await consumer.fetch_arrow(max_bytes=600)).num_rows == 2
    with pytest.raises(MaxBytesExceededError):
        await consumer.fetch_arrow(max_bytes=50)
    assert (await consumer.fetch_arrow(100, timeout=0.2)).num_rows == 5
    empty = await consumer.fetch_arrow(1, timeout=0.1)
    assert (empty.num_rows, empty.schema) == (0, SCHEMA)


async def test_rows(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 1000), ack_policy="none")
    stream = consumer.arrow_batches(rows=64, linger=30, stop_after=1000)
    sizes, seen = [], []
    async for batch in stream:
        sizes.append(batch.num_rows)
        seen += batch.column("sequence").to_pylist()
    assert sizes == [64] * 15 + [40]
    assert seen == list(range(1, 1001))
    await served(consumer, 0)


async def test_end_of_the_stream_ends_a_batch(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await make_stream(nc, 100)
    consumer = await make_consumer(nc, stream, ack_policy="none")
    async with consumer.arrow_batches(rows=80, linger=30) as batches:
        async with asyncio.timeout(10):  # much less than it may linger
            assert (await anext(batches)).num_rows == 80
            assert (await anext(batches)).num_rows == 20
            await fill(nc, stream, 1, start=100)
            assert (await anext(batches)).column("data").to_pylist() == [b"100"]


async def test_linger_ends_a_batch(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    # The server stops after four, with more in the stream.
    consumer = await make_consumer(nc, await make_stream(nc, 50), max_ack_pending=4)
    async with consumer.arrow_batches(linger=0.1) as batches:
        assert (await anext(batches)).column("sequence").to_pylist() == [1, 2, 3, 4]


async def test_giving_up_the_wait_loses_nothing(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 50), max_ack_pending=4)
    async with consumer.arrow_batches(linger=0.3) as batches:
        waiting = asyncio.ensure_future(anext(batches))
        await eventually(lambda: len(batches._partial) == 4)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        assert (await anext(batches)).column("sequence").to_pylist() == [1, 2, 3, 4]


async def test_many_reads_and_large_messages(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    stream = await make_stream(nc, 2000, size=5000)
    consumer = await make_consumer(nc, stream, ack_policy="none")
    warnings = Warnings()
    batches = consumer.arrow_batches(
        rows=700, linger=30, max_bytes=1_000_000, stop_after=2000, on_warning=warnings
    )
    sizes, total = [], 0
    async for batch in batches:
        sizes.append(batch.num_rows)
        total += batch.column("data").nbytes
    assert sizes == [700, 700, 600]
    assert total >= 2000 * 5000
    assert warnings == []


async def test_deleted_consumer(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 5), ack_policy="none")
    batches = consumer.arrow_batches()
    assert (await anext(batches)).num_rows == 5
    await consumer.delete()
    with pytest.raises(ConsumerDeletedError):
        await anext(batches)


async def test_stopped(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc, 5), ack_policy="none")
    batches = consumer.arrow_batches(rows=2, max_messages=4)
    await anext(batches)
    await eventually(lambda: batches._waiting())
    await batches.stop()
    assert [batch async for batch in batches] == []


def frame(reply: bytes, subject: bytes = b"s", headers: bytes | None = None) -> Frame:
    return subject, reply, headers, b"x"


async def test_reply_subjects_of_both_forms() -> None:
    """A consumer may move to a server that names domain and account."""
    frames = [
        frame(b"$JS.ACK.S.c.1.10.7.1700000000123456789.5"),
        frame(b"$JS.ACK.hub.HASH.S.c.1.11.8.1700000000123457999.4"),
        frame(b"$JS.ACK._.HASH.S.c.1.12.9.1700000000123458000.3.more"),
    ]
    for order in (frames, frames[::-1], frames[1:], frames[:1], frames[1:2]):
        batch = record_batch(order)
        numbers = [10 + frames.index(item) for item in order]
        assert batch.column("sequence").to_pylist() == numbers
        assert batch.column("stream").to_pylist() == ["S"] * len(order)
    times = record_batch(frames).column("timestamp").cast(pa.int64()).to_pylist()
    assert times == [1700000000123456, 1700000000123457, 1700000000123458]


def parsed(frames: list[Frame], read: int = 1 << 20) -> list[Sequence[Frame]]:
    """The messages as a parser gives them out that has seen the like before, by reads."""
    lines = [b"MSG %b 1 %b %d\r\n%b\r\n" % (s, r or b"", len(d), d) for s, r, _, d in frames]
    text = b"".join(lines)
    parser = Parser()
    parser.feed(text)
    events = [e for start in range(0, len(text), read) for e in parser.feed(text[start:][:read])]
    return [event.frames for event in events if isinstance(event, MessageBatch)]


@pytest.mark.parametrize("form", ["$JS.ACK.S.c.1", "$JS.ACK.hub.HASH.S.c.1"])
async def test_runs_give_what_rows_give(form: str) -> None:
    replies = [b"%b.%d.%d.1700000000123456%d.7" % (form.encode(), n, n, n) for n in range(100, 900)]
    frames = [frame(reply, b"s.\xff") for reply in replies]
    (run,) = parsed(frames)
    assert isinstance(run, Run)
    assert record_batch(run) == record_batch(frames)
    assert record_batch(run[300:]) == record_batch(frames[300:])


@pytest.mark.parametrize("data", [b"x" * 20, b""])
async def test_messages_across_the_ends_of_reads(data: bytes) -> None:
    """They come one by one between runs, and some are not like these."""
    frames: list[Frame] = [
        (b"s", b"$JS.ACK.S.c.1.%d.7.170000000012345%d.7" % (number, number), None, data)
        for number in range(1000, 4000)
    ]
    frames[1500] = (*frames[1500][:3], b"another")
    frames[2500] = (b"other", *frames[2500][1:])
    parts = parsed(frames, 20_000)
    assert len(parts) > 4
    assert len([part for part in parts if len(part) == 1]) > 2
    columns = _Columns()
    for part in parts:
        columns.add(part)
    assert columns.record_batch() == record_batch(frames)


@pytest.mark.parametrize("first", [10**18, 9 * 10**18])
async def test_large_sequences(first: int) -> None:
    replies = [b"$JS.ACK.S.c.1.%d.7.1700000000123456789.1" % (first + n) for n in range(300)]
    (run,) = parsed([frame(reply) for reply in replies])
    assert isinstance(run, Run)
    assert record_batch(run).column("sequence").to_pylist() == list(range(first, first + 300))


async def test_without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = [frame(b"$JS.ACK.S.c.1.%d.7.1700000000123456789.1" % n) for n in range(100, 500)]
    (run,) = parsed(frames)
    assert isinstance(run, Run)
    expected = record_batch(run)
    monkeypatch.setattr("jetspark.jetstream.consumer.arrow.np", None)
    assert record_batch(run) == expected


async def test_replies_as_long_as_each_other_and_divided_otherwise() -> None:
    """Numbers that grow make up for a count that falls."""
    replies = [b"$JS.ACK.S.c.1.%d.7.1700000000123456789.10" % n for n in range(700, 1000)]
    replies += [b"$JS.ACK.S.c.1.%d.7.1700000000123456789.9" % n for n in range(1000, 1300)]
    frames = [frame(reply) for reply in replies]
    (run,) = parsed(frames)
    assert isinstance(run, Run)
    batch = record_batch(run)
    assert batch.column("sequence").to_pylist() == list(range(700, 1300))


async def test_messages_of_no_consumer() -> None:
    good = frame(b"$JS.ACK.S.c.1.100.7.1700000000123456789.5")
    for bad in (
        b"$JS.ACK.S.c.1.xyz.7.1700000000123456789.5",
        b"$JS.ACK.S.c.1100..7.1700000000123456789.5",
        b"$JS.ACK.S.c.1.1_0.7.1700000000123456789.5",
        b"_INBOX.of.somebody.else.who.is.here.12345",
    ):
        frames = [*[good] * 300, frame(bad)]
        for batch in (frames, *parsed(frames)):
            with pytest.raises(NotJetStreamMessageError):
                record_batch(batch)


async def test_text_that_is_not_utf_8() -> None:
    reply = b"$JS.ACK.S.c.1.10.7.1700000000123456789.5"
    odd = frame(reply, b"s.\xff", b"NATS/1.0\r\nA: \xfe\r\nB: b\r\n\r\n")
    batch = record_batch([frame(reply), odd])
    assert batch.column("subject").to_pylist() == ["s", "s.�"]
    assert batch.column("headers").to_pylist() == [None, [("A", ["�"]), ("B", ["b"])]]


async def test_options_are_refused(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    consumer = await make_consumer(nc, await make_stream(nc))
    with pytest.raises(InvalidOptionError, match="rows"):
        consumer.arrow_batches(rows=0)
    with pytest.raises(InvalidOptionError, match="expires"):
        consumer.arrow_batches(expires=0.1)
    with pytest.raises(InvalidOptionError, match="max_messages"):
        await consumer.fetch_arrow()
