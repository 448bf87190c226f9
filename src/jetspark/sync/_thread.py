"""The thread that runs the event loop, and how other threads have it make a call.

There is one of it in a process, shared by all connections. It runs while a connection is open or a
call is made, and ends when neither is the case; the loop itself stays, because everything that was
made in it belongs to it. A call on a closed connection thus finds what it would find in asyncio.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import selectors
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from jetspark.errors import ConnectionClosedError, JetSparkError

from ._callbacks import Call, Workers, current_job

__all__ = ["LoopThread", "loop_thread"]

T = TypeVar("T")

EXIT_TIMEOUT = 2.0  # seconds that the end of the interpreter may wait for connections to close
SETTLE_TIMEOUT = 5.0
HELPER = "jetspark helper"
HELPER_TIMEOUT = 0.2


class LoopThread:
    """An event loop in a thread, for callers in other threads."""

    def __init__(self) -> None:
        self.loop = _new_loop()
        self.workers = Workers(self.loop)
        self.forked = False  # we are in a child, and the thread stayed with the parent
        self._users: set[object] = set()  # open connections, and calls that are being made
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._tasks: set[asyncio.Task[None]] = set()
        self._closers: dict[object, Callable[[], Coroutine[Any, Any, object]]] = {}

    # -- calls ----------------------------------------------------------------------------------

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Have the loop run a coroutine and wait for what it returns or raises.

        If the wait is interrupted (Ctrl-C), the coroutine is cancelled and has ended when the
        interrupt is raised.
        """
        # An interrupt may come at any step, also when the call has already ended.
        try:
            try:
                self.check_caller()
                self.enter(coroutine)
                call = Call(coroutine, self.loop)
                job = current_job()
            except BaseException:
                coroutine.close()
                raise
            try:
                self.loop.call_soon_threadsafe(call.start if job is None else job.offer, call)
                call.wait()
            except BaseException:
                self.loop.call_soon_threadsafe(call.cancel)
                call.wait()
                raise
        finally:
            self.leave(coroutine)
        return call.outcome()

    def call(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Have the loop call a plain function, which needs the loop or changes what it uses."""

        async def call() -> T:
            return function(*args, **kwargs)

        return self.run(call())

    def post(self, function: Callable[[], object]) -> None:
        """Have the loop call a function, after whatever this thread asked for before."""
        self.loop.call_soon_threadsafe(function)

    def start_task(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine beside everything else, in the loop; at most until the thread ends."""
        task = self.loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def check_caller(self) -> None:
        """Refuse a call that would never end."""
        if self.forked:
            raise ConnectionClosedError(
                "the connection was made before this process was forked and belongs to the "
                "parent; connect again in the child"
            )
        thread = self._thread
        if thread is not None and thread.ident == threading.get_ident():
            raise JetSparkError(
                "a blocking call in the thread of the event loop would wait for itself; handlers "
                "such as on_event and on_warning must hand such work to another thread"
            )

    # -- life -----------------------------------------------------------------------------------

    def enter(self, user: object) -> None:
        """Keep the thread running until the user's `leave`."""
        with self._lock:
            if self.loop.is_closed():
                raise ConnectionClosedError("all connections are closed: the interpreter is ending")
            self._users.add(user)
            if self._thread is None:
                self._thread = threading.Thread(target=self._main, name="jetspark", daemon=True)
                self._thread.start()
            elif len(self._users) == 1:
                self._changed.notify_all()  # it was about to end

    def leave(self, user: object) -> None:
        """Let the thread end if nobody else needs it; returns when it has."""
        if user not in self._users:  # it could not enter; a fork may have left the lock locked
            return
        with self._lock:
            self._users.discard(user)
            thread = self._thread
            if self._users or thread is None:
                return
            self.loop.call_soon_threadsafe(self.loop.stop)
            if thread.ident == threading.get_ident():
                return
            while self._thread is thread and not self._users:
                self._changed.wait()
            if self._thread is thread:
                return
        thread.join()

    def opened(self, connection: object, close: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run until a connection is closed, or close it at the end of the interpreter."""
        self._closers[connection] = close
        self.enter(connection)

    def closed(self, connection: object) -> None:
        """Note the end of a connection, in the loop."""
        if self._closers.pop(connection, None) is not None:
            self.leave(connection)

    def _main(self) -> None:
        loop = self.loop
        while True:
            helpers = ThreadPoolExecutor(thread_name_prefix=HELPER)
            loop.set_default_executor(helpers)
            loop.run_forever()
            loop.run_until_complete(self._settle())
            helpers.shutdown(wait=False, cancel_futures=True)
            for thread in threading.enumerate():
                if thread.name.startswith(HELPER):
                    thread.join(HELPER_TIMEOUT)  # one may still look up the name of a host
            with self._lock:
                if not self._users:
                    self._thread = None
                    self._changed.notify_all()
                    return

    async def _settle(self) -> None:
        """Let what has ended go; no connection is open, so nothing else is of use to anybody."""
        await asyncio.sleep(0)
        if self._users:
            return
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=SETTLE_TIMEOUT)
        self.workers.retire()

    def shut_down(self) -> None:
        """Close what is open, at the end of the interpreter, but do not wait long for it."""
        thread = self._thread
        if thread is not None:
            for close in list(self._closers.values()):
                call = Call(close(), self.loop)
                self.loop.call_soon_threadsafe(call.start, call)
                if not call.wait(EXIT_TIMEOUT):
                    return
            thread.join(EXIT_TIMEOUT)
        with self._lock:
            if self._thread is None:
                self.loop.close()


def _new_loop() -> asyncio.AbstractEventLoop:
    # The sockets that poll watches are known to the process alone, those of epoll to the children
    # of a fork, too: one that ends would take them away from the parent.
    if hasattr(selectors, "PollSelector"):
        return asyncio.SelectorEventLoop(selectors.PollSelector())
    return asyncio.new_event_loop()


_current: LoopThread | None = None
_current_lock = threading.Lock()


def loop_thread() -> LoopThread:
    """The one of this process."""
    global _current
    with _current_lock:
        if _current is None:
            _current = LoopThread()
        return _current


def _after_fork() -> None:
    global _current, _current_lock
    if _current is not None:
        _current.forked = True
        if not _current.loop.is_running():  # else it is no longer known what it was about to do
            _current.loop.close()
    _current = None
    _current_lock = threading.Lock()


def _at_exit() -> None:
    if _current is not None:
        _current.shut_down()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
