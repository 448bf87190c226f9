"""Iterators over what arrives in the event loop; many items cross to the thread at a time.

`Feed` is for objects of the async API that are iterated over themselves: messages that wait are
taken together, and are in hand until the application has seen them. `Items` is for plain async
iterators, of which some items are taken ahead.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, ClassVar, Generic, Self, TypeVar

from jetspark.errors import ConnectionClosedError, JetSparkError, TimeoutError

from ._base import Wrapper
from ._thread import LoopThread

__all__ = ["Feed", "Items"]

T = TypeVar("T")
R = TypeVar("R")

HAND = 512
AHEAD = 256


class Feed(Wrapper, Generic[T]):
    """The blocking front of an object that is iterated over. Several threads may do that."""

    _item: ClassVar[Any] = None  # makes a blocking object of an item
    _most = 1  # items that may be in hand

    def __init__(self, wrapped: Any, thread: LoopThread) -> None:
        super().__init__(wrapped, thread)
        self._hand: deque[T] = deque()
        # Takes the first of them, or raises IndexError. It is iterated over: behind a call, an
        # interrupt may be raised before the item is anywhere.
        self._taken = map(deque.popleft, itertools.repeat(self._hand))
        # Held by the thread that waits for the next items; a signal handler may ask for them, too.
        self._turn = threading.RLock()
        self._marked = False  # the async object has been told of what is in hand
        self._failure: JetSparkError | None = None  # that came behind what is in hand

    def __iter__(self) -> Self:
        self._thread.call(self._async.__aiter__)
        return self

    def __next__(self) -> T:
        return self._first(self._refill)

    def _first(self, arrive: Callable[[], bool]) -> T:
        """The first item in hand, where one has to arrive if there is none."""
        while True:
            try:
                for item in self._taken:
                    if self._marked:
                        try:
                            self._mark()
                        except BaseException:
                            self._hand.appendleft(item)
                            raise
                    return item
            except IndexError:
                pass
            if not arrive():
                raise StopIteration

    def _refill(self) -> bool:
        """Wait for items, unless another thread has done it; False at the end."""
        self._thread.check_caller()  # before the lock, which a fork may have left locked
        with self._turn:
            if self._hand:
                return True
            self._raise_failure()
            return self._thread.run(self._take())

    def _next(self, take: Callable[[float | None], Coroutine[Any, Any, Any]], wait: Any) -> Any:
        """The next item: that in hand, or the one that the `next` of the async object gives."""
        self._thread.check_caller()
        end = None if wait is None else time.monotonic() + wait
        left = wait

        def arrive() -> bool:
            nonlocal left
            patience = -1 if left is None else min(max(left, 0), threading.TIMEOUT_MAX)
            try:
                if not self._turn.acquire(blocking=False):
                    if not self._turn.acquire(timeout=patience):
                        raise TimeoutError(
                            f"no message in {wait} s: another thread waits for the next one, too",
                            may_have_taken_effect=False,
                        )
                    left = None if end is None else max(end - time.monotonic(), 0)
                if not self._hand:
                    self._raise_failure()
                    # It comes into the hand: an interrupt would lose it on its way to here.
                    self._thread.run(self._take_one(take, left))
            finally:
                # An interrupt may come when it has just been acquired, or just not.
                with contextlib.suppress(RuntimeError):
                    self._turn.release()
            left = None if end is None else max(end - time.monotonic(), 0)
            return True

        return self._first(arrive)

    def _raise_failure(self) -> None:
        error, self._failure = self._failure, None
        if error is not None:
            raise error

    async def _take(self) -> bool:
        """Fill the hand with what waits, at least one item; False at the end."""
        source = self._async
        try:
            taken = [await source.__anext__()]
        except StopAsyncIteration:
            return False
        # Who asks for more than the last message of a subscription that has ended may thereby
        # delete its consumer, which the messages in hand still need for their acknowledgements.
        alone = getattr(source, "_owns_consumer", False) and source._ended
        while len(taken) < self._most and not alone and taken[-1] is not None:
            step = source.__anext__()
            try:
                step.send(None)
            except StopIteration as result:
                taken.append(result.value)
            except StopAsyncIteration:
                break  # it will be raised again
            except JetSparkError as error:
                self._failure = error
                break
            else:
                step.close()  # it would have to wait
                break
        self._receive(taken)
        return True

    async def _take_one(
        self, take: Callable[[float | None], Coroutine[Any, Any, Any]], timeout: float | None
    ) -> None:
        """Take the next item by the `next` of the async object."""
        self._receive([await take(timeout)])

    def _receive(self, taken: list[Any]) -> None:
        """Put items into the hand."""
        source, make = self._async, self._item
        if self._most > 1 and hasattr(source, "client"):
            source.client.feeds.add(self)
        self._hand.extend(taken if make is None else [make(each, self._thread) for each in taken])
        if self._most > 1 and hasattr(source, "_discarded_at"):  # an ordered consumer
            self._marked = True
            self._mark()

    def _mark(self) -> None:
        """Have the next iteration of an ordered consumer begin with what is in hand.

        While this one goes on, there is no next one, and nobody looks.
        """
        source = self._async
        try:
            following: Any = self._hand[0]
        except IndexError:
            source._discarded_at = None
            self._marked = False
        else:
            if source._ended:
                source._discarded_at = following.metadata.stream_sequence

    def _stop(self, stop: Coroutine[Any, Any, R]) -> R:
        """Stop the async object, and drop what is in hand."""
        try:
            return self._thread.run(self._stop_and_drop(stop))
        finally:
            stop.close()  # if the call was refused

    async def _stop_and_drop(self, stop: Coroutine[Any, Any, R]) -> R:
        unseen: list[Any] = list(self._hand)
        self._hand.clear()
        self._failure = None
        marked, self._marked = self._marked, False
        try:
            return await stop
        finally:
            if marked and unseen:
                self._async._discarded_at = unseen[0].metadata.stream_sequence

    def _enter(self) -> None:
        """Begin at the start of a `with` block."""
        try:
            self._thread.run(self._async.__aenter__())
        except Exception:
            raise
        except BaseException:  # an interrupt, and perhaps it has begun: the end is not reached
            self._exit(None, None, None)
            raise

    def _exit(self, *exc_info: Any) -> None:
        """Stop it at the end of a `with` block."""
        self._thread.finish(lambda: self._stop_and_drop(self._async.__aexit__(*exc_info)))

    def _drain(self, drain: Coroutine[Any, Any, R]) -> R:
        """Drain the async object; what is in hand can be taken like the rest."""
        try:
            return self._thread.run(drain)
        finally:
            if self._marked:
                self._mark()


class Items(Generic[T]):
    """A plain iterator over an async one.

    Up to so many items are taken from it before they are asked for, and more only when all of
    those are gone.
    """

    def __init__(
        self,
        thread: LoopThread,
        source: AsyncIterator[Any],
        item: Callable[[Any], T] | None = None,
        ahead: int = AHEAD,
    ) -> None:
        self._thread = thread
        self._item = item
        self._pump = _Pump(source, ahead)
        # Not needed at the end of the iteration: an interrupt that comes in it would be lost.
        self._finalizer = weakref.finalize(self, _abandon, thread, self._pump)
        self._finalizer.atexit = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        pump = self._pump
        while True:
            try:
                value = pump.items.popleft()
            except IndexError:
                pass
            else:
                return value if self._item is None else self._item(value)
            if not self._thread.run(pump.more()):
                self._finalizer.detach()
                raise StopIteration

    def close(self) -> None:
        """End the iteration now, instead of when nobody refers to it any more."""
        self._thread.finish(self._pump.close)
        self._finalizer.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class _Pump:
    """Takes items from an async iterator, in the loop."""

    def __init__(self, source: AsyncIterator[Any], most: int) -> None:
        self.items: deque[Any] = deque()
        self._source = source
        self._most = most
        self._task: asyncio.Task[None] | None = None
        self._arrived = asyncio.Event()
        self._wanted = asyncio.Event()
        self._ended = False
        self._error: BaseException | None = None

    async def more(self) -> bool:
        """Wait until there are items; False at the end."""
        while not self.items:
            if self._ended:
                if self._error is not None:
                    raise self._error
                return False
            if self._task is None:
                self._task = asyncio.create_task(self._run(), name="jetspark iterator")
            self._arrived.clear()
            self._wanted.set()
            await self._arrived.wait()
        return True

    async def _run(self) -> None:
        try:
            async for item in self._source:
                self.items.append(item)
                self._arrived.set()
                if len(self.items) >= self._most:
                    self._wanted.clear()
                    await self._wanted.wait()
        except asyncio.CancelledError:
            if not self._ended:
                self._error = ConnectionClosedError("the iteration ended with its connection")
            raise
        except BaseException as error:
            self._error = error
        finally:
            self._ended = True
            self._arrived.set()
            if hasattr(self._source, "aclose"):
                await self._source.aclose()

    def cancel(self) -> None:
        """End it, whatever it waits for."""
        self._ended = True
        self._arrived.set()
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """End it and wait until it has let go of what it holds."""
        self.cancel()
        self.items.clear()
        if self._task is not None:
            await asyncio.wait([self._task])


def _abandon(thread: LoopThread, pump: _Pump) -> None:
    if not (thread.forked or thread.loop.is_closed()):
        thread.post(pump.cancel)
