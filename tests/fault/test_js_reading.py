"""Messages that get lost between a server and a reader: all of them are read, none twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from jetspark import Client, JetStream, Message, StoredMessage, Stream
from jetspark.errors import (
    ConnectionClosedError,
    NoStreamResponseError,
    NotSupportedError,
    TimeoutError,
)
from jetspark.server import NatsServer
from tests.support.faults import connected
from tests.support.leaks import GUARD, until
from tests.support.proxy import Proxy
from tests.support.streams import new_name, store, version_of

MULTI = (2, 11)  # the first server with batches and the last messages of many subjects


async def new_stream(nc: Client, count: int, size: int = 10) -> Stream:
    """A stream with messages on the subjects `<name>.0`, `<name>.1` and so on."""
    name = new_name()
    stream = await nc.jetstream(strict=True).create_stream(
        name=name, subjects=[f"{name}.*"], storage="memory", allow_direct=True
    )
    for number in range(count - 1):
        await nc.publish(f"{name}.{number}", b"x" * size)
    await store(nc, f"{name}.{count - 1}", b"x" * size)
    return stream


async def sequences(messages: AsyncIterator[StoredMessage]) -> list[int]:
    return [message.sequence async for message in messages]


class Relay:
    """Hands direct gets on to the server, and loses some of the answers on their way back.

    A context with its prefix goes through it.
    """

    def __init__(self, client: Client, lose: Callable[[int], bool]) -> None:
        self.client = client
        self.lose = lose  # by the number of the answer, counted over all requests
        self.prefix = new_name("relay")
        self.requests: list[dict[str, Any]] = []
        self.answers = self.lost = 0
        self.before_request: Callable[[], Any] | None = None

    async def on_request(self, request: Message) -> None:
        if self.before_request is not None:
            await self.before_request()
        self.requests.append(json.loads(request.data))
        subject = request.subject.replace(self.prefix, "$JS.API", 1)
        async for answer in self.client.request_many(subject, request.data, timeout=5):
            self.answers += 1
            if self.lose(self.answers):
                self.lost += 1
            else:
                self._pass_on(request, answer)
            # A status is the last answer, and a message that is not part of a batch the only one.
            if answer.status is not None or "Nats-Num-Pending" not in answer.headers:
                break

    def _pass_on(self, request: Message, answer: Message) -> None:
        # As it came: a client does not write status lines by itself.
        block, encoder = answer.raw_headers or b"", self.client._encoder
        sizes = len(block), len(block) + len(answer.data)
        if not encoder.pieces:
            encoder.on_output()
        line = b"\r\nHPUB %b %d %d\r\n" % (request.raw_reply or b"", *sizes)
        encoder.pieces += (line, block, answer.data)


@asynccontextmanager
async def relayed(
    nc: Client, lose: Callable[[int], bool] = lambda number: False, timeout: float = 5.0
) -> AsyncIterator[tuple[Relay, JetStream]]:
    relay = Relay(nc, lose)
    async with await nc.subscribe(f"{relay.prefix}.DIRECT.GET.>", callback=relay.on_request):
        yield relay, nc.jetstream(prefix=relay.prefix, strict=True, timeout=timeout)


def through(js: JetStream, stream: Stream) -> Stream:
    """The same stream, by another way."""
    return Stream(js, stream.cached_info)


# Answers are counted from 1: the server sends portions of four of the nine messages, each with
# an end of batch behind it.
@pytest.mark.parametrize("lost", [{1}, {2}, {3, 4}, {4}, {1, 2, 3, 4}, {6}, {2, 8}])
async def test_lost_messages_are_asked_for_again(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, lost: set[int]
) -> None:
    monkeypatch.setattr("jetspark.jetstream.reading.PAGE_MESSAGES", 4)
    old = version_of(nats_server) < MULTI
    async with connected(nats_server.url) as nc:
        stream = await new_stream(nc, 9)
        timeout = 0.2 if old else GUARD
        async with relayed(nc, lambda number: number in lost, timeout) as (relay, js):
            found = sequences(through(js, stream).direct_get_batch())
            if old:  # it sends one message for each request
                with pytest.raises(TimeoutError):
                    await found
            else:
                assert await found == list(range(1, 10))
        assert relay.lost


async def test_an_end_that_gets_lost_is_not_missed(nats_server: NatsServer) -> None:
    async with connected(nats_server.url) as nc:
        stream = await new_stream(nc, 3)
        async with relayed(nc, lambda number: number == 4, timeout=0.3) as (relay, js):
            found = sequences(through(js, stream).direct_get_batch())
            if version_of(nats_server) < MULTI:  # there the end is that no message is found
                with pytest.raises(TimeoutError):
                    await found
            else:
                assert await found == [1, 2, 3]
                assert len(relay.requests) == 1  # all that was announced has come


async def test_when_everything_is_lost_a_reader_gives_up(nats_server: NatsServer) -> None:
    async with connected(nats_server.url) as nc:
        stream = await new_stream(nc, 3)
        async with relayed(nc, lambda number: True, timeout=0.2) as (_, js):
            lossy = through(js, stream)
            with pytest.raises(TimeoutError, match=f"stream '{stream.name}'.*no answer") as caught:
                await sequences(lossy.direct_get_batch())
            assert not caught.value.may_have_taken_effect
            with pytest.raises(TimeoutError):
                await lossy.direct_get(1)
            with pytest.raises(TimeoutError):
                await sequences(lossy.direct_get_last_many(">"))


@pytest.mark.parametrize("lost", [{1}, {3}, {5}, {2, 7}])
async def test_last_messages_are_of_one_moment_although_some_get_lost(
    nats_server: NatsServer, lost: set[int]
) -> None:
    async with connected(nats_server.url) as nc:
        stream = await new_stream(nc, 5)
        async with relayed(nc, lambda number: number in lost) as (relay, js):

            async def change() -> None:
                if relay.requests:  # between the first request and the next
                    await store(nc, f"{stream.name}.0", b"newer")

            relay.before_request = change
            many = through(js, stream).direct_get_last_many(f"{stream.name}.*")
            if version_of(nats_server) < MULTI:
                relay.lose = lambda number: False
                with pytest.raises(NotSupportedError, match=r"2\.11"):
                    await sequences(many)
                return
            # Each once, whether from before the change or from after it.
            subjects = [message.subject async for message in many]
            assert sorted(subjects) == [f"{stream.name}.{number}" for number in range(5)]
            assert len(relay.requests) > 1


# --- connections that are lost


@pytest.mark.parametrize("cut_after", [1, 100, 3_000, 40_000, 199_999])
async def test_a_connection_that_is_lost_in_the_middle_of_a_batch(
    nats_server: NatsServer, cut_after: int
) -> None:
    async with (
        connected(nats_server.url) as nc,
        Proxy(nats_server.host, nats_server.port) as proxy,
        connected(proxy.url) as reader,
    ):
        count = 1000 if version_of(nats_server) >= MULTI else 200
        stream = through(reader.jetstream(strict=True), await new_stream(nc, count, size=100))
        proxy.truncate_after(cut_after, "down")
        found = await asyncio.wait_for(sequences(stream.direct_get_batch()), GUARD)
        assert found == list(range(1, count + 1))
        if cut_after < count * 100:
            assert reader.statistics.reconnects == 1


async def test_a_connection_that_is_lost_in_the_middle_of_last_messages(
    nats_server: NatsServer,
) -> None:
    async with (
        connected(nats_server.url) as nc,
        Proxy(nats_server.host, nats_server.port) as proxy,
        connected(proxy.url) as reader,
    ):
        stream = through(reader.jetstream(strict=True), await new_stream(nc, 500, size=100))
        many = sequences(stream.direct_get_last_many(">"))
        if version_of(nats_server) < MULTI:
            with pytest.raises(NotSupportedError, match=r"2\.11"):
                await many
            return
        proxy.truncate_after(20_000, "down")
        found = await asyncio.wait_for(many, GUARD)
        assert found == list(range(1, 501))
        assert reader.statistics.reconnects == 1


async def test_single_reads_survive_a_lost_connection(nats_server: NatsServer) -> None:
    async with (
        connected(nats_server.url) as nc,
        Proxy(nats_server.host, nats_server.port) as proxy,
        connected(proxy.url) as reader,
    ):
        stream = through(reader.jetstream(strict=True), await new_stream(nc, 1))
        for number, read in enumerate((stream.direct_get, stream.get_message), 1):
            await reader.flush()
            proxy.truncate_after(1, "down")
            assert (await asyncio.wait_for(read(1), GUARD)).sequence == 1
            assert reader.statistics.reconnects == number


async def test_a_client_that_is_closed_ends_a_batch(nats_server: NatsServer) -> None:
    async with connected(nats_server.url) as nc:
        stream = await new_stream(nc, 5)
        batch = stream.direct_get_batch(max_bytes=1)
        assert (await anext(batch)).sequence == 1
        await nc.close()
        with pytest.raises(ConnectionClosedError):
            await anext(batch)


async def test_a_stream_that_is_deleted_ends_a_batch(nats_server: NatsServer) -> None:
    async with connected(nats_server.url) as nc:
        stream = await new_stream(nc, 5)
        batch = stream.direct_get_batch(max_bytes=1)
        assert (await anext(batch)).sequence == 1
        await stream.delete()
        with pytest.raises(NoStreamResponseError, match=stream.name):
            await anext(batch)


@pytest.mark.parametrize("kind", ["single", "batch"])
async def test_a_read_that_is_cancelled_leaves_nothing_behind(
    nats_server: NatsServer, kind: str
) -> None:
    async with connected(nats_server.url) as nc:
        stream = await new_stream(nc, 5)
        async with relayed(nc, lambda number: True) as (relay, js):
            lossy = through(js, stream)
            single = kind == "single"
            call = lossy.direct_get(5) if single else anext(lossy.direct_get_batch())
            task = asyncio.ensure_future(call)
            await until(lambda: relay.requests)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until(lambda: relay.lost and nc._mux is not None and nc._mux.pending == 0)
            relay.lose = lambda number: False
            assert (await lossy.direct_get(5)).sequence == 5
