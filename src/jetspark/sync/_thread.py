"""The thread that runs the event loop, and how other threads have it make a call.

There is one of it in a process, shared by all connections. It runs while a connection is open or a
call is made, and ends when neither is the case; the loop itself stays, because everything that was
made in it belongs to it. A call on a closed connection thus finds what it would find in asyncio.

A signal handler may make a call, too, in the middle of one of the thread that it interrupts. So no
lock is held here by anybody who uses the loop.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import selectors
import threading
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, Protocol, TypeVar

from jetspark.errors import ConnectionClosedError, JetSparkError

from ._callbacks import Call, Helpers, Workers, current_job, forget_job, is_worker

__all__ = ["LoopThread", "loop_thread"]

T = TypeVar("T")

log = logging.getLogger("jetspark")

DONE_CALLBACKS = 32  # of futures, that run at the same time
EXIT_TIMEOUT = 2.0  # seconds that the end of the interpreter may wait for connections to close
SETTLE_TIMEOUT = 5.0
HELPER_TIMEOUT = 0.2


class Connection(Protocol):
    """What the thread has to know of a connection."""

    def empty_outbox(self) -> None:
        """Send what was put there."""

    async def close(self) -> None:
        """Close it."""


class LoopThread:
    """An event loop in a thread, for callers in other threads."""

    def __init__(self) -> None:
        self.loop = _new_loop()
        self.workers = Workers(self.loop, "jetspark callback")
        self.done_workers = Workers(self.loop, "jetspark callback", DONE_CALLBACKS)
        self.forked = False  # we are in a child, and the thread stayed with the parent
        self._exited = False  # the interpreter is ending
        self._helpers = Workers(self.loop, "jetspark helper")
        self.loop.set_default_executor(Helpers(self._helpers))
        self._users: set[object] = set()  # open connections, and calls that are being made
        self._connections: dict[Connection, None] = {}  # those that are open
        self._running = threading.Lock()  # held by the thread that runs the loop
        self._thread: threading.Thread | None = None  # the same
        self._stopped = False  # it will end
        self._tasks: set[asyncio.Task[None]] = set()

    # -- calls ----------------------------------------------------------------------------------

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Have the loop run a coroutine and wait for what it returns or raises.

        If the wait is interrupted (Ctrl-C), the coroutine is cancelled and has ended when the
        interrupt is raised.
        """
        call = Call(coroutine, self.loop, self._release)
        # An interrupt may come at any step, also when the call has already ended.
        try:
            self.check_caller()
            job = current_job()
            self._enter(call)
            self.loop.call_soon_threadsafe(
                self._begin, call.start if job is None else job.offer, call
            )
            self._wait(call)
        except BaseException:
            if call in self._users:
                self.loop.call_soon_threadsafe(call.cancel)
                self._wait(call)
            coroutine.close()  # if it never began
            raise
        return call.outcome()

    def _wait(self, call: Call[Any]) -> None:
        call.wait()
        # Not in a worker: that thread may wait for the end of this one.
        if call.ending is not None and not is_worker():
            call.ending.join()

    @property
    def ended(self) -> bool:
        """Whether no call can be made any more, and nothing is left that could be ended."""
        return self.forked or self._exited

    def finish(self, function: Callable[..., Coroutine[Any, Any, object]], *args: Any) -> None:
        """Have the loop run what ends something, if that is still there.

        It begins in any case: the interrupt of a call that the loop has not heard of yet comes to
        it at its first step. An object may also be collected, and end something, in the loop
        itself, where nobody can wait for it.
        """
        begun = False

        async def end() -> None:
            nonlocal begun
            begun = True
            await function(*args)

        async def end_alone() -> None:
            try:
                await end()
            except Exception:
                log.exception("what an object that was collected should have ended is still there")

        try:
            if self.ended:
                return
            if self._is_here():
                self._start_call(end_alone())
            else:
                self.run(end())
        except BaseException:
            if not begun:
                self.run(_begin_and_cancel(end))
            raise

    def call(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Have the loop call a plain function, which needs the loop or changes what it uses."""

        async def call() -> T:
            return function(*args, **kwargs)

        return self.run(call())

    def post(self, function: Callable[[], object]) -> None:
        """Have the loop call a function, after whatever this thread asked for before."""
        self.loop.call_soon_threadsafe(function)

    def _begin(self, begin: Callable[[Call[Any]], None], call: Call[Any]) -> None:
        """Begin a call, in the loop, behind what was published before it."""
        for connection in list(self._connections):
            connection.empty_outbox()
        begin(call)

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
        if self._exited:
            raise ConnectionClosedError("all connections are closed: the interpreter is ending")
        if self._is_here():
            raise JetSparkError(
                "a blocking call in the thread of the event loop would wait for itself; handlers "
                "such as on_event and on_warning must hand such work to another thread"
            )

    def _is_here(self) -> bool:
        """Whether the caller is in the thread of the loop."""
        thread = self._thread
        return thread is not None and thread.ident == threading.get_ident()

    def _start_call(self, coroutine: Coroutine[Any, Any, object]) -> Call[object]:
        """Have the loop run a coroutine that is not waited for, or not for long."""
        call = Call(coroutine, self.loop, self._release)
        self._users.add(call)
        self.loop.call_soon_threadsafe(self._begin, call.start, call)
        return call

    # -- life -----------------------------------------------------------------------------------

    def _enter(self, user: object) -> None:
        """Keep the thread running until the user's `_release`."""
        try:
            self._users.add(user)
            # Who comes just before it is None is seen by that thread, see _main.
            if self._thread is None:
                self._start()
        except BaseException:  # an interrupt, and perhaps it runs for nobody
            self._users.discard(user)
            self.loop.call_soon_threadsafe(self._stop_if_unused)
            raise

    def _start(self) -> None:
        threading.Thread(target=self._main, name="jetspark", daemon=True).start()

    def _release(self, user: object) -> threading.Thread | None:
        """Let the thread end if nobody else needs it, in the loop; returns it if it ends now."""
        self._users.discard(user)
        self._stop_if_unused()
        return self._thread if self._stopped and not self._users else None

    def _stop_if_unused(self) -> None:
        if not self._users and not self._stopped:
            self._stopped = True
            self.loop.stop()

    def opened(self, connection: Connection) -> None:
        """Run until a connection is closed, in the loop; or close it as the interpreter ends."""
        self._connections[connection] = None
        self._users.add(connection)

    def closed(self, connection: Connection) -> None:
        """Note the end of a connection, in the loop."""
        if connection in self._connections:
            del self._connections[connection]
            self._release(connection)

    def _main(self) -> None:
        # Several threads may have been started at the same time: one of them runs the loop.
        if not self._running.acquire(blocking=False):
            return
        try:
            if self._users:
                self._thread = threading.current_thread()
                self._run_loop()
        finally:
            self._thread = None
            self._running.release()
        if self._users:  # they came when it was about to end, and relied on it
            self._start()

    def _run_loop(self) -> None:
        loop = self.loop
        self._stopped = False
        while not self._stopped:
            try:
                loop.run_forever()
            except (KeyboardInterrupt, SystemExit) as error:
                # Something that the client was given has raised it. Whoever waits is told; the
                # others shall not wait for ever.
                log.error("%r was raised in the event loop, which goes on", error)
        loop.run_until_complete(self._settle())
        self.workers.retire()
        self.done_workers.retire()
        self._helpers.retire(HELPER_TIMEOUT)  # one may still look up the name of a host

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

    def shut_down(self) -> None:
        """Close what is open, at the end of the interpreter, but do not wait long for it."""
        thread = self._thread
        try:
            if thread is not None:
                for connection in list(self._connections):
                    if not self._start_call(connection.close()).wait(EXIT_TIMEOUT):
                        return
                thread.join(EXIT_TIMEOUT)
        finally:
            self._exited = True
        if self._thread is None and self._running.acquire(blocking=False):
            self.loop.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("what belongs to a connection cannot be pickled or copied deeply")


async def _begin_and_cancel(function: Callable[[], Coroutine[Any, Any, object]]) -> None:
    task = asyncio.create_task(function())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()  # the interrupt is raised instead


def _new_loop() -> asyncio.AbstractEventLoop:
    # The sockets that poll watches are known to the process alone, those of epoll to the children
    # of a fork, too: one that ends would take them away from the parent.
    if hasattr(selectors, "PollSelector"):
        return asyncio.SelectorEventLoop(selectors.PollSelector())
    return asyncio.new_event_loop()


_of_process: list[LoopThread] = []  # none or one, or some for a moment: then it is the first


def loop_thread() -> LoopThread:
    """The one of this process."""
    # A lock would be one that a signal handler may wait for.
    if not _of_process:
        made = LoopThread()
        _of_process.append(made)
        if _of_process[0] is not made:  # another thread was faster, or a signal handler
            _of_process.remove(made)
            made.loop.close()
    return _of_process[0]


def _after_fork() -> None:
    for thread in _of_process:
        thread.forked = True
        if not thread.loop.is_running():  # else it is no longer known what it was about to do
            thread.loop.close()
    _of_process.clear()
    forget_job()


def _at_exit() -> None:
    for thread in _of_process:
        thread.shut_down()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
