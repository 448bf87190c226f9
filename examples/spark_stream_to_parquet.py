"""Archives a stream as Parquet files: each run takes what has come since the last one."""

import json
import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import jetspark.sync
from jetspark.server import run_server


def publish_orders(url: str, first: int, count: int) -> None:
    with jetspark.sync.connect(url) as nc:
        js = nc.jetstream()
        js.create_or_update_stream(name="ARCHIVED", subjects=["archived.>"])
        for number in range(first, first + count):
            order = {"number": number, "amount": number % 7 + 0.5}
            js.publish_async(f"archived.{number % 3}", json.dumps(order).encode())
        js.publish_async_complete()


def archive(spark: SparkSession, url: str, directory: Path) -> None:
    """Read what is new and end; the checkpoint knows how far it was."""
    orders = (
        spark.readStream.format("jetstream")
        .option("servers", url)
        .option("stream", "ARCHIVED")
        .option("startingOffsets", "earliest")
        .load()
        .withColumn("order", F.from_json(F.decode("data", "utf-8"), "number long, amount double"))
        .select("subject", "sequence", "timestamp", "order.*")
    )
    query = (
        orders.writeStream.format("parquet")
        .option("path", str(directory / "orders"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    progress = query.lastProgress
    if progress is not None:
        source = progress["sources"][0]
        print("read up to", source["endOffset"], "of", source["latestOffset"])


def main(spark: SparkSession, url: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for first in (1, 501):
            publish_orders(url, first, 500)
            archive(spark, url, directory)
            orders = spark.read.parquet(str(directory / "orders"))
            print(orders.count(), "orders,", orders.select("number").distinct().count(), "numbers")


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with run_server() as server:
        session = SparkSession.builder.master("local[2]").getOrCreate()
        try:
            main(session, server.url)
        finally:
            session.stop()
