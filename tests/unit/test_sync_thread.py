"""The thread of the event loop: calls, interrupts, callbacks and its end."""

from __future__ import annotations

import asyncio
import functools
import threading
import traceback
from collections.abc import AsyncIterator
from typing import Any

import pytest

from jetspark.errors import ConnectionClosedError, InvalidArgumentError, JetSparkError
from jetspark.sync._base import in_threads, in_worker
from jetspark.sync._callbacks import Job, Workers
from jetspark.sync._iterators import Items
from jetspark.sync._thread import LoopThread
from tests.support.blocking import at_entry, in_thread, interrupt, no_threads_left, until

__all__ = ["no_threads_left"]


@pytest.fixture
def thread() -> Any:
    made = LoopThread()
    yield made
    made.loop.close()


@pytest.fixture
def running(thread: LoopThread) -> Any:
    """The thread as it is while a connection is open."""
    connection = Connection()
    thread.call(thread.opened, connection)
    yield thread
    thread.call(thread.closed, connection)


class Connection:
    """One that has nothing to do."""

    def empty_outbox(self) -> None: ...

    async def close(self) -> None: ...


async def double(value: int) -> int:
    await asyncio.sleep(0)
    return 2 * value


def test_a_call_returns_what_the_coroutine_returns(thread: LoopThread) -> None:
    assert thread.run(double(21)) == 42
    assert thread.call(lambda: asyncio.get_running_loop()) is thread.loop


def test_the_thread_ends_when_nobody_needs_it_and_starts_again(thread: LoopThread) -> None:
    for _ in range(3):
        name = thread.call(lambda: threading.current_thread().name)
        assert name == "jetspark"
        assert name not in {each.name for each in threading.enumerate()}


def test_it_runs_on_while_a_connection_is_open(thread: LoopThread) -> None:
    connection = Connection()
    thread.call(thread.opened, connection)
    first = thread.call(threading.get_ident)
    assert thread.call(threading.get_ident) == first
    assert "jetspark" in {each.name for each in threading.enumerate()}
    thread.call(thread.closed, connection)
    assert "jetspark" not in {each.name for each in threading.enumerate()}


def test_an_error_shows_who_called_and_where_it_happened(thread: LoopThread) -> None:
    async def failing() -> None:
        await asyncio.sleep(0)
        raise JetSparkError("no")

    with pytest.raises(JetSparkError, match="no") as caught:
        thread.run(failing())
    functions = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert functions[0] == test_an_error_shows_who_called_and_where_it_happened.__name__
    assert functions[-1] == "failing"


def test_many_threads_call_at_the_same_time(thread: LoopThread) -> None:
    def work(number: int) -> list[int]:
        return [thread.run(double(number)) for _ in range(50)]

    futures = [in_thread(work, number) for number in range(8)]
    assert [future.result() for future in futures] == [[2 * n] * 50 for n in range(8)]


def test_a_call_from_the_loop_itself_is_refused(thread: LoopThread) -> None:
    async def inside() -> None:
        thread.run(double(1))

    with pytest.raises(JetSparkError, match="thread of the event loop"):
        thread.run(inside())


def test_a_loop_in_the_thread_of_the_caller_is_no_problem(thread: LoopThread) -> None:
    async def cell() -> int:  # as in a notebook
        return thread.run(double(4))

    assert asyncio.run(cell()) == 8


def test_after_a_fork_a_call_is_refused(thread: LoopThread) -> None:
    thread.forked = True
    with pytest.raises(ConnectionClosedError, match="connect again in the child"):
        thread.run(double(1))


def test_an_interrupt_cancels_the_call_and_waits_for_its_end(
    thread: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jetspark.sync._callbacks import Call

    cleaned: list[str] = []
    started = threading.Event()

    async def endless() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append("up")

    wait = Call.wait

    def interrupted(call: Call[Any], timeout: float = -1) -> bool:
        started.wait()
        monkeypatch.setattr(Call, "wait", wait)
        raise KeyboardInterrupt

    monkeypatch.setattr(Call, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        thread.run(endless())
    assert cleaned == ["up"]
    assert thread.run(double(2)) == 4


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_an_interrupt_at_any_moment_of_a_call_leaves_nothing(thread: LoopThread) -> None:
    def work() -> None:
        number = 1
        while at_entry(number, interrupt, lambda: thread.run(double(1))):
            assert thread.run(double(number)) == 2 * number
            assert not thread._users
            number += 1

    in_thread(work).result()
    until(lambda: "jetspark" not in {each.name for each in threading.enumerate()})


@pytest.mark.parametrize("connected", [False, True])
def test_a_signal_handler_may_make_a_call_at_any_moment_of_another_one(
    thread: LoopThread, connected: bool
) -> None:
    connection = Connection()
    if connected:
        thread.call(thread.opened, connection)
    results: list[int] = []

    def handler() -> None:
        assert thread.run(double(1)) == 2

    def work() -> int:
        number = 1
        while at_entry(number, handler, lambda: results.append(thread.run(double(21)))):
            number += 1
        return number

    assert in_thread(work).result() > 5
    assert set(results) == {42}
    if connected:
        thread.call(thread.closed, connection)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_what_ends_a_program_does_not_end_the_loop(
    running: LoopThread, error: type[BaseException]
) -> None:
    async def leave() -> None:
        raise error

    for _ in range(2):
        with pytest.raises(error):
            in_thread(running.run, leave()).result()
        assert in_thread(running.run, double(2)).result() == 4


# -- ends ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(2, 12))  # the first is the entry of `finish` itself
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_an_interrupt_at_any_moment_does_not_prevent_an_end(
    running: LoopThread, number: int
) -> None:
    begun: list[bool] = []

    async def end() -> None:
        begun.append(True)
        await asyncio.Event().wait()  # until the interrupt comes

    assert in_thread(at_entry, number, interrupt, lambda: running.finish(end)).result()
    assert begun == [True]


def test_what_is_ended_in_the_loop_is_not_waited_for(running: LoopThread) -> None:
    ended: list[str] = []

    async def end(name: str) -> None:
        await asyncio.sleep(0)
        ended.append(name)

    running.call(running.finish, end, "x")
    until(lambda: ended == ["x"])
    assert not running._users - set(running._connections)


def test_an_end_in_the_loop_that_fails_is_logged(
    running: LoopThread, caplog: pytest.LogCaptureFixture
) -> None:
    async def end() -> None:
        raise JetSparkError("it stays")

    running.call(running.finish, end)
    until(lambda: "it stays" in caplog.text)


# -- callbacks -------------------------------------------------------------------------------------


def test_callbacks_run_outside_the_loop_and_may_call_into_it(thread: LoopThread) -> None:
    seen: list[tuple[str, int]] = []

    def callback(number: int) -> None:
        seen.append((threading.current_thread().name, thread.run(double(number))))

    async def deliver() -> None:
        call = in_worker(callback, thread)
        for number in range(5):
            await call(number)

    thread.run(deliver())
    assert seen == [("jetspark callback", 2 * number) for number in range(5)]


def test_the_calls_of_a_callback_are_made_in_its_own_task(thread: LoopThread) -> None:
    async def current() -> object:
        return asyncio.current_task()

    found: list[object] = []

    async def deliver() -> bool:
        await in_worker(lambda: found.append(thread.run(current())), thread)()
        return found == [asyncio.current_task()]

    assert thread.run(deliver())


@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit(1)])
def test_what_a_callback_raises_reaches_the_loop(thread: LoopThread, error: BaseException) -> None:
    def callback() -> None:
        raise error

    async def deliver() -> None:
        await in_worker(callback, thread)()

    with pytest.raises((ValueError, RuntimeError), match=r"broken|SystemExit"):
        thread.run(deliver())


def test_a_callback_that_is_given_up_runs_to_its_end(thread: LoopThread) -> None:
    begun, go_on, results = threading.Event(), threading.Event(), []

    def callback() -> None:
        begun.set()
        go_on.wait()
        results.append(thread.run(double(3)))

    async def deliver() -> None:
        task = asyncio.create_task(in_worker(callback, thread)())
        await asyncio.to_thread(begun.wait)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    thread.run(deliver())
    go_on.set()
    until(lambda: results == [6])
    until(lambda: "jetspark callback" not in {each.name for each in threading.enumerate()})


def test_an_idle_worker_may_end_the_thread(thread: LoopThread) -> None:
    connection = Connection()
    thread.call(thread.opened, connection)
    closed = threading.Event()

    class Collected:
        """What the collector, which works in any thread, may find in this one."""

        def work(self) -> None:
            thread.call(thread.closed, connection)
            closed.set()

        def end(self) -> None: ...

    async def deliver() -> None:
        await in_worker(lambda: None, thread)()

    thread.run(deliver())
    worker = thread.workers._idle[0]
    worker.jobs.put(Collected())  # type: ignore[arg-type]
    assert closed.wait(10)
    worker.thread.join(10)
    assert not worker.thread.is_alive()
    until(lambda: "jetspark" not in {each.name for each in threading.enumerate()})


def test_callbacks_that_are_too_many_wait_and_none_is_lost(thread: LoopThread) -> None:
    go_on, lock = threading.Event(), threading.Lock()
    now, most, called = 0, 0, 0

    def callback() -> None:
        nonlocal now, most, called
        with lock:
            now += 1
            most = max(most, now)
        go_on.wait(10)
        with lock:
            now -= 1
            called += 1

    async def begin() -> None:
        workers = Workers(thread.loop, "test helper", 3)
        for _ in range(10):
            workers.start(Job(callback, ()))
        workers.retire()

    thread.run(begin())
    go_on.set()
    until(lambda: called == 10)
    assert most <= 3


async def asynchronous() -> None: ...


class Asynchronous:
    async def __call__(self) -> None: ...


@pytest.mark.parametrize(
    "callback", [asynchronous, Asynchronous(), functools.partial(asynchronous)], ids=type
)
def test_a_coroutine_function_is_no_callback(thread: LoopThread, callback: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="plain function"):
        in_worker(callback, thread)


def test_what_returns_a_coroutine_is_no_callback(thread: LoopThread) -> None:
    async def deliver() -> None:
        await in_worker(lambda: asynchronous(), thread)()

    with pytest.raises(InvalidArgumentError, match="plain function"):
        thread.run(deliver())


def test_what_cannot_be_called_is_no_callback(thread: LoopThread) -> None:
    with pytest.raises(InvalidArgumentError, match="must be a function, not int"):
        in_worker(5, thread)  # type: ignore[arg-type]


# -- iterators -------------------------------------------------------------------------------------


async def numbers(count: int, log: list[Any] | None = None) -> AsyncIterator[int]:
    try:
        for number in range(count):
            if log is not None:
                log.append(number)
            await asyncio.sleep(0)
            yield number
    finally:
        if log is not None:
            log.append("closed")


def test_items_come_in_order_and_end(running: LoopThread) -> None:
    items: Items[int] = Items(running, numbers(1000))
    assert list(items) == list(range(1000))
    assert list(items) == []


def test_at_its_end_an_iteration_leaves_nothing_to_be_given_up(running: LoopThread) -> None:
    items: Items[int] = Items(running, numbers(3))
    assert list(items) == [0, 1, 2]
    assert not items._finalizer.alive  # it would swallow an interrupt


def test_items_are_taken_ahead_up_to_a_limit(running: LoopThread) -> None:
    log: list[Any] = []
    items: Items[int] = Items(running, numbers(100, log), ahead=10)
    assert next(items) == 0
    until(lambda: not items._pump._wanted.is_set())  # it has enough
    taken = len(log)
    assert taken in (10, 11)  # the first one may have been taken out in time
    assert [next(items) for _ in range(taken - 1)] == list(range(1, taken))
    assert len(log) == taken
    assert next(items) == taken
    items.close()
    assert log[-1] == "closed"
    assert list(items) == []


def test_without_a_look_ahead_an_item_is_made_when_it_is_asked_for(running: LoopThread) -> None:
    log: list[Any] = []
    made: Items[int] = Items(running, numbers(5, log), ahead=1)
    with made as items:
        assert next(items) == 0
        assert log == [0]
        assert next(items) == 1
        assert log == [0, 1]


def test_items_that_nobody_wants_any_more_are_given_up(running: LoopThread) -> None:
    log: list[Any] = []
    for _ in Items(running, numbers(100, log), ahead=1):
        break
    until(lambda: log[-1] == "closed")


def test_an_error_comes_after_the_items_before_it(running: LoopThread) -> None:
    async def source() -> AsyncIterator[int]:
        yield 1
        yield 2
        raise JetSparkError("broken")

    items: Items[int] = Items(running, source())
    assert [next(items), next(items)] == [1, 2]
    for _ in range(2):
        with pytest.raises(JetSparkError, match="broken"):
            next(items)


def test_an_iteration_that_is_to_end_the_program_does_not_seem_complete(
    running: LoopThread,
) -> None:
    async def source() -> AsyncIterator[int]:
        yield 1
        raise SystemExit(3)

    items: Items[int] = Items(running, source())
    assert next(items) == 1
    with pytest.raises(SystemExit):
        in_thread(next, items).result()


def test_an_iteration_ends_with_the_thread(thread: LoopThread) -> None:
    items: Items[int] = Items(thread, numbers(100), ahead=1)
    assert next(items) == 0  # and the thread ends, as there is no connection
    with pytest.raises(ConnectionClosedError):
        next(items)


class Client:
    def __init__(self) -> None:
        self.readings: set[Any] = set()


def test_iterables_are_iterated_over_in_threads(thread: LoopThread) -> None:
    names: set[str] = set()

    def blocks() -> Any:
        for number in range(3):
            names.add(threading.current_thread().name)
            yield thread.run(double(number))

    client = Client()

    async def collect() -> list[Any]:
        return [block async for block in in_threads(blocks(), client)]

    assert thread.run(collect()) == [0, 2, 4]
    assert names == {"jetspark helper"}
    assert not client.readings
    for data in (b"bytes", bytearray(b"x"), [b"list"], 17):
        assert in_threads(data, client) is data


def test_a_file_that_has_an_iterator_behind_it_does_not_wait_for_ever(thread: LoopThread) -> None:
    class File:
        def read(self, size: int) -> bytes:
            blocks: list[bytes] = []
            return next(iter(blocks))  # which raises StopIteration

    with pytest.raises(RuntimeError, match="StopIteration"):
        in_thread(lambda: thread.run(in_threads(File(), Client()).read(1))).result()


def test_helper_threads_do_not_hold_up_the_end(thread: LoopThread) -> None:
    async def helper() -> bool:
        return await asyncio.to_thread(lambda: threading.current_thread().daemon)

    assert thread.run(helper())
    with pytest.raises(ZeroDivisionError):
        thread.run(asyncio.to_thread(lambda: 1 // 0))


def test_what_ends_something_does_nothing_after_the_end(thread: LoopThread) -> None:
    thread.forked = True
    thread.finish(double, 1)
    with pytest.raises(ConnectionClosedError):
        thread.run(double(1))
