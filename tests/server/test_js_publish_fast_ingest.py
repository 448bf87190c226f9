"""Fast ingest: flow, the end of a batch, and messages that are lost or refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from jetspark import Client, FastIngest, JetStream, Message, Stream
from jetspark.errors import (
    BatchPublishError,
    ConnectionClosedError,
    InvalidAckError,
    InvalidArgumentError,
    InvalidHeaderError,
    InvalidOptionError,
    NoStreamResponseError,
    NotSupportedError,
    PublisherClosedError,
    TimeoutError,
    WrongLastSequenceError,
)
from jetspark.jetstream import fast_ingest
from jetspark.server import NatsServer
from tests.support.clients import Connect, Events, eventually
from tests.support.proxy import Proxy
from tests.support.streams import new_name, version_of

SINCE = (2, 14)


@pytest.fixture
def events() -> Events:
    return Events()


@pytest_asyncio.fixture
async def nc(nats_server: NatsServer, connect: Connect, events: Events) -> Client:
    return await connect(nats_server.url, on_event=events)


@pytest_asyncio.fixture
async def stream(nats_server: NatsServer, js: JetStream) -> Stream:
    if version_of(nats_server) < SINCE:
        pytest.skip("fast ingest came with 2.14; what older servers do has its own test")
    name = new_name()
    return await js.create_stream(
        name=name, subjects=[f"{name}.>"], allow_batched=True, storage="memory"
    )


@pytest_asyncio.fixture
async def proxy(nats_server: NatsServer) -> AsyncIterator[Proxy]:
    async with Proxy(nats_server.host, nats_server.port) as proxy:
        yield proxy


async def datas(stream: Stream) -> list[bytes]:
    last = (await stream.info()).state.last_seq
    return [(await stream.get_message(seq)).data for seq in range(1, last + 1)]


def skip_number(ingest: FastIngest) -> None:
    """Lose a message: its number is used up, and nothing is sent."""
    ingest._sent += 1


async def test_messages_are_stored_in_order(nc: Client, js: JetStream, stream: Stream) -> None:
    routes = len(nc._routes)
    async with js.fast_ingest() as ingest:
        for number in range(1, 301):
            assert await ingest.add(f"{stream.name}.a", b"%d" % number) == number
        assert ingest.size == 300
    assert ingest.closed
    assert ingest.ack is not None
    assert (ingest.ack.stream, ingest.ack.sequence) == (stream.name, 300)
    assert (ingest.ack.batch_id, ingest.ack.batch_size) == (ingest.id, 300)
    assert await datas(stream) == [b"%d" % number for number in range(1, 301)]
    assert (ingest.lost, ingest.refused, ingest.errors) == (0, 0, [])
    assert len(nc._routes) == routes


@pytest.mark.parametrize(("flow", "outstanding"), [(1, 1), (3, 2), (10, 3), (65535, 1)])
async def test_no_more_is_outstanding_than_the_flow_allows(
    js: JetStream, stream: Stream, flow: int, outstanding: int
) -> None:
    async with js.fast_ingest(flow=flow, max_outstanding=outstanding) as ingest:
        for _ in range(200):
            await ingest.add(f"{stream.name}.a", b"")
            assert ingest.size <= ingest._limit
    assert (await stream.info()).state.messages == 200


async def test_two_at_once_share_the_stream(js: JetStream, stream: Stream) -> None:
    async def run(name: bytes) -> FastIngest:
        async with js.fast_ingest() as ingest:
            for _ in range(500):
                await ingest.add(f"{stream.name}.a", name)
        return ingest

    first, second = await asyncio.gather(run(b"1"), run(b"2"))
    assert first.ack is not None
    assert second.ack is not None
    assert first.ack.batch_size == second.ack.batch_size == 500
    assert sorted(await datas(stream)) == [b"1"] * 500 + [b"2"] * 500


async def test_messages_have_options(js: JetStream, stream: Stream) -> None:
    async with js.fast_ingest() as ingest:
        await ingest.add(f"{stream.name}.a", b"1", headers={"A": "b"}, expected_last_sequence=0)
        await ingest.add(f"{stream.name}.b", b"2", msg_id="1", expected_stream=stream.name)
        await ingest.add(f"{stream.name}.b", b"3", msg_id="1")
    assert (await stream.get_message(1)).headers["A"] == "b"
    assert await datas(stream) == [b"1", b"2"]


async def test_nothing_at_all(js: JetStream) -> None:
    async with js.fast_ingest() as ingest:
        pass
    assert ingest.ack is None
    assert await js.fast_ingest().close() is None


async def test_close_may_be_called_again(js: JetStream, stream: Stream) -> None:
    ingest = js.fast_ingest()
    await ingest.add(f"{stream.name}.a", b"")
    ack = await ingest.close()
    assert await ingest.close() is ack
    with pytest.raises(PublisherClosedError, match="begin another"):
        await ingest.add(f"{stream.name}.a", b"")


async def test_an_error_in_the_block_leaves_what_is_stored(js: JetStream, stream: Stream) -> None:
    with pytest.raises(ZeroDivisionError):
        async with js.fast_ingest() as ingest:
            await ingest.add(f"{stream.name}.a", b"")
            raise ZeroDivisionError
    assert ingest.closed
    assert ingest.ack is None
    assert await datas(stream) == [b""]


async def test_large_messages(js: JetStream, stream: Stream) -> None:
    async with js.fast_ingest() as ingest:
        for _ in range(20):
            await ingest.add(f"{stream.name}.a", b"x" * 100_000)
    assert (await stream.info()).state.messages == 20


# --- gaps and refusals


async def test_a_lost_message_ends_the_batch(js: JetStream, stream: Stream) -> None:
    ingest = js.fast_ingest()
    for number in range(3):
        await ingest.add(f"{stream.name}.a", b"%d" % number)
    skip_number(ingest)
    await ingest.add(f"{stream.name}.a", b"after")
    await eventually(lambda: ingest.closed)
    for call in (ingest.add(f"{stream.name}.a", b""), ingest.close()):
        with pytest.raises(BatchPublishError, match="messages 4 to 4 were lost"):
            await call
    assert ingest.lost == 1
    assert ingest.ack is not None
    assert ingest.ack.batch_size == 3, "so many can be relied on"
    assert await datas(stream) == [b"0", b"1", b"2"]


async def test_a_lost_message_is_noted_and_the_batch_goes_on(
    js: JetStream, stream: Stream, events: Events
) -> None:
    async with js.fast_ingest(gap="ok") as ingest:
        await ingest.add(f"{stream.name}.a", b"1")
        skip_number(ingest)
        skip_number(ingest)
        await ingest.add(f"{stream.name}.a", b"4")
    assert (ingest.lost, ingest.refused) == (2, 0)
    assert "messages 2 to 3 were lost" in str(ingest.errors[0])
    assert str(events.errors[0]) == str(ingest.errors[0])
    assert ingest.ack is not None
    assert ingest.ack.batch_size == 4, "the lost ones count"
    assert await datas(stream) == [b"1", b"4"]


async def test_the_last_message_is_lost(js: JetStream, stream: Stream) -> None:
    ingest = js.fast_ingest()
    await ingest.add(f"{stream.name}.a", b"1")
    skip_number(ingest)
    with pytest.raises(BatchPublishError, match="messages 2 to 2 were lost"):
        await ingest.close()
    assert ingest.ack is not None
    assert ingest.ack.batch_size == 1


async def test_a_refused_message_ends_the_batch(js: JetStream, stream: Stream) -> None:
    ingest = js.fast_ingest()
    await ingest.add(f"{stream.name}.a", b"1")
    await ingest.add(f"{stream.name}.a", b"2", expected_last_sequence=7)
    with pytest.raises(WrongLastSequenceError, match="message 2"):
        await ingest.close()
    assert (ingest.lost, ingest.refused) == (0, 1)
    assert ingest.ack is not None
    assert ingest.ack.batch_size == 1
    assert await datas(stream) == [b"1"]


async def test_a_refused_message_is_noted_and_the_batch_goes_on(
    js: JetStream, stream: Stream, events: Events
) -> None:
    async with js.fast_ingest(gap="ok") as ingest:
        await ingest.add(f"{stream.name}.a", b"1")
        await ingest.add(f"{stream.name}.a", b"2", expected_last_sequence=7)
        await ingest.add(f"{stream.name}.a", b"3")
    assert (ingest.lost, ingest.refused) == (0, 1)
    assert isinstance(ingest.errors[0], WrongLastSequenceError)
    assert events.errors == ingest.errors
    assert ingest.ack is not None
    assert ingest.ack.batch_size == 3, "the refused one counts"
    assert await datas(stream) == [b"1", b"3"]


async def test_many_refusals_are_counted_and_a_few_are_kept(
    js: JetStream, stream: Stream, events: Events
) -> None:
    async with js.fast_ingest(gap="ok") as ingest:
        for _ in range(100):
            await ingest.add(f"{stream.name}.a", b"", expected_last_sequence=7)
            await ingest.add(f"{stream.name}.b", b"")
    assert ingest.refused == 99  # once it is right
    assert len(ingest.errors) == 16


async def test_the_first_message_is_refused(js: JetStream, stream: Stream) -> None:
    ingest = js.fast_ingest()
    with pytest.raises(WrongLastSequenceError):
        await ingest.add(f"{stream.name}.a", b"", expected_last_sequence=7)
        await ingest.close()
    assert ingest.ack is None
    assert ingest.closed


async def test_a_message_for_another_stream(js: JetStream, stream: Stream) -> None:
    other = await js.create_stream(name=new_name(), storage="memory")
    ingest = js.fast_ingest()
    await ingest.add(f"{stream.name}.a", b"")
    await ingest.add(other.name, b"")
    await eventually(lambda: ingest.closed)
    # Two streams answer: the one that refuses the message, and the one that misses it.
    with pytest.raises(BatchPublishError, match=r"10205|messages 2 to 2 were lost"):
        await ingest.close()


@pytest.mark.parametrize("gap", ["fail", "ok"])
async def test_a_message_for_no_stream(js: JetStream, stream: Stream, gap: Any) -> None:
    ingest = js.fast_ingest(gap=gap, timeout=1)
    await ingest.add(f"{stream.name}.a", b"1")
    for number in (2, 3):
        await ingest.add("nobody.here", b"%d" % number)
    if gap == "ok":
        ack = await ingest.close()
        assert ack is not None
        assert isinstance(ingest.errors[0], NoStreamResponseError)
        assert ingest.lost == 2
    else:
        with pytest.raises(NoStreamResponseError):
            await ingest.close()


async def test_a_batch_that_the_server_does_not_know(js: JetStream, stream: Stream) -> None:
    ingest = js.fast_ingest()
    await ingest.add(f"{stream.name}.a", b"")
    await stream.delete()
    await js.create_stream(stream.config)
    await ingest.add(f"{stream.name}.a", b"")
    with pytest.raises(BatchPublishError) as caught:
        await ingest.close()
    assert caught.value.err_code == 10208


async def test_a_stream_without_fast_ingest(nats_server: NatsServer, js: JetStream) -> None:
    if version_of(nats_server) < SINCE:
        pytest.skip("what older servers do has its own test")
    plain = await js.create_stream(name=new_name(), storage="memory")
    with pytest.raises(BatchPublishError) as caught:
        await js.fast_ingest().add(plain.name, b"")
    assert caught.value.err_code == 10205
    assert (await plain.info()).state.messages == 0


async def test_no_stream(nats_server: NatsServer, js: JetStream) -> None:
    if version_of(nats_server) < SINCE:
        pytest.skip("what older servers do has its own test")
    ingest = js.fast_ingest()
    with pytest.raises(NoStreamResponseError):
        await ingest.add("nobody.here", b"")
    assert ingest.closed


async def test_a_stream_that_appears_in_time(nats_server: NatsServer, js: JetStream) -> None:
    if version_of(nats_server) < SINCE:
        pytest.skip("what older servers do has its own test")
    name = new_name()
    ingest = js.fast_ingest()
    adding = asyncio.create_task(ingest.add(name, b""))
    await asyncio.sleep(0.01)
    await js.create_stream(name=name, allow_batched=True, storage="memory")
    assert await adding == 1
    assert await ingest.close() is not None


async def test_a_server_that_is_too_old(nc: Client, js: JetStream) -> None:
    sent = nc.statistics.messages_out
    nc._connection.server_info = msgspec.structs.replace(nc.server_info, version="2.12.8")
    with pytest.raises(NotSupportedError, match=r"no fast ingest; its version is 2\.12\.8"):
        await js.fast_ingest().add("orders", b"")
    assert nc.statistics.messages_out == sent


@pytest.mark.parametrize(
    ("answer", "error"),
    [(b'{"stream":"OLD", "seq":1}', NotSupportedError), (b"thanks", InvalidAckError)],
)
async def test_an_answer_that_is_none(
    nc: Client,
    js: JetStream,
    monkeypatch: pytest.MonkeyPatch,
    answer: bytes,
    error: type[Exception],
) -> None:
    # Behind a prefix, the server in use need not be that of the stream: the answer tells.
    monkeypatch.setattr(fast_ingest, "DEFAULT_PREFIX", "")
    name = new_name()

    async def respond(message: Message) -> None:
        await message.respond(answer)

    await nc.subscribe(name, callback=respond)
    with pytest.raises(error):
        await js.fast_ingest().add(name, b"")


# --- arguments, timeouts, the end


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"gap": "maybe"}, "gap"),
        ({"flow": 0}, "flow"),
        ({"flow": 65536}, "flow"),
        ({"max_outstanding": 0}, "max_outstanding"),
        ({"max_outstanding": 4}, "max_outstanding"),
    ],
)
async def test_bad_options(js: JetStream, options: dict[str, Any], word: str) -> None:
    with pytest.raises(InvalidOptionError, match=word):
        js.fast_ingest(**options)


@pytest.mark.parametrize("position", [0, 1])
@pytest.mark.parametrize(
    ("subject", "data", "options", "error"),
    [
        ("a b", b"", {}, InvalidArgumentError),
        ("a", "text", {}, InvalidArgumentError),
        ("a", b"", {"ttl": 0}, InvalidOptionError),
        ("a", b"", {"headers": {"A": "x" * 70_000}}, InvalidHeaderError),
    ],
)
async def test_bad_arguments_leave_the_batch_as_it_was(
    js: JetStream,
    stream: Stream,
    position: int,
    subject: str,
    data: Any,
    options: Any,
    error: type[Exception],
) -> None:
    async with js.fast_ingest() as ingest:
        for _ in range(position):
            await ingest.add(f"{stream.name}.a", b"")
        with pytest.raises(error):
            await ingest.add(f"{stream.name}.{subject}", data, **options)
        await ingest.add(f"{stream.name}.a", b"")
    assert ingest.ack is not None
    assert ingest.ack.batch_size == position + 1


async def test_a_server_that_does_not_answer(
    stream: Stream, proxy: Proxy, connect: Connect
) -> None:
    nc = await connect(proxy.url)
    ingest = nc.jetstream().fast_ingest(flow=1, max_outstanding=1, timeout=0.15)
    await ingest.add(f"{stream.name}.a", b"")
    proxy.stall()
    with pytest.raises(TimeoutError, match="no acknowledgement"):
        for _ in range(5):
            await ingest.add(f"{stream.name}.a", b"")
    assert ingest.closed
    first = nc.jetstream().fast_ingest(timeout=0.05)
    with pytest.raises(TimeoutError, match="no answer"):
        await first.add(f"{stream.name}.a", b"")
    proxy.unstall()


async def test_an_acknowledgement_that_got_lost_is_asked_for(
    js: JetStream, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest = js.fast_ingest(flow=2, max_outstanding=1, timeout=0.6)
    await ingest.add(f"{stream.name}.a", b"")
    deliver = ingest.deliver
    dropped: list[Any] = []

    def drop_one(batch: Any) -> None:
        if dropped:
            deliver(batch)
        else:
            dropped.append(batch)

    monkeypatch.setattr(ingest, "deliver", drop_one)
    for _ in range(5):
        await ingest.add(f"{stream.name}.a", b"")
    ack = await ingest.close()
    assert dropped
    assert ack is not None
    assert ack.batch_size == 6


async def test_cancelling_the_first_add_ends_the_batch(
    stream: Stream, proxy: Proxy, connect: Connect
) -> None:
    nc = await connect(proxy.url)
    ingest = nc.jetstream().fast_ingest()
    proxy.stall()
    with pytest.raises(asyncio.TimeoutError):
        async with asyncio.timeout(0.05):
            await ingest.add(f"{stream.name}.a", b"")
    assert ingest.closed
    proxy.unstall()


async def test_an_end_that_nobody_asked_for(nc: Client, js: JetStream, stream: Stream) -> None:
    ingest = js.fast_ingest()
    await ingest.add(f"{stream.name}.a", b"")
    unknown, end = b'{"type":"news"}', b'{"stream":"S","seq":1,"batch":"x","count":1}'
    for answer in (unknown, end):
        await nc.publish(ingest.subject.replace(">", "x"), answer)
    await eventually(lambda: ingest.closed)
    with pytest.raises(BatchPublishError, match="the server ended the batch after 1 of 1"):
        await ingest.add(f"{stream.name}.a", b"")


async def test_cancelling_an_add_that_waits(stream: Stream, proxy: Proxy, connect: Connect) -> None:
    nc = await connect(proxy.url)
    ingest = nc.jetstream().fast_ingest(flow=1, max_outstanding=1)
    await ingest.add(f"{stream.name}.a", b"")
    proxy.stall()
    with pytest.raises(asyncio.TimeoutError):
        async with asyncio.timeout(0.05):
            for _ in range(5):
                await ingest.add(f"{stream.name}.a", b"")
    proxy.unstall()
    count = ingest.size
    assert await ingest.add(f"{stream.name}.a", b"") == count + 1
    ack = await ingest.close()
    assert ack is not None
    assert ack.batch_size == count + 1


async def test_a_client_that_is_closed(
    nats_server: NatsServer, stream: Stream, connect: Connect
) -> None:
    nc = await connect(nats_server.url)
    ingest = nc.jetstream().fast_ingest()
    await ingest.add(f"{stream.name}.a", b"")
    closing = asyncio.create_task(nc.close())
    with pytest.raises(ConnectionClosedError):
        await ingest.close()
    await closing
    with pytest.raises(ConnectionClosedError):
        await ingest.add(f"{stream.name}.a", b"")
