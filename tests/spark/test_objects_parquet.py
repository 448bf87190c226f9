"""DataFrames as Parquet files in an object store."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.testing.utils import assertDataFrameEqual

from jetspark.server import NatsServer
from jetspark.spark import read_parquet_objects, register, write_parquet_objects

from .conftest import Streams
from .test_objects_source import Store


@pytest.fixture
def store(streams: Streams) -> Store:
    """An empty one."""
    return Store(streams)


def test_all_types_come_back(spark: SparkSession, nats: NatsServer, store: Store) -> None:
    schema = (
        "n bigint, i int, s string, b binary, d double, f float, ok boolean, day date, "
        "at timestamp, local timestamp_ntz, price decimal(10,2), tags array<string>, "
        "counts map<string,int>, inner struct<a: int, b: array<struct<c: string>>>"
    )
    day, at = dt.date(2026, 1, 31), dt.datetime(2026, 1, 31, 12, 30, 0, 123456)
    full: tuple[Any, ...] = (
        *(1, 2, "text", b"\x00\xff", 1.5, 2.5, True, day, at, at, Decimal("12.34")),
        *(["x", None], {"k": 1, "m": None}, (1, [("deep",), None])),
    )
    frame = spark.createDataFrame([full, (None,) * len(full)], schema)
    write_parquet_objects(frame, store.name, "types", servers=nats.url)
    back = read_parquet_objects(spark, store.name, "types", servers=nats.url)
    assert back.dtypes == frame.dtypes
    assertDataFrameEqual(back, frame)


def test_several_files_and_tasks(spark: SparkSession, nats: NatsServer, store: Store) -> None:
    frame = spark.range(20_000).select("id", F.sha2(F.col("id").cast("string"), 256).alias("hash"))
    store.put("other/file.parquet", b"not of this prefix")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "4000")
    try:
        write_parquet_objects(
            frame.repartition(2), store.name, "many/", servers=nats.url, maxObjectSize="4"
        )
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    names = [name for name in store.contents() if name.startswith("many/")]
    assert len(names) == 6
    back = read_parquet_objects(
        spark, store.name, "many", servers=nats.url, maxBytesPerPartition="500000"
    )
    assert back.rdd.getNumPartitions() > 1
    row = back.selectExpr("count(*) AS n", "count(DISTINCT hash) AS d", "sum(id) AS s").first()
    assert row is not None
    assert (row.n, row.d, row.s) == (20_000, 20_000, 19_999 * 10_000)
    assert back.where("id = 7").select("hash").count() == 1


def test_appending_and_overwriting(spark: SparkSession, nats: NatsServer, store: Store) -> None:
    def numbers() -> list[int]:
        back = read_parquet_objects(spark, store.name, "p", servers=nats.url)
        return sorted(row.id for row in back.collect())

    write_parquet_objects(spark.range(3), store.name, "p", servers=nats.url)
    write_parquet_objects(spark.range(3, 5), store.name, "p", servers=nats.url)
    assert numbers() == [0, 1, 2, 3, 4]
    store.put("p2/x.parquet", b"")
    write_parquet_objects(spark.range(7, 9), store.name, "p", mode="overwrite", servers=nats.url)
    assert numbers() == [7, 8]
    assert "p2/x.parquet" in store.contents()


def test_no_rows(spark: SparkSession, nats: NatsServer, store: Store) -> None:
    empty = spark.createDataFrame([], "id bigint, name string")
    write_parquet_objects(empty, store.name, "empty", servers=nats.url)
    back = read_parquet_objects(spark, store.name, "empty", servers=nats.url)
    assert back.dtypes == empty.dtypes
    assert back.count() == 0


def test_a_failed_job_leaves_nothing(spark: SparkSession, nats: NatsServer, store: Store) -> None:
    frame = spark.range(0, 1000, 1, 2).select(
        F.expr("IF(id = 999, raise_error('broken'), id)").cast("bigint").alias("id")
    )
    with pytest.raises(PySparkException, match="broken"):
        write_parquet_objects(frame, store.name, "p", servers=nats.url)
    with pytest.raises(PySparkException, match="has no such Parquet files"):
        read_parquet_objects(spark, store.name, "p", servers=nats.url)


def test_what_cannot_be_read(spark: SparkSession, nats: NatsServer, store: Store) -> None:
    with pytest.raises(PySparkException, match="has no such Parquet files"):
        read_parquet_objects(spark, store.name, "p", servers=nats.url)
    store.put("p/x.parquet", b"this is no such file")
    with pytest.raises(PySparkException, match=r"'p/x.parquet' .* cannot be read as a Parquet"):
        read_parquet_objects(spark, store.name, "p", servers=nats.url)


def test_registering_by_hand(spark: SparkSession, nats: NatsServer, store: Store) -> None:
    session = spark.newSession()
    register(session)
    reader = session.read.format("jetstream-objects")
    assert reader.options(servers=nats.url, bucket=store.name).load().count() == 0
