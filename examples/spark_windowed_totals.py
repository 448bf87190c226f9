"""Totals of each shop for each minute, kept up to date in a bucket that anybody can watch."""

import json
import os
import sys
import tempfile
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import jetspark.sync
from jetspark.server import run_server

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def publish_sales(js: jetspark.sync.JetStream, first: int, count: int) -> None:
    """One sale a second, in turns in two shops."""
    for number in range(first, first + count):
        sale = {
            "shop": ("rome", "oslo")[number % 2],
            "at": (NOON + timedelta(seconds=number)).isoformat(),
            "amount": 1.0,
        }
        js.publish_async(f"sales.{sale['shop']}", json.dumps(sale).encode())
    js.publish_async_complete()


def update_totals(spark: SparkSession, url: str, checkpoint: str) -> None:
    sales = (
        spark.readStream.format("jetstream")
        .options(servers=url, stream="SALES", startingOffsets="earliest")
        .load()
        .withColumn(
            "sale",
            F.from_json(F.decode("data", "utf-8"), "shop string, at timestamp, amount double"),
        )
        .select("sale.*")
    )
    totals = (
        # A minute is closed, and its state dropped, when a sale two minutes later has been seen.
        sales.withWatermark("at", "2 minutes")
        .groupBy("shop", F.window("at", "1 minute").alias("minute"))
        .agg(F.sum("amount").alias("total"), F.count("*").alias("sales"))
    )
    entries = totals.select(
        F.format_string("%s.%d", "shop", F.unix_timestamp("minute.start")).alias("key"),
        F.to_json(F.struct("total", "sales")).alias("value"),
    )

    def put(changed: DataFrame, batch: int) -> None:
        # A batch that is written again sets the same keys to the same values.
        writer = changed.write.format("jetstream-kv").options(servers=url, bucket="TOTALS")
        writer.mode("append").save()

    query = (
        # Spark knows no output mode `update` for Python sinks. With `append`, a sink of the format
        # `jetstream-kv` would get the total of a minute once, when it is closed.
        entries.writeStream.foreachBatch(put)
        .option("checkpointLocation", checkpoint)
        .outputMode("update")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main(spark: SparkSession, url: str) -> None:
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    with tempfile.TemporaryDirectory() as checkpoint, jetspark.sync.connect(url) as nc:
        js = nc.jetstream()
        js.create_or_update_stream(name="SALES", subjects=["sales.>"])
        totals = js.create_key_value(bucket="TOTALS", history=5)
        for first in (0, 90):  # the second run adds to the second minute
            publish_sales(js, first, 90)
            update_totals(spark, url, checkpoint)
        for key in sorted(totals.keys("rome.*")):
            entry = totals.get(key)
            print(key, entry.value.decode(), "after", len(totals.history(key)), "updates")


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with run_server() as server:
        session = SparkSession.builder.master("local[2]").getOrCreate()
        try:
            main(session, server.url)
        finally:
            session.stop()
