"""The Spark source in local[2]: scans against Parquet of the same rows and against a reader that yields tuples, a
point range, and the time from publish to foreachBatch. Run by `make bench-spark` only."""

from __future__ import annotations

import contextlib
import shutil
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.broker import BrokerProcess, running_broker
from bench.measurement import Latency, Measurement, Target
from bench.registry import case
from bench.rounds import interleave
from bench.workspace import Workspace
from goqueue.client import SyncClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROWS = 2_000_000
_LATENCY_RATE = 1_000


@contextlib.contextmanager
def _prepared(workspace: Workspace, rows: int) -> Iterator[tuple[BrokerProcess, SparkSession]]:
    """A broker with `rows` messages of 100 bytes in two partitions, and a session."""
    import os

    import goqueue_spark

    with running_broker(workspace) as broker:
        # Spark gets both cores: it is what is measured.
        os.sched_setaffinity(0, set(range(os.cpu_count() or 1)))
        with SyncClient(broker.wire) as client:
            client.create_topic("orders", partitions=2)
            with client.producer(batch_records=1000, batch_bytes=1 << 20) as producer:
                for start in range(0, rows, 100_000):
                    producer.send_many("orders", [b"%0100d" % n for n in range(start, min(start + 100_000, rows))])
        spark = goqueue_spark.session(
            master="local[2]",
            settings={"spark.driver.memory": "2g", "spark.sql.warehouse.dir": workspace.directory("warehouse")},
        )
        try:
            yield broker, spark
        finally:
            spark.stop()


@case("full scan with sum(length(value)), local[2], page cache warm")
def scan(workspace: Workspace) -> Iterator[Measurement]:
    import goqueue_spark
    from bench.tuple_source import TupleSource

    rows = workspace.sized(_ROWS, 10_000)
    with _prepared(workspace, rows) as (broker, spark):
        spark.dataSource.register(TupleSource)
        frame = goqueue_spark.topic("orders", bootstrap=broker.wire)
        copy = workspace.directory("parquet")
        frame.write.parquet(copy)
        tuples = spark.read.format("goqueue-tuples").option("directory", _data_of(spark, broker)).load()
        sides: dict[str, Callable[[], float]] = {
            "goqueue": lambda: _scan(frame, rows),
            "parquet": lambda: _scan(spark.read.parquet(copy), rows),
            "tuples": lambda: _scan(tuples, rows),
        }
        interleave(sides, rounds=1, progress=workspace.progress, label="spark.scan, warm-up")
        figures = interleave(sides, rounds=workspace.sized(7, 1), progress=workspace.progress, label="spark.scan")
        yield Measurement.against(
            "sealed segments in the executors",
            figures["goqueue"],
            figures["parquet"],
            unit="rows/s",
            baseline_name="spark.read.parquet",
            target=Target(at_least=0.45),
        )
        yield Measurement.against(
            "the same",
            figures["goqueue"],
            figures["tuples"],
            unit="rows/s",
            baseline_name="a reader that yields tuples",
            target=Target(at_least=5),
        )
        yield _point_range(workspace, frame)
        shutil.rmtree(copy)


def _data_of(spark: SparkSession, broker: BrokerProcess) -> str:
    with SyncClient(broker.wire) as client:
        return str(client.log_layout("orders")["directory"])


def _scan(frame: DataFrame, rows: int) -> float:
    start = time.perf_counter()
    found = frame.selectExpr("sum(length(value)) as total").first()
    seconds = time.perf_counter() - start
    assert found is not None
    assert found["total"] == rows * 100
    return rows / seconds


def _point_range(workspace: Workspace, frame: DataFrame) -> Measurement:
    samples = []
    for n in range(workspace.sized(30, 3)):
        start = time.perf_counter_ns()
        assert frame.where(f"partition = 0 and offset >= {n * 100} and offset < {n * 100 + 500}").count() == 500
        samples.append(time.perf_counter_ns() - start)
    return Measurement(
        name="a range of 500 offsets",
        value=statistics.median(samples) / 1e6,
        unit="ms",
        latency=Latency.of(samples),
        target=Target(at_most=200),
    )


@case("publish to foreachBatch at 1,000 messages a second", durability="all")
def latency(workspace: Workspace) -> Iterator[Measurement]:
    seconds = workspace.sized(20, 2)
    with _prepared(workspace, 1) as (broker, spark):
        frame = spark.readStream.format("goqueue").option("subscribe", "orders").option("bootstrap", broker.wire).load()
        samples: list[int] = []

        def take(batch: DataFrame, _: int) -> None:
            values: Any = batch.select("value").collect()
            now = time.time_ns()
            samples.extend(now - int(row.value[:20]) for row in values)

        checkpoint = Path(workspace.directory("checkpoint"))
        query = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint)).start()
        try:
            _publish_steadily(broker, seconds)
            query.processAllAvailable()
        finally:
            query.stop()
        steady = samples[len(samples) // 5 :]
        ordered = sorted(steady)
        yield Measurement(
            name="p50",
            value=ordered[len(ordered) // 2] / 1e6,
            unit="ms",
            latency=Latency.of(steady),
            target=Target(at_most=80),
        )
        yield Measurement(
            name="p95", value=ordered[int(len(ordered) * 0.95)] / 1e6, unit="ms", target=Target(at_most=150)
        )


def _publish_steadily(broker: BrokerProcess, seconds: float) -> None:
    stop = threading.Event()
    with SyncClient(broker.wire) as client, client.producer(linger_ms=1) as producer:
        started = time.monotonic()
        for n in range(int(seconds * _LATENCY_RATE)):
            stop.wait(max(started + n / _LATENCY_RATE - time.monotonic(), 0))
            producer.send("orders", b"%020d" % time.time_ns())
