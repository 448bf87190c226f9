"""Tasks that wait for an answer, woken many at a time.

The loop makes a call of its own for every asyncio future that is done, and a future is done only
once. When one read brings answers for many tasks, that is a good part of the work. A `Waiter` is a
future as far as a task can see, and leaves to others when the task goes on: see
`Connection.answered`. It may be awaited again and again.

What is called for every message awaits it without a call: it is a generator with `types.coroutine`
that has the four lines of `Waiter.__await__` in its own place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable
from contextvars import Context
from typing import Any

__all__ = ["Waiter", "finished", "go_on"]


class Waiter:
    """What one task waits for.

    Whoever settles it wakes the task: with `fail`, or by setting `settled`, which is an answer, and
    `wake` or `go_on` afterwards. What the answer is, they tell the task otherwise.
    """

    # The names with one underscore in front, and the methods below, are what asyncio asks for.
    __slots__ = ("_asyncio_future_blocking", "_loop", "context", "error", "settled", "wakeup")

    in_bursts = False  # answers come many at a time, see `lookout`

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._asyncio_future_blocking = False  # it has just been awaited
        self._loop = loop
        self.settled = False  # by an answer or an error, and the task does not know yet
        self.error: BaseException | None = None
        self.wakeup: Callable[[Waiter | asyncio.Future[None]], object]  # of the task
        self.context: Context | None  # in which it runs

    def __await__(self) -> Generator[Waiter, None, None]:
        self._asyncio_future_blocking = True
        yield self
        del self.wakeup, self.context  # until it is awaited again
        self.settled = False

    def add_done_callback(
        self, fn: Callable[[Any], object], /, *, context: Context | None = None
    ) -> None:
        """Note how the task is woken; called by the task."""
        self.wakeup = fn
        self.context = context

    def result(self) -> None:
        """Raise what it failed with; called by the task."""
        if self.error is not None:
            error, self.error = self.error, None
            try:
                raise error
            finally:
                del error  # or its traceback would lead back to it

    def cancel(self, msg: Any | None = None) -> bool:
        """Have the task cancelled, unless it is being woken already; called by the task."""
        if self.settled:
            return False
        self.fail(asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg))
        return True

    def fail(self, error: BaseException) -> None:
        """Have the task see an error; a waiter that has failed is not used again."""
        self.error = error
        self.settled = True
        self.wake()

    def wake(self) -> None:
        """Wake the task alone."""
        self._loop.call_soon(self.wakeup, self, context=self.context)


def finished(loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
    """A future that is done, for `go_on`."""
    done = loop.create_future()
    done.set_result(None)
    return done


def go_on(waiters: Iterable[Waiter], done: asyncio.Future[None]) -> None:
    """Run the tasks of all of these in their order, each until it waits again.

    They must be settled by answers, and this must be called by the loop, not by a task. The tasks
    are told of a future that is done, because they look at one of asyncio's own without a call.
    """
    rest = iter(waiters)
    try:
        for waiter in rest:
            waiter.context.run(waiter.wakeup, done)  # type: ignore[union-attr]
    except BaseException:  # one of them ends the loop, which may be run again
        done.get_loop().call_soon(go_on, list(rest), done)
        raise
