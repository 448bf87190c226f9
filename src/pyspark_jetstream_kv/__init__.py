"""Spark looks for data sources in modules of such names: see `jetspark.spark`."""

from jetspark.spark.sources import JetStreamKvSource as DefaultSource

__all__ = ["DefaultSource"]
