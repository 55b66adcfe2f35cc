"""Lets Spark find the format `goqueue` by itself: it looks for `DefaultSource` in modules named `pyspark_*`."""

from goqueue_spark.source import GoQueueSource as DefaultSource

__all__ = ["DefaultSource"]
