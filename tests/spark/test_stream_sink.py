"""The `jetstream` sink: every row once, whatever happens."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import jetspark
from jetspark.server import NatsServer

from .conftest import Read, Streams, needs_version


def write(frame: DataFrame, nats: NatsServer, **options: Any) -> None:
    """Write in batch."""
    texts = {name: str(value) for name, value in options.items()}
    frame.write.format("jetstream").options(servers=nats.url, **texts).mode("append").save()


def messages_of(streams: Streams, stream: str) -> list[jetspark.StoredMessage]:
    """What is in a stream."""

    async def read(js: jetspark.JetStream) -> list[jetspark.StoredMessage]:
        found = await js.get_stream(stream)
        return [message async for message in found.direct_get_batch(seq=1)]

    found: list[jetspark.StoredMessage] = streams.edit(read)
    return found


def numbers(streams: Streams, stream: str) -> list[int]:
    return sorted(int(message.data) for message in messages_of(streams, stream))


def test_columns(spark: SparkSession, nats: NatsServer, streams: Streams) -> None:
    needs_version(nats, 2, 11)
    stream = streams.new(allow_direct=True, allow_msg_ttl=True)
    rows = [
        (f"{stream}.a", b"one", {"Kind": ["x", "y"]}, "id-1", None),
        (f"{stream}.b", None, None, "id-2", 3600),
        (f"{stream}.b", b"again", None, "id-2", None),
    ]
    schema = (
        "subject string, data binary, headers map<string,array<string>>, msg_id string, ttl int"
    )
    write(spark.createDataFrame(rows, schema).coalesce(1), nats)
    first, second = messages_of(streams, stream)
    assert (first.subject, first.data) == (f"{stream}.a", b"one")
    assert first.headers.get_all("Kind") == ["x", "y"]
    assert first.headers["Nats-Msg-Id"] == "id-1"
    assert (second.subject, second.data) == (f"{stream}.b", b"")
    assert second.headers["Nats-TTL"].startswith("3600")


def test_many_rows_of_several_tasks(
    spark: SparkSession, nats: NatsServer, streams: Streams
) -> None:
    stream = streams.new(allow_direct=True)
    frame = spark.range(5000).select(F.col("id").cast("string").alias("data")).repartition(3)
    write(frame, nats, subject=f"{stream}.a", expectedStream=stream, maxPending=100)
    assert numbers(streams, stream) == list(range(5000))


def test_all_rows_of_a_partition_together(
    spark: SparkSession, nats: NatsServer, streams: Streams
) -> None:
    needs_version(nats, 2, 12)
    stream = streams.new(allow_direct=True, allow_atomic=True)
    frame = spark.range(1500).select(F.col("id").cast("string").alias("data"))
    write(frame.repartition(2), nats, subject=f"{stream}.a", atomic="true")
    assert numbers(streams, stream) == list(range(1500))
    with pytest.raises(PySparkException, match="at most 1000 rows"):
        write(frame.coalesce(1), nats, subject=f"{stream}.a", atomic="true")
    assert len(numbers(streams, stream)) == 1500


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ("'x' AS data", {}, "set option 'subject' or select a column 'subject'"),
        ("'x' AS data, 's' AS subject", {"subject": "s"}, "one of the two"),
        ("1 AS data, 's' AS subject", {}, "column 'data' must be binary or string, not int"),
        ("'x' AS data, 's' AS subject, 1 AS more", {}, "no use for column 'more'"),
        ("'s' AS subject", {}, "no column 'data'"),
        ("'x' AS data", {"subject": "a b"}, "a b"),
        (
            "'x' AS data",
            {"subject": "nobody.stores.this"},
            "no stream stores subject 'nobody.stores.this'",
        ),
        ("'x' AS data", {"subject": "s", "expectedStream": "NOT_THERE"}, "no stream 'NOT_THERE'"),
        ("'x' AS data", {"subject": "s", "maxPendng": "1"}, "did you mean 'maxPending'"),
        ("'x' AS data, CAST(NULL AS STRING) AS subject", {}, "a row has no subject"),
    ],
)
def test_errors(
    spark: SparkSession, nats: NatsServer, columns: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        write(spark.sql(f"SELECT {columns}"), nats, **options)


def test_overwriting_is_refused(spark: SparkSession, nats: NatsServer) -> None:
    frame = spark.sql("SELECT 'x' AS data")
    with pytest.raises(PySparkException, match="not overwritten"):
        frame.write.format("jetstream").options(servers=nats.url, subject="s").mode(
            "overwrite"
        ).save()


def copy(frame: DataFrame, nats: NatsServer, directory: Path, **options: str) -> None:
    """Copy what is there in a streaming query."""
    query = (
        frame.select("data")
        .writeStream.format("jetstream")
        .options(servers=nats.url, checkpointLocation=str(directory / "checkpoint"), **options)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def ledger_keys(streams: Streams, ledger: str) -> list[str]:
    async def read(js: jetspark.JetStream) -> list[str]:
        bucket = await js.key_value(ledger)
        return [key async for key in bucket.keys()]  # noqa: SIM118

    found: list[str] = streams.edit(read)
    return found


def test_a_streaming_query(
    follow: Read, nats: NatsServer, streams: Streams, tmp_path: Path
) -> None:
    origin, target = streams.new(), streams.new(allow_direct=True)
    streams.publish(origin, 100)
    frame = follow(stream=origin, startingOffsets="earliest", maxOffsetsPerTrigger=30)
    copy(frame, nats, tmp_path, subject=f"{target}.a", ledger=f"{target}_ledger")
    streams.publish(origin, 50, first=101)
    copy(frame, nats, tmp_path, subject=f"{target}.a", ledger=f"{target}_ledger")
    assert numbers(streams, target) == list(range(1, 151))
    assert len(ledger_keys(streams, f"{target}_ledger")) == 1  # of the last batch only


@pytest.mark.parametrize("window", [120.0, 0.2], ids=["in the duplicate window", "after it"])
def test_a_batch_that_is_written_again(
    follow: Read, nats: NatsServer, streams: Streams, tmp_path: Path, window: float
) -> None:
    """The driver dies after the sink has committed and before Spark has."""
    origin = streams.new()
    target = streams.new(allow_direct=True, duplicate_window=window)
    streams.publish(origin, 100)
    frame = follow(stream=origin, startingOffsets="earliest", minPartitions=2)
    copy(frame, nats, tmp_path, subject=f"{target}.a")
    (commit,) = [
        path for path in (tmp_path / "checkpoint" / "commits").iterdir() if path.name == "0"
    ]
    commit.unlink()
    (tmp_path / "checkpoint" / "commits" / ".0.crc").unlink(missing_ok=True)
    if window < 1:
        asyncio.run(asyncio.sleep(2 * window))
    copy(frame, nats, tmp_path, subject=f"{target}.a")
    assert numbers(streams, target) == list(range(1, 101))
