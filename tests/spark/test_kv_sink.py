"""The `jetstream-kv` sink: keys are set and deleted."""

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

from .conftest import Read, Streams
from .test_kv_source import Bucket

SCHEMA = "key string, value string, operation string, revision bigint"


@pytest.fixture
def bucket(streams: Streams) -> Bucket:
    """One that keeps some history."""
    return Bucket(streams, history=5)


def write(frame: DataFrame, nats: NatsServer, bucket: Bucket, **options: Any) -> None:
    """Write in batch."""
    texts = {name: str(value) for name, value in options.items()}
    writer = frame.write.format("jetstream-kv").options(servers=nats.url, bucket=bucket.name)
    writer.options(**texts).mode("append").save()


def history(bucket: Bucket) -> list[tuple[str, str, int, str]]:
    """All that is in a bucket."""

    async def read(kv: jetspark.KeyValue[bytes]) -> list[tuple[str, str, int, str]]:
        found: list[tuple[str, str, int, str]] = []
        async with kv.watch(include_history=True) as watcher:
            async for entry in watcher:
                if entry is None:
                    break
                found.append((entry.key, entry.value.decode(), entry.revision, entry.operation))
        return found

    found: list[tuple[str, str, int, str]] = bucket.edit(read)
    return found


def test_the_last_row_of_a_key_wins(spark: SparkSession, nats: NatsServer, bucket: Bucket) -> None:
    rows = [("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), ("b", "2"), ("a", "3")]
    write(spark.createDataFrame(rows, "key string, value string").coalesce(1), nats, bucket)
    entries = {key: value for key, value, _, _ in history(bucket)}
    assert entries == {"a": "3", "b": "2", "c": "1"}
    assert len(history(bucket)) == 3
    again = spark.createDataFrame([("a", b"4")], "key string, value binary")
    write(again, nats, bucket)
    assert ("a", "4", 4, "PUT") in history(bucket)


def test_many_rows_of_several_tasks(spark: SparkSession, nats: NatsServer, bucket: Bucket) -> None:
    frame = spark.range(5000).select(
        F.concat(F.lit("k."), F.col("id") % 2000).alias("key"),
        F.col("id").cast("string").alias("value"),
    )
    write(frame.repartition(3, "key"), nats, bucket, maxPending=100)
    entries = history(bucket)
    assert {key for key, _, _, _ in entries} == {f"k.{number}" for number in range(2000)}
    assert all(int(value) % 2000 == int(key[2:]) for key, value, _, _ in entries)


def test_deleting(spark: SparkSession, nats: NatsServer, bucket: Bucket) -> None:
    bucket.put(a="1", b="1", c="1")
    rows = [("a", None, "DEL", None), ("b", "x", "PURGE", None), ("c", "2", None, None)]
    write(spark.createDataFrame(rows, SCHEMA).coalesce(1), nats, bucket)
    assert history(bucket) == [
        ("a", "1", 1, "PUT"),
        ("c", "1", 3, "PUT"),
        ("a", "", 4, "DEL"),
        ("b", "", 5, "PURGE"),
        ("c", "2", 6, "PUT"),
    ]


def test_compare_and_set(spark: SparkSession, nats: NatsServer, bucket: Bucket) -> None:
    bucket.put(a="1", b="1", d="1")

    async def delete(kv: jetspark.KeyValue[bytes]) -> None:
        await kv.delete("d")

    bucket.edit(delete)
    rows = [
        ("a", "2", "PUT", 1),
        ("b", None, "DEL", 2),
        ("c", "new", "PUT", 0),
        ("d", "again", "PUT", 0),  # deleted: it does not exist
        ("e", "any", "PUT", None),
    ]
    write(spark.createDataFrame(rows, SCHEMA).coalesce(1), nats, bucket)
    latest = {key: (value, operation) for key, value, _, operation in history(bucket)}
    assert latest == {
        "a": ("2", "PUT"),
        "b": ("", "DEL"),
        "c": ("new", "PUT"),
        "d": ("again", "PUT"),
        "e": ("any", "PUT"),
    }
    for key, revision in (("a", 1), ("a", 0)):
        stale = spark.createDataFrame([(key, "x", None, revision)], SCHEMA)
        with pytest.raises(PySparkException, match=f"the latest revision of key '{key}' is"):
            write(stale, nats, bucket)
    assert {key: value for key, value, _, _ in history(bucket)}["a"] == "2"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("'a' AS key", "there is no column 'value'"),
        ("'x' AS value", "there is no column 'key'"),
        ("'a' AS key, 1 AS value", "column 'value' must be binary or string, not int"),
        ("'a' AS key, 'x' AS value, 1 AS more", "no use for column 'more'"),
        ("'a' AS key, CAST(NULL AS STRING) AS value", "key 'a' has no value"),
    ],
)
def test_errors(
    spark: SparkSession, nats: NatsServer, bucket: Bucket, columns: str, message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        write(spark.sql(f"SELECT {columns}"), nats, bucket)
    assert history(bucket) == []


def test_a_bad_key_among_good_ones(spark: SparkSession, nats: NatsServer, bucket: Bucket) -> None:
    frame = spark.createDataFrame([("a", "1"), ("b.", "1")], "key string, value string")
    with pytest.raises(PySparkException, match=r"key 'b\.'"):
        write(frame.coalesce(1), nats, bucket)
    assert history(bucket) == []


def test_no_such_bucket_and_overwriting(
    spark: SparkSession, nats: NatsServer, bucket: Bucket
) -> None:
    frame = spark.sql("SELECT 'a' AS key, 'x' AS value")
    writer = frame.write.format("jetstream-kv").option("servers", nats.url)
    with pytest.raises(PySparkException, match="there is no bucket 'not_there'"):
        writer.option("bucket", "not_there").mode("append").save()
    with pytest.raises(PySparkException, match="not overwritten"):
        writer.option("bucket", bucket.name).mode("overwrite").save()


def copy(frame: DataFrame, nats: NatsServer, bucket: Bucket, directory: Path) -> None:
    """Write in a streaming query."""
    query = (
        frame.writeStream.format("jetstream-kv")
        .options(
            servers=nats.url,
            bucket=bucket.name,
            checkpointLocation=str(directory / "checkpoint"),
        )
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def uncommit(directory: Path, batch: int) -> None:
    """Have the driver die after the sink has committed and before Spark has."""
    commits = directory / "checkpoint" / "commits"
    (commits / str(batch)).unlink()
    (commits / f".{batch}.crc").unlink(missing_ok=True)


def test_a_batch_that_is_written_again(
    follow: Read, nats: NatsServer, streams: Streams, bucket: Bucket, tmp_path: Path
) -> None:
    """Compare-and-set is no conflict with itself, even later and if others have written since."""
    window = 0.2

    async def set_window(js: jetspark.JetStream) -> None:
        config = (await js.get_stream(f"KV_{bucket.name}")).config
        await js.update_stream(config.replace(duplicate_window=window))

    streams.edit(set_window)
    origin = streams.new()
    streams.publish(origin, 6)
    number = F.col("data").cast("string")
    frame = follow(stream=origin, startingOffsets="earliest").select(
        F.concat(F.lit("k"), number).alias("key"),
        number.alias("value"),
        F.lit(0).cast("bigint").alias("revision"),
    )
    copy(frame, nats, bucket, tmp_path)
    uncommit(tmp_path, 0)
    bucket.put(k1="later")
    asyncio.run(asyncio.sleep(2 * window))
    copy(frame, nats, bucket, tmp_path)
    entries = history(bucket)
    assert sorted((key, value) for key, value, _, _ in entries) == [
        ("k1", "1"),
        ("k1", "later"),
        *((f"k{number}", str(number)) for number in range(2, 7)),
    ]


def test_aggregates_into_a_bucket(
    follow: Read, nats: NatsServer, streams: Streams, bucket: Bucket, tmp_path: Path
) -> None:
    origin = streams.new()
    frame = (
        follow(stream=origin, startingOffsets="earliest")
        .groupBy((F.col("data").cast("string").cast("int") % 2).alias("odd"))
        .count()
        .select(
            F.concat(F.lit("odd."), F.col("odd")).alias("key"),
            F.col("count").cast("string").alias("value"),
        )
    )

    def run() -> None:
        query = (
            frame.writeStream.format("jetstream-kv")
            .options(servers=nats.url, bucket=bucket.name)
            .option("checkpointLocation", str(tmp_path))
            .outputMode("complete")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    streams.publish(origin, 5)
    run()
    streams.publish(origin, 4, first=6)
    run()
    latest = {key: value for key, value, _, _ in history(bucket)}
    assert latest == {"odd.0": "4", "odd.1": "5"}
