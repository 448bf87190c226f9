"""Adds to each message of a stream what a bucket knows of its customer."""

import json
import os
import sys
import tempfile

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import jetspark.sync
from jetspark.server import run_server


def enrich(spark: SparkSession, url: str, checkpoint: str) -> None:
    orders = (
        spark.readStream.format("jetstream")
        .options(servers=url, stream="RAW_ORDERS", startingOffsets="earliest")
        .load()
        .withColumn("order", F.from_json(F.decode("data", "utf-8"), "number long, customer string"))
        .select("order.*")
    )
    customers = (
        spark.read.format("jetstream-kv")
        .options(servers=url, bucket="CUSTOMERS", keys="customer.*")
        .load()
        .withColumn("about", F.from_json(F.decode("value", "utf-8"), "name string, city string"))
        .select(F.substring_index("key", ".", -1).alias("customer"), "about.*")
    )
    # A customer that is not in the bucket must not make an order disappear. The bucket is small
    # enough for every task: without a shuffle, a batch that is written again has the same order.
    enriched = orders.join(F.broadcast(customers), "customer", "left").select(
        F.concat(F.lit("enriched."), F.coalesce("city", F.lit("unknown"))).alias("subject"),
        F.to_json(F.struct("number", "customer", "name", "city")).alias("data"),
    )
    query = (
        enriched.writeStream.format("jetstream")
        .options(servers=url, expectedStream="ENRICHED", checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main(spark: SparkSession, url: str) -> None:
    with tempfile.TemporaryDirectory() as checkpoint, jetspark.sync.connect(url) as nc:
        js = nc.jetstream()
        js.create_or_update_stream(name="RAW_ORDERS", subjects=["orders.raw"])
        target = js.create_or_update_stream(name="ENRICHED", subjects=["enriched.*"])
        customers = js.create_key_value(bucket="CUSTOMERS")
        customers.put("customer.1", json.dumps({"name": "Ada", "city": "rome"}).encode())
        customers.put("customer.2", json.dumps({"name": "Bo", "city": "oslo"}).encode())
        for number in range(9):
            order = {"number": number, "customer": str(number % 3 + 1)}
            js.publish("orders.raw", json.dumps(order).encode())

        enrich(spark, url, checkpoint)
        print(target.info().state.messages, "orders are enriched")
        for city in ("rome", "oslo", "unknown"):
            print(city, target.get_last_message(f"enriched.{city}").data.decode())


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with run_server() as server:
        session = SparkSession.builder.master("local[2]").getOrCreate()
        try:
            main(session, server.url)
        finally:
            session.stop()
