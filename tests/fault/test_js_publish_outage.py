"""Publishing while the connection breaks: the books of every message are balanced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from jetspark import EventKind, JetStream, Stream, connect
from jetspark.errors import (
    ConnectionClosedError,
    DisconnectedError,
    MaxPayloadError,
    NoStreamResponseError,
    PublishStalledError,
    ReconnectBufferFullError,
    TimeoutError,
)
from jetspark.jetstream import ack_window
from jetspark.protocol import MessageBatch
from jetspark.server import NatsServer
from tests.support.faults import FAST, connected
from tests.support.leaks import GUARD, EventLog, assert_client_gone, until
from tests.support.ledger import Ledger, stored_numbers
from tests.support.proxy import Proxy
from tests.support.servers import StartServer


@pytest.fixture
def server(start_server: StartServer) -> NatsServer:
    return start_server()


@pytest_asyncio.fixture
async def proxy(server: NatsServer, nothing_left: None) -> AsyncIterator[Proxy]:
    async with Proxy(server.host, server.port) as proxy:
        yield proxy


async def new_stream(js: JetStream, **fields: Any) -> Stream:
    return await js.create_stream(name="S", subjects=["s.>"], **fields)


# --- servers that restart


@pytest.mark.parametrize("crash", [False, True])
async def test_messages_with_ids_survive_a_restart(server: NatsServer, crash: bool) -> None:
    async with connected(server.url) as nc:
        js = nc.jetstream(max_ack_pending=500)
        stream = await new_stream(js)
        ledger = Ledger(js, "s.a", ids=True, retries=-1, timeout=GUARD)
        stop = asyncio.Event()
        load = asyncio.create_task(ledger.load(stop))
        for _ in range(2):
            await asyncio.sleep(0.1)
            await (server.akill() if crash else server.astop())
            await server.astart()
        await asyncio.sleep(0.1)
        stop.set()
        await load
        await ledger.settle()
        assert not ledger.failed
        assert not ledger.refused
        stored = await ledger.check(stream)
        assert sorted(stored) == list(range(ledger.published))


async def test_messages_without_ids_fail_where_nobody_knows(server: NatsServer) -> None:
    log = EventLog()
    async with connected(server.url, on_event=log) as nc:
        js = nc.jetstream()
        stream = await new_stream(js)
        ledger = Ledger(js, "s.a", ids=False, retries=-1, timeout=GUARD)
        stop = asyncio.Event()
        load = asyncio.create_task(ledger.load(stop))
        for _ in range(2):
            await asyncio.sleep(0.1)
            server.pause()  # so that something is on its way
            await asyncio.sleep(0.05)
            await server.akill()
            await server.astart()
        await asyncio.sleep(0.1)
        stop.set()
        await load
        await ledger.settle()
        stored = await ledger.check(stream)
        assert {type(error) for error in ledger.failed.values()} == {DisconnectedError}
        assert all(error.retryable for error in ledger.failed.values())
        assert len(stored) == len(set(stored))
        assert log.of(EventKind.ERROR), "nobody waited for them at that moment"


async def test_publish_with_an_id_survives_a_restart(server: NatsServer) -> None:
    async with connected(server.url) as nc:
        js = nc.jetstream()
        stream = await new_stream(js)
        server.pause()
        publishing = asyncio.create_task(js.publish("s.a", b"1", msg_id="1", timeout=GUARD))
        lost = asyncio.create_task(js.publish("s.a", b"2", timeout=GUARD))
        await until(lambda: len(js._awaited_acks.pending) == 2)
        await asyncio.sleep(0.02)
        await server.akill()
        await server.astart()
        assert (await publishing).stream == "S"
        with pytest.raises(DisconnectedError, match="not known whether") as caught:
            await lost
        assert caught.value.may_have_taken_effect
        assert (await stored_numbers(stream)).count(1) == 1


# --- connections that are cut


@pytest.mark.parametrize("after", [1, 5_000, 20_000, 60_000])
@pytest.mark.parametrize("direction", ["up", "down"])
async def test_a_cut_anywhere_keeps_the_order(proxy: Proxy, after: int, direction: Any) -> None:
    async with connected(proxy.url) as nc:
        js = nc.jetstream(max_ack_pending=300)
        stream = await new_stream(js)
        ledger = Ledger(js, "s.a", ids=True, timeout=GUARD)
        proxy.truncate_after(after, direction)
        for _ in range(1500):
            await ledger.publish()
        await ledger.settle()
        assert not ledger.failed
        assert await ledger.check(stream) == list(range(1500))


async def test_what_was_not_written_waits_for_the_next_connection(proxy: Proxy) -> None:
    log = EventLog()
    async with connected(proxy.url, on_event=log) as nc:
        js = nc.jetstream()
        stream = await new_stream(js)
        ledger = Ledger(js, "s.a", ids=False, timeout=GUARD)
        await ledger.publish()
        await ledger.settle()
        await proxy.refuse()
        await proxy.cut()
        await log.wait(EventKind.DISCONNECTED)
        for _ in range(100):
            await ledger.publish()
        proxy.accept()
        await ledger.settle()
        assert not ledger.failed
        assert await ledger.check(stream) == list(range(101))


async def test_an_outage_longer_than_the_timeout_withdraws_the_messages(proxy: Proxy) -> None:
    log = EventLog()
    async with connected(proxy.url, on_event=log) as nc:
        js = nc.jetstream()
        stream = await new_stream(js)
        await js.publish("s.a", b"0")
        await proxy.refuse()
        await proxy.cut()
        await log.wait(EventKind.DISCONNECTED)
        ledger = Ledger(js, "s.a", ids=False, timeout=0.1)
        patient = Ledger(js, "s.b", ids=False, timeout=GUARD)
        for _ in range(50):
            await ledger.publish()
            await patient.publish()
        await nc.publish("elsewhere", b"stays")
        await ledger.settle()
        assert len(ledger.failed) == 50
        for error in ledger.failed.values():
            assert isinstance(error, TimeoutError)
            assert "no connection" in str(error)
            assert not error.may_have_taken_effect
        proxy.accept()
        await patient.settle()
        assert not patient.failed
        assert (await stream.info()).state.messages == 51
        subjects = [(await stream.get_message(seq)).subject for seq in range(1, 52)]
        assert subjects == ["s.a"] + ["s.b"] * 50


async def test_many_losses_in_a_row(proxy: Proxy) -> None:
    async with connected(proxy.url) as nc:
        js = nc.jetstream(max_ack_pending=200)
        stream = await new_stream(js)
        ledger = Ledger(js, "s.a", ids=True, retries=-1, timeout=GUARD)
        stop = asyncio.Event()
        load = asyncio.create_task(ledger.load(stop))
        for _ in range(15):
            await asyncio.sleep(0.03)
            await proxy.cut()
        stop.set()
        await load
        await ledger.settle()
        assert not ledger.failed
        stored = await ledger.check(stream)
        assert stored == list(range(ledger.published))


async def test_a_condition_forbids_to_repeat_a_message(proxy: Proxy) -> None:
    async with connected(proxy.url) as nc:
        js = nc.jetstream()
        await new_stream(js)
        await js.publish("s.a", b"0")
        proxy.stall("down")
        future = await js.publish_async("s.a", b"1", msg_id="1", expected_last_sequence=1)
        plain = await js.publish_async("s.a", b"2", msg_id="2")
        await nc._connection.make_room()
        await asyncio.sleep(0.05)
        await proxy.cut()
        proxy.unstall("down")
        with pytest.raises(DisconnectedError):
            await future
        assert (await plain).duplicate


# --- connections that stay, and do not work


async def test_a_stalled_connection_times_out(proxy: Proxy) -> None:
    async with connected(proxy.url) as nc:
        js = nc.jetstream()
        stream = await new_stream(js)
        await js.publish("s.a", b"0")
        proxy.stall()
        with pytest.raises(TimeoutError, match="no acknowledgement") as caught:
            await js.publish("s.a", b"1", timeout=0.1)
        assert caught.value.may_have_taken_effect
        futures = [await js.publish_async("s.a", b"2", timeout=0.1) for _ in range(10)]
        with pytest.raises(ExceptionGroup, match="10 publishes failed"):
            await js.publish_async_complete()
        proxy.unstall()
        assert (await js.publish("s.a", b"3")).sequence == 13, "late acknowledgements are dropped"
        assert all(isinstance(future.exception(), TimeoutError) for future in futures)
        assert (await stream.info()).state.messages == 13


async def test_an_acknowledgement_that_never_comes_is_asked_for_again(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(server.url) as nc:
        js = nc.jetstream()
        stream = await new_stream(js)
        window = js._acks
        deliver = window.deliver
        dropped: list[MessageBatch] = []

        def drop_one(batch: MessageBatch) -> None:
            (deliver if dropped else dropped.append)(batch)

        monkeypatch.setattr(window, "deliver", drop_one)
        future = await js.publish_async("s.a", b"1", msg_id="1", timeout=2)
        ack = await future
        assert (ack.sequence, ack.duplicate) == (1, True)
        dropped.clear()
        plain = await js.publish_async("s.a", b"2", timeout=0.3)
        with pytest.raises(TimeoutError):
            await plain
        assert (await stream.info()).state.messages == 2


async def test_one_that_waits_for_the_socket(proxy: Proxy) -> None:
    async with connected(proxy.url) as nc:
        js = nc.jetstream()
        stream = await new_stream(js, storage="memory")
        await js.publish("s.a", b"0")
        proxy.stall("up")
        sent = 0

        async def fill() -> None:
            nonlocal sent
            while True:
                await js.publish_async("s.a", b"x" * 500_000, timeout=GUARD)
                sent += 1

        filling = asyncio.create_task(fill())
        await until(lambda: nc._connection._room_waiters)
        filling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await filling
        assert js.publish_async_pending == sent, "the one that was cancelled was not taken"
        while not nc._encoder.is_full():
            await js.publish_async("s.a", b"x" * 500_000, timeout=GUARD)
            sent += 1
        with pytest.raises(TimeoutError, match="takes no more") as caught:
            await js.publish_async("s.a", b"x" * 500_000, timeout=0.1)
        assert not caught.value.may_have_taken_effect
        proxy.unstall("up")
        await js.publish_async_complete(timeout=GUARD)
        assert (await stream.info()).state.messages == sent + 1


async def test_publishing_goes_on_after_a_stall_without_a_loss(proxy: Proxy) -> None:
    async with connected(proxy.url) as nc:
        js = nc.jetstream(max_ack_pending=50)
        stream = await new_stream(js)
        ledger = Ledger(js, "s.a", ids=False, timeout=GUARD)
        stop = asyncio.Event()
        load = asyncio.create_task(ledger.load(stop))
        for _ in range(3):
            await asyncio.sleep(0.03)
            proxy.stall()
            await asyncio.sleep(0.03)
            proxy.unstall()
        stop.set()
        await load
        await ledger.settle()
        assert not ledger.failed
        assert await ledger.check(stream) == list(range(ledger.published))


# --- the window in an outage


async def test_a_full_window_waits_through_an_outage(proxy: Proxy) -> None:
    async with connected(proxy.url) as nc:
        js = nc.jetstream(max_ack_pending=10)
        stream = await new_stream(js)
        await js.publish_async("s.a", b"0")
        await js.publish_async_complete()
        await proxy.refuse()
        await proxy.cut()
        await until(lambda: not nc.connected)
        ledger = Ledger(js, "s.a", ids=True, timeout=GUARD)
        ledger.published = 1
        loading = asyncio.create_task(_publish(ledger, 40))
        await until(lambda: js.publish_async_pending == 10)
        cancelled = asyncio.create_task(js.publish_async("s.a", b"99"))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.sleep(0.05)
        assert js.publish_async_pending == 10
        proxy.accept()
        await loading
        await ledger.settle()
        assert cancelled.cancelled()
        assert await stored_numbers(stream) == list(range(41))


async def _publish(ledger: Ledger, count: int) -> None:
    for _ in range(count):
        await ledger.publish()


async def test_what_is_given_up_in_an_outage_is_not_sent_later(proxy: Proxy) -> None:
    async with connected(proxy.url) as nc:
        js = nc.jetstream()
        stream = await new_stream(js)
        await js.publish("s.a", b"0")
        await proxy.refuse()
        await proxy.cut()
        await until(lambda: not nc.connected)
        tasks = [asyncio.create_task(js.publish("s.a", b"%d" % number)) for number in (1, 2, 3)]
        await until(lambda: len(js._awaited_acks.pending) == 3)
        tasks[1].cancel()
        await asyncio.wait([tasks[1]])
        proxy.accept()
        await asyncio.gather(tasks[0], tasks[2])
        assert await stored_numbers(stream) == [0, 1, 3]


async def test_a_full_reconnect_buffer(proxy: Proxy) -> None:
    async with connected(proxy.url, reconnect_buffer_size=2_000) as nc:
        js = nc.jetstream()
        strict = nc.jetstream(backpressure=False, max_ack_pending=2)
        stream = await new_stream(js)
        await proxy.refuse()
        await proxy.cut()
        await until(lambda: not nc.connected)
        with pytest.raises(TimeoutError, match="did not come back") as caught:
            await js.publish_async("s.a", b"x" * 3_000, timeout=0.05)
        assert not caught.value.may_have_taken_effect
        with pytest.raises(ReconnectBufferFullError):
            await strict.publish_async("s.a", b"x" * 3_000)
        for _ in range(2):
            await strict.publish_async("s.a", b"1")
        with pytest.raises(PublishStalledError):
            await strict.publish_async("s.a", b"1")
        waiting = asyncio.create_task(js.publish_async("s.a", b"x" * 3_000))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        proxy.accept()
        assert (await (await waiting)).sequence == 3
        assert (await stream.info()).state.messages == 3


async def test_closing_in_an_outage_says_what_was_never_sent(proxy: Proxy) -> None:
    client = await connect(proxy.url, **FAST)
    js = client.jetstream(max_ack_pending=4)
    await new_stream(js)
    await js.publish("s.a", b"0")
    proxy.stall("down")
    sent = [await js.publish_async("s.a", b"1", msg_id="1"), await js.publish_async("s.a", b"2")]
    await client._connection.make_room()
    await asyncio.sleep(0.02)
    await proxy.refuse()
    await proxy.cut()
    await until(lambda: not client.connected)
    never = [await js.publish_async("s.a", b"3", msg_id="3"), await js.publish_async("s.a", b"4")]
    waiting = [asyncio.create_task(js.publish_async("s.a", b"5")) for _ in range(3)]
    completing = asyncio.create_task(js.publish_async_complete())
    await asyncio.sleep(0)
    await client.close()
    assert isinstance(sent[1].exception(), DisconnectedError)
    for future, effect in ((sent[0], True), (never[0], False), (never[1], False)):
        error = future.exception()
        assert isinstance(error, ConnectionClosedError)
        assert error.may_have_taken_effect is effect
    results = await asyncio.gather(*waiting, return_exceptions=True)
    late = [result for result in results if isinstance(result, BaseException)]
    assert all(isinstance(error, ConnectionClosedError) for error in late)
    assert len(late) >= 2
    with pytest.raises(ExceptionGroup):
        await completing
    assert_client_gone(client)


async def test_a_client_that_does_not_reconnect(proxy: Proxy) -> None:
    async with connected(proxy.url, allow_reconnect=False) as nc:
        js = nc.jetstream()
        await new_stream(js)
        await js.publish("s.a", b"0")
        proxy.stall("down")
        future = await js.publish_async("s.a", b"1", msg_id="1")
        await nc._connection.make_room()
        await asyncio.sleep(0.02)
        await proxy.cut()
        with pytest.raises(ConnectionClosedError) as caught:
            await future
        assert caught.value.may_have_taken_effect
        with pytest.raises(ConnectionClosedError):
            await js.publish_async("s.a", b"2")


# --- retries


async def test_a_retry_outlives_a_reconnect(proxy: Proxy) -> None:
    async with connected(proxy.url) as nc:
        js = nc.jetstream()
        future = await js.publish_async("s.a", b"0", retries=-1, retry_delay=0.05, timeout=2)
        await until(lambda: future._idle)
        await proxy.refuse()
        await proxy.cut()
        await asyncio.sleep(0.15)
        proxy.accept()
        stream = await new_stream(js)
        assert (await future).sequence == 1
        assert await stored_numbers(stream) == [0]


async def test_a_retry_to_a_server_with_other_limits(
    proxy: Proxy, start_server: StartServer
) -> None:
    smaller = start_server(max_payload=1_000)
    async with connected(proxy.url) as nc:
        js = nc.jetstream()
        future = await js.publish_async("s.a", b"x" * 5_000, retries=-1, retry_delay=0.2)
        await until(lambda: future._idle)
        proxy.retarget(smaller.host, smaller.port)
        await proxy.cut()
        with pytest.raises(MaxPayloadError):
            await future
        assert js._acks._large == 0


async def test_failures_in_a_row_are_reported_together(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ack_window, "REPORT_INTERVAL", 0.2)
    log = EventLog()
    async with connected(server.url, on_event=log) as nc:
        js = nc.jetstream()
        for _ in range(30):
            await js.publish_async("nobody", b"", retries=0)
            await nc.flush()
        await log.wait(EventKind.ERROR, 2)
        reports = [event.error for event in log.of(EventKind.ERROR)]
        assert isinstance(reports[0], NoStreamResponseError)
        assert isinstance(reports[1], ExceptionGroup)
        assert len(reports) < 10
