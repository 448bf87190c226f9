"""The blocking API while servers go and connections are closed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jetspark.sync
from jetspark.errors import (
    ConnectionClosedError,
    DisconnectedError,
    JetSparkError,
    ReconnectBufferFullError,
    ServerShutdownError,
)
from jetspark.server import NatsServer
from jetspark.sync import Backoff, Client, Message, PullConsumer, Stream
from tests.support.blocking import in_thread, is_waited_for, no_threads_left, until
from tests.support.servers import StartServer

__all__ = ["no_threads_left"]

QUICK = Backoff(initial=0.01, maximum=0.05)


@pytest.fixture
def server(start_server: StartServer) -> NatsServer:
    return start_server()


@pytest.fixture
def nc(server: NatsServer, no_threads_left: None) -> Iterator[Client]:
    client = jetspark.sync.connect(
        server.url, reconnect_delay=QUICK, max_reconnect_attempts=None, drain_timeout=5
    )
    yield client
    client.close()


def make_stream(nc: Client, count: int) -> Stream:
    js = nc.jetstream()
    stream = js.create_stream(name="S", subjects=["s"])
    for number in range(1, count + 1):
        js.publish_async("s", b"%d" % number)
    js.publish_async_complete()
    return stream


def waits(nc: Client) -> Callable[[], bool]:
    """Whether a thread waits in a call."""
    return lambda: len(nc._async.thread._users) > 1


# -- a server restarts -----------------------------------------------------------------------------


def test_a_fetch_that_waits_fails_and_the_next_one_succeeds(nc: Client, server: NatsServer) -> None:
    consumer = make_stream(nc, 0).create_consumer(durable_name="c")
    waiting = in_thread(consumer.fetch, 10)
    until(lambda: consumer.info().num_waiting == 1)
    server.restart()
    with pytest.raises((DisconnectedError, ServerShutdownError)):
        waiting.result()
    nc.jetstream().publish("s", b"x", timeout=10)
    assert [message.data for message in consumer.fetch(1, timeout=10)] == [b"x"]


def test_a_fetch_with_messages_returns_them_and_says_why_it_ended(
    nc: Client, server: NatsServer
) -> None:
    consumer = make_stream(nc, 3).create_consumer(durable_name="c")
    waiting = in_thread(consumer.fetch, 10)
    until(lambda: consumer.info().num_ack_pending == 3)
    server.restart()
    messages = waiting.result()
    assert [message.data for message in messages] == [b"1", b"2", b"3"]
    assert isinstance(messages.error, DisconnectedError | ServerShutdownError)


def test_an_iteration_goes_on_over_restarts(nc: Client, server: NatsServer) -> None:
    total = 900
    consumer = make_stream(nc, total).create_consumer(durable_name="c", ack_wait=2)
    seen: set[int] = set()
    restarts = [300, 600]
    with consumer.messages(100) as messages:
        for message in messages:
            message.ack()
            seen.add(message.metadata.stream_sequence)
            if restarts and len(seen) >= restarts[0]:
                server.restart()
                del restarts[0]
            if len(seen) == total:
                break
    assert seen == set(range(1, total + 1))


def test_an_ordered_iteration_loses_and_repeats_nothing(nc: Client, server: NatsServer) -> None:
    consumer = make_stream(nc, 2000).ordered_consumer()
    seen = []
    for message in consumer.messages(stop_after=2000):
        seen.append(message.metadata.stream_sequence)
        if len(seen) in (10, 1500):
            server.restart()
    assert seen == list(range(1, 2001))


def test_a_subscription_goes_on_after_a_restart(nc: Client, server: NatsServer) -> None:
    subscription = nc.subscribe("x")
    waiting = in_thread(next, subscription)
    until(is_waited_for(subscription))
    server.restart()
    nc.flush()
    nc.publish("x", b"after")
    assert waiting.result().data == b"after"


def test_a_watch_goes_on_after_a_restart(nc: Client, server: NatsServer) -> None:
    bucket = nc.jetstream(timeout=10).create_key_value(bucket="b")
    bucket.put("a", b"1")
    with bucket.watch() as watcher:
        assert [entry and entry.value for entry in (next(watcher), next(watcher))] == [b"1", None]
        server.restart()
        bucket.put("a", b"2")
        entry = watcher.next(15)
        assert entry is not None
        assert entry.value == b"2"


def test_what_is_published_and_acknowledged_meanwhile_is_sent_afterwards(
    nc: Client, server: NatsServer
) -> None:
    consumer = make_stream(nc, 2).create_consumer(durable_name="c", ack_wait=60)
    nc.publish("known", b"x")
    messages = consumer.fetch(2)
    subscription = nc.subscribe("known")
    nc.flush()
    server.stop()
    until(lambda: not nc.connected)
    nc.publish("known", b"x")
    for message in messages:
        message.ack()
    server.start()
    assert subscription.next(15).data == b"x"
    until(lambda: consumer.info().num_ack_pending == 0)


def test_a_full_buffer_is_said_to_the_caller(server: NatsServer) -> None:
    nc = jetspark.sync.connect(server.url, reconnect_delay=QUICK, reconnect_buffer_size=0)
    consumer = make_stream(nc, 1).create_consumer(durable_name="c")
    message = consumer.next(5)
    nc.publish("known", b"x")
    nc.flush()
    server.stop()
    until(lambda: not nc.connected)
    with pytest.raises(ReconnectBufferFullError):
        nc.publish("known", b"x")
    with pytest.raises(ReconnectBufferFullError):
        message.ack()
    assert not message.acked
    nc.close()


def test_what_the_outbox_cannot_send_is_reported(server: NatsServer) -> None:
    events: list[BaseException | None] = []
    nc = jetspark.sync.connect(
        server.url,
        reconnect_delay=QUICK,
        reconnect_buffer_size=0,
        on_event=lambda event: events.append(event.error),
    )
    nc.publish("known", b"x")
    nc.flush()
    client = nc._async

    def lose_the_connection_first() -> None:
        client._restrict(True)
        client.empty_outbox()

    client._called = True  # nobody empties it by itself
    nc.publish("known", b"x")
    nc._thread.post(lose_the_connection_first)
    until(lambda: any(isinstance(error, ReconnectBufferFullError) for error in events))
    assert not client._outbox
    nc.close()


def test_a_connection_that_is_lost_for_good_ends_the_thread(server: NatsServer) -> None:
    nc = jetspark.sync.connect(server.url, allow_reconnect=False)
    subscription = nc.subscribe("x")
    waiting = in_thread(next, subscription)
    until(is_waited_for(subscription))
    server.stop()
    with pytest.raises(ConnectionClosedError):
        waiting.result()
    until(lambda: "jetspark" not in {thread.name for thread in threading.enumerate()})
    with pytest.raises(ConnectionClosedError):
        nc.flush()
    nc.close()


def test_what_is_to_be_acknowledged_waits_in_the_outbox_for_the_connection(
    nc: Client, server: NatsServer
) -> None:
    stream, js = make_stream(nc, 0), nc.jetstream()
    js.publish_async("s", b"1").result()
    client = nc._async

    def lose_the_connection_first() -> None:
        client._restrict(True)
        js._async._acks.ceiling = 0
        client.empty_outbox()
        client._restrict(False)

    client._called = True  # nobody empties it by itself
    future = js.publish_async("s", b"2")
    assert js.publish_async_pending == 1
    nc._thread.post(lose_the_connection_first)
    assert future.result(timeout=10).sequence == 2
    assert stream.info().state.messages == 2


# -- another thread closes -------------------------------------------------------------------------


def fetches(nc: Client) -> Any:
    return make_stream(nc, 0).create_consumer(durable_name="c").fetch(10)


def iterates(nc: Client) -> Any:
    return list(make_stream(nc, 0).create_consumer(durable_name="c").messages())


def subscribes(nc: Client) -> Any:
    return list(nc.subscribe("x"))


def asks(nc: Client) -> Any:
    with nc.subscribe("x"):
        return nc.request("x", timeout=60)


def watches(nc: Client) -> Any:
    return [entry for entry in nc.jetstream().create_key_value(bucket="b").watch() if entry]


@pytest.mark.parametrize("way", ["close", "drain"])
@pytest.mark.parametrize("wait", [fetches, iterates, subscribes, watches])
def test_who_waits_is_told_that_the_connection_is_closed(
    nc: Client, wait: Callable[[Client], Any], way: str
) -> None:
    waiting = in_thread(wait, nc)
    until(waits(nc))
    nc.flush()
    threading.Event().wait(0.1)  # most likely it waits now; if not, it is told so sooner
    getattr(nc, way)()
    try:
        assert waiting.result() == []
    except JetSparkError:
        pass
    assert nc.closed
    until(lambda: "jetspark" not in {thread.name for thread in threading.enumerate()})


def test_a_put_that_waits_for_its_data_is_told(nc: Client) -> None:
    store = nc.jetstream().create_object_store(bucket="o")
    reads, writes = os.pipe()
    try:
        with open(reads, "rb") as pipe:
            waiting = in_thread(store.put, "x", pipe)
            until(lambda: nc._async.readings)
            nc.close()
            with pytest.raises(ConnectionClosedError):
                waiting.result()
            os.write(writes, b"x")  # lets the thread that reads go
            os.close(writes)
            until(lambda: "jetspark helper" not in {each.name for each in threading.enumerate()})
    except BaseException:
        os.close(writes)
        raise


def test_a_request_that_waits_is_told(nc: Client) -> None:
    waiting = in_thread(asks, nc)
    until(waits(nc))
    nc.close()
    with pytest.raises(ConnectionClosedError):
        waiting.result()


def test_threads_that_publish_while_another_one_closes(server: NatsServer) -> None:
    nc = jetspark.sync.connect(server.url)

    def publish() -> None:
        while True:
            nc.publish("x", b"x")

    publishers = [in_thread(publish) for _ in range(3)]
    until(lambda: nc.statistics.messages_out > 1000)
    nc.close()
    for publisher in publishers:
        with pytest.raises(ConnectionClosedError):
            publisher.result()


def test_a_callback_in_the_middle_of_a_call_is_told(nc: Client) -> None:
    caught: list[BaseException] = []
    begun = threading.Event()

    def callback(message: Message) -> None:
        begun.set()
        try:
            nc.request("silent", timeout=60)
        except JetSparkError as error:
            caught.append(error)

    nc.subscribe("silent")
    subscription = nc.subscribe("x", callback=callback)
    nc.publish("x")
    assert begun.wait(10)
    subscription.unsubscribe()
    until(lambda: caught)
    nc.flush()


def test_threads_fetch_over_a_restart_and_the_counts_add_up(nc: Client, server: NatsServer) -> None:
    total, workers = 1200, 3
    stream = make_stream(nc, total)
    consumer = stream.create_consumer(durable_name="c", ack_wait=2, max_ack_pending=-1)
    found: set[int] = set()
    lock = threading.Lock()

    def work(consumer: PullConsumer) -> int:
        count = 0
        while True:
            with lock:
                if len(found) == total:
                    return count
            try:
                messages = consumer.fetch(50, timeout=1)
            except JetSparkError:
                continue
            for message in messages:
                count += 1
                with lock:
                    found.add(message.metadata.stream_sequence)
                try:
                    message.double_ack()
                except JetSparkError:
                    pass  # the server has it or not; if not, the message comes again

    takers = [in_thread(work, consumer) for _ in range(workers)]
    until(lambda: len(found) > 200)
    server.restart()
    counts = [taker.result() for taker in takers]
    assert found == set(range(1, total + 1))
    assert sum(counts) >= total
    while consumer.info().num_ack_pending:
        for message in consumer.fetch(50, timeout=1):
            message.double_ack()
