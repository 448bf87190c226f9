"""Reads go into a buffer that is used again."""

from __future__ import annotations

import tracemalloc

from jetspark.connection.link import LARGE_READ_BUFFER, READ_BUFFER
from jetspark.server import NatsServer
from tests.support.clients import Connect, unique
from tests.support.leaks import GUARD


async def test_what_was_read_stays_as_it_was(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    subject = unique("reads")
    subscription = await nc.subscribe(subject)
    edges = [READ_BUFFER, LARGE_READ_BUFFER]
    near = [edge + more for edge in edges for more in (-1, 0, 1)]
    sizes = [1, *near, 3, *near, 3 * READ_BUFFER, 2] * 2
    sent = [bytes([65 + number]) * size for number, size in enumerate(sizes)]
    for data in sent:
        await nc.publish(subject, data)
    received = [await subscription.next(timeout=GUARD) for _ in sent]
    assert [message.data for message in received] == sent


async def test_a_small_read_takes_little_memory(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    subscription = await nc.subscribe(subject := unique("reads"))

    async def send_and_receive() -> None:
        for _ in range(20):
            await nc.publish(subject, b"small")
            await subscription.next(timeout=GUARD)

    await send_and_receive()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        await send_and_receive()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < READ_BUFFER // 2
