"""Publishing without waiting: small plain messages do not cross to the loop one by one.

They are put into an outbox, which the loop empties when it gets to it. What the same thread asks
for afterwards comes after them.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Coroutine
from typing import Any, TypeVar

from jetspark.context import JetStream
from jetspark.errors import JetSparkError
from jetspark.jetstream import PublishAckFuture
from jetspark.protocol import SMALL

from ._thread import LoopThread

__all__ = ["publish_async", "publish_pending", "published"]

T = TypeVar("T")

OUTBOX = 1000  # messages, which are small


class _Outbox:
    """Messages on their way from threads to the ack window of a context."""

    def __init__(self, js: JetStream, thread: LoopThread) -> None:
        self.messages: deque[PublishAckFuture] = deque()
        self._client = js.client
        self._acks = js._acks
        self._thread = thread
        self._called = False  # to empty it
        self._pump: asyncio.Task[None] | None = None  # waits for room in the window

    # -- from any thread ------------------------------------------------------------------------

    def put(self, subject: str, data: object) -> PublishAckFuture | None:
        """Publish a message, if that can be done without waiting and is known to be possible."""
        acks, client = self._acks, self._client
        if (
            type(data) is not bytes
            or len(data) > SMALL
            or len(self.messages) >= OUTBOX
            or not acks.takes_later
            or self._thread.forked
        ):
            return None
        try:
            known = subject in client._prefixes and len(data) in client._sizes
        except TypeError:
            known = False
        if not known:
            return None
        attempts = acks.attempts
        expires = time.monotonic() + attempts.timeout  # the clock of the loop
        future = PublishAckFuture(subject, b"", data, None, expires, attempts)
        self.messages.append(future)
        if not self._called:
            self._called = True
            self._thread.post(self._empty)
        return future

    # -- in the loop ----------------------------------------------------------------------------

    def _empty(self) -> None:
        self._called = False  # first: a thread that sees it set relies on being seen below
        messages, acks = self.messages, self._acks
        if self._pump is not None:
            return
        while messages and acks.add_at_once(messages[0]):
            messages.popleft()
        if messages:
            self._pump = asyncio.get_running_loop().create_task(
                self._add_all(), name="jetspark outbox"
            )
            self._client._own(self._pump)

    async def _add_all(self) -> None:
        try:
            while self.messages:
                future = self.messages.popleft()
                try:
                    await self._acks.add(future)
                except JetSparkError as error:
                    self._acks.fail(future, error)
        finally:
            self._pump = None

    async def emptied(self) -> None:
        """Wait until all messages are in the window."""
        while self._pump is not None:
            await asyncio.wait([self._pump])


def _outbox_of(js: JetStream, thread: LoopThread) -> _Outbox:
    found: _Outbox | None = js.__dict__.get("_outbox")
    if found is None:
        found = js.__dict__.setdefault("_outbox", _Outbox(js, thread))
    return found


def publish_async(
    js: JetStream, thread: LoopThread, subject: str, data: Any, options: Any
) -> PublishAckFuture:
    """Publish a message, and wait only if there is no room for it."""
    outbox = _outbox_of(js, thread)
    future = None if options else outbox.put(subject, data)
    if future is None:
        future = published(js, thread, js.publish_async(subject, data, **options))
    return future


def published(js: JetStream, thread: LoopThread, call: Coroutine[Any, Any, T]) -> T:
    """Make a call after everything in the outbox, and wait for it."""
    outbox = _outbox_of(js, thread)

    async def after_outbox() -> T:
        try:
            await outbox.emptied()
        except BaseException:
            call.close()
            raise
        return await call

    return thread.run(after_outbox())


def publish_pending(js: JetStream, thread: LoopThread) -> int:
    """How many messages are without their acknowledgement."""
    return js.publish_async_pending + len(_outbox_of(js, thread).messages)
