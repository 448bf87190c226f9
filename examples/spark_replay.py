"""Replays Parquet files into a stream. A replay that is repeated stores nothing twice."""

import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import jetspark.sync
from jetspark.server import run_server


def replay(spark: SparkSession, url: str, path: str) -> None:
    events = spark.read.parquet(path)
    messages = events.select(
        F.concat(F.lit("replayed."), "device").alias("subject"),
        F.to_json(F.struct("device", "temperature")).alias("data"),
        F.create_map(F.lit("Kind"), F.array(F.lit("replay"))).alias("headers"),
        # An id of one's own: the server drops the message if it has come before.
        F.concat(F.lit("event-"), "id").alias("msg_id"),
    )
    (
        messages.write.format("jetstream")
        .option("servers", url)
        .option("expectedStream", "REPLAYED")
        .mode("append")
        .save()
    )


def main(spark: SparkSession, url: str) -> None:
    with (
        tempfile.TemporaryDirectory() as name,
        jetspark.sync.connect(url) as nc,
    ):
        path = str(Path(name) / "events")
        events = spark.range(1000).select(
            F.col("id").cast("string").alias("id"),
            (F.col("id") % 10).cast("string").alias("device"),
            (F.col("id") % 40 - 10).alias("temperature"),
        )
        events.write.parquet(path)

        js = nc.jetstream()
        stream = js.create_or_update_stream(name="REPLAYED", subjects=["replayed.*"])
        for _ in range(2):
            replay(spark, url, path)
            print(stream.info().state.messages, "messages in the stream")
        message = stream.get_last_message("replayed.7")
        print(message.subject, message.headers["Kind"], message.data[:12])


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with run_server() as server:
        session = SparkSession.builder.master("local[2]").getOrCreate()
        try:
            main(session, server.url)
        finally:
            session.stop()
