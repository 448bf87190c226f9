"""Data sources for Spark: streams, buckets and object stores of JetStream.

Spark finds them by itself; `register` does it by hand where it does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["read_parquet_objects", "register", "write_parquet_objects"]


def register(spark: SparkSession) -> None:
    """Make the data sources known to a session."""
    from .sources import JetStreamKvSource, JetStreamObjectsSource, JetStreamSource

    for source in (JetStreamSource, JetStreamKvSource, JetStreamObjectsSource):
        spark.dataSource.register(source)


def write_parquet_objects(
    frame: DataFrame, bucket: str, prefix: str, *, mode: str = "append", **options: str
) -> None:
    """Write a DataFrame as Parquet files into an object store, under a prefix.

    >>> write_parquet_objects(orders, "archive", "orders", servers=url)  # doctest: +SKIP

    Each task writes files of its own. With `mode="overwrite"` they take the place of all that are
    under the prefix. The options are those of the `jetstream-objects` sink.
    """
    writer = frame.write.format("jetstream-objects").options(**options)
    writer.options(bucket=bucket, namePrefix=prefix, layout="parquet").mode(mode).save()


def read_parquet_objects(
    spark: SparkSession, bucket: str, prefix: str, **options: str
) -> DataFrame:
    """Read the Parquet files under a prefix of an object store as a DataFrame.

    >>> orders = read_parquet_objects(spark, "archive", "orders", servers=url)  # doctest: +SKIP

    The options are those of the `jetstream-objects` source.
    """
    reader = spark.read.format("jetstream-objects").options(**options)
    return reader.options(bucket=bucket, namePrefix=prefix, layout="parquet").load()
