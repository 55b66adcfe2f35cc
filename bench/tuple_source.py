"""The plain way to write a Python data source, as a baseline: decode in Python, yield one tuple per row."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType


class TupleSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "goqueue-tuples"

    def schema(self) -> str:
        first = "key binary, value binary, topic string, partition int"
        return f"{first}, offset bigint, timestamp timestamp, priority tinyint"

    def reader(self, schema: StructType) -> DataSourceReader:
        return TupleReader(Path(self.options["directory"]))


class TupleReader(DataSourceReader):
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(str(folder)) for folder in sorted((self._directory / "logs/orders").iterdir())]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        from goqueue.record import decode

        folder = Path(partition.value)
        number = int(folder.name)
        for file in sorted(folder.glob("*.log")):
            for record in decode(file.read_bytes()):
                time = datetime.fromtimestamp(record.timestamp_ns / 1e9, UTC)
                yield record.key, record.value, "orders", number, record.offset, time, record.priority
