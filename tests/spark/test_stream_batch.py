"""The `jetstream` source in batch queries."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

import jetspark
from jetspark.server import NatsServer

from .conftest import Read, Streams


def numbers(frame: DataFrame) -> list[int]:
    """The payloads, which are numbers."""
    return [int(row.data) for row in frame.orderBy("stream", "sequence").collect()]


def test_columns(read: Read, streams: Streams) -> None:
    stream = streams.new()
    before = datetime.now(UTC)
    streams.publish(stream, 2, headers={"Kind": ["x", "y"], "One": "1"})
    streams.publish(stream, 1, subject="b.c", first=3)
    frame = read(stream=stream)
    assert frame.dtypes == [
        ("stream", "string"),
        ("subject", "string"),
        ("sequence", "bigint"),
        ("timestamp", "timestamp"),
        ("headers", "map<string,array<string>>"),
        ("data", "binary"),
    ]
    first, _, last = frame.orderBy("sequence").collect()
    assert (first.stream, first.subject, first.sequence) == (stream, f"{stream}.a", 1)
    assert first.headers == {"Kind": ["x", "y"], "One": ["1"]}
    assert first.data == b"1"
    assert last.subject == f"{stream}.b.c"
    assert last.headers is None
    seconds = frame.selectExpr("unix_micros(timestamp) AS t").first()
    assert seconds is not None
    stored = datetime.fromtimestamp(seconds.t / 1e6, UTC)
    assert before - timedelta(seconds=1) < stored < datetime.now(UTC) + timedelta(seconds=1)


def test_everything_once(read: Read, streams: Streams) -> None:
    stream = streams.new()
    streams.publish(stream, 2500)
    assert numbers(read(stream=stream)) == list(range(1, 2501))
    divided = read(stream=stream, minPartitions=7, rowsPerBatch=100)
    assert divided.rdd.getNumPartitions() == 7
    assert numbers(divided) == list(range(1, 2501))
    limited = read(stream=stream, maxRecordsPerPartition=1000)
    assert limited.rdd.getNumPartitions() == 3
    assert numbers(limited) == list(range(1, 2501))


def test_subjects_are_sorted_out_by_the_server(read: Read, streams: Streams) -> None:
    stream = streams.new()
    streams.publish(stream, 10, subject="a")
    streams.publish(stream, 10, subject="b.x", first=11)
    streams.publish(stream, 10, subject="c", first=21)
    frame = read(stream=stream, subjects=f"{stream}.b.*, {stream}.c", minPartitions=4)
    assert numbers(frame) == list(range(11, 31))
    assert numbers(read(stream=stream, subjects=f"{stream}.none")) == []


def test_offsets(read: Read, streams: Streams) -> None:
    stream = streams.new()
    streams.publish(stream, 100)
    assert numbers(read(stream=stream, startingOffsets=11, endingOffsets=20)) == list(range(11, 21))
    assert numbers(read(stream=stream, startingOffsets="latest")) == []
    assert numbers(read(stream=stream, endingOffsets=0)) == []
    assert numbers(read(stream=stream, startingOffsets=200)) == []
    frame = read(
        stream=stream,
        startingOffsets=json.dumps({stream: 95}),
        endingOffsets=json.dumps({stream: "latest"}),
    )
    assert numbers(frame) == list(range(95, 101))


def test_timestamps(read: Read, streams: Streams) -> None:
    stream = streams.new()
    streams.publish(stream, 10)
    middle = datetime.now(UTC)
    streams.publish(stream, 10, first=11)
    millis = round(middle.timestamp() * 1000)
    later = (middle + timedelta(hours=1)).isoformat()
    assert numbers(read(stream=stream, startingTimestamp=middle.isoformat())) == list(range(11, 21))
    assert numbers(read(stream=stream, endingTimestamp=middle.isoformat())) == list(range(1, 11))
    assert numbers(read(stream=stream, startingTimestamp=later)) == []
    assert set(numbers(read(stream=stream, startingTimestamp=millis))) >= set(range(11, 21))


def test_several_streams(read: Read, streams: Streams) -> None:
    first, second = sorted([streams.new(), streams.new()])
    streams.publish(first, 3)
    streams.publish(second, 2, first=4)
    assert numbers(read(stream=f"{first},{second}")) == [1, 2, 3, 4, 5]
    pattern = f"{re.escape(first)}|{re.escape(second)}"
    assert numbers(read(streamPattern=pattern)) == [1, 2, 3, 4, 5]
    starting = json.dumps({first: 3, second: "earliest"})
    assert numbers(read(stream=f"{first},{second}", startingOffsets=starting)) == [3, 4, 5]


def test_without_headers_and_without_data(read: Read, streams: Streams) -> None:
    stream = streams.new()
    streams.publish(stream, 3, headers={"A": "1"})
    frame = read(stream=stream, includeHeaders="false")
    assert "headers" not in frame.columns
    assert numbers(frame) == [1, 2, 3]
    rows = read(stream=stream, includeData="false").orderBy("sequence").collect()
    assert [row.data for row in rows] == [None] * 3
    assert rows[0].headers["A"] == ["1"]


def test_deleted_messages_leave_gaps(read: Read, streams: Streams) -> None:
    stream = streams.new()
    streams.publish(stream, 20)

    async def delete(js: jetspark.JetStream) -> None:
        found = await js.get_stream(stream)
        for sequence in (1, 2, 5, 10, 19, 20):
            await found.delete_message(sequence)

    streams.edit(delete)
    left = sorted(set(range(1, 21)) - {1, 2, 5, 10, 19, 20})
    assert numbers(read(stream=stream)) == left
    assert numbers(read(stream=stream, minPartitions=10)) == left


def test_an_empty_stream(read: Read, streams: Streams) -> None:
    stream = streams.new()
    assert numbers(read(stream=stream)) == []
    streams.publish(stream, 5)

    async def purge(js: jetspark.JetStream) -> None:
        await js.purge_stream(stream)

    streams.edit(purge)
    assert numbers(read(stream=stream)) == []


def test_removed_before_it_was_read(read: Read, streams: Streams) -> None:
    stream = streams.new(max_msgs=10)
    streams.publish(stream, 30)
    assert numbers(read(stream=stream)) == list(range(21, 31))
    with pytest.raises(PySparkException, match="up to 15 messages between sequences 6 and 20"):
        read(stream=stream, startingOffsets=6).collect()
    frame = read(stream=stream, startingOffsets=6, failOnDataLoss="false")
    assert numbers(frame) == list(range(21, 31))


def test_a_mirror(read: Read, streams: Streams) -> None:
    origin = streams.new()
    streams.publish(origin, 50)

    async def mirror(js: jetspark.JetStream) -> None:
        await js.create_stream(name=f"{origin}_M", mirror=jetspark.StreamSource(name=origin))
        stream = await js.get_stream(f"{origin}_M")
        while (await stream.info()).state.last_seq < 50:
            pass

    streams.edit(mirror)
    assert numbers(read(stream=f"{origin}_M")) == list(range(1, 51))


def test_in_sql(spark: SparkSession, nats: NatsServer, streams: Streams) -> None:
    stream = streams.new()
    streams.publish(stream, 4)
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW orders USING jetstream "
        f"OPTIONS (servers '{nats.url}', stream '{stream}')"
    )
    row = spark.sql("SELECT sum(CAST(CAST(data AS STRING) AS INT)) AS total FROM orders").first()
    assert row is not None
    assert row.total == 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "set either option 'stream'"),
        ({"stream": "A", "streamPattern": "B"}, "set either option 'stream'"),
        ({"stream": "A", "startingOfsets": "1"}, "did you mean 'startingOffsets'"),
        ({"stream": "A", "minPartitions": "0"}, "'minPartitions' takes a number of at least 1"),
        ({"stream": "A", "failOnDataLoss": "maybe"}, "takes true or false, not 'maybe'"),
        ({"stream": "A", "startingOffsets": "0"}, "takes 'earliest' or 'latest', a sequence"),
        ({"stream": "A", "endingOffsets": "earliest"}, "takes 'latest', a sequence"),
        ({"stream": "A", "startingTimestamp": "today"}, "takes milliseconds since 1970"),
        ({"stream": "A", "maxOffsetsPerTrigger": "5"}, "is not for batch reads"),
        ({"stream": "A B"}, "option 'stream'"),
        ({"stream": "A", "subjects": "a..b"}, "option 'subjects'"),
        ({"stream": "A", "subjects": "a.*,a.b"}, "overlap"),
        ({"streamPattern": "("}, "option 'streamPattern'"),
        ({"stream": "A", "startingOffsets": '{"B": 1}'}, "missing: A; unknown: B"),
        ({"stream": "NOT_THERE"}, "there is no stream 'NOT_THERE'"),
        ({"stream": "A", "user": "me", "servers": "nats://127.0.0.1:1"}, "127.0.0.1:1"),
    ],
)
def test_errors_before_a_job_starts(
    spark: SparkSession, nats: NatsServer, options: dict[str, str], message: str
) -> None:
    given = {"servers": nats.url, "connectTimeout": "1s", **options}
    with pytest.raises((AnalysisException, PySparkException), match=re.escape(message)):
        spark.read.format("jetstream").options(**given).load().collect()


def test_secrets_are_not_shown(spark: SparkSession, nats: NatsServer) -> None:
    with pytest.raises(PySparkException) as caught:
        spark.read.format("jetstream").options(
            servers=nats.url, stream="A", password="top-secret", nope="1"
        ).load()
    assert "top-secret" not in str(caught.value)
