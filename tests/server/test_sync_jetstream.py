"""JetStream through the blocking API."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import jetspark.sync
from jetspark.connection.nuid import next_nuid
from jetspark.errors import (
    ConnectionClosedError,
    InvalidArgumentError,
    IteratorClosedError,
    JetSparkError,
    NoStreamResponseError,
    NotJetStreamMessageError,
    StreamNotFoundError,
    TimeoutError,
    WrongLastSequenceError,
)
from jetspark.server import NatsServer
from jetspark.sync import (
    Client,
    FetchedMessages,
    JetStreamMessage,
    OrderedConsumer,
    PublishAckFuture,
    PullConsumer,
    PushConsumer,
    Stream,
)
from jetspark.sync._callbacks import Call
from jetspark.sync._iterators import Feed
from jetspark.sync._thread import LoopThread
from tests.support.blocking import (
    at_entry,
    at_entry_of,
    in_thread,
    interrupt,
    nc,
    no_threads_left,
    until,
)
from tests.support.streams import version_of

__all__ = ["nc", "no_threads_left"]


def make_stream(nc: Client, count: int = 0, **config: Any) -> Stream:
    """A stream in memory with so many messages, which say their sequences."""
    name = f"S_{next_nuid()}"
    js = nc.jetstream()
    stream = js.create_stream(
        **{"name": name, "subjects": [f"{name}.>"], "storage": "memory", **config}
    )
    for number in range(1, count + 1):
        js.publish_async(f"{name}.x", b"%d" % number)
    js.publish_async_complete()
    return stream


def sequences(messages: Any) -> list[int]:
    return [message.metadata.stream_sequence for message in messages]


# -- streams and publishing ----------------------------------------------------------------------


def test_streams_are_managed(nc: Client) -> None:
    js = nc.jetstream()
    stream = make_stream(nc, 3)
    assert js.get_stream(stream.name).info().state.messages == 3
    assert stream.name in js.stream_names()
    assert stream.name in [each.name for each in js.streams()]
    assert stream.get_message(2).data == b"2"
    assert stream.get_last_message(f"{stream.name}.>").sequence == 3
    assert stream.update(description="x").config.description == "x"
    assert stream.purge(keep=1) == 2
    stream.delete()
    with pytest.raises(StreamNotFoundError):
        js.get_stream(stream.name)


def test_stored_messages_are_iterated_over(nc: Client) -> None:
    stream = make_stream(nc, 600, allow_direct=True)
    if nc.server_info.version_tuple >= (2, 11):
        batch = stream.direct_get_batch(subject=">")
        assert [message.sequence for message in batch] == list(range(1, 601))


def test_publish_waits_for_the_acknowledgement(nc: Client) -> None:
    js, stream = nc.jetstream(), make_stream(nc)
    subject = f"{stream.name}.x"
    assert js.publish(subject, b"1", msg_id="a").sequence == 1
    assert js.publish(subject, b"1", msg_id="a").duplicate
    with pytest.raises(WrongLastSequenceError):
        js.publish(subject, b"2", expected_last_sequence=17)
    with pytest.raises(NoStreamResponseError):
        js.publish(f"nowhere.{next_nuid()}", b"", retries=0)


def test_publish_async_gives_a_future(nc: Client) -> None:
    js, stream = nc.jetstream(), make_stream(nc)
    futures = [js.publish_async(f"{stream.name}.x", b"%d" % number) for number in range(500)]
    assert all(isinstance(future, PublishAckFuture) for future in futures)
    assert [future.result(timeout=5).sequence for future in futures] == list(range(1, 501))
    assert all(future.done() for future in futures)
    assert futures[0].exception() is None
    assert futures[0].subject == f"{stream.name}.x"
    assert js.publish_async_pending == 0


def test_a_future_that_fails(nc: Client) -> None:
    js, stream = nc.jetstream(), make_stream(nc)
    future = js.publish_async(f"{stream.name}.x", b"", expected_last_sequence=17)
    assert isinstance(future.exception(timeout=5), WrongLastSequenceError)
    for _ in range(2):
        with pytest.raises(WrongLastSequenceError):
            future.result()
    js.publish_async_complete()  # it was seen


def test_a_future_that_is_not_done_in_time(nc: Client) -> None:
    subject = f"silent.{next_nuid()}"
    with nc.subscribe(subject):  # somebody who never answers
        future = nc.jetstream().publish_async(subject, b"")
        for wait in (future.result, future.exception):
            with pytest.raises(TimeoutError, match="no acknowledgement"):
                wait(timeout=0.02)
        assert not future.done()


def test_a_future_calls_back(nc: Client, caplog: pytest.LogCaptureFixture) -> None:
    js, stream = nc.jetstream(), make_stream(nc)
    found: list[tuple[int, bool]] = []

    def callback(future: PublishAckFuture) -> None:
        info = stream.info()  # it may block
        found.append((future.result().sequence, info.state.messages > 0))
        raise ValueError("broken")

    future = js.publish_async(f"{stream.name}.x", b"")
    future.add_done_callback(callback)
    until(lambda: found == [(1, True)])
    future.add_done_callback(callback)  # of one that is done
    until(lambda: found == [(1, True)] * 2)
    until(lambda: "broken" in caplog.text)


def test_the_callbacks_of_futures_share_threads(nc: Client) -> None:
    stream, js = make_stream(nc), nc.jetstream()
    go_on = threading.Event()
    called: list[PublishAckFuture] = []

    def callback(future: PublishAckFuture) -> None:
        go_on.wait(10)
        called.append(future)

    futures = [js.publish_async(f"{stream.name}.x") for _ in range(100)]
    js.publish_async_complete()
    for future in futures:
        future.add_done_callback(callback)
    nc.flush()
    names = [each.name for each in threading.enumerate()]
    assert 1 <= names.count("jetspark callback") <= 32
    nc.close()  # and those that wait are called all the same
    go_on.set()
    until(lambda: len(called) == 100)
    until(lambda: "jetspark callback" not in {each.name for each in threading.enumerate()})


def test_publish_async_complete_raises_what_nobody_has_seen(nc: Client) -> None:
    js, stream = nc.jetstream(), make_stream(nc)
    js.publish_async(f"{stream.name}.x", b"", expected_last_sequence=17)
    with pytest.raises(WrongLastSequenceError):
        js.publish_async_complete(timeout=5)


def test_atomic_batches_and_fast_ingest(nc: Client, nats_server: NatsServer) -> None:
    if version_of(nats_server) < (2, 14):
        return
    js, stream = nc.jetstream(), make_stream(nc, allow_atomic=True, allow_batched=True)
    subject = f"{stream.name}.x"
    with js.batch() as batch:
        for number in range(10):
            batch.add(subject, b"%d" % number)
        assert batch.commit().batch_size == 10
    assert batch.closed
    with js.fast_ingest() as ingest:
        for _ in range(100):
            ingest.add(subject, b"x")
    assert ingest.ack is not None
    assert ingest.ack.batch_size == 100
    assert stream.info().state.messages == 110


def stored(stream: Stream) -> list[int]:
    return [int(message.data) for message in stream.ordered_consumer().fetch_no_wait(5000)]


@pytest.mark.parametrize("window", [10, 4000])
def test_all_ways_to_publish_keep_the_order_of_a_thread(nc: Client, window: int) -> None:
    stream = make_stream(nc)
    subject = f"{stream.name}.x"
    js, other = nc.jetstream(max_ack_pending=window), nc.jetstream()
    ways: list[Any] = [
        nc.publish,
        js.publish_async,
        other.publish_async,
        js.publish_async,
        js.publish_async,
    ]
    for number in range(1000):
        way = ways[number % len(ways)]
        if number % 200 == 199:
            way = (nc.request, js.publish, other.publish)[number // 200 % 3]
        way(subject, b"%d" % number)
    nc.publish(subject, b"1000")
    nc.flush()
    js.publish_async_complete()
    other.publish_async_complete()
    assert stored(stream) == list(range(1001))


def test_a_full_window_holds_up_nobody_else(nc: Client) -> None:
    subject, silent = f"t.{next_nuid()}", f"silent.{next_nuid()}"
    subscription = nc.subscribe(subject)
    nc.publish(subject, b"known")
    assert subscription.next(5).data == b"known"
    js = nc.jetstream(max_ack_pending=10)
    with nc.subscribe(silent):  # somebody who never answers
        for _ in range(10):
            js.publish_async(silent, b"x")
        waiting = in_thread(js.publish_async, silent, b"x")
        until(lambda: js._async._acks._room)
        nc.publish(subject, b"x")
        assert subscription.next(5).data == b"x"
        assert js.publish_async_pending == 10
        nc.close()
        with pytest.raises(ConnectionClosedError):
            waiting.result()


@pytest.mark.parametrize("number", range(1, 16))
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_an_interrupt_in_publish_async_does_not_stop_the_next_one(nc: Client, number: int) -> None:
    stream, js = make_stream(nc), nc.jetstream()
    subject = f"{stream.name}.x"
    js.publish_async(subject, b"").result()
    at_entry(number, interrupt, lambda: js.publish_async(subject, b""))
    assert js.publish_async(subject, b"").result(timeout=10).sequence in (2, 3)
    js.publish_async_complete(timeout=10)


# -- consumers -----------------------------------------------------------------------------------


def test_fetch_and_acknowledge(nc: Client) -> None:
    stream = make_stream(nc, 300)
    consumer = stream.create_consumer(durable_name="c")
    assert type(consumer) is PullConsumer
    messages = consumer.fetch(200)
    assert type(messages) is FetchedMessages
    assert messages.error is None
    assert sequences(messages) == list(range(1, 201))
    for message in messages:
        message.ack()
        assert message.acked
    until(lambda: consumer.info().num_ack_pending == 0)
    assert len(consumer.fetch_no_wait(200)) == 100
    with pytest.raises(TimeoutError):
        consumer.next(timeout=0.02)
    assert [each.name for each in stream.consumers()] == ["c"]


def interrupted(call: Any) -> None:
    """Call something, with an interrupt when it has just ended."""
    assert at_entry_of(Call.outcome, interrupt, call)


@pytest.mark.parametrize(
    "fetch",
    [
        lambda consumer: consumer.fetch(2),
        lambda consumer: consumer.fetch_no_wait(2),
        lambda consumer: consumer.next(),
    ],
)
def test_an_interrupted_fetch_gives_its_messages_back(nc: Client, fetch: Any) -> None:
    consumer = make_stream(nc, 2).create_consumer(durable_name="c", ack_wait=60)
    interrupted(lambda: fetch(consumer))
    found = {*sequences(consumer.fetch(1, timeout=10)), *sequences(consumer.fetch(1, timeout=10))}
    assert found == {1, 2}


def test_an_interrupted_fetch_of_the_older_way_gives_its_messages_back(nc: Client) -> None:
    js, stream = nc.jetstream(), make_stream(nc, 2)
    with js.pull_subscribe(f"{stream.name}.>", durable="c") as subscription:
        interrupted(lambda: subscription.fetch(1, timeout=10))
        found = {*sequences(subscription.fetch(1, timeout=10))}
        found.update(sequences(subscription.fetch(1, timeout=10)))
        assert found == {1, 2}


def test_an_interrupted_fetch_of_an_ordered_consumer_is_repeated(nc: Client) -> None:
    consumer = make_stream(nc, 5).ordered_consumer()
    assert sequences(consumer.fetch(2)) == [1, 2]
    interrupted(lambda: consumer.fetch(2))
    assert sequences(consumer.fetch(3)) == [3, 4, 5]


def test_a_stop_that_is_refused_drops_nothing(nc: Client) -> None:
    messages = make_stream(nc, 600).ordered_consumer().messages(stop_after=600)
    first = sequences([next(messages)])

    def in_the_loop() -> None:
        with pytest.raises(JetSparkError, match="thread of the event loop"):
            messages.stop()

    nc._thread.call(in_the_loop)
    assert first + sequences(messages) == list(range(1, 601))


def test_the_ways_to_acknowledge(nc: Client) -> None:
    stream = make_stream(nc, 3)
    consumer = stream.create_consumer(durable_name="c", max_deliver=2)
    first, second, third = consumer.fetch(3)
    first.double_ack()
    second.nak()
    third.in_progress()
    third.term("broken")
    first.ack()  # does nothing
    again = consumer.next(5)
    assert again.metadata.redelivered
    assert again.metadata.stream_sequence == 2
    nc.jetstream().publish(f"{stream.name}.x", b"4")
    following = again.ack_next()
    assert type(following) is JetStreamMessage
    assert following.metadata.stream_sequence == 4
    following.ack()
    until(lambda: consumer.info().num_ack_pending == 0)


def test_a_message_that_no_consumer_delivered_cannot_be_acknowledged(nc: Client) -> None:
    js, stream = nc.jetstream(), make_stream(nc, 1)
    with js.subscribe(f"{stream.name}.>", ordered=True) as subscription:
        message = subscription.next(5)
        message.ack()  # nothing to do
    message._async.raw_reply, message._async._no_acks = b"elsewhere", False
    with pytest.raises(NotJetStreamMessageError):
        message.ack()


@pytest.mark.parametrize("acks", ["explicit", "none"])
def test_messages_are_iterated_over(nc: Client, acks: str) -> None:
    stream = make_stream(nc, 3000)
    consumer = stream.create_consumer(durable_name="c", ack_policy=acks)
    seen = []
    with consumer.messages(stop_after=3000) as messages:
        for message in messages:
            seen.append(message.metadata.stream_sequence)
            message.ack()
    assert seen == list(range(1, 3001))
    until(lambda: consumer.info().num_ack_pending == 0)


def test_an_iteration_that_is_stopped(nc: Client) -> None:
    stream = make_stream(nc, 100)
    consumer = stream.create_consumer(durable_name="c", ack_wait=1)
    messages = consumer.messages()
    for message in messages:
        message.ack()
        if message.metadata.stream_sequence == 10:
            break
    messages.stop()
    assert list(messages) == []
    with pytest.raises(IteratorClosedError):
        messages.next()
    rest = {message.metadata.stream_sequence for message in consumer.messages(stop_after=90)}
    assert rest == set(range(11, 101))  # those that were in hand come again


def test_next_and_iteration_mix(nc: Client) -> None:
    consumer = make_stream(nc, 6).create_consumer(ack_policy="none")
    with consumer.messages() as messages:
        found = [messages.next(5), next(messages), messages.next(5)]
        found += [next(messages) for _ in range(3)]
        assert sequences(found) == [1, 2, 3, 4, 5, 6]
        with pytest.raises(TimeoutError):
            messages.next(0.02)


def test_a_drained_iteration_gives_what_has_arrived(nc: Client) -> None:
    consumer = make_stream(nc, 50).create_consumer(ack_policy="none")
    messages = consumer.messages(50)
    first = messages.next(5)
    until(lambda: len(messages._async._waiting()) == 49)
    messages.drain()
    assert sequences([first, *messages]) == list(range(1, 51))


def test_consume_calls_back(nc: Client) -> None:
    consumer = make_stream(nc, 20).create_consumer(durable_name="c")
    seen: list[int] = []
    done = threading.Event()

    def callback(message: JetStreamMessage) -> None:
        seen.append(message.metadata.stream_sequence)
        message.double_ack()
        if len(seen) == 15:
            consumption.stop()  # in its own callback
            done.set()

    consumption = consumer.consume(callback)
    assert done.wait(10)
    consumption.wait()
    assert consumption.closed
    assert seen == list(range(1, 16))
    assert consumer.info().ack_floor.stream_seq == 15


def test_a_block_of_messages_whose_end_is_interrupted_has_ended(nc: Client) -> None:
    messages = make_stream(nc, 3).create_consumer(durable_name="c").messages()
    with messages:
        next(messages)
        assert at_entry_of(LoopThread._enter, interrupt, lambda: messages.__exit__(None))
        assert messages._async._ended
    assert list(messages) == []


def test_an_interrupt_at_a_message_leaves_it_to_the_next_step(nc: Client) -> None:
    messages = make_stream(nc, 5).ordered_consumer().messages(stop_after=5)
    found = sequences([next(messages)])
    assert at_entry_of(Feed._mark, interrupt, lambda: next(messages))
    assert at_entry_of(Feed._mark, interrupt, messages.next)
    assert found + sequences(messages) == [1, 2, 3, 4, 5]


async def asynchronous(error: JetSparkError) -> None: ...


@pytest.mark.parametrize("handler", [asynchronous, 5])
def test_handlers_of_warnings_are_plain_functions(nc: Client, handler: Any) -> None:
    consumer = make_stream(nc).create_consumer(durable_name="c")
    with pytest.raises(InvalidArgumentError, match="must be a"):
        consumer.messages(on_warning=handler)


def test_a_callback_that_waits_for_its_own_end_is_refused(nc: Client) -> None:
    consumer = make_stream(nc, 1).create_consumer(durable_name="c")
    ready, refused = threading.Event(), threading.Event()

    def callback(message: JetStreamMessage) -> None:
        ready.wait()
        with pytest.raises(InvalidArgumentError, match="waits for its own end"):
            consumption.wait()
        refused.set()

    consumption = consumer.consume(callback)
    ready.set()
    assert refused.wait(10)
    consumption.stop()


def test_sequence_takes_nothing_ahead(nc: Client) -> None:
    stream = make_stream(nc, 30)
    consumer = stream.create_consumer(durable_name="c")
    batches = consumer.sequence(10)
    first = next(batches)
    assert type(first) is FetchedMessages
    assert sequences(first) == list(range(1, 11))
    assert consumer.info().num_pending == 20
    assert sequences(next(batches)) == list(range(11, 21))


@pytest.mark.parametrize("push", [False, True])
def test_an_ordered_consumer_goes_on_where_it_stopped(nc: Client, push: bool) -> None:
    stream = make_stream(nc, 1000)
    consumer = stream.ordered_consumer(push=push)  # type: ignore[call-overload]
    seen: list[int] = []
    for upto in (10, 700, 1000):
        with consumer.messages() as messages:
            for message in messages:
                seen.append(message.metadata.stream_sequence)
                if len(seen) == upto:
                    break
    assert seen == list(range(1, 1001))


def test_an_ordered_consumer_with_a_limit(nc: Client) -> None:
    consumer = make_stream(nc, 100).ordered_consumer()
    assert type(consumer) is OrderedConsumer
    messages = consumer.messages(stop_after=20)
    first = sequences([next(messages) for _ in range(20)])
    first += sequences(consumer.messages(stop_after=10))
    messages = consumer.messages(stop_after=30)
    second = sequences([next(messages) for _ in range(10)])
    messages.stop()
    assert first + second + sequences(consumer.messages(stop_after=60)) == list(range(1, 101))


@pytest.mark.parametrize("push", [False, True])
def test_an_ordered_consumer_that_was_drained(nc: Client, push: bool) -> None:
    consumer: Any = make_stream(nc, 50).ordered_consumer(push=push)  # type: ignore[call-overload]
    before = nc.statistics.messages_in
    messages = consumer.messages()
    first = sequences([next(messages) for _ in range(10)])
    until(lambda: nc.statistics.messages_in >= before + 50)  # so many have come, or nearly
    messages.drain()
    first += sequences([next(messages) for _ in range(10)])  # and the rest is abandoned
    second = sequences(consumer.messages(stop_after=30))
    assert first + second == list(range(1, 51))


def test_arrow(nc: Client) -> None:
    pytest.importorskip("pyarrow")
    consumer = make_stream(nc, 100).create_consumer(ack_policy="none")
    assert consumer.fetch_arrow(10).num_rows == 10
    with consumer.arrow_batches(rows=30, stop_after=90) as batches:
        assert sum(batch.num_rows for batch in batches) == 90


def test_push_consumers(nc: Client) -> None:
    stream = make_stream(nc, 2000)
    consumer = stream.create_consumer(
        deliver_subject=nc.new_inbox(), idle_heartbeat=5, flow_control=True
    )
    assert type(consumer) is PushConsumer
    with consumer.messages(stop_after=2000) as messages:
        seen = []
        for message in messages:
            message.ack()
            seen.append(message.metadata.stream_sequence)
    assert seen == list(range(1, 2001))


# -- the older way ---------------------------------------------------------------------------------


def test_subscribe_acknowledges_after_the_callback(nc: Client) -> None:
    js, stream = nc.jetstream(), make_stream(nc, 5)
    seen: list[int] = []
    subscription = js.subscribe(
        f"{stream.name}.>",
        durable="c",
        callback=lambda message: seen.append(message.metadata.stream_sequence),
    )
    consumer = stream.get_consumer("c", push=True)
    until(lambda: consumer.info().ack_floor.stream_seq == 5)
    assert seen == [1, 2, 3, 4, 5]
    subscription.unsubscribe()


def test_a_message_whose_callback_gives_a_coroutine_is_not_acknowledged(nc: Client) -> None:
    js, stream = nc.jetstream(), make_stream(nc, 1)
    called = threading.Event()

    async def handle(message: JetStreamMessage) -> None: ...

    def callback(message: JetStreamMessage) -> Any:
        called.set()
        return handle(message)

    js.subscribe(f"{stream.name}.>", durable="c", callback=callback)
    assert called.wait(10)
    until(lambda: nc.statistics.errors == 1)
    assert stream.get_consumer("c", push=True).info().num_ack_pending == 1


def test_a_drained_subscription_keeps_its_consumer_for_the_last_acks(nc: Client) -> None:
    js, stream = nc.jetstream(), make_stream(nc, 20, retention="interest")
    subscription = js.subscribe(f"{stream.name}.>", stream=stream.name, ack_policy="explicit")
    subject = f"{stream.name}.x"
    for _ in range(20):
        js.publish(subject, b"")
    until(lambda: subscription.pending_messages == 20)
    subscription.drain()
    for message in subscription:
        message.ack()
    until(lambda: stream.info().state.messages == 0)
    assert list(stream.consumer_names()) == []


def test_pull_subscribe(nc: Client) -> None:
    js, stream = nc.jetstream(), make_stream(nc, 5)
    with js.pull_subscribe(f"{stream.name}.>", durable="c") as subscription:
        assert sequences(subscription.fetch(5, timeout=5)) == [1, 2, 3, 4, 5]
        with pytest.raises(TimeoutError):
            subscription.next(timeout=0.1)


# -- several threads -----------------------------------------------------------------------------


def test_threads_publish_and_fetch_and_the_counts_add_up(nc: Client) -> None:
    stream, js = make_stream(nc), nc.jetstream()
    consumer = stream.create_consumer(durable_name="c", max_ack_pending=-1)
    total, workers = 2000, 4

    def publish(worker: int) -> None:
        for number in range(total // workers):
            js.publish_async(f"{stream.name}.x", b"%d.%d" % (worker, number))

    def fetch() -> list[bytes]:
        found = []
        while messages := consumer.fetch(100, timeout=1):
            for message in messages:
                message.ack()
                found.append(message.data)
        return found

    publishers = [in_thread(publish, worker) for worker in range(workers)]
    fetchers = [in_thread(fetch) for _ in range(workers)]
    for publisher in publishers:
        publisher.result()
    found = [data for fetcher in fetchers for data in fetcher.result()]
    assert len(found) == total
    assert len(set(found)) == total
    until(lambda: consumer.info().num_ack_pending == 0)


def test_threads_share_an_iteration(nc: Client) -> None:
    stream = make_stream(nc, 2000)
    consumer = stream.create_consumer(ack_policy="none")
    messages = consumer.messages(stop_after=2000)
    takers = [in_thread(lambda: sequences(messages)) for _ in range(4)]
    found = [sequence for taker in takers for sequence in taker.result()]
    assert sorted(found) == list(range(1, 2001))


def test_contexts_and_connections_do_not_mix(nats_server: NatsServer) -> None:
    with (
        jetspark.sync.connect(nats_server.url) as first,
        jetspark.sync.connect(nats_server.url) as second,
    ):
        stream = make_stream(first, 1)
        other = second.jetstream().get_stream(stream.name)
        first.close()
        message = other.create_consumer(durable_name="c").next(5)
        assert message.client is second
        message.double_ack()


def test_many_messages_in_order_from_several_threads(nc: Client) -> None:
    """More than the window and the outbox hold, and calls that wait for their answers between."""
    stream = make_stream(nc, allow_direct=True)
    js = nc.jetstream(max_ack_pending=50)
    js.publish(f"{stream.name}.x", b"0.first")  # from now on the subject is known

    def publish(worker: int) -> None:
        for number in range(1000):
            future = js.publish_async(f"{stream.name}.x", b"%d.%d" % (worker, number))
            if number % 300 == 299:
                ack = js.publish(f"{stream.name}.x", b"%d.%d.waited" % (worker, number))
                assert future.result(timeout=5).sequence < ack.sequence

    threads = [threading.Thread(target=publish, args=(worker,)) for worker in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    js.publish_async_complete(timeout=10)
    assert js.publish_async_pending == 0
    stored = [message.data for message in stream.direct_get_batch(seq=1)]
    for worker in (1, 2, 3):
        own = [int(data.split(b".")[1]) for data in stored if data.startswith(b"%d." % worker)]
        assert own == sorted(own)
        assert len(set(own)) == 1000


def test_what_is_in_the_outbox_fails_with_the_connection(nats_server: NatsServer) -> None:
    with jetspark.sync.connect(nats_server.url) as nc:
        stream = make_stream(nc)
        js = nc.jetstream()
        js.publish(f"{stream.name}.x", b"")
        futures = [js.publish_async(f"{stream.name}.x", b"%d" % number) for number in range(500)]
    outcomes = [future.exception(timeout=5) for future in futures]
    assert all(error is None or isinstance(error, ConnectionClosedError) for error in outcomes)
    with pytest.raises(ConnectionClosedError):
        js.publish_async(f"{stream.name}.x", b"late")
