"""The `jetstream` source in streaming queries on work queues, with a durable consumer.

Offsets are sequences of the stream here, too. Where a query begins without a checkpoint is what its
consumer has acknowledged. See `queue_consumer` for how the two work together.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from pyspark.sql.types import StructType

from jetspark.errors import CheckpointError
from jetspark.jetstream import Stream

from .queue_consumer import QueueConsumer
from .range_reader import ReadPlan
from .stream_options import ReadSettings
from .stream_reader import Offsets, StreamReader

__all__ = ["QueueReader"]


class QueueReader(StreamReader):
    """Follows streams, and acknowledges what is done."""

    def __init__(self, settings: ReadSettings, schema: StructType) -> None:
        super().__init__(settings, schema)
        self._consumers: dict[str, QueueConsumer] = {}

    async def _initial(self) -> Offsets:
        await self._open()
        for name, stream in self._streams.items():
            if name not in self._consumers:
                await self._admit(stream, create=True)
        return {name: await each.committed() for name, each in self._consumers.items()}

    async def _look(self, start: Offsets) -> Offsets:
        await self._acknowledge(start)  # what lies before the next batch has been committed
        return await super()._look(start)

    async def _acknowledge(self, start: Offsets) -> None:
        await self._open()
        self._check_streams(start, dict.fromkeys(self._streams, 0))
        # What comes first makes sure that nothing is acknowledged that nobody has read.
        for name, offset in start.items():
            await self._consumer(name).check_start(offset)
        await self._check_ends(start)
        for name, offset in start.items():
            await self._consumer(name).acknowledge(offset)

    def _consumer(self, name: str) -> QueueConsumer:
        try:
            return self._consumers[name]
        except KeyError:
            raise CheckpointError(
                f"there is no consumer {self._settings.consumer!r} of stream {name!r}, and the "
                "query has read with it before; was one of them deleted? Start the query with a "
                "new checkpoint"
            ) from None

    async def _admit(self, stream: Stream, *, create: bool = False) -> None:
        plan, name = self._settings.plan, self._settings.consumer
        assert name is not None
        consumer = await QueueConsumer.open(
            stream, name, plan.subjects, plan.stall_timeout, create=create
        )
        if consumer is not None:
            self._consumers[stream.name] = consumer

    def _plan(self, name: str) -> ReadPlan:
        consumer = self._consumers.get(name)
        subjects = self._settings.plan.subjects if consumer is None else consumer.subjects
        # What other consumers have done is no longer there, and was not for this one.
        return dataclasses.replace(
            self._settings.plan, subjects=subjects, asking=True, count_losses=not subjects
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_consumers": {}}
