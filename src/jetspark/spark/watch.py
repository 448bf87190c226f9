"""Waiting for the next message of a stream, at the cost of a request every half a minute."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Self

from jetspark.errors import DisconnectedError, JetSparkError
from jetspark.jetstream import (
    AckPolicy,
    DeliverPolicy,
    PullConsumer,
    RetentionPolicy,
    Stream,
)

__all__ = ["Watch"]

EXPIRES = 30.0  # seconds of one request
KEPT = 90.0  # seconds that the server keeps the consumer of a driver that has vanished
POLL = 0.25  # seconds between two looks at a stream that allows no such consumer


class Watch:
    """Quiet as long as a stream has no message of the subjects from a certain sequence on."""

    def __init__(self) -> None:
        self.quiet = True
        self.since = time.monotonic()
        self._task: asyncio.Task[None]

    @classmethod
    async def start(cls, stream: Stream, first: int, subjects: tuple[str, ...] = ()) -> Self:
        """Begin to wait; when it returns, no message can be missed any more."""
        watch = cls()
        consumer = None
        # A queue would keep messages for one more consumer, or refuse it.
        if stream.config.retention == RetentionPolicy.LIMITS:
            consumer = await watch._consumer(stream, first, subjects)
        watch._task = asyncio.create_task(watch._wait(consumer), name="jetspark spark watch")
        return watch

    async def _consumer(
        self, stream: Stream, first: int, subjects: tuple[str, ...]
    ) -> PullConsumer | None:
        try:
            return await stream.create_consumer(
                filter_subjects=subjects,
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=first,
                ack_policy=AckPolicy.NONE,
                headers_only=True,
                mem_storage=True,
                num_replicas=1,
                inactive_threshold=KEPT,
            )
        except JetSparkError:
            return None  # the limit of consumers may be reached, or the permission missing

    async def _wait(self, consumer: PullConsumer | None) -> None:
        try:
            if consumer is not None:
                while not await consumer.fetch(max_messages=1, timeout=EXPIRES):
                    pass
            else:
                await asyncio.sleep(POLL)
        except DisconnectedError:
            pass  # nobody knows what happened meanwhile
        except JetSparkError:
            await asyncio.sleep(POLL)  # whatever it is, the stream is looked at, but not too often
        finally:
            self.quiet = False
            if consumer is not None:
                with contextlib.suppress(JetSparkError):
                    await consumer.delete()

    async def stop(self) -> None:
        """Wait no more."""
        self._task.cancel()
        await asyncio.wait([self._task])
