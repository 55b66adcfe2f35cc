"""A Spark session with everything the source needs, and topics as data frames.

import goqueue_spark
orders = goqueue_spark.topic("orders")
orders.groupBy("priority").count().show()
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from goqueue_spark.java import find_java_home
from goqueue_spark.source import PUSHDOWN_VARIABLE, GoQueueSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MASTER_VARIABLE = "GOQUEUE_SPARK_MASTER"
MASTER_DEFAULT = "local[*]"

# Two settings make a small batch three times as fast: no TCP between JVM and Python on one machine, and no process
# per file operation for checkpoints.
_SETTINGS = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "8",
}


def session(
    *, master: str | None = None, name: str = "goqueue", settings: dict[str, str] | None = None
) -> SparkSession:
    """A session that knows the format `goqueue`; the running one if there is one.

    `master` is `local[*]` unless given here or as GOQUEUE_SPARK_MASTER; `settings` are Spark's and come last.
    """
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is None:
        _prepare_process()
        builder = SparkSession.builder.appName(name)
        builder = builder.master(master or os.environ.get(MASTER_VARIABLE, MASTER_DEFAULT))
        for key, value in {**_SETTINGS, **(settings or {})}.items():
            builder = builder.config(key, value)
        active = builder.getOrCreate()
        active.sparkContext.setLogLevel("ERROR")
    active.dataSource.register(GoQueueSource)
    return active


def _prepare_process() -> None:
    """What must be in the environment before the JVM starts; it passes it on to the Python workers."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ[PUSHDOWN_VARIABLE] = "1"
    # A host name that does not resolve keeps Spark from starting, and nothing outside this machine is asked for.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "goqueue"
    if (home := find_java_home(cache)) is not None:
        os.environ["JAVA_HOME"] = home


def topic(name: str, *, spark: SparkSession | None = None, **options: str) -> DataFrame:
    """The messages of a topic as they are now; options are those of the source."""
    reader = (spark or session()).read.format("goqueue").option("subscribe", name)
    return reader.options(**options).load()
