"""GoQueue for Spark: topics as data frames and streams, through PySpark. Needs the `spark` extra."""

from goqueue_spark.session import session, topic
from goqueue_spark.source import GoQueueSource

__all__ = ["GoQueueSource", "session", "topic"]
