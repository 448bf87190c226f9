"""Tasks that wait for an answer, woken many at a time.

The loop makes a call of its own for every asyncio future that is done. When one read brings answers
for many tasks, these calls are a good part of the work; here, one wakes all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextvars import Context
from typing import Any, TypeVar

__all__ = ["Waiter", "wake_all"]

T = TypeVar("T")


class Waiter(asyncio.Future[T]):
    """A future for one task, which awaits it as soon as it is made.

    Whoever sets the result or an exception wakes the task afterwards, with `wake` or `wake_all`.
    """

    __slots__ = ("_task_context", "_task_wakeup")

    def add_done_callback(
        self, fn: Callable[[Any], object], /, *, context: Context | None = None
    ) -> None:
        """Note how the task is woken."""
        self._task_wakeup = fn
        self._task_context = context

    def cancel(self, msg: Any | None = None) -> bool:
        """Have the task cancelled, unless it is being woken already."""
        if not super().cancel(msg):
            return False
        self.wake()
        return True

    def wake(self) -> None:
        """Wake the task alone."""
        self.get_loop().call_soon(self._task_wakeup, self, context=self._task_context)


def wake_all(loop: asyncio.AbstractEventLoop, waiters: list[Waiter[Any]]) -> None:
    """Wake the tasks of all of these, in their order."""
    loop.call_soon(_go_on, loop, waiters)


def _go_on(loop: asyncio.AbstractEventLoop, waiters: Iterable[Waiter[Any]]) -> None:
    rest = iter(waiters)
    try:
        for waiter in rest:
            waiter._task_context.run(waiter._task_wakeup, waiter)  # type: ignore[union-attr]
    except BaseException:  # one of them ends the loop, which may be run again
        wake_all(loop, list(rest))
        raise
