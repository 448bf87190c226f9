"""For tests of the blocking API: connections that are closed, and no thread that is left."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import FrameType
from typing import Any, TypeVar

import pytest

import jetspark.sync
from jetspark.server import NatsServer
from jetspark.sync._iterators import Feed
from jetspark.sync._thread import loop_thread

__all__ = [
    "at_entry",
    "at_entry_of",
    "in_thread",
    "interrupt",
    "is_waited_for",
    "nc",
    "no_threads_left",
    "until",
]

T = TypeVar("T")

loop_thread()  # the sockets of the loop stay: they are no leak of the first test

GUARD = 20.0
"""Seconds after which a wait is given up: only a test that fails ever waits that long."""
HELPER = "test helper"


@pytest.fixture(autouse=True)
def no_threads_left() -> Iterator[None]:
    """Fail a test that leaves a thread behind."""
    before = set(threading.enumerate())
    yield
    left = set(threading.enumerate()) - before
    for thread in left:
        if thread.name == HELPER:  # its result is there a moment before it ends
            thread.join(GUARD)
    left = {thread for thread in left if thread.is_alive()}
    assert not left, f"threads outlive the test: {left}"


@pytest.fixture
def nc(nats_server: NatsServer, no_threads_left: None) -> Iterator[jetspark.sync.Client]:
    """A blocking client on the server that all tests share."""
    client = jetspark.sync.connect(nats_server.url)
    yield client
    client.close()


def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds that nothing announces."""
    end = time.monotonic() + GUARD
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def is_waited_for(feed: Feed[Any]) -> Callable[[], bool]:
    """Whether a thread waits for the next message of an iterator."""

    def is_taken() -> bool:
        free = feed._turn.acquire(blocking=False)
        if free:
            feed._turn.release()
        return not free

    return is_taken


def in_thread(function: Callable[..., T], *args: Any) -> Future[T]:
    """Call a function in a thread of its own; its result is waited for with `GUARD`."""
    future: Future[T] = _Guarded()

    def run() -> None:
        try:
            future.set_result(function(*args))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name=HELPER, daemon=True).start()
    return future


class _Guarded(Future[T]):
    def result(self, timeout: float | None = GUARD) -> T:
        return super().result(timeout)


def interrupt() -> None:
    """What Ctrl-C does."""
    raise KeyboardInterrupt


def at_entry(number: int, happens: Callable[[], object], call: Callable[[], object]) -> bool:
    """Call a function, and let something happen in it as by a signal; False if it ended before.

    Python looks for signals at the entry of functions, and this is that of the number-th one here.
    """
    entered = 0

    def look(frame: FrameType) -> bool:
        nonlocal entered
        entered += "jetspark" in frame.f_code.co_filename
        return entered == number

    return _traced(look, happens, call)


def at_entry_of(
    function: Callable[..., object], happens: Callable[[], object], call: Callable[[], object]
) -> bool:
    """The same at the entry of a certain function."""
    code = function.__code__
    return _traced(lambda frame: frame.f_code is code, happens, call)


def _traced(
    look: Callable[[FrameType], bool], happens: Callable[[], object], call: Callable[[], object]
) -> bool:
    happened = False

    def trace(frame: FrameType, event: str, argument: object) -> None:
        nonlocal happened
        if look(frame):
            sys.settrace(None)
            happened = True
            happens()

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        assert happened
    finally:
        sys.settrace(before)
    return happened
