"""One Spark session and one broker for all tests of a process: starting either costs more than most tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import goqueue
import goqueue_spark
from goqueue.embedded import EmbeddedBroker


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    os.environ["SPARK_LOCAL_DIRS"] = str(folder)
    session = goqueue_spark.session(
        master="local[2]",
        settings={"spark.sql.warehouse.dir": f"{folder}/warehouse", "spark.driver.memory": "1g"},
    )
    yield session
    gateway = session.sparkContext._gateway
    session.stop()
    # PySpark leaves the JVM running until the interpreter ends.
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=30)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with goqueue.open(str(tmp_path / "data")) as running:
        yield running
