"""The `jetstream-objects` source and sink: rows are objects."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import jetspark
from jetspark.server import NatsServer
from tests.support.clients import unique

from .conftest import Read, Streams

Work = Callable[[jetspark.ObjectStore], Any]


class Store:
    """An object store of its own."""

    def __init__(self, streams: Streams) -> None:
        self.streams = streams
        self.name = unique("store").replace(".", "_")

        async def create(js: jetspark.JetStream) -> None:
            await js.create_object_store(bucket=self.name)

        streams.edit(create)

    def edit(self, work: Work) -> Any:
        """Do something with it."""

        async def edit(js: jetspark.JetStream) -> Any:
            return await work(await js.object_store(self.name))

        return self.streams.edit(edit)

    def put(self, name: str, data: bytes, **options: Any) -> None:
        async def put(store: jetspark.ObjectStore) -> None:
            await store.put(name, data, **options)

        self.edit(put)

    def contents(self) -> dict[str, bytes]:
        """All objects."""

        async def read(store: jetspark.ObjectStore) -> dict[str, bytes]:
            names = [info.name async for info in store.list()]
            return {name: await (await store.get(name)).read() for name in names}

        found: dict[str, bytes] = self.edit(read)
        return found


@pytest.fixture
def store(streams: Streams) -> Store:
    """An empty one."""
    return Store(streams)


@pytest.fixture
def objects(spark: SparkSession, nats: NatsServer) -> Read:
    """Reads objects."""

    def read(store: Store, **options: Any) -> DataFrame:
        texts = {name: str(value) for name, value in options.items()}
        reader = spark.read.format("jetstream-objects").options(servers=nats.url)
        return reader.options(bucket=store.name, **texts).load()

    return read


def contents(frame: DataFrame) -> dict[str, bytes]:
    return {row.name: bytes(row.content) for row in frame.collect()}


def test_columns(objects: Read, store: Store) -> None:
    data = bytes(range(256)) * 2000
    store.put(
        "one",
        data,
        description="the first",
        metadata={"by": "me"},
        headers={"Kind": ["x", "y"]},
        chunk_size=100_000,
    )
    store.put("two", b"")

    async def change(kept: jetspark.ObjectStore) -> None:
        await kept.put("gone", b"x")
        await kept.delete("gone")
        await kept.add_link("link", "one")

    store.edit(change)
    frame = objects(store)
    assert frame.dtypes == [
        ("name", "string"),
        ("size", "bigint"),
        ("chunks", "bigint"),
        ("digest", "string"),
        ("mtime", "timestamp"),
        ("description", "string"),
        ("metadata", "map<string,string>"),
        ("headers", "map<string,array<string>>"),
        ("content", "binary"),
    ]
    one, two = frame.orderBy("name").collect()
    assert (one.name, one.size, one.chunks) == ("one", len(data), 6)
    assert bytes(one.content) == data
    assert one.digest.startswith("SHA-256=")
    assert one.mtime is not None
    assert (one.description, one.metadata, one.headers) == (
        "the first",
        {"by": "me"},
        {"Kind": ["x", "y"]},
    )
    assert (two.name, two.size, bytes(two.content)) == ("two", 0, b"")
    rows = objects(store, includeContent="false").orderBy("name").collect()
    assert [(row.name, row.size, row.content) for row in rows] == [
        ("one", len(data), None),
        ("two", 0, None),
    ]


def test_names(objects: Read, store: Store) -> None:
    for name in ("a/1.csv", "a/2.csv", "a/3.txt", "b/1.csv"):
        store.put(name, name.encode())
    assert set(contents(objects(store, names="a/*.csv"))) == {"a/1.csv", "a/2.csv"}
    assert set(contents(objects(store, names="*.txt, b/?.csv"))) == {"a/3.txt", "b/1.csv"}
    assert set(contents(objects(store, namePrefix="a/", names="*1*"))) == {"a/1.csv"}
    assert contents(objects(store, names="none")) == {}


def test_parallel_by_size(objects: Read, store: Store) -> None:
    data = {f"o{number}": bytes([number]) * 300_000 for number in range(8)}
    for name, content in data.items():
        store.put(name, content)
    frame = objects(store, maxBytesPerPartition=1_200_000)
    assert frame.rdd.getNumPartitions() == 4
    assert contents(frame) == data


def test_an_empty_store(objects: Read, store: Store) -> None:
    assert contents(objects(store)) == {}
    assert contents(objects(store, includeContent="false")) == {}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "option 'bucket' is missing"),
        ({"bucket": "a b"}, "option 'bucket'"),
        ({"bucket": "not_there"}, "there is no object store 'not_there'"),
        ({"bucket": "b", "layout": "csv"}, "'layout' takes 'objects' or 'parquet'"),
        ({"bucket": "b", "names": "a,,b"}, "option 'names' takes a name"),
        ({"bucket": "b", "maxObjectSize": "0"}, "takes a number of at least 1"),
        ({"bucket": "b", "rowsPerBatch": "5"}, "'rowsPerBatch' is not for layout=objects"),
        ({"bucket": "b", "includeContents": "true"}, "did you mean 'includeContent'"),
        ({"bucket": "b", "namePrefix": "/"}, "'namePrefix' takes the beginning of names"),
    ],
)
def test_errors_before_a_job_starts(
    spark: SparkSession, nats: NatsServer, options: dict[str, str], message: str
) -> None:
    given = {"servers": nats.url, "password": "top-secret", "user": "me", **options}
    with pytest.raises(PySparkException, match=re.escape(message)) as caught:
        spark.read.format("jetstream-objects").options(**given).load().collect()
    assert "top-secret" not in str(caught.value)


def test_an_object_that_is_too_large(objects: Read, store: Store) -> None:
    store.put("large", b"x" * 1001)
    with pytest.raises(PySparkException, match="object 'large' has 1001 bytes, over option"):
        objects(store, maxObjectSize=1000).collect()
    assert objects(store, maxObjectSize=1000, includeContent="false").count() == 1


# -- writing ------------------------------------------------------------------------------------


def write(frame: DataFrame, nats: NatsServer, store: Store, **options: Any) -> None:
    """Write in batch."""
    texts = {name: str(value) for name, value in options.items()}
    writer = frame.write.format("jetstream-objects").options(servers=nats.url, bucket=store.name)
    writer.options(**texts).mode("append").save()


def test_writing_objects(
    spark: SparkSession, nats: NatsServer, objects: Read, store: Store
) -> None:
    schema = (
        "name string, content binary, description string, metadata map<string,string>, "
        "headers map<string,array<string>>"
    )
    rows = [
        ("a", b"old", None, None, None),
        ("b", b"", "empty", {"x": "1"}, {"H": ["1", "2"]}),
        ("a", b"new" * 100_000, None, None, None),
    ]
    write(spark.createDataFrame(rows, schema).coalesce(1), nats, store)
    found = {row.name: row for row in objects(store).collect()}
    assert bytes(found["a"].content) == b"new" * 100_000
    assert (found["b"].description, found["b"].metadata) == ("empty", {"x": "1"})
    assert found["b"].headers == {"H": ["1", "2"]}
    write(spark.sql("SELECT 'b' AS name, 'text' AS content"), nats, store)
    assert store.contents() == {"a": b"new" * 100_000, "b": b"text"}


def test_many_objects_of_several_tasks(
    spark: SparkSession, nats: NatsServer, objects: Read, store: Store
) -> None:
    frame = spark.range(60).select(
        F.concat(F.lit("n/"), F.col("id")).alias("name"),
        F.sha2(F.col("id").cast("string"), 256).alias("content"),
    )
    write(frame.repartition(3), nats, store)
    expected = {
        f"n/{number}": hashlib.sha256(str(number).encode()).hexdigest().encode()
        for number in range(60)
    }
    assert contents(objects(store)) == expected


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ("'a' AS name", {}, "there is no column 'content'"),
        ("'a' AS name, 1 AS content", {}, "column 'content' must be binary or string"),
        ("'a' AS name, 'x' AS content, 1 AS size", {}, "no use for column 'size'"),
        ("'' AS name, 'x' AS content", {}, "column 'name': the name of the object is empty"),
        ("'a' AS name, CAST(NULL AS STRING) AS content", {}, "object 'a' has no content"),
        ("'a' AS name, 'x' AS content", {"namePrefix": "p"}, "is not for layout=objects"),
        ("1 AS x", {"layout": "parquet"}, "option 'namePrefix' is missing"),
    ],
)
def test_errors_of_the_sink(
    spark: SparkSession,
    nats: NatsServer,
    store: Store,
    columns: str,
    options: dict[str, str],
    message: str,
) -> None:
    with pytest.raises(PySparkException, match=message):
        write(spark.sql(f"SELECT {columns}"), nats, store, **options)
    assert store.contents() == {}


def test_a_streaming_query(
    follow: Read, nats: NatsServer, streams: Streams, store: Store, tmp_path: Path
) -> None:
    origin = streams.new()
    streams.publish(origin, 10)
    frame = follow(stream=origin, startingOffsets="earliest").select(
        F.col("sequence").cast("string").alias("name"), F.col("data").alias("content")
    )
    query = (
        frame.writeStream.format("jetstream-objects")
        .options(servers=nats.url, bucket=store.name, checkpointLocation=str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert store.contents() == {str(number): b"%d" % number for number in range(1, 11)}
