"""The peer of the Spark benchmarks: what one writes on nats-py in an afternoon.

A data source that cuts a range of sequences into as many parts as there are cores, pulls each with
an ephemeral consumer, a thousand messages at a time, and yields tuples; and a sink that publishes
row by row with acks under way. Nothing is done about retries, replicas that lag or duplicates.
Workers import this module, so it must be on their path.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from itertools import pairwise
from typing import Any

from pyspark.sql import Row
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

BATCH = 1_000
TIMEOUT = 30.0
PENDING = 500

PeerRow = tuple[str, str, int, datetime, dict[str, list[str]] | None, bytes]


class PeerSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "nats-py"

    def schema(self) -> str:
        return (
            "stream string, subject string, sequence bigint, timestamp timestamp, "
            "headers map<string,array<string>>, data binary"
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        return PeerReader(dict(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return PeerWriter(dict(self.options))


class PeerReader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self.options = options

    def partitions(self) -> list[InputPartition]:
        first, last = int(self.options["first"]), int(self.options["last"])
        parts = int(self.options["partitions"])
        cuts = [first + (last - first + 1) * number // parts for number in range(parts + 1)]
        return [InputPartition((start, after - start)) for start, after in pairwise(cuts)]

    def read(self, partition: InputPartition) -> Iterator[PeerRow]:
        first, count = partition.value
        loop = asyncio.new_event_loop()
        rows = self._rows(first, count)
        try:
            while batch := loop.run_until_complete(anext(rows, None)):
                yield from batch
        finally:
            loop.close()

    async def _rows(self, first: int, count: int) -> AsyncIterator[list[PeerRow]]:
        import nats
        from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

        stream = self.options["stream"]
        nc = await nats.connect(self.options["servers"])
        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=first,
            ack_policy=AckPolicy.NONE,
        )
        subscription = await nc.jetstream().pull_subscribe(">", stream=stream, config=config)
        while count > 0:
            messages = await subscription.fetch(min(BATCH, count), timeout=TIMEOUT)
            count -= len(messages)
            yield [self._row(message) for message in messages]
        await nc.close()

    @staticmethod
    def _row(message: Any) -> PeerRow:
        metadata = message.metadata
        headers = {name: [value] for name, value in (message.headers or {}).items()}
        return (
            metadata.stream,
            message.subject,
            metadata.sequence.stream,
            metadata.timestamp,
            headers or None,
            message.data,
        )


class PeerWriter(DataSourceWriter):
    def __init__(self, options: dict[str, str]) -> None:
        self.options = options

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        return asyncio.run(self._write(iterator))

    async def _write(self, rows: Iterator[Row]) -> WriterCommitMessage:
        import nats

        subject = self.options["subject"]
        nc = await nats.connect(self.options["servers"])
        js = nc.jetstream(publish_async_max_pending=PENDING)
        for row in rows:
            await js.publish_async(subject, bytes(row["data"]))
        await js.publish_async_completed()
        await nc.close()
        return WriterCommitMessage()
