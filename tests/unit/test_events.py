"""Connection events: their text, the log, the callback and the iteration."""

from __future__ import annotations

import asyncio
import gc
import logging
import pickle

import pytest

from jetspark.connection.events import ConnectionEvent, EventHub, EventKind
from jetspark.errors import DisconnectedError

CLOSED = ConnectionEvent(EventKind.CLOSED)


def numbered(number: int) -> ConnectionEvent:
    return ConnectionEvent(EventKind.RECONNECTING, "nats://a:4222", attempt=number)


# -- one event --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (CLOSED, "closed"),
        (ConnectionEvent(EventKind.CONNECTED, "nats://a:4222"), "connected | nats://a:4222"),
        (
            ConnectionEvent(EventKind.CONNECTED, "nats://a:4222", reconnect=True),
            "connected | again | nats://a:4222",
        ),
        (numbered(3), "reconnecting | nats://a:4222 | attempt 3"),
        (
            ConnectionEvent(EventKind.DISCOVERED, servers=("nats://b:1", "nats://c:2")),
            "discovered | nats://b:1, nats://c:2",
        ),
        (
            ConnectionEvent(EventKind.DISCONNECTED, "nats://a:4222", DisconnectedError("cut")),
            "disconnected | nats://a:4222 | DisconnectedError: cut",
        ),
        (
            ConnectionEvent(EventKind.ERROR, error=ValueError("x"), attempt=2),
            "error | attempt 2 | ValueError: x",
        ),
    ],
)
def test_text(event: ConnectionEvent, text: str) -> None:
    assert str(event) == text


def test_events_are_values() -> None:
    assert numbered(1) == numbered(1)
    assert numbered(1) != numbered(2)
    assert len({numbered(1), numbered(1), CLOSED}) == 2
    assert pickle.loads(pickle.dumps(numbered(1))) == numbered(1)
    with pytest.raises(AttributeError):
        CLOSED.kind = EventKind.ERROR  # type: ignore[misc]


def test_every_kind_has_its_own_name() -> None:
    assert len({kind.value for kind in EventKind}) == len(EventKind)


# -- log and callback -------------------------------------------------------------------------


async def test_events_are_logged_loudly_only_if_something_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hub = EventHub(None)
    with caplog.at_level(logging.DEBUG, "jetspark"):
        hub.emit(numbered(1))
        hub.emit(ConnectionEvent(EventKind.ERROR, error=ValueError("50% off")))
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.DEBUG, "reconnecting | nats://a:4222 | attempt 1"),
        (logging.WARNING, "error | ValueError: 50% off"),
    ]


async def test_the_callback_gets_every_event_at_once() -> None:
    seen: list[ConnectionEvent] = []
    hub = EventHub(seen.append)
    for number in range(3):
        hub.emit(numbered(number))
        assert seen[-1] == numbered(number)
    hub.emit(CLOSED)
    assert seen == [numbered(0), numbered(1), numbered(2), CLOSED]


async def test_a_callback_that_fails_is_logged_and_harms_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def callback(event: ConnectionEvent) -> None:
        raise RuntimeError("broken callback")

    hub = EventHub(callback)
    reader = hub.iterate()
    hub.emit(numbered(1))
    hub.emit(CLOSED)
    assert [event async for event in reader] == [numbered(1), CLOSED]
    failures = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage() for record in failures] == [
        "the event callback failed on: reconnecting | nats://a:4222 | attempt 1",
        "the event callback failed on: closed",
    ]
    assert all(record.exc_info for record in failures)


# -- iteration --------------------------------------------------------------------------------


async def test_iteration_begins_with_the_call_and_ends_with_closed() -> None:
    hub = EventHub(None)
    hub.emit(numbered(0))
    reader = hub.iterate()
    hub.emit(numbered(1))
    hub.emit(numbered(2))
    hub.emit(CLOSED)
    assert [event async for event in reader] == [numbered(1), numbered(2), CLOSED]
    assert [event async for event in reader] == []


async def test_after_the_end_there_is_nothing_to_iterate() -> None:
    hub = EventHub(None)
    hub.emit(CLOSED)
    assert [event async for event in hub.iterate()] == []


async def test_a_reader_waits_for_the_next_event() -> None:
    hub = EventHub(None)
    reader = hub.iterate()

    async def read() -> list[ConnectionEvent]:
        return [event async for event in reader]

    async with asyncio.TaskGroup() as group:
        task = group.create_task(read())
        for number in range(3):
            await asyncio.sleep(0)
            assert not task.done()
            hub.emit(numbered(number))
        hub.emit(CLOSED)
    assert task.result() == [numbered(0), numbered(1), numbered(2), CLOSED]


async def test_every_reader_gets_every_event() -> None:
    hub = EventHub(None)
    first = hub.iterate()
    hub.emit(numbered(1))
    second = hub.iterate()
    hub.emit(CLOSED)
    assert [event async for event in first] == [numbered(1), CLOSED]
    assert [event async for event in second] == [CLOSED]


async def test_a_wait_can_be_cancelled() -> None:
    hub = EventHub(None)
    reader = hub.iterate()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await anext(reader)
    hub.emit(CLOSED)
    assert await anext(reader) == CLOSED


async def test_a_slow_reader_loses_the_oldest_events() -> None:
    hub = EventHub(None)
    reader = hub.iterate()
    for number in range(EventHub.BACKLOG + 10):
        hub.emit(numbered(number))
    hub.emit(CLOSED)
    events = [event async for event in reader]
    assert len(events) == EventHub.BACKLOG
    assert events[0] == numbered(11)
    assert events[-1] == CLOSED


async def test_readers_that_are_given_up_are_forgotten() -> None:
    hub = EventHub(None)
    kept = hub.iterate()
    for _ in range(100):
        hub.iterate()
    gc.collect()
    hub.emit(numbered(1))
    assert len(hub._readers) == 1
    assert await anext(kept) == numbered(1)
