"""A source and a sink that need no NATS, to know what a streaming query costs in any case.

The source has a row every so often by the clock alone, and knows its latest offset without asking
anybody: no Python source can be faster. Rows carry the time at which they came into being, and the
sink notes how old they are. Workers import this module, so it must be on their path.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

STAMP = struct.Struct("<d")


def stamped(moment: float, size: int) -> bytes:
    """A payload that tells when it was made."""
    return STAMP.pack(moment).ljust(size, b"x")


class ClockSource(DataSource):
    """Options: `begin` and `rate` say when rows come into being, `rows` and `size` what they are.

    The sink takes `ages`, a file.
    """

    @classmethod
    def name(cls) -> str:
        return "clock"

    def schema(self) -> str:
        return "data binary"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return ClockReader(dict(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return AgeWriter(self.options["ages"])


class ClockReader(DataSourceStreamReader):
    def __init__(self, options: dict[str, str]) -> None:
        self.begin = float(options["begin"])
        self.rate = float(options["rate"])
        self.rows = int(options["rows"])
        self.size = int(options["size"])

    def initialOffset(self) -> dict[str, int]:
        return {"row": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        due = int((time.time() - self.begin) * self.rate)
        return {"row": min(max(due, 0), self.rows)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition((start["row"], end["row"]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        numbers = range(*partition.value)
        # Row 0 is due when the first interval has passed, as the latest offset counts them.
        payloads = [stamped(self.begin + (number + 1) / self.rate, self.size) for number in numbers]
        yield pa.RecordBatch.from_arrays([pa.array(payloads, pa.binary())], names=["data"])

    def commit(self, end: dict[str, int]) -> None:
        pass


class AgeWriter(DataSourceStreamArrowWriter):
    """Appends the age of every row to a file, in seconds."""

    def __init__(self, path: str) -> None:
        self.path = path

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for batch in iterator:
            now = time.time()
            moments = (STAMP.unpack_from(data)[0] for data in batch.column("data").to_pylist())
            lines = "".join(f"{now - moment}\n" for moment in moments)
            with Path(self.path).open("a") as file:
                file.write(lines)
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        pass

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        pass
