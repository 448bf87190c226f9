"""Orders of a stream: kept in a table, added up for each city, the large ones published again."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()

# Where NATS is: without option `servers`, here and below, NATS_URL says it.
dp.create_sink("large_orders", "jetstream", {"expectedStream": "LARGE_ORDERS"})


@dp.table
def orders() -> DataFrame:
    messages = (
        spark.readStream.format("jetstream")
        .options(stream="ORDERS", startingOffsets="earliest")
        .load()
    )
    order = F.from_json(F.decode("data", "utf-8"), "number long, city string, total double")
    return messages.withColumn("order", order).select("sequence", "timestamp", "order.*")


@dp.materialized_view
def totals() -> DataFrame:
    cities = spark.table("orders").groupBy("city")
    return cities.agg(F.count("number").alias("orders"), F.sum("total").alias("total"))


@dp.append_flow(target="large_orders")
def announce() -> DataFrame:
    large = spark.readStream.table("orders").where("total >= 100")
    return large.select(
        F.concat(F.lit("large."), "city").alias("subject"),
        F.to_json(F.struct("number", "city", "total")).alias("data"),
    )
