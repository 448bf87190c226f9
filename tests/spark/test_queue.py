"""Queue mode in real queries: that Spark's calls come as the reader expects them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame

import jetspark

from .conftest import Read, Streams


class Rows:
    """Collects what a query gives."""

    def __init__(self, directory: Path) -> None:
        self.numbers: list[int] = []
        self._checkpoint = str(directory / "checkpoint")

    def take(self, frame: DataFrame, _: int) -> None:
        self.numbers += [int(row.data) for row in frame.orderBy("sequence").collect()]

    def run(self, frame: DataFrame) -> None:
        """Run a query to the end of what is there."""
        writer = frame.writeStream.foreachBatch(self.take)
        writer = writer.option("checkpointLocation", self._checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()


def figures(streams: Streams, stream: str) -> tuple[int, int, int, int]:
    """Messages of the stream, and of its consumer: pending, ack pending, ack floor."""

    async def info(js: jetspark.JetStream) -> tuple[int, int, int, int]:
        found = await js.get_stream(stream)
        info = await (await found.get_consumer("spark")).info()
        counts = (info.num_pending, info.num_ack_pending, info.ack_floor.stream_seq)
        return found.cached_info.state.messages, *counts

    found: tuple[int, int, int, int] = streams.edit(info)
    return found


def test_the_last_batch_of_a_run_is_acknowledged(
    follow: Read, streams: Streams, tmp_path: Path
) -> None:
    stream = streams.new(retention="workqueue", allow_direct=True)
    streams.publish(stream, 100)
    rows = Rows(tmp_path)
    frame = follow(stream=stream, consumer="spark", maxOffsetsPerTrigger=60)
    rows.run(frame)
    assert rows.numbers == list(range(1, 101))
    assert figures(streams, stream) == (0, 0, 0, 100)
    streams.publish(stream, 10, first=101)
    rows.run(frame)
    assert rows.numbers == list(range(1, 111))
    assert figures(streams, stream) == (0, 0, 0, 110)


def test_a_batch_that_fails_is_not_acknowledged(
    follow: Read, streams: Streams, tmp_path: Path
) -> None:
    stream = streams.new(retention="workqueue", allow_direct=True)
    streams.publish(stream, 50)
    rows = Rows(tmp_path)
    frame = follow(stream=stream, consumer="spark", maxOffsetsPerTrigger=30)
    with pytest.raises(Exception, match="no more"):
        rows.run(frame.selectExpr("*", "IF(sequence > 40, raise_error('no more'), 1) AS fine"))
    assert rows.numbers == list(range(1, 31))
    # The first batch was committed, the second one was not.
    assert figures(streams, stream) == (20, 20, 0, 30)
    rows.run(frame)
    assert rows.numbers == list(range(1, 51))
    assert figures(streams, stream) == (0, 0, 0, 50)
