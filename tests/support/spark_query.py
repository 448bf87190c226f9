"""Runs a streaming reader the way Spark does, without Spark: the order of calls, and a checkpoint.

Spark takes seconds for what is done here in milliseconds, so it is left for tests that are about
Spark itself.
"""

from __future__ import annotations

import pickle
import time
from typing import Any

from jetspark.spark.schema import stream_schema
from jetspark.spark.sources import JetStreamSource

__all__ = ["Query", "read_all"]

Offsets = dict[str, int]


def read_all(reader: Any, partitions: list[Any]) -> list[int]:
    """The payloads of the partitions, which are numbers, read as executors would."""
    numbers = []
    for partition in partitions:
        there = pickle.loads(pickle.dumps(reader))
        for batch in there.read(pickle.loads(pickle.dumps(partition))):
            numbers += [int(data) for data in batch.column("data").to_pylist()]
    return numbers


class Query:
    """A streaming query, which can be ended at any moment as if the driver had died."""

    def __init__(self, **options: Any) -> None:
        self.options = {name: str(value) for name, value in options.items()}
        self.committed: Offsets | None = None  # in the checkpoint
        self.planned: Offsets | None = None  # a batch in the checkpoint that is not committed
        self.rows: list[list[int]] = []  # of each committed batch
        self._reader: Any = None

    @property
    def reader(self) -> Any:
        """That of the driver, which is started if it does not run."""
        if self._reader is None:
            source = JetStreamSource(self.options)
            self._reader = source.streamReader(stream_schema(headers=True))
        return self._reader

    def die(self) -> None:
        """End the driver; only the checkpoint is left."""
        if self._reader is not None:
            self._reader.stop()  # it would stop waiting
            self._reader = None

    def plan(self) -> bool:
        """Plan the next batch; False if there is nothing."""
        reader = self.reader
        limit = reader.getDefaultReadLimit()
        if self.planned is None:
            if self.committed is None:
                self.committed = reader.initialOffset()
            end = reader.latestOffset(self.committed, limit)
            if end == self.committed:
                return False
            self.planned = end
        return True

    def wait_and_plan(self) -> None:
        """Plan the next batch as soon as there is one: the reader hears of it a moment later."""
        end = time.monotonic() + 60
        while not self.plan():
            assert time.monotonic() < end, "there is nothing to plan"
            time.sleep(0.01)

    def read(self) -> list[int]:
        """The rows of the batch that is planned."""
        return read_all(self.reader, self.reader.partitions(self.committed, self.planned))

    def commit(self) -> None:
        """Read the batch that is planned, and commit it."""
        self.rows.append(self.read())
        self.committed, self.planned = self.planned, None

    def run(self) -> list[int]:
        """All batches until there is nothing more; returns the rows since the query was created."""
        while self.plan():
            self.commit()
        return [number for batch in self.rows for number in batch]
