"""Publishing without waiting: futures, the window, and failures that nobody waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import pytest_asyncio

from jetspark import Client, EventKind, JetStream, Message, PublishAckFuture, Stream
from jetspark.errors import (
    ConnectionClosedError,
    ConnectionDrainingError,
    ExpectedStreamMismatchError,
    InvalidArgumentError,
    InvalidOptionError,
    MaxPayloadError,
    NoStreamResponseError,
    PublishStalledError,
    StoreFailedError,
    TimeoutError,
    WrongLastSequenceError,
)
from jetspark.jetstream import ack_window
from jetspark.server import NatsServer
from tests.support.clients import Connect, Events, eventually
from tests.support.conformance import conformance
from tests.support.streams import new_name


@pytest.fixture
def events() -> Events:
    return Events()


@pytest_asyncio.fixture
async def nc(nats_server: NatsServer, connect: Connect, events: Events) -> Client:
    return await connect(nats_server.url, on_event=events)


@pytest_asyncio.fixture
async def stream(js: JetStream) -> Stream:
    return await js.create_stream(name=new_name(), storage="memory")


@pytest_asyncio.fixture
async def silent(js: JetStream) -> str:
    """The subject of a stream that stores and never acknowledges."""
    return (await js.create_stream(name=new_name(), no_ack=True, storage="memory")).name


async def datas(stream: Stream) -> list[bytes]:
    last = (await stream.info()).state.last_seq
    return [(await stream.get_message(seq)).data for seq in range(1, last + 1)]


# --- futures


@conformance("RUST", "PublishAckFuture", "publishing returns a future that resolves to PublishAck")
async def test_a_future_becomes_the_acknowledgement(js: JetStream, stream: Stream) -> None:
    futures = [await js.publish_async(stream.name, b"%d" % number) for number in range(100)]
    assert js.publish_async_pending == 100
    acks = [await future for future in futures]
    assert [ack.sequence for ack in acks] == list(range(1, 101))
    assert js.publish_async_pending == 0
    assert await datas(stream) == [b"%d" % number for number in range(100)]


async def test_futures_can_be_gathered(js: JetStream, stream: Stream) -> None:
    futures = [await js.publish_async(stream.name, b"") for _ in range(20)]
    acks = await asyncio.gather(*futures)
    assert [ack.sequence for ack in acks] == list(range(1, 21))


async def test_messages_keep_their_order_whatever_they_carry(js: JetStream, stream: Stream) -> None:
    options: list[dict[str, Any]] = [{}, {"msg_id": "1"}, {"headers": {"A": "b"}}, {"timeout": 9}]
    sizes = [0, 10, 5_000, 100]
    expected = []
    for number in range(40):
        data = b"%d" % number + b"x" * sizes[number // 4 % 4]
        expected.append(data)
        chosen = dict(options[number % 4])
        if "msg_id" in chosen:
            chosen["msg_id"] = str(number)
        await js.publish_async(stream.name, data, **chosen)
    await js.publish_async_complete()
    assert await datas(stream) == expected
    assert (await stream.get_message(2)).headers["Nats-Msg-Id"] == "1"
    assert (await stream.get_message(3)).headers == {"A": "b"}


async def test_a_refusal_belongs_to_its_message(js: JetStream, stream: Stream) -> None:
    good = await js.publish_async(stream.name, b"", expected_last_sequence=0)
    bad = await js.publish_async(stream.name, b"", expected_last_sequence=0)
    assert (await good).sequence == 1
    with pytest.raises(WrongLastSequenceError):
        await bad
    await js.publish_async_complete()  # it was seen, so there is nothing to raise


async def test_a_duplicate_says_so(js: JetStream, stream: Stream) -> None:
    first = await js.publish_async(stream.name, b"", msg_id="1")
    second = await js.publish_async(stream.name, b"", msg_id="1")
    assert [(await first).duplicate, (await second).duplicate] == [False, True]


async def test_no_stream_keeps_its_place_while_it_is_retried(js: JetStream) -> None:
    future = await js.publish_async("nobody", b"", retry_delay=0.02)
    await asyncio.sleep(0.01)
    assert js.publish_async_pending == 1
    with pytest.raises(NoStreamResponseError, match="asked 3 times"):
        await future
    assert js.publish_async_pending == 0


async def test_retries_find_a_stream_that_appears(js: JetStream) -> None:
    name = new_name()
    futures = [
        await js.publish_async(name, b"%d" % number, retries=-1, retry_delay=0.01)
        for number in range(50)
    ]
    stream = await js.create_stream(name=name, storage="memory")
    assert sorted([(await future).sequence for future in futures]) == list(range(1, 51))
    assert sorted(await datas(stream), key=int) == [b"%d" % number for number in range(50)]


async def test_each_message_has_its_own_timeout(js: JetStream, silent: str) -> None:
    later = await js.publish_async(silent, b"", timeout=30)
    soon = await js.publish_async(silent, b"", timeout=0.05)
    sooner = await js.publish_async(silent, b"", timeout=0.02)
    with pytest.raises(TimeoutError, match=r"0\.02 s"):
        await sooner
    assert not soon.done()
    with pytest.raises(TimeoutError, match=r"0\.05 s") as caught:
        await soon
    assert caught.value.may_have_taken_effect
    assert not later.done()
    assert js.publish_async_pending == 1


async def test_the_timer_is_set_again_after_it_has_fired(js: JetStream, silent: str) -> None:
    js._acks.attempts = js._acks.attempts.within(0.05)
    for _ in range(3):
        first = await js.publish_async(silent, b"")
        second = await js.publish_async(silent, b"")
        for future in (first, second):
            with pytest.raises(TimeoutError):
                await future


# --- the window


@conformance("RUST", "PublishAckFuture", "a limit on in-flight acks holds publishing back")
async def test_a_full_window_makes_publish_async_wait(nc: Client, silent: str) -> None:
    js = nc.jetstream(max_ack_pending=3)
    for _ in range(3):
        await js.publish_async(silent, b"", timeout=0.1)
    assert js.publish_async_pending == 3
    fourth = await js.publish_async(silent, b"")  # waits until the timeouts make room
    assert js.publish_async_pending == 1
    assert not fourth.done()


async def test_a_small_window_passes_everything_in_order(nc: Client, stream: Stream) -> None:
    js = nc.jetstream(max_ack_pending=2)
    for number in range(200):
        await js.publish_async(stream.name, b"%d" % number)
        assert js.publish_async_pending <= 2
    await js.publish_async_complete()
    assert await datas(stream) == [b"%d" % number for number in range(200)]


async def test_many_tasks_share_a_window(nc: Client, stream: Stream) -> None:
    js = nc.jetstream(max_ack_pending=5)
    most = 0

    async def publish(number: int) -> int:
        nonlocal most
        future = await js.publish_async(stream.name, b"%d" % number)
        most = max(most, js.publish_async_pending)
        return (await future).sequence

    sequences = await asyncio.gather(*[publish(number) for number in range(300)])
    assert sorted(sequences) == list(range(1, 301))
    assert 1 <= most <= 5


@conformance("RUST", "PublishAckFuture", "without backpressure a full window fails at once")
async def test_without_backpressure_a_full_window_raises(nc: Client, silent: str) -> None:
    js = nc.jetstream(max_ack_pending=2, backpressure=False)
    for _ in range(2):
        await js.publish_async(silent, b"")
    sent = nc.statistics.messages_out
    with pytest.raises(PublishStalledError, match="max_ack_pending") as caught:
        await js.publish_async(silent, b"")
    assert caught.value.retryable
    assert not caught.value.may_have_taken_effect
    assert nc.statistics.messages_out == sent


async def test_publish_has_a_place_of_its_own(nc: Client, stream: Stream, silent: str) -> None:
    js = nc.jetstream(max_ack_pending=1, backpressure=False)
    await js.publish_async(silent, b"")
    assert (await js.publish(stream.name, b"")).sequence == 1
    assert js.publish_async_pending == 1


async def test_waiting_for_a_place_times_out(nc: Client, silent: str) -> None:
    js = nc.jetstream(max_ack_pending=1)
    await js.publish_async(silent, b"")
    with pytest.raises(TimeoutError, match="no place became free") as caught:
        await js.publish_async(silent, b"", timeout=0.05)
    assert not caught.value.may_have_taken_effect
    assert js.publish_async_pending == 1


async def test_cancelling_one_that_waits_for_a_place(nc: Client, silent: str) -> None:
    js = nc.jetstream(max_ack_pending=1)
    await js.publish_async(silent, b"", timeout=0.2)
    waiting = [asyncio.create_task(js.publish_async(silent, b"")) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    second = await waiting[1]
    assert waiting[0].cancelled()
    assert not second.done()
    js._acks.forget(second)
    await waiting[2]


async def test_one_that_is_called_and_gone_leaves_its_place_to_the_next(
    nc: Client, silent: str, stream: Stream
) -> None:
    js = nc.jetstream(max_ack_pending=1)
    first = await js.publish_async(silent, b"")
    cancelled = asyncio.create_task(js.publish_async(stream.name, b"1"))
    bad = asyncio.create_task(js.publish_async("not a subject", b"2"))
    good = asyncio.create_task(js.publish_async(stream.name, b"3"))
    await asyncio.sleep(0)
    js._acks.forget(first)  # the place goes to the first in the queue ...
    cancelled.cancel()  # ... who does not take it
    with pytest.raises(InvalidArgumentError):
        await bad
    assert (await (await good)).sequence == 1
    assert cancelled.cancelled()


async def test_large_messages_are_bounded_by_their_size(
    nc: Client, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ack_window, "LARGE_PENDING", 20_000)
    js = nc.jetstream(backpressure=False)
    for _ in range(2):
        await js.publish_async(silent, b"x" * 10_000, timeout=0.1)
    with pytest.raises(PublishStalledError):
        await js.publish_async(silent, b"x" * 10_000)
    await eventually(lambda: js.publish_async_pending == 0)
    assert js._acks._large == 0
    await js.publish_async(silent, b"x" * 10_000)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_window_has_a_size(nc: Client, limit: int) -> None:
    with pytest.raises(InvalidOptionError, match="max_ack_pending"):
        nc.jetstream(max_ack_pending=limit)


# --- waiting for all of them, and failures that nobody waits for


@conformance("RUST", "PublishAckFuture", "one can wait for all acknowledgements")
async def test_complete_waits_for_all(js: JetStream, stream: Stream) -> None:
    await js.publish_async_complete()
    for number in range(500):
        await js.publish_async(stream.name, b"%d" % number)
    await js.publish_async_complete(timeout=10)
    assert js.publish_async_pending == 0
    assert (await stream.info()).state.messages == 500


async def test_complete_has_a_timeout(js: JetStream, silent: str) -> None:
    await js.publish_async(silent, b"")
    with pytest.raises(TimeoutError, match="not acknowledged"):
        await js.publish_async_complete(timeout=0.03)
    waiting = asyncio.create_task(js.publish_async_complete())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not js._acks._empty


async def test_a_failure_that_nobody_waits_for_is_reported_and_raised_once(
    js: JetStream, stream: Stream, events: Events
) -> None:
    await js.publish_async(stream.name, b"", expected_stream="OTHER")
    await js.publish_async(stream.name, b"")
    with pytest.raises(ExpectedStreamMismatchError):
        await js.publish_async_complete()
    assert [type(error) for error in events.errors] == [ExpectedStreamMismatchError]
    await js.publish_async_complete()


async def test_several_failures_are_raised_as_a_group(
    js: JetStream, stream: Stream, events: Events
) -> None:
    await js.publish_async(stream.name, b"", expected_stream="OTHER")
    await js.publish_async(stream.name, b"", expected_last_sequence=7)
    with pytest.raises(ExceptionGroup, match="2 publishes failed") as caught:
        await js.publish_async_complete()
    kinds = {type(error) for error in caught.value.exceptions}
    assert kinds == {ExpectedStreamMismatchError, WrongLastSequenceError}
    assert events.errors


async def test_thousands_of_failures_are_counted_and_a_few_are_kept(
    js: JetStream, events: Events
) -> None:
    name = new_name()
    stream = await js.create_stream(name=name, max_msgs=10, discard="new", storage="memory")
    for _ in range(3010):
        await js.publish_async(name, b"")
    with pytest.raises(ExceptionGroup, match="3000 publishes failed, 16 of") as caught:
        await js.publish_async_complete()
    assert {type(error) for error in caught.value.exceptions} == {StoreFailedError}
    assert (await stream.info()).state.messages == 10
    assert len(events.errors) < 3000, "they are reported together"


async def test_a_failure_that_is_seen_later_is_not_raised_again(
    js: JetStream, stream: Stream
) -> None:
    future = await js.publish_async(stream.name, b"", expected_stream="OTHER")
    await eventually(future.done)
    assert isinstance(future.exception(), ExpectedStreamMismatchError)
    await js.publish_async_complete()


# --- the end


async def test_closing_settles_everything(
    nats_server: NatsServer, connect: Connect, silent: str, events: Events
) -> None:
    nc = await connect(nats_server.url, on_event=events)
    js = nc.jetstream(max_ack_pending=3)
    futures: list[PublishAckFuture] = [await js.publish_async(silent, b"") for _ in range(3)]
    waiting = asyncio.create_task(js.publish_async(silent, b""))
    completing = asyncio.create_task(js.publish_async_complete())
    await asyncio.sleep(0)
    await nc.close()
    for future in futures:
        error = future.exception()
        assert isinstance(error, ConnectionClosedError)
        assert error.may_have_taken_effect
    with pytest.raises(ConnectionClosedError):
        await waiting
    with pytest.raises(ExceptionGroup, match="3 publishes failed"):
        await completing
    assert js.publish_async_pending == 0
    closed = [event.kind for event in events.seen].index(EventKind.CLOSED)
    reported = [event.kind for event in events.seen].index(EventKind.ERROR)
    assert reported < closed


async def test_a_drain_waits_for_the_acknowledgements(
    nats_server: NatsServer, connect: Connect, stream: Stream
) -> None:
    nc = await connect(nats_server.url)
    js = nc.jetstream()
    futures = [await js.publish_async(stream.name, b"") for _ in range(500)]

    async def forward(message: Message) -> None:
        futures.append(await js.publish_async(stream.name, message.data))

    subject = new_name()
    await nc.subscribe(subject, callback=forward)
    for _ in range(10):
        await nc.publish(subject, b"")
    await nc.drain()
    assert sorted(future.result().sequence for future in futures) == list(range(1, 511))


async def test_a_drain_takes_no_more_messages_while_it_waits(
    nats_server: NatsServer, connect: Connect, nc: Client
) -> None:
    stream = await nc.subscribe(new_name())  # acknowledges when it is told to
    await nc.flush()
    drained = await connect(nats_server.url)
    js = drained.jetstream()
    future = await js.publish_async(stream.subject, b"first")
    draining = asyncio.create_task(drained.drain())
    message = await stream.next(timeout=10)
    await eventually(lambda: drained._drained)
    for publish in (js.publish, js.publish_async):
        with pytest.raises(ConnectionDrainingError):
            await publish(stream.subject, b"second")
    assert not draining.done()
    assert message.reply is not None
    await nc.publish(message.reply, b'{"stream": "S", "seq": 7}')
    await draining
    assert future.result().sequence == 7


async def test_a_drain_does_not_wait_for_ever(
    nats_server: NatsServer, connect: Connect, silent: str
) -> None:
    nc = await connect(nats_server.url)
    future = await nc.jetstream().publish_async(silent, b"")
    with pytest.raises(TimeoutError, match="not drained"):
        await nc.drain(timeout=0.1)
    error = future.exception()
    assert isinstance(error, ConnectionClosedError)
    assert error.may_have_taken_effect


# --- many at once


async def test_many_with_ids(nc: Client, stream: Stream) -> None:
    js = nc.jetstream(max_ack_pending=50)
    most = 0

    def messages(count: int, size: int = 10) -> Iterator[tuple[str, bytes, bytes]]:
        nonlocal most
        for number in range(count):
            most = max(most, js.publish_async_pending)
            block = b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % number
            yield stream.name, b"%d" % number * size, block

    for _ in range(2):  # the second time, all of them are duplicates
        await js._acks.publish_identified(messages(300))
        await js.publish_async_complete(timeout=10)
        assert await datas(stream) == [b"%d" % number * 10 for number in range(300)]
    assert most <= 50
    with pytest.raises(MaxPayloadError):
        await js._acks.publish_identified(messages(1, 2 << 20))
    assert js.publish_async_pending == 0
    await js._acks.publish_identified(messages(400, 6000))  # which are not small
    await js.publish_async_complete(timeout=10)
    assert (await stream.info()).state.messages == 400
