"""The columns of a message in Spark, and batches of the record kernel in that form.

key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, priority tinyint, and with
`includeHeaders` headers array<struct<key: string, value: binary>>. A null key and a tombstone are nulls.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from goqueue.errors import ConfigurationError
from goqueue.host import Buffer
from goqueue.record import INVISIBLE_FLAGS, decode_columns
from goqueue.record.arrow import record_batch

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_COLUMNS = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("priority", ByteType()),
        StructField("headers", ArrayType(_HEADER)),
    ]
)
_MICROSECOND_NS = 1_000


def message_schema(*, include_headers: bool) -> StructType:
    return _COLUMNS if include_headers else StructType(_COLUMNS.fields[:-1])


def check_schema(schema: StructType) -> None:
    """A query may ask for fewer columns, never for others."""
    types = {field.name: field.dataType for field in _COLUMNS.fields}
    wrong = [field.name for field in schema.fields if types.get(field.name) != field.dataType]
    if wrong:
        known = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in _COLUMNS.fields)
        raise ConfigurationError(f"the source has no column {', '.join(wrong)} of that type; it has {known}")


class Shape:
    """Turns stored records of one partition into Arrow batches with the columns that were asked for."""

    def __init__(self, schema: StructType, topic: str, partition: int) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._topic = pa.scalar(topic, pa.string())
        self._partition = pa.scalar(partition, pa.int32())

    def decode(
        self, data: Buffer, start: int, end: int, priorities: frozenset[int] | None
    ) -> tuple[pa.RecordBatch, int, int]:
        """Verified visible records with start <= offset < end; also the bytes used and the next offset."""
        columns = decode_columns(data, INVISIBLE_FLAGS, start, end, _MICROSECOND_NS, True)
        batch = record_batch(columns, unit="us")
        if priorities is not None:
            batch = batch.filter(pc.is_in(batch.column("priority"), pa.array(sorted(priorities), pa.uint8())))
        arrays = [self._column(batch, field) for field in self._schema]
        shaped = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        return shaped, columns.consumed, columns.next_offset

    def _column(self, batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
        if field.name == "topic":
            return pa.repeat(self._topic, batch.num_rows)
        if field.name == "partition":
            return pa.repeat(self._partition, batch.num_rows)
        column = batch.column(field.name)
        if field.name == "headers":
            return _named_headers(column, field.type)
        return column if column.type == field.type else column.cast(field.type)


def _named_headers(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Header names are text in Spark; one that is not UTF-8 is shown with replacement characters."""
    items = column.values
    names, values = items.field(0), items.field(1)
    try:
        names = names.cast(pa.string())
    except pa.ArrowInvalid:
        names = pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())
    pairs = pa.StructArray.from_arrays([names, values], fields=list(wanted.value_type))
    return pa.ListArray.from_arrays(column.offsets, pairs, type=wanted)
