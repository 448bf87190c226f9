"""How much is read at a time, and that the messages are the same."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from jetspark.connection.link import LARGE_MESSAGE, LARGE_READ_BUFFER, READ_BUFFER, Link
from jetspark.connection.urls import ServerURL
from jetspark.protocol import Event, MessageBatch

SMALL = b"MSG small 1 100\r\n" + b"s" * 100 + b"\r\n"
LARGE = b"MSG large 2 %d\r\n" % (2 * LARGE_MESSAGE) + b"L" * (2 * LARGE_MESSAGE) + b"\r\n"


@asynccontextmanager
async def open_link() -> AsyncIterator[tuple[Link, list[Event]]]:
    """A link on a real socket, to which nothing is sent, and the events that it passes on."""
    link = Link(ServerURL("nats", "localhost", 4222))
    events: list[Event] = []
    ours, theirs = socket.socketpair()
    with theirs:
        transport, _ = await asyncio.get_running_loop().create_connection(lambda: link, sock=ours)
        link.adopt(on_events=events.extend, on_lost=lambda _: None, on_writable=lambda: None)
        try:
            yield link, events
        finally:
            transport.abort()


def read(link: Link, data: bytes) -> list[int]:
    """Have all of it read as if it had been there at once; the sizes of the reads."""
    sizes = []
    while data:
        buffer = link.get_buffer(-1)
        sizes.append(size := min(len(buffer), len(data)))
        buffer[:size] = data[:size]
        link.buffer_updated(size)
        data = data[size:]
    return sizes


async def test_large_messages_are_read_more_at_a_time() -> None:
    async with open_link() as (link, events):
        count = 3 * READ_BUFFER // len(SMALL)
        small = read(link, SMALL * count)
        large = read(link, LARGE * 100)
        again = read(link, SMALL * 4 * count)
    assert set(small[:-1]) == {READ_BUFFER}
    assert large[0] == READ_BUFFER
    assert set(large[1:-1]) == {LARGE_READ_BUFFER}
    assert again[0] == LARGE_READ_BUFFER
    assert set(again[1:-1]) == {READ_BUFFER}
    batches = [event for event in events if isinstance(event, MessageBatch)]
    frames = [(frame[0], frame[3]) for batch in batches for frame in batch.frames]
    expected = [(b"small", b"s" * 100)] * count + [(b"large", b"L" * 2 * LARGE_MESSAGE)] * 100
    expected += [(b"small", b"s" * 100)] * 4 * count
    assert frames == expected


async def test_reads_within_one_message_are_large() -> None:
    size = 4 * LARGE_READ_BUFFER
    async with open_link() as (link, events):
        sizes = read(link, b"MSG huge 1 %d\r\n" % size + b"h" * size + b"\r\n")
    assert sizes[:2] == [READ_BUFFER, LARGE_READ_BUFFER]
    assert [len(event) for event in events if isinstance(event, MessageBatch)] == [1]
