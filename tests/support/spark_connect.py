"""A client of Spark Connect in a process of its own, where no other kind of session may be.

`python -m tests.support.spark_connect '{"servers": ..., ...}' result.json` starts a server of Spark
Connect, works with it, and writes down what it has seen.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import jetspark.spark

__all__ = ["work"]


def work(spark: SparkSession, job: dict[str, str]) -> dict[str, Any]:
    """Do what a user would do; returns rows and errors."""
    found: dict[str, Any] = {"session": type(spark).__module__}
    messages = spark.read.format("jetstream").option("servers", job["servers"])
    numbers = messages.option("stream", job["source"]).load()
    found["read"] = _rows(numbers.selectExpr("subject", "CAST(data AS STRING)"))
    found["missing"] = _failure(messages.option("stream", "NOWHERE").load())
    _copy(spark, job)

    jetspark.spark.register(spark)
    entries = numbers.selectExpr("concat('key.', sequence) AS key", "data AS value")
    bucket = {"servers": job["servers"], "bucket": job["bucket"]}
    entries.write.format("jetstream-kv").options(**bucket).mode("append").save()
    kept = spark.read.format("jetstream-kv").options(**bucket).load()
    found["kept"] = _rows(kept.selectExpr("key", "CAST(value AS STRING)"))
    return found


def _rows(frame: Any) -> list[list[str]]:
    return sorted([list(row) for row in frame.collect()])


def _failure(frame: Any) -> str:
    try:
        frame.collect()
    except PySparkException as error:
        return str(error)
    return ""


def _copy(spark: SparkSession, job: dict[str, str]) -> None:
    source = {"servers": job["servers"], "stream": job["source"], "startingOffsets": "earliest"}
    rows = spark.readStream.format("jetstream").options(**source).load()
    rows = rows.selectExpr(f"concat('{job['target']}.', sequence) AS subject", "data")
    target = {"servers": job["servers"], "checkpointLocation": job["checkpoint"]}
    query = rows.writeStream.format("jetstream").options(**target).trigger(availableNow=True)
    assert query.start().awaitTermination(300)


def main() -> None:
    """Run the job that the first argument describes."""
    session = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false")
    spark = session.getOrCreate()
    try:
        found = work(spark, json.loads(sys.argv[1]))
    finally:
        spark.stop()
    Path(sys.argv[2]).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
