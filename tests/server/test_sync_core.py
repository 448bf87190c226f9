"""Core NATS through the blocking API."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import jetspark.sync
from jetspark.connection.nuid import next_nuid
from jetspark.errors import (
    ConnectionClosedError,
    InvalidArgumentError,
    InvalidSubjectError,
    JetSparkError,
    MaxPayloadError,
    NoRespondersError,
    SubscriptionClosedError,
    TimeoutError,
)
from jetspark.server import NatsServer
from jetspark.sync import Client, EventKind, Message
from jetspark.sync._callbacks import Call
from jetspark.sync._thread import LoopThread, loop_thread
from tests.support.blocking import (
    at_entry_of,
    in_thread,
    interrupt,
    is_waited_for,
    nc,
    no_threads_left,
    until,
)

__all__ = ["nc", "no_threads_left"]


def unique() -> str:
    return f"t.{next_nuid()}"


def test_publish_and_subscribe(nc: Client) -> None:
    subject = unique()
    with nc.subscribe(subject) as subscription:
        nc.publish(subject, b"hello", headers={"a": "b"}, reply="back")
        message = subscription.next(timeout=5)
    assert isinstance(message, Message)
    assert (message.subject, message.data, message.reply) == (subject, b"hello", "back")
    assert message.headers["a"] == "b"
    assert message.client is nc
    assert subscription.closed
    assert repr(message).startswith("<Message subject=")


def test_many_messages_come_in_order(nc: Client) -> None:
    subject, count = unique(), 5000
    subscription = nc.subscribe(subject)
    for number in range(count):
        nc.publish(subject, b"%d" % number)
    nc.flush()
    received = []
    for message in subscription:
        received.append(int(message.data))
        if len(received) == count:
            break
    assert received == list(range(count))
    assert subscription.pending_messages == 0


def test_pending_messages_counts_what_is_in_hand(nc: Client) -> None:
    subject = unique()
    subscription = nc.subscribe(subject)
    for _ in range(10):
        nc.publish(subject)
    nc.flush()
    until(lambda: subscription.pending_messages == 10)
    next(iter(subscription))
    assert subscription.pending_messages == 9
    subscription.next()
    assert subscription.pending_messages == 8
    subscription.unsubscribe()
    assert subscription.pending_messages == 0
    assert list(subscription) == []


def test_unsubscribe_after_a_number_of_messages(nc: Client) -> None:
    subject = unique()
    subscription = nc.subscribe(subject)
    subscription.unsubscribe(3)
    for number in range(5):
        nc.publish(subject, b"%d" % number)
    assert [message.data for message in subscription] == [b"0", b"1", b"2"]


def test_next_times_out(nc: Client) -> None:
    subscription = nc.subscribe(unique())
    with pytest.raises(TimeoutError, match=r"no message .* in 0\.02 s"):
        subscription.next(timeout=0.02)
    with pytest.raises(jetspark.errors.TimeoutError):
        subscription.next(0)
    subscription.unsubscribe()
    with pytest.raises(SubscriptionClosedError):
        subscription.next()


def test_next_times_out_while_another_thread_waits(nc: Client) -> None:
    subject = unique()
    subscription = nc.subscribe(subject)
    waiting = in_thread(next, subscription)
    until(is_waited_for(subscription))
    with pytest.raises(TimeoutError, match="another thread"):
        subscription.next(timeout=0.02)
    nc.publish(subject, b"x")
    assert waiting.result().data == b"x"


def test_next_may_wait_for_ever(nc: Client) -> None:
    subject = unique()
    subscription = nc.subscribe(subject)
    for timeout in (float("inf"), 1e11):
        nc.publish(subject, b"x")
        assert subscription.next(timeout).data == b"x"


def test_a_signal_handler_that_asks_for_the_same_messages_does_not_wait_for_ever(
    nc: Client,
) -> None:
    subject = unique()
    subscription = nc.subscribe(subject)
    handled: list[bytes] = []

    def handler() -> None:
        nc.publish(subject, b"1")
        nc.publish(subject, b"2")
        try:
            handled.append(subscription.next(5).data)
        except InvalidArgumentError:  # two at a time
            handled.append(b"refused")

    found = in_thread(at_entry_of, Call.wait, handler, subscription.next)
    assert found.result()
    assert handled


def test_an_interrupted_next_keeps_its_message(nc: Client) -> None:
    subject = unique()
    subscription = nc.subscribe(subject)
    nc.publish(subject, b"1")
    nc.publish(subject, b"2")
    nc.flush()
    assert at_entry_of(Call.outcome, interrupt, subscription.next)
    assert [subscription.next(5).data, subscription.next(5).data] == [b"1", b"2"]


def test_what_is_refused_is_refused_at_once(nc: Client) -> None:
    subject = unique()
    nc.publish(subject, b"known")
    with pytest.raises(InvalidSubjectError):
        nc.publish("a b")
    with pytest.raises(MaxPayloadError):
        nc.publish(subject, bytes(nc.max_payload + 1))
    with pytest.raises(InvalidArgumentError, match="encode it first"):
        nc.publish(subject, "text")  # type: ignore[arg-type]


def test_what_is_published_in_one_thread_keeps_its_order(nc: Client) -> None:
    subject = unique()
    subscription = nc.subscribe(subject)
    expected = []
    for number in range(3000):
        # The large ones, and those with headers, do not go through the outbox.
        size = 10_000 if number % 100 == 0 else 1
        headers = {"n": "1"} if number % 50 == 25 else None
        nc.publish(subject, b"%d " % number + bytes(size), headers=headers)
        expected.append(number)
    nc.flush()
    received = [int(subscription.next(5).data.partition(b" ")[0]) for _ in expected]
    assert received == expected


def test_an_interrupted_publish_does_not_stop_the_next_one(nc: Client) -> None:
    subject = unique()
    subscription = nc.subscribe(subject)
    nc.publish(subject, b"0")
    assert subscription.next(5).data == b"0"
    assert at_entry_of(LoopThread.post, interrupt, lambda: nc.publish(subject, b"1"))
    nc.publish(subject, b"2")
    found = [subscription.next(5).data]
    if found == [b"1"]:
        found.append(subscription.next(5).data)
    assert found[-1] == b"2"


def test_a_call_sends_what_was_published_before_it(nc: Client) -> None:
    subject = unique()
    subscription = nc.subscribe(subject)
    nc.publish(subject, b"0")
    assert subscription.next(5).data == b"0"
    nc._async._called = True  # another thread is about to have the loop called, and does not yet
    nc.publish(subject, b"x")
    nc.flush()
    assert subscription.next(5).data == b"x"


# -- requests ------------------------------------------------------------------------------------


def test_request_and_response(nc: Client) -> None:
    subject = unique()

    def answer(message: Message) -> None:
        message.respond(message.data.upper())

    with nc.subscribe(subject, callback=answer):
        assert nc.request(subject, b"question").data == b"QUESTION"
    with pytest.raises(NoRespondersError):
        nc.request(subject, b"question")


def test_request_many(nc: Client) -> None:
    subject = unique()

    def answer(message: Message) -> None:
        for number in range(3):
            message.respond(b"%d" % number)
        message.respond()

    subscription = nc.subscribe(subject, callback=answer)
    answers = nc.request_many(subject, sentinel=lambda message: not message.data)
    assert [message.data for message in answers] == [b"0", b"1", b"2"]
    assert [m.data for m in nc.request_many(subject, max_messages=1)] == [b"0"]
    subscription.drain()  # the callback has not ended with its first answer


# -- callbacks -----------------------------------------------------------------------------------


def test_callbacks_come_in_order_and_may_use_the_api(nc: Client) -> None:
    subject, seen = unique(), []

    def callback(message: Message) -> None:
        nc.flush()
        seen.append((int(message.data), threading.current_thread().name))

    subscription = nc.subscribe(subject, callback=callback)
    for number in range(50):
        nc.publish(subject, b"%d" % number)
    subscription.drain()
    assert seen == [(number, "jetspark callback") for number in range(50)]


def test_a_callback_may_end_its_own_subscription(nc: Client) -> None:
    subject, seen = unique(), []
    ended = threading.Event()

    def callback(message: Message) -> None:
        seen.append(message.data)
        subscription.unsubscribe()
        ended.set()

    subscription = nc.subscribe(subject, callback=callback)
    nc.publish(subject, b"1")
    assert ended.wait(10)
    nc.publish(subject, b"2")
    nc.flush()
    assert seen == [b"1"]


@pytest.mark.parametrize("way", ["drain", "close"])
def test_a_callback_may_end_the_connection(nats_server: NatsServer, way: str) -> None:
    nc = jetspark.sync.connect(nats_server.url)
    subject = unique()
    nc.subscribe(subject, callback=lambda message: getattr(nc, way)())
    nc.publish(subject)
    until(lambda: nc.closed)
    until(lambda: "jetspark callback" not in {each.name for each in threading.enumerate()})


def test_callbacks_of_two_subscriptions_do_not_wait_for_each_other(nc: Client) -> None:
    first, second = unique(), unique()
    answers: list[bytes] = []
    done = threading.Event()

    def ask(message: Message) -> None:
        answers.append(nc.request(second).data)
        done.set()

    nc.subscribe(first, callback=ask)
    nc.subscribe(second, callback=lambda message: message.respond(b"here"))
    nc.publish(first)
    assert done.wait(10)
    assert answers == [b"here"]


def test_what_a_callback_raises_is_reported(nats_server: NatsServer) -> None:
    errors: list[BaseException | None] = []
    subject = unique()

    def callback(message: Message) -> None:
        raise ValueError("broken")

    with jetspark.sync.connect(
        nats_server.url, on_event=lambda event: errors.append(event.error)
    ) as nc:
        nc.subscribe(subject, callback=callback)
        nc.publish(subject)
        until(lambda: any(isinstance(error, ValueError) for error in errors))
        assert nc.connected


def test_a_handler_that_exits_does_not_end_the_connection(nats_server: NatsServer) -> None:
    kinds: list[EventKind] = []

    def on_event(event: Any) -> None:
        kinds.append(event.kind)
        raise SystemExit(1)

    client = in_thread(lambda: jetspark.sync.connect(nats_server.url, on_event=on_event)).result()
    client.force_reconnect()
    in_thread(client.flush).result()
    client.close()
    assert kinds[-1] is EventKind.CLOSED


def test_async_callbacks_are_refused(nc: Client) -> None:
    async def callback(message: Message) -> None: ...

    with pytest.raises(InvalidArgumentError, match="plain function"):
        nc.subscribe(unique(), callback=callback)


def test_a_subscription_with_a_callback_is_not_iterated_over(nc: Client) -> None:
    subscription = nc.subscribe(unique(), callback=print)
    with pytest.raises(InvalidArgumentError, match="has a callback"):
        iter(subscription)


# -- life ----------------------------------------------------------------------------------------


def test_what_is_collected_in_the_thread_of_the_loop_ends_its_blocks(
    nc: Client, nats_server: NatsServer
) -> None:
    def block() -> Iterator[Client]:
        with jetspark.sync.connect(nats_server.url) as client, client.subscribe(unique()):
            yield client

    class Owner:
        def __init__(self) -> None:
            self.client = jetspark.sync.connect(nats_server.url)

        def __del__(self) -> None:
            self.client.close()

    source, owner = block(), Owner()
    clients = [next(source), owner.client]
    held = [source, owner]
    del source, owner
    nc._thread.call(held.clear)
    until(lambda: all(client.closed for client in clients))
    nc.flush()


@pytest.mark.parametrize("end", [Client.close, lambda nc: nc.__exit__(None, None, None)])
def test_an_end_that_is_interrupted_before_it_begins_is_an_end_all_the_same(
    nats_server: NatsServer, end: Any
) -> None:
    nc = jetspark.sync.connect(nats_server.url)
    assert at_entry_of(LoopThread._enter, interrupt, lambda: end(nc))
    assert nc.closed


def test_a_block_is_entered_without_a_call(nc: Client) -> None:
    assert not at_entry_of(LoopThread.run, interrupt, nc.__enter__)


def test_leaving_the_block_drains(nats_server: NatsServer) -> None:
    subject, seen = unique(), []
    with jetspark.sync.connect(nats_server.url) as nc:
        waiting = nc.subscribe(subject)
        nc.subscribe(subject, callback=lambda message: seen.append(message.data))
        for number in range(20):
            nc.publish(subject, b"%d" % number)
    assert nc.closed
    assert len(seen) == 20
    assert "jetspark" not in {each.name for each in threading.enumerate()}
    assert len(list(waiting)) == 20  # what waited can be taken, although the thread has ended


def test_after_close_everything_says_so(nats_server: NatsServer) -> None:
    nc = jetspark.sync.connect(nats_server.url)
    subject = unique()
    subscription = nc.subscribe(subject)
    for _ in range(5):
        nc.publish(subject)
    nc.flush()
    next(subscription)  # the others are in hand
    nc.close()
    assert list(subscription) == []
    for call in (nc.flush, lambda: nc.publish(subject), lambda: nc.subscribe(subject)):
        with pytest.raises(ConnectionClosedError):
            call()
    nc.close()
    nc.drain()
    subscription.unsubscribe()
    assert nc.closed
    assert "closed" in repr(nc)


def test_the_thread_is_shared_and_ends_with_the_last_connection(nats_server: NatsServer) -> None:
    def threads() -> int:
        return sum(each.name == "jetspark" for each in threading.enumerate())

    first = jetspark.sync.connect(nats_server.url)
    second = jetspark.sync.connect(nats_server.url)
    assert threads() == 1
    first.close()
    assert threads() == 1
    second.flush()
    second.close()
    assert threads() == 0


def test_a_failed_connect_leaves_nothing() -> None:
    with pytest.raises(JetSparkError):
        jetspark.sync.connect("nats://127.0.0.1:1", allow_reconnect=False)
    assert "jetspark" not in {each.name for each in threading.enumerate()}


def test_a_connect_that_is_interrupted_at_its_end_is_undone(nats_server: NatsServer) -> None:
    assert at_entry_of(
        Call.outcome, interrupt, lambda: jetspark.sync.connect(nats_server.url, name="undone")
    )
    assert not loop_thread()._connections
    assert "jetspark" not in {each.name for each in threading.enumerate()}


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_after_an_interrupt_at_the_start_of_the_thread_one_can_connect(
    nats_server: NatsServer,
) -> None:
    def connect() -> None:
        jetspark.sync.connect(nats_server.url).close()

    assert in_thread(at_entry_of, threading.Thread.start, interrupt, connect).result()
    in_thread(connect).result()


def test_events_are_iterated_over(nats_server: NatsServer) -> None:
    nc = jetspark.sync.connect(nats_server.url)
    kinds = in_thread(lambda events: [event.kind for event in events], nc.events())
    nc.force_reconnect()
    nc.flush()
    nc.close()
    assert EventKind.CONNECTED in kinds.result()
    assert kinds.result()[-1] is EventKind.CLOSED


def test_a_handler_in_the_loop_must_not_block(nats_server: NatsServer) -> None:
    raised: list[BaseException] = []

    def on_event(event: Any) -> None:
        if event.kind is EventKind.DISCONNECTED:
            try:
                client.flush()
            except JetSparkError as error:
                raised.append(error)

    with jetspark.sync.connect(nats_server.url, on_event=on_event) as client:
        client.force_reconnect()
        until(lambda: raised)
        assert "thread of the event loop" in str(raised[0])
        client.flush()


def test_a_refused_call_leaves_nothing_behind(nc: Client) -> None:
    js, subscription = nc.jetstream(), nc.subscribe(unique())

    def in_the_loop() -> None:
        for call in (lambda: js.publish("s"), subscription.unsubscribe, js.publish_async_complete):
            with pytest.raises(JetSparkError, match="thread of the event loop"):
                call()
        gc.collect()  # Python warns of coroutines that nobody has awaited

    nc._thread.call(in_the_loop)
    assert not subscription.closed


def test_what_belongs_to_a_connection_is_not_pickled(nc: Client) -> None:
    subject = unique()
    subscription = nc.subscribe(subject)
    nc.publish(subject)
    message = subscription.next(5)
    for each in (nc, nc.jetstream(), subscription, message):
        for way in (pickle.dumps, copy.deepcopy):
            with pytest.raises(TypeError, match="connect where it is needed"):
                way(each)
    for other in (nc.jetstream().publish_async(subject), nc.jetstream().stream_names()):
        with pytest.raises(TypeError, match="what belongs to a connection"):
            pickle.dumps(other)


def test_in_a_notebook(nats_server: NatsServer) -> None:
    async def cell() -> bytes:
        with jetspark.sync.connect(nats_server.url) as nc:
            subject = unique()
            with nc.subscribe(subject) as subscription:
                nc.publish(subject, b"hello")
                return subscription.next(5).data

    assert asyncio.run(cell()) == b"hello"
