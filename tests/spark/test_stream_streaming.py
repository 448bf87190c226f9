"""The `jetstream` source in streaming queries."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

import jetspark.sync
from jetspark.server import NatsServer
from tests.support.spark_query import Query

from .conftest import Read, Streams


class Sink:
    """Collects what a query gives, batch by batch."""

    def __init__(self, directory: Path) -> None:
        self.checkpoint = str(directory / "checkpoint")
        self.batches: list[list[int]] = []

    def start(self, frame: DataFrame, every: str | None = None) -> StreamingQuery:
        writer = frame.writeStream.foreachBatch(self._take)
        writer = writer.option("checkpointLocation", self.checkpoint)
        if every is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=every).start()

    def run(self, frame: DataFrame) -> StreamingQuery:
        """Run a query to the end of what is there."""
        query = self.start(frame)
        query.awaitTermination()
        return query

    def _take(self, frame: DataFrame, _: int) -> None:
        self.batches.append([int(row.data) for row in frame.orderBy("sequence").collect()])

    @property
    def numbers(self) -> list[int]:
        return [number for batch in self.batches for number in batch]


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    """Where queries write to."""
    return Sink(tmp_path)


def test_what_is_there_in_limited_batches(follow: Read, streams: Streams, sink: Sink) -> None:
    stream = streams.new()
    streams.publish(stream, 250)
    query = sink.run(follow(stream=stream, startingOffsets="earliest", maxOffsetsPerTrigger=100))
    assert [len(batch) for batch in sink.batches] == [100, 100, 50]
    assert sink.numbers == list(range(1, 251))
    assert query.lastProgress is not None
    source = json.loads(query.lastProgress.json)["sources"][0]
    assert source["startOffset"] == {stream: 200}
    assert source["endOffset"] == {stream: 250}
    assert source["latestOffset"] == {stream: 250}


def test_a_restart_goes_on_where_it_stopped(follow: Read, streams: Streams, sink: Sink) -> None:
    stream = streams.new()
    streams.publish(stream, 10)
    options = {"stream": stream, "startingOffsets": "earliest"}
    sink.run(follow(**options))
    sink.run(follow(**options))
    streams.publish(stream, 10, first=11)
    sink.run(follow(**options))
    assert sink.numbers == list(range(1, 21))
    assert len(sink.batches) == 2


def test_only_what_is_new_without_a_word(follow: Read, streams: Streams, sink: Sink) -> None:
    stream = streams.new()
    streams.publish(stream, 10)
    sink.run(follow(stream=stream))
    streams.publish(stream, 5, first=11)
    sink.run(follow(stream=stream))
    assert sink.numbers == list(range(11, 16))


def test_a_running_query(follow: Read, streams: Streams, sink: Sink) -> None:
    stream = streams.new()
    frame = follow(stream=stream, subjects=f"{stream}.a", startingOffsets="earliest")
    query = sink.start(frame, every="50 milliseconds")
    try:
        for first in range(1, 61, 20):
            streams.publish(stream, 20, first=first)
            streams.publish(stream, 20, first=first, subject="other")
            query.processAllAvailable()
            assert sink.numbers == list(range(1, first + 20))
    finally:
        query.stop()


def test_a_small_batch_takes_few_requests(nats: NatsServer, streams: Streams) -> None:
    stream = streams.new()
    query = Query(servers=nats.url, stream=stream, startingOffsets="earliest")
    with jetspark.sync.connect(nats.url) as nc:
        asked = nc.subscribe("$JS.API.>")
        nc.flush()

        def requests() -> list[str]:
            """Those for the stream since the last call, such as CONSUMER.CREATE."""
            nc.publish("$JS.API.until.now")
            found = []
            while (subject := asked.next(timeout=30).subject) != "$JS.API.until.now":
                if stream in subject.split("."):
                    found.append(subject.removeprefix("$JS.API.").partition(f".{stream}")[0])
            return [each for each in found if each != "CONSUMER.MSG.NEXT"]

        for first in (1, 11):
            streams.publish(stream, 10, first=first)
            assert query.plan()
            assert set(requests()) == {"STREAM.INFO"}
            query.commit()
            assert query.rows[-1] == list(range(first, first + 10))
            assert requests() == ["CONSUMER.CREATE", "CONSUMER.DELETE", "STREAM.INFO"]
    query.die()


def test_messages_of_other_subjects_make_no_batches(
    follow: Read, streams: Streams, sink: Sink
) -> None:
    stream = streams.new()
    frame = follow(stream=stream, subjects=f"{stream}.a", startingOffsets="earliest")
    streams.publish(stream, 1)
    sink.run(frame)
    streams.publish(stream, 50, subject="other")
    sink.run(frame)
    assert sink.batches == [[1]]


def test_removed_before_it_was_read(follow: Read, streams: Streams, sink: Sink) -> None:
    stream = streams.new(max_msgs=10)
    options = {"stream": stream, "startingOffsets": "earliest"}
    streams.publish(stream, 10)
    sink.run(follow(**options))
    streams.publish(stream, 30, first=11)
    with pytest.raises(StreamingQueryException, match="up to 20 messages between sequences 11 and"):
        sink.run(follow(**options))
    sink.run(follow(**options, failOnDataLoss="false"))
    assert sink.numbers == [*range(1, 11), *range(31, 41)]


def test_a_checkpoint_of_another_stream(follow: Read, streams: Streams, sink: Sink) -> None:
    first, second = streams.new(), streams.new()
    streams.publish(first, 5)
    streams.publish(second, 5)
    sink.run(follow(stream=first, startingOffsets="earliest"))
    with pytest.raises(StreamingQueryException, match=f"the checkpoint is of stream {first}"):
        sink.run(follow(stream=second, startingOffsets="earliest"))


def test_a_stream_created_again(follow: Read, streams: Streams, sink: Sink) -> None:
    stream = streams.new()
    streams.publish(stream, 20)
    sink.run(follow(stream=stream, startingOffsets="earliest"))

    async def create_again(js: jetspark.JetStream) -> None:
        await js.delete_stream(stream)
        await js.create_stream(name=stream, subjects=[f"{stream}.>"])

    streams.edit(create_again)
    streams.publish(stream, 5)
    with pytest.raises(StreamingQueryException, match="was it deleted and created again"):
        sink.run(follow(stream=stream, startingOffsets="earliest"))


def test_created_again_under_a_running_query(follow: Read, streams: Streams, sink: Sink) -> None:
    stream = streams.new()
    streams.publish(stream, 5)
    query = sink.start(follow(stream=stream, startingOffsets="earliest"), every="50 milliseconds")
    query.processAllAvailable()

    async def create_again(js: jetspark.JetStream) -> None:
        await js.delete_stream(stream)
        await js.create_stream(name=stream, subjects=[f"{stream}.>"])
        for number in range(50):
            await js.publish(f"{stream}.a", b"%d" % number)

    streams.edit(create_again)
    with pytest.raises(StreamingQueryException, match=r"created again|there is no stream"):
        query.awaitTermination(60)
    assert sink.numbers == list(range(1, 6))
