"""The source against a real broker and a real Spark: the same rows by every way of reading them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import goqueue
import goqueue_spark
from goqueue.embedded import EmbeddedBroker

SMALL_SEGMENTS: dict[str, object] = {"segment_bytes": 4096}
Rows = list[tuple[int, int, bytes | None, bytes | None, int]]


def fill(broker: EmbeddedBroker, topic: str, count: int, *, seed: int = 1, partitions: int = 2) -> None:
    chance = random.Random(seed)
    broker.create_topic(topic, partitions=partitions, config=SMALL_SEGMENTS)
    with broker.producer(linger_ms=1) as producer:
        futures = [
            producer.send(
                topic,
                chance.choice([None, b"", chance.randbytes(chance.randrange(200))]),
                key=chance.choice([None, b"", b"k%d" % chance.randrange(5)]),
                headers=[("n", str(n))] if chance.random() < 0.3 else None,
                priority=chance.randrange(5),
            )
            for n in range(count)
        ]
        for future in futures:
            future.result()


def by_client(broker: EmbeddedBroker, topic: str) -> Rows:
    messages = broker.reader(topic, follow=False)
    return sorted((m.partition, m.offset, m.key, m.value, m.priority) for m in messages)


def by_spark(frame: DataFrame) -> Rows:
    rows = frame.select("partition", "offset", "key", "value", "priority").collect()
    return sorted((r.partition, r.offset, _bytes(r.key), _bytes(r.value), r.priority) for r in rows)


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def test_files_broker_and_client_give_the_same_rows(spark: SparkSession, broker: EmbeddedBroker) -> None:
    fill(broker, "orders", 1_000)
    expected = by_client(broker, "orders")
    assert len(expected) == 1_000
    assert by_spark(goqueue_spark.topic("orders", bootstrap=broker.address)) == expected
    assert by_spark(goqueue_spark.topic("orders", bootstrap=broker.address, readFiles="false")) == expected
    assert by_spark(goqueue_spark.topic("orders", bootstrap=broker.address, rowsPerTask="37")) == expected


def test_a_data_directory_is_read_without_a_broker(spark: SparkSession, tmp_path: Path) -> None:
    with goqueue.open(str(tmp_path / "data")) as broker:
        fill(broker, "orders", 300)
        expected = by_client(broker, "orders")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "data").rglob("*") if path.is_file()}
    assert by_spark(goqueue_spark.topic("orders", path=str(tmp_path / "data"))) == expected
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_rows_have_the_columns_of_a_message(spark: SparkSession, broker: EmbeddedBroker) -> None:
    broker.create_topic("orders", partitions=1)
    sent = broker.send("orders", b"v", key=b"k", headers=[("a", b"\xff"), ("a", "two")], priority=1)
    (row,) = goqueue_spark.topic("orders", bootstrap=broker.address, includeHeaders="true").collect()
    assert (row.topic, row.partition, row.offset, row.priority) == ("orders", 0, 0, 1)
    assert (bytes(row.key), bytes(row.value)) == (b"k", b"v")
    assert [(h.key, bytes(h.value)) for h in row.headers] == [("a", b"\xff"), ("a", b"two")]
    assert row.timestamp.timestamp() == pytest.approx(sent.timestamp_ns / 1e9, abs=2e-6)
    assert "headers" not in goqueue_spark.topic("orders", bootstrap=broker.address).columns


def test_filters_and_projection_reach_the_reader(spark: SparkSession, broker: EmbeddedBroker) -> None:
    fill(broker, "orders", 500)
    expected = by_client(broker, "orders")
    frame = goqueue_spark.topic("orders", bootstrap=broker.address)
    chosen = frame.where("partition = 1 and offset >= 20 and offset < 90 and priority in (0, 3)")
    assert by_spark(chosen) == [r for r in expected if r[0] == 1 and 20 <= r[1] < 90 and r[4] in (0, 3)]
    assert frame.where("timestamp > timestamp'2100-01-01'").count() == 0
    assert frame.where("timestamp > timestamp'2020-01-01' and value is null").count() == sum(
        r[3] is None for r in expected
    )
    reader = spark.read.format("goqueue").option("subscribe", "orders").option("bootstrap", broker.address)
    assert reader.schema("offset BIGINT").load().count() == 500


def test_starting_and_ending_offsets_bound_a_batch(spark: SparkSession, broker: EmbeddedBroker) -> None:
    fill(broker, "orders", 200, partitions=1)
    frame = goqueue_spark.topic(
        "orders",
        bootstrap=broker.address,
        startingOffsets='{"orders": {"0": 50}}',
        endingOffsets='{"orders": {"0": 60}}',
    )
    assert [row.offset for row in frame.select("offset").orderBy("offset").collect()] == list(range(50, 60))
    with pytest.raises(PySparkException, match="beyond the end"):
        goqueue_spark.topic("orders", bootstrap=broker.address, startingOffsets='{"orders": {"0": 500}}').count()


def test_topics_are_chosen_by_pattern_and_assignment(spark: SparkSession, broker: EmbeddedBroker) -> None:
    for name in ("shop-a", "shop-b", "other"):
        fill(broker, name, 20)
    reader = spark.read.format("goqueue").option("bootstrap", broker.address)
    rows = reader.option("subscribePattern", "shop-.*").load().groupBy("topic").count().collect()
    assert {row.topic: row["count"] for row in rows} == {"shop-a": 20, "shop-b": 20}
    assigned = spark.read.format("goqueue").option("bootstrap", broker.address).option("assign", '{"other": [1]}')
    assert {row.partition for row in assigned.load().select("partition").collect()} <= {1}
    with pytest.raises(PySparkException, match="has partitions 0 to 1"):
        assigned.option("assign", '{"other": [7]}').load().count()


def test_sql_reads_topics_through_a_view(spark: SparkSession, broker: EmbeddedBroker) -> None:
    fill(broker, "orders", 50)
    spark.sql(
        f"create or replace temporary view orders using goqueue "
        f"options (subscribe 'orders', bootstrap '{broker.address}')"
    )
    assert spark.sql("select count(*) as n from orders").first()["n"] == 50  # type: ignore[index]


def test_an_unreachable_broker_is_named(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match=r"no broker answers at 127\.0\.0\.1:1 "):
        goqueue_spark.topic("orders", bootstrap="127.0.0.1:1").count()


def test_damage_is_an_error_that_names_the_file(spark: SparkSession, tmp_path: Path) -> None:
    with goqueue.open(str(tmp_path / "data")) as broker:
        fill(broker, "orders", 300, partitions=1)
    segment = sorted((tmp_path / "data/logs/orders/0").glob("*.log"))[1]
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    with pytest.raises(PySparkException, match=segment.name):
        goqueue_spark.topic("orders", path=str(tmp_path / "data")).count()


def tend(broker: EmbeddedBroker, topic: str, number: int, *, compact: bool = False) -> None:
    """Let retention or compaction happen now."""
    api = broker._server.broker
    partition = api.topics.partition(topic, number)
    work = api.maintenance.compact(partition, everything=True) if compact else api.maintenance.tend(partition)
    broker._server_thread.run(work)


def test_what_retention_removed_is_an_error_unless_the_query_accepts_it(
    spark: SparkSession, broker: EmbeddedBroker
) -> None:
    fill(broker, "orders", 400, partitions=1)
    broker.alter_topic("orders", {"retention_bytes": 8192})
    tend(broker, "orders", 0)
    rows = by_client(broker, "orders")
    start = rows[0][1]
    assert start > 0
    given = {"bootstrap": broker.address, "startingOffsets": '{"orders": {"0": 0}}'}
    with pytest.raises(PySparkException, match="are gone"):
        goqueue_spark.topic("orders", **given).count()
    assert by_spark(goqueue_spark.topic("orders", failOnDataLoss="false", **given)) == rows


@pytest.mark.parametrize("files", ["true", "false"])
def test_gaps_of_compaction_are_no_data_loss(spark: SparkSession, broker: EmbeddedBroker, files: str) -> None:
    broker.create_topic("state", partitions=1, config={**SMALL_SEGMENTS, "cleanup_policy": "compact"})
    with broker.producer(linger_ms=0) as producer:
        for n in range(400):
            producer.send("state", b"v%d" % n + b"x" * 60, key=b"k%d" % (n % 7))
    tend(broker, "state", 0, compact=True)
    rows = by_client(broker, "state")
    assert len(rows) < 400
    frame = goqueue_spark.topic("state", bootstrap=broker.address, readFiles=files, rowsPerTask="50")
    assert by_spark(frame) == rows


# -- streams ------------------------------------------------------------------------------------------------------


def stream(spark: SparkSession, broker: EmbeddedBroker, checkpoint: Path, topic: str, **options: str) -> list[Any]:
    """Run a query on what there is now; returns its rows as (partition, offset)."""
    seen: list[Any] = []
    given = {"subscribe": topic, "bootstrap": broker.address, "startingOffsets": "earliest", **options}
    frame = spark.readStream.format("goqueue").options(**given).load()
    query = (
        frame.writeStream.foreachBatch(
            lambda batch, _: seen.extend((r.partition, r.offset) for r in batch.select("partition", "offset").collect())
        )
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return seen


def test_a_stream_goes_on_from_its_checkpoint(spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path) -> None:
    fill(broker, "orders", 100, partitions=2)
    first = stream(spark, broker, tmp_path / "checkpoint", "orders", maxOffsetsPerTrigger="30")
    broker.send("orders", b"late")
    second = stream(spark, broker, tmp_path / "checkpoint", "orders")
    assert sorted(first + second) == [row[:2] for row in by_client(broker, "orders")]
    assert len(second) == 1
    offsets = broker.group_offsets("spark-orders")["orders"]
    assert sum(partition["lag"] for partition in offsets.values()) <= 1, "progress shows as a group"
    (pin,) = broker.list_pins()
    assert pin["name"] == "spark-orders.orders", "a query that is started again needs what it has not committed"


def test_a_checkpoint_of_another_topic_is_refused(spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path) -> None:
    fill(broker, "orders", 10)
    fill(broker, "others", 10)
    stream(spark, broker, tmp_path / "checkpoint", "orders")
    broker.send("others", b"x")
    with pytest.raises(PySparkException, match="the checkpoint is of a query on orders"):
        stream(spark, broker, tmp_path / "checkpoint", "others")
