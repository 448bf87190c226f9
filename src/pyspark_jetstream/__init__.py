"""Spark looks for data sources in modules of such names: see `jetspark.spark`."""

from jetspark.spark.sources import JetStreamSource as DefaultSource

__all__ = ["DefaultSource"]
