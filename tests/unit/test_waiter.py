"""Tasks that wait, and are woken together."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import weakref

import pytest

from jetspark.connection.waiter import Waiter, finished, go_on
from tests.support.leaks import GUARD


class Traceable(Waiter):
    """A waiter that weak references can point to."""


class Desk:
    """Tasks that each wait for one answer, and note in which order they get it."""

    def __init__(self, count: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.waiters: list[Waiter] = []
        self.seen: list[int | str] = []
        self.tasks = [self.loop.create_task(self.wait(number)) for number in range(count)]

    async def wait(self, number: int) -> None:
        waiter = Traceable(self.loop)
        self.waiters.append(waiter)
        try:
            await waiter
            self.seen.append(number)
        except asyncio.CancelledError:
            self.seen.append(f"cancelled {number}")
            raise
        except ValueError as error:
            self.seen.append(str(error))

    def answer(self) -> None:
        """Answer all who still wait, at once."""
        left = [waiter for waiter in self.waiters if not waiter.settled]
        for waiter in left:
            waiter.settled = True
        self.loop.call_soon(go_on, left, finished(self.loop))

    async def end(self) -> list[object]:
        async with asyncio.timeout(GUARD):
            return await asyncio.gather(*self.tasks, return_exceptions=True)


async def test_all_are_woken_in_their_order() -> None:
    desk = Desk(5)
    await asyncio.sleep(0)
    desk.answer()
    assert not desk.seen
    assert await desk.end() == [None] * 5
    assert desk.seen == [0, 1, 2, 3, 4]


async def test_one_of_them_is_cancelled_before() -> None:
    desk = Desk(3)
    await asyncio.sleep(0)
    desk.tasks[1].cancel()
    desk.answer()
    results = await desk.end()
    assert isinstance(results[1], asyncio.CancelledError)
    assert sorted(map(str, desk.seen)) == ["0", "2", "cancelled 1"]


async def test_one_of_them_is_cancelled_between_its_answer_and_its_turn() -> None:
    desk = Desk(3)
    await asyncio.sleep(0)
    desk.answer()
    desk.tasks[1].cancel()
    results = await desk.end()
    assert isinstance(results[1], asyncio.CancelledError)
    assert desk.seen == [0, "cancelled 1", 2]


async def test_the_message_of_a_cancellation_arrives() -> None:
    desk = Desk(1)
    await asyncio.sleep(0)
    desk.tasks[0].cancel("enough")
    with pytest.raises(asyncio.CancelledError, match="enough"):
        await desk.tasks[0]


async def test_an_error() -> None:
    desk = Desk(2)
    await asyncio.sleep(0)
    desk.waiters[0].fail(ValueError("no"))
    await desk.tasks[0]
    assert desk.waiters.pop(0).settled  # it is not used again
    desk.answer()
    await desk.end()
    assert desk.seen == ["no", 1]


async def test_timeouts_end_the_wait() -> None:
    waiter = Waiter(asyncio.get_running_loop())

    async def wait() -> None:
        await waiter

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(wait(), 0.01)
    assert waiter.settled


async def test_each_task_goes_on_in_its_context() -> None:
    name: contextvars.ContextVar[int] = contextvars.ContextVar("name")
    loop = asyncio.get_running_loop()
    waiters: list[Waiter] = []

    async def wait(number: int) -> bool:
        name.set(number)
        waiters.append(Waiter(loop))
        await waiters[-1]
        return name.get() == number

    tasks = [loop.create_task(wait(number)) for number in range(3)]
    await asyncio.sleep(0)
    for waiter in waiters:
        waiter.settled = True
    loop.call_soon(go_on, waiters, finished(loop))
    assert await asyncio.gather(*tasks) == [True] * 3


async def test_one_waiter_again_and_again() -> None:
    loop = asyncio.get_running_loop()
    waiter = Waiter(loop)
    rounds: list[int] = []

    async def wait() -> None:
        for number in range(5):
            await waiter
            rounds.append(number)

    task = loop.create_task(wait())
    for number in range(5):
        await asyncio.sleep(0)
        assert (waiter.settled, len(rounds)) == (False, number)
        waiter.settled = True
        waiter.wake()
        await asyncio.sleep(0)
    async with asyncio.timeout(GUARD):
        await task
    assert rounds == [0, 1, 2, 3, 4]
    assert not hasattr(waiter, "wakeup")  # it would keep the task alive
    assert not hasattr(waiter, "context")


async def test_go_on_runs_the_tasks_at_once() -> None:
    desk = Desk(3)
    await asyncio.sleep(0)
    for waiter in desk.waiters:
        waiter.settled = True
    ran = desk.loop.create_future()

    def read() -> None:
        go_on(desk.waiters, finished(desk.loop))
        ran.set_result(list(desk.seen))

    desk.loop.call_soon(read)
    assert await ran == [0, 1, 2]
    await desk.end()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_a_task_that_ends_the_loop_does_not_keep_the_others_asleep(
    error: type[BaseException],
) -> None:
    seen: list[int] = []
    waiters: list[Waiter] = []
    loop = asyncio.new_event_loop()

    async def wait(number: int) -> None:
        waiters.append(Waiter(loop))
        await waiters[-1]
        seen.append(number)
        if number == 1:
            raise error

    async def turn() -> None:
        await asyncio.sleep(0)

    try:
        tasks = [loop.create_task(wait(number)) for number in range(4)]
        loop.run_until_complete(turn())
        for waiter in waiters:
            waiter.settled = True
        loop.call_soon(go_on, waiters, finished(loop))
        with pytest.raises(error):
            loop.run_until_complete(turn())
        assert seen == [0, 1]
        loop.run_until_complete(turn())
        assert seen == [0, 1, 2, 3]
        assert isinstance(tasks[1].exception(), error)
    finally:
        loop.close()


async def test_nothing_of_it_is_left() -> None:
    gc.collect()
    gc.disable()
    try:
        desk = Desk(2)
        await asyncio.sleep(0)
        waiters = [weakref.ref(waiter) for waiter in desk.waiters]
        tasks = [weakref.ref(task) for task in desk.tasks]
        desk.answer()
        while desk.tasks:
            await desk.tasks.pop()
        del desk
        await asyncio.sleep(0)  # the call that woke this one refers to a task, too
        assert [each() for each in waiters + tasks] == [None] * 4
    finally:
        gc.enable()
