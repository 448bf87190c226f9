"""The acknowledgement that a publisher may wait for."""

from __future__ import annotations

import logging
from collections.abc import Callable

from jetspark.connection.deadline import deadline
from jetspark.jetstream import PublishAck
from jetspark.jetstream import PublishAckFuture as AsyncPublishAckFuture

from ._base import Wrapper
from ._callbacks import check_callback

__all__ = ["PublishAckFuture"]

log = logging.getLogger("jetspark")


class PublishAckFuture(Wrapper):
    """The acknowledgement of a published message, to be waited for now, later or never.

    >>> future = js.publish_async("orders.new", b"a dozen eggs")  # doctest: +SKIP
    >>> ack = future.result(timeout=5)  # doctest: +SKIP

    Several threads may wait for it. Giving up does not take the message back.
    """

    _async: AsyncPublishAckFuture

    @property
    def subject(self) -> str:
        """The subject that the message was published to."""
        return self._async.subject

    def done(self) -> bool:
        """Whether the message is acknowledged or has failed."""
        return self._async.done()

    def result(self, timeout: float | None = None) -> PublishAck:
        """Wait for the acknowledgement; raises what the publish failed with.

        Raises `TimeoutError` if it is not known after `timeout` seconds.
        """

        async def result() -> PublishAck:
            await self._settled(timeout)
            return self._async.result()

        return self._thread.run(result())

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end, and return what the publish failed with, None if it is acknowledged.

        Raises `TimeoutError` if it is not known after `timeout` seconds.
        """

        async def exception() -> BaseException | None:
            await self._settled(timeout)
            return self._async.exception()

        return self._thread.run(exception())

    def add_done_callback(self, callback: Callable[[PublishAckFuture], object]) -> None:
        """Have a function called with the future when it is done, in a worker thread.

        Up to 32 run at the same time, the others wait. What one raises is logged.
        """
        check_callback(callback)
        self._thread.call(self._thread.start_task, self._call_when_done(callback))

    async def _settled(self, timeout: float | None) -> None:
        if self._async.done():
            return
        try:
            async with deadline(timeout, f"no acknowledgement from {self.subject!r}"):
                await self._async
        except Exception:
            if not self._async.done():
                raise

    async def _call_when_done(self, callback: Callable[[PublishAckFuture], object]) -> None:
        await self._settled(None)
        try:
            await self._thread.done_workers.run(callback, self)
        except Exception:
            log.exception("a callback of %r failed", self)
