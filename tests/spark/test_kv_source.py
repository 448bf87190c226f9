"""The `jetstream-kv` source: what a bucket has, what it had, and how it changes."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

import jetspark
from jetspark.server import NatsServer
from tests.support.clients import unique

from .conftest import Streams

Work = Callable[[jetspark.KeyValue[bytes]], Any]


class Bucket:
    """A bucket of its own."""

    def __init__(self, streams: Streams, **config: Any) -> None:
        self.streams = streams
        self.name = unique("bucket").replace(".", "_")

        async def create(js: jetspark.JetStream) -> None:
            await js.create_key_value(bucket=self.name, **config)

        streams.edit(create)

    def edit(self, work: Work) -> Any:
        """Do something with it."""

        async def edit(js: jetspark.JetStream) -> Any:
            return await work(await js.key_value(self.name))

        return self.streams.edit(edit)

    def put(self, **values: str) -> None:
        async def put(bucket: jetspark.KeyValue[bytes]) -> None:
            for key, value in values.items():
                await bucket.put(key, value.encode())

        self.edit(put)

    def fill(self, count: int, value: bytes = b"0") -> None:
        """Set keys k.0, k.1, ..."""

        async def fill(js: jetspark.JetStream) -> None:
            for number in range(count):
                await js.publish_async(f"$KV.{self.name}.k.{number}", value)
            await js.publish_async_complete(timeout=30)

        self.streams.edit(fill)


@pytest.fixture
def bucket(streams: Streams) -> Bucket:
    """One that keeps some history."""
    return Bucket(streams, history=5)


Read = Callable[..., DataFrame]


@pytest.fixture
def snapshot(spark: SparkSession, nats: NatsServer) -> Read:
    """Reads in batch."""

    def read(bucket: Bucket, **options: Any) -> DataFrame:
        texts = {name: str(value) for name, value in options.items()}
        reader = spark.read.format("jetstream-kv").options(servers=nats.url, bucket=bucket.name)
        return reader.options(**texts).load()

    return read


def values(frame: DataFrame) -> dict[str, str | None]:
    rows = frame.collect()
    found = {row.key: None if row.value is None else bytes(row.value).decode() for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    return found


def test_columns(snapshot: Read, bucket: Bucket) -> None:
    bucket.put(a="1", b="2")

    async def delete(kv: jetspark.KeyValue[bytes]) -> None:
        await kv.put("a", b"3")
        await kv.delete("b")
        await kv.put("c", b"")
        await kv.purge("d")

    bucket.edit(delete)
    frame = snapshot(bucket)
    assert frame.dtypes == [
        ("key", "string"),
        ("value", "binary"),
        ("revision", "bigint"),
        ("timestamp", "timestamp"),
        ("operation", "string"),
    ]
    rows = {row.key: row for row in frame.collect()}
    assert {key: (bytes(row.value), row.revision) for key, row in rows.items()} == {
        "a": (b"3", 3),
        "c": (b"", 5),
    }
    assert {row.operation for row in rows.values()} == {"PUT"}
    assert rows["a"].timestamp is not None
    deletes = snapshot(bucket, includeDeletes="true").select("operation", "key", "value")
    assert sorted(tuple(row) for row in deletes.where("value IS NULL").collect()) == [
        ("DEL", "b", None),
        ("PURGE", "d", None),
    ]


def test_keys_are_sorted_out_by_the_server(snapshot: Read, bucket: Bucket) -> None:
    async def fill(kv: jetspark.KeyValue[bytes]) -> None:
        for key in ("a.x", "a.y", "b.x", "c"):
            await kv.put(key, b"1")

    bucket.edit(fill)
    assert set(values(snapshot(bucket, keys="a.*, c"))) == {"a.x", "a.y", "c"}
    assert set(values(snapshot(bucket, keys="a.>,a.x"))) == {"a.x", "a.y"}
    assert values(snapshot(bucket, keys="none")) == {}


def test_an_empty_bucket(snapshot: Read, bucket: Bucket) -> None:
    assert values(snapshot(bucket)) == {}


def test_many_keys_while_others_write(snapshot: Read, streams: Streams) -> None:
    bucket = Bucket(streams)  # it keeps one entry: what changes comes in another place
    bucket.fill(20_000)
    stop = threading.Event()

    async def write(kv: jetspark.KeyValue[bytes]) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            await kv.put(f"k.{number * 7919 % 20_000}", b"1")

    writer = threading.Thread(target=bucket.edit, args=[write])
    writer.start()
    try:
        found = values(snapshot(bucket, rowsPerBatch=500))
    finally:
        stop.set()
        writer.join()
    assert set(found) == {f"k.{number}" for number in range(20_000)}


def test_as_of_a_revision(snapshot: Read, bucket: Bucket) -> None:
    bucket.put(a="1", b="1")  # revisions 1 and 2
    bucket.put(a="2", c="2")  # 3 and 4

    async def change(kv: jetspark.KeyValue[bytes]) -> None:
        await kv.delete("b")  # 5
        await kv.put("a", b"3")  # 6

    bucket.edit(change)
    assert values(snapshot(bucket, asOfRevision=1)) == {"a": "1"}
    assert values(snapshot(bucket, asOfRevision=2)) == {"a": "1", "b": "1"}
    assert values(snapshot(bucket, asOfRevision=4)) == {"a": "2", "b": "1", "c": "2"}
    assert values(snapshot(bucket, asOfRevision=5)) == {"a": "2", "c": "2"}
    at_five = snapshot(bucket, asOfRevision=5, includeDeletes="true")
    assert values(at_five) == {"a": "2", "b": None, "c": "2"}
    assert values(snapshot(bucket, asOfRevision=6, keys="a")) == {"a": "3"}
    with pytest.raises(PySparkException, match="is at revision 6, not yet at 7"):
        snapshot(bucket, asOfRevision=7).collect()


def test_as_of_a_revision_that_is_gone(snapshot: Read, streams: Streams) -> None:
    bucket = Bucket(streams, history=2)
    for number in range(3):
        bucket.put(a=str(number), b=str(number))
    bucket.put(c="new")
    with pytest.raises(PySparkException, match=r"whether 2 keys, such as '[ab]', were there"):
        snapshot(bucket, asOfRevision=2).collect()
    assert values(snapshot(bucket, asOfRevision=2, failOnDataLoss="false")) == {}
    assert values(snapshot(bucket, asOfRevision=4)) == {"a": "1", "b": "1"}


def test_a_mirror(snapshot: Read, streams: Streams, bucket: Bucket) -> None:
    bucket.put(a="1", b="2")
    mirror = Bucket.__new__(Bucket)
    mirror.streams, mirror.name = streams, f"{bucket.name}_mirror"

    async def create(js: jetspark.JetStream) -> None:
        source = jetspark.StreamSource(name=bucket.name)
        await js.create_key_value(bucket=mirror.name, mirror=source)
        stream = await js.get_stream(f"KV_{mirror.name}")
        while (await stream.info()).state.last_seq < 2:
            pass

    streams.edit(create)
    assert values(snapshot(mirror)) == {"a": "1", "b": "2"}
    assert values(snapshot(mirror, keys="b")) == {"b": "2"}


# -- changes ------------------------------------------------------------------------------------


class Changes:
    """Collects the changes of a bucket."""

    def __init__(self, spark: SparkSession, nats: NatsServer, directory: Path) -> None:
        self._spark = spark
        self._nats = nats
        self._checkpoint = str(directory / "checkpoint")
        self.rows: list[tuple[str, str | None, int, str]] = []
        self.progress: dict[str, Any] = {}

    def prepare(self, bucket: Bucket, **options: Any) -> DataStreamWriter:
        """A query that need only be started."""
        texts = {name: str(value) for name, value in options.items()}
        reader = self._spark.readStream.format("jetstream-kv").options(
            servers=self._nats.url, bucket=bucket.name, **texts
        )
        writer = reader.load().writeStream.foreachBatch(self._take)
        return writer.option("checkpointLocation", self._checkpoint)

    def run(self, bucket: Bucket, **options: Any) -> None:
        """All changes until now."""
        query = self.prepare(bucket, **options).trigger(availableNow=True).start()
        query.awaitTermination()
        if query.lastProgress is not None:
            self.progress = json.loads(query.lastProgress.json)["sources"][0]

    def _take(self, frame: DataFrame, _: int) -> None:
        for row in frame.orderBy("revision").collect():
            value = None if row.value is None else bytes(row.value).decode()
            self.rows.append((row.key, value, row.revision, row.operation))


@pytest.fixture
def changes(spark: SparkSession, nats: NatsServer, tmp_path: Path) -> Changes:
    """What reads changes."""
    return Changes(spark, nats, tmp_path)


def test_changes(changes: Changes, bucket: Bucket) -> None:
    bucket.put(a="1", b="1")

    async def change(kv: jetspark.KeyValue[bytes]) -> None:
        await kv.put("a", b"2")
        await kv.delete("b")

    bucket.edit(change)
    changes.run(bucket, startingOffsets="earliest", maxOffsetsPerTrigger=3)
    assert changes.rows == [
        ("a", "1", 1, "PUT"),
        ("b", "1", 2, "PUT"),
        ("a", "2", 3, "PUT"),
        ("b", None, 4, "DEL"),
    ]
    assert changes.progress["endOffset"] == {bucket.name: 4}
    assert changes.progress["latestOffset"] == {bucket.name: 4}
    changes.rows.clear()
    bucket.put(c="1")
    changes.run(bucket, startingOffsets="earliest")
    assert changes.rows == [("c", "1", 5, "PUT")]


def test_changes_of_some_keys_from_a_revision(changes: Changes, bucket: Bucket) -> None:
    bucket.put(a="1", b="1")
    bucket.put(a="2", b="2")
    changes.run(bucket, startingOffsets=2, keys="a")
    assert changes.rows == [("a", "2", 3, "PUT")]


def test_replaced_entries_are_no_data_loss(changes: Changes, streams: Streams) -> None:
    bucket = Bucket(streams)
    bucket.put(a="1")
    changes.run(bucket, startingOffsets="earliest")
    bucket.put(a="2", b="1")
    bucket.put(a="3")
    changes.run(bucket, startingOffsets="earliest")
    assert changes.rows == [("a", "1", 1, "PUT"), ("b", "1", 3, "PUT"), ("a", "3", 4, "PUT")]


def test_changes_as_they_come(changes: Changes, bucket: Bucket) -> None:
    """In several batches of a running query, and of a second one after it."""
    expected: list[tuple[str, str | None, int, str]] = []
    for _ in range(2):
        writer = changes.prepare(bucket, startingOffsets="earliest")
        query = writer.trigger(processingTime="50 milliseconds").start()
        try:
            for _ in range(3):
                bucket.put(a="x", b="y", c="z")
                query.processAllAvailable()
                revision = len(expected)
                expected += [
                    ("a", "x", revision + 1, "PUT"),
                    ("b", "y", revision + 2, "PUT"),
                    ("c", "z", revision + 3, "PUT"),
                ]
                assert changes.rows == expected
        finally:
            query.stop()


def test_a_checkpoint_of_another_bucket(changes: Changes, bucket: Bucket, streams: Streams) -> None:
    other = Bucket(streams)
    bucket.put(a="1")
    other.put(a="other", b="other")
    changes.run(bucket, startingOffsets="earliest")
    message = f"the checkpoint is of bucket {bucket.name}, and the query reads {other.name}"
    with pytest.raises(StreamingQueryException, match=message):
        changes.run(other, startingOffsets="earliest")
    assert changes.rows == [("a", "1", 1, "PUT")]


def test_enriching_a_stream(
    spark: SparkSession, snapshot: Read, follow: Read, streams: Streams, bucket: Bucket
) -> None:
    """A stream is joined with the bucket as it is when a batch runs."""
    origin = streams.new()
    names = snapshot(bucket).select("key", F.col("value").cast("string").alias("name"))
    numbers = follow(stream=origin, startingOffsets="earliest").select(
        F.concat(F.lit("k"), F.col("data").cast("string")).alias("key")
    )
    found: list[tuple[str, str]] = []

    def take(frame: DataFrame, _: int) -> None:
        found.extend((row.key, row.name) for row in frame.orderBy("key").collect())

    query = numbers.join(names, "key", "left").writeStream.foreachBatch(take).start()
    try:
        for name in ("old", "new"):
            bucket.put(k1=name, k3="three")
            streams.publish(origin, 2)
            query.processAllAvailable()
    finally:
        query.stop()
    assert found == [("k1", "old"), ("k2", None), ("k1", "new"), ("k2", None)]


def test_in_sql(spark: SparkSession, nats: NatsServer, bucket: Bucket) -> None:
    bucket.put(a="1", b="2")
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW settings USING `jetstream-kv` "
        f"OPTIONS (servers '{nats.url}', bucket '{bucket.name}', keys 'b')"
    )
    rows = spark.sql("SELECT key, CAST(value AS STRING) AS value FROM settings").collect()
    assert [tuple(row) for row in rows] == [("b", "2")]


# -- bad options --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "option 'bucket' is missing"),
        ({"bucket": "a b"}, "option 'bucket'"),
        ({"bucket": "not_there"}, "there is no bucket 'not_there'"),
        ({"bucket": "b", "keys": "a..b"}, "option 'keys'"),
        ({"bucket": "b", "keys": "a.*,*.b"}, "option 'keys'"),
        ({"bucket": "b", "asOfRevision": "0"}, "'asOfRevision' takes a number of at least 1"),
        ({"bucket": "b", "includeDeletes": "1"}, "'includeDeletes' takes true or false"),
        ({"bucket": "b", "asOfRevison": "1"}, "did you mean 'asOfRevision'"),
        ({"bucket": "b", "startingOffsets": "earliest"}, "is not for batch reads"),
        ({"bucket": "b", "startingOffsets": "first"}, "takes 'earliest' or 'latest', or a rev"),
    ],
)
def test_errors_before_a_job_starts(
    spark: SparkSession, nats: NatsServer, options: dict[str, str], message: str
) -> None:
    given = {"servers": nats.url, "password": "top-secret", "user": "me", **options}
    with pytest.raises(PySparkException, match=re.escape(message)) as caught:
        spark.read.format("jetstream-kv").options(**given).load().collect()
    assert "top-secret" not in str(caught.value)


def test_options_of_snapshots_are_not_for_changes(changes: Changes, bucket: Bucket) -> None:
    with pytest.raises(PySparkException, match="'asOfRevision' is not for streaming reads"):
        changes.run(bucket, asOfRevision=1)
