"""Calls into the event loop, and the callbacks of users, which run outside of it.

A callback runs in a worker thread, so it may block and may use the blocking API. The task that
would have run it in asyncio waits for it, and meanwhile makes the calls that it asks for. So a
callback is the same to everybody as in asyncio: messages come one after the other, and a callback
that ends its own subscription does not wait for itself.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from jetspark.errors import ConnectionClosedError, InvalidArgumentError, SubscriptionClosedError

__all__ = [
    "Call",
    "Helpers",
    "Job",
    "Workers",
    "check_callback",
    "current_job",
    "forget_job",
    "is_worker",
]

T = TypeVar("T")

_local = threading.local()

NOTICE = 0.5  # seconds until a signal is noticed that came just before a wait
NOT_PLAIN = "the callback must be a plain function; jetspark.connect is for async ones"


class Call(Generic[T]):
    """A coroutine that the loop runs for a thread, which waits for it."""

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, T],
        loop: asyncio.AbstractEventLoop,
        release: Callable[[Call[T]], threading.Thread | None],
    ) -> None:
        self.ending: threading.Thread | None = None  # the thread of the loop, if it ends with this
        self._coroutine = coroutine
        self._loop = loop
        self._release = release
        self._task: asyncio.Task[T] | None = None
        self._result: T
        self._error: BaseException | None = None
        self._ended = False
        self._end_lock = threading.Lock()  # held until then
        self._end_lock.acquire()

    def wait(self, timeout: float = -1) -> bool:
        """Wait for the end, in the thread; False if it did not come in time."""
        # An interrupt may come when the lock has just been taken, and is then followed by a wait.
        if timeout >= 0:
            return self._ended or self._end_lock.acquire(timeout=timeout)
        # A signal that comes just before the lock is waited for does not end that wait.
        while not (self._ended or self._end_lock.acquire(timeout=NOTICE)):
            pass
        return True

    def outcome(self) -> T:
        """What came of it."""
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # it refers to this frame by its traceback
        return self._result

    # -- in the loop ----------------------------------------------------------------------------

    def start(self, _: object = None) -> None:
        """Run the coroutine in a task of its own."""
        self._task = self._loop.create_task(self._coroutine)
        self._task.add_done_callback(self._on_done)

    def cancel(self) -> None:
        """Give it up."""
        if self._ended:
            return
        if self._task is not None:
            self._task.cancel()
        else:  # the interrupt came before the loop heard of it
            self._coroutine.close()
            self._end(ConnectionClosedError("the call was interrupted"))

    def _on_done(self, task: asyncio.Task[T]) -> None:
        # The task has to go in this thread: an interrupt of another one that comes while asyncio
        # takes its leave of the task would be lost.
        self._task = None
        if task.cancelled():
            error = ConnectionClosedError("the call was given up, because its connection is closed")
            self._end(error)
        elif (failure := task.exception()) is not None:
            self._end(failure)
        else:
            self._result = task.result()
            self._end(None)

    async def drive(self) -> None:
        """Run the coroutine in the task of the caller."""
        try:
            self._result = await self._coroutine
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                self._end(
                    SubscriptionClosedError("the subscription of the callback has ended meanwhile")
                )
                raise
            self._end(error)
        except BaseException as error:
            self._end(error)
        else:
            self._end(None)

    def _end(self, error: BaseException | None) -> None:
        self._error = error
        self._ended = True
        self.ending = self._release(self)
        self._end_lock.release()


class Job:
    """One run of a callback in a worker, and the calls that it makes."""

    def __init__(self, function: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._function = function
        self._args = args
        self._call: Call[Any] | None = None  # that the callback waits for
        self._ended = False
        self._abandoned = False  # nobody waits for the end of it any more
        self._error: Exception | None = None
        self._news = asyncio.get_running_loop().create_future()

    def offer(self, call: Call[Any]) -> None:
        """Have a call made for the callback, in the loop."""
        if self._abandoned:
            call.start()
        else:
            self._call = call
            self._wake()

    async def run(self) -> None:
        """Wait for the end of the callback and make its calls; raises what it raises."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                await self._news
                self._news = loop.create_future()
                if self._ended:
                    break
                if self._call is not None:
                    call, self._call = self._call, None
                    await call.drive()
        except asyncio.CancelledError:
            self._abandoned = True
            if self._call is not None:
                self._call.start()
            raise
        if self._error is not None:
            raise self._error

    def work(self) -> None:
        """Call the callback, in the worker."""
        _local.job = self
        try:
            result = self._function(*self._args)
            if inspect.iscoroutine(result):
                result.close()
                raise InvalidArgumentError(NOT_PLAIN)
        except Exception as error:
            self._error = error
        except BaseException as error:  # it would end the loop
            self._error = RuntimeError(f"the callback raised {error!r}")
        finally:
            _local.job = None

    def end(self) -> None:
        """Note that it has ended, in the loop."""
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if not self._news.done():
            self._news.set_result(None)


def current_job() -> Job | None:
    """The callback that the current thread runs."""
    job: Job | None = getattr(_local, "job", None)
    return job


def is_worker() -> bool:
    """Whether the current thread is one of the workers."""
    return getattr(_local, "is_worker", False)


def forget_job() -> None:
    """Leave the callback to the parent, after a fork in it: its task is there."""
    _local.job = None


class Errand:
    """A function that blocks, and is therefore called in another thread than that of the loop."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.future: Future[Any] = Future()
        self._call = call

    def work(self) -> None:
        """Call it, in the worker."""
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            result = self._call()
        except StopIteration as error:  # which nobody can wait for
            failure = RuntimeError(f"{error!r} was raised where it ends no iteration")
            failure.__cause__ = error
            self.future.set_exception(failure)
        except BaseException as error:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)

    def end(self) -> None:
        """Do nothing: the future tells of it."""


class Workers:
    """Threads for callbacks or errands: as many as there are of them at the same time.

    Or at most so many; then the others wait.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str, most: int | None = None) -> None:
        self._loop = loop
        self._name = name
        self._most = most
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._waiting: deque[Job | Errand] = deque()

    async def run(self, function: Callable[..., object], *args: Any) -> None:
        """Run a callback and wait for its end."""
        job = Job(function, args)
        self.start(job)
        await job.run()

    def start(self, job: Job | Errand) -> None:
        """Have it done by a worker."""
        if self._idle:
            worker = self._idle.pop()
        elif self._most is None or len(self._all) < self._most:
            worker = _Worker(self._loop, self._name, self._idle, self._waiting)
            self._all.add(worker)
        else:
            self._waiting.append(job)
            return
        worker.jobs.put(job)

    def retire(self, patience: float = 0.0) -> None:
        """End the threads that are idle now, and the others when what they do has returned.

        Those have so many seconds to do so before this returns.
        """
        idle, self._idle = self._idle, []
        workers, self._all = self._all, set()
        waiting, self._waiting = self._waiting, deque()
        for worker in itertools.cycle(workers):
            if not waiting:
                break
            worker.jobs.put(waiting.popleft())
        for worker in workers:
            worker.jobs.put(None)
        for worker in workers:
            worker.thread.join(None if worker in idle else patience)


class Helpers(ThreadPoolExecutor):
    """What the loop uses for all that blocks: the names of hosts, files, the data of users.

    Other than those of the base class, these threads do not hold up the interpreter: one may read
    from a pipe that says nothing.
    """

    def __init__(self, workers: Workers) -> None:
        super().__init__()
        self._workers = workers

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call a function in a thread."""
        errand = Errand(functools.partial(fn, *args, **kwargs))
        self._workers.start(errand)
        return errand.future


class _Worker:
    """A thread that does one job after the other."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        idle: list[_Worker],
        waiting: deque[Job | Errand],
    ) -> None:
        self.jobs: SimpleQueue[Job | Errand | None] = SimpleQueue()
        self._loop = loop
        self._idle = idle
        self._waiting = waiting
        # A daemon, so that a callback that never returns does not hold up the interpreter.
        self.thread = threading.Thread(target=self._main, name=name, daemon=True)
        self.thread.start()

    def _main(self) -> None:
        _local.is_worker = True
        while (job := self.jobs.get()) is not None:
            job.work()
            if self._loop.is_closed():
                return
            self._loop.call_soon_threadsafe(self._on_end, job)
            del job  # or it would keep what it has read

    def _on_end(self, job: Job | Errand) -> None:
        if self._waiting:
            self.jobs.put(self._waiting.popleft())
        else:
            self._idle.append(self)
        job.end()


def check_callback(function: object) -> None:
    """Refuse what cannot be called from a thread."""
    if not callable(function):
        raise InvalidArgumentError(
            f"the callback must be a function, not {type(function).__name__}"
        )
    call = getattr(type(function), "__call__", None)  # noqa: B004 - of an object that has one
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call):
        raise InvalidArgumentError(NOT_PLAIN)
