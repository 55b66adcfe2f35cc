"""Batches as Arrow columns, without per-record Python work. Needs `pyarrow` (the `arrow` extra).

Columns: offset int64, timestamp (UTC, ns or us), priority uint8, flags uint8, key binary, value binary,
headers list<struct<key binary, value binary>>. A null key and a tombstone are nulls; a record without headers has an
empty list.
"""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

from goqueue.host import Buffer
from goqueue.record._kernel import OFFSET_MAX, Columns, decode_columns

HEADER_TYPE = pa.struct([pa.field("key", pa.binary(), nullable=False), pa.field("value", pa.binary(), nullable=False)])
_UNIT_NS = {"ns": 1, "us": 1_000}


def arrow_schema(unit: Literal["ns", "us"] = "ns") -> pa.Schema:
    """The schema of every batch that `decode_arrow` returns."""
    return pa.schema(
        [
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("timestamp", pa.timestamp(unit, tz="UTC"), nullable=False),
            pa.field("priority", pa.uint8(), nullable=False),
            pa.field("flags", pa.uint8(), nullable=False),
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("headers", pa.list_(pa.field("item", HEADER_TYPE, nullable=False)), nullable=False),
        ]
    )


_SCHEMAS = {unit: arrow_schema(unit) for unit in ("ns", "us")}
# Asking a schema for a type makes a new object each time; a batch asks for seven.
_TYPES = {unit: [field.type for field in schema] for unit, schema in _SCHEMAS.items()}
_BINARY = pa.binary()
_NO_HEADERS = pa.StructArray.from_buffers(HEADER_TYPE, 0, [None], children=[pa.array([], _BINARY)] * 2)


def decode_arrow(
    batch: Buffer,
    *,
    skip_flags: int = 0,
    min_offset: int = 0,
    max_offset: int = OFFSET_MAX,
    unit: Literal["ns", "us"] = "ns",
    allow_partial: bool = False,
) -> pa.RecordBatch:
    """Verify `batch` and return its records with min_offset <= offset < max_offset and none of `skip_flags`."""
    columns = decode_columns(batch, skip_flags, min_offset, max_offset, _UNIT_NS[unit], allow_partial)
    return record_batch(columns, unit=unit)


def record_batch(columns: Columns, *, unit: Literal["ns", "us"] = "ns") -> pa.RecordBatch:
    """Give the kernel's raw buffers their types; nothing is copied."""
    types, count = _TYPES[unit], columns.count
    wrap, make = pa.py_buffer, pa.Array.from_buffers
    arrays = [
        make(types[0], count, [None, wrap(columns.offset)], 0),
        make(types[1], count, [None, wrap(columns.timestamp)], 0),
        make(types[2], count, [None, wrap(columns.priority)], 0),
        make(types[3], count, [None, wrap(columns.flags)], 0),
        make(
            _BINARY,
            count,
            [_optional(columns.key_validity), wrap(columns.key_offsets), wrap(columns.key_data)],
            columns.key_nulls,
        ),
        make(
            _BINARY,
            count,
            [_optional(columns.value_validity), wrap(columns.value_offsets), wrap(columns.value_data)],
            columns.value_nulls,
        ),
        _headers(columns, types[6]),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMAS[unit])


def _optional(data: bytes | None) -> pa.Buffer | None:
    return None if data is None else pa.py_buffer(data)


def _headers(columns: Columns, list_type: pa.DataType) -> pa.Array:
    if not columns.header_count:
        offsets = pa.py_buffer(bytes(4 * (columns.count + 1)))
        return pa.Array.from_buffers(list_type, columns.count, [None, offsets], 0, 0, [_NO_HEADERS])
    wrap = pa.py_buffer
    names = pa.Array.from_buffers(
        _BINARY,
        columns.header_count,
        [None, wrap(columns.header_name_offsets), wrap(columns.header_name_data)],
    )
    values = pa.Array.from_buffers(
        _BINARY,
        columns.header_count,
        [None, wrap(columns.header_value_offsets), wrap(columns.header_value_data)],
    )
    items = pa.Array.from_buffers(HEADER_TYPE, columns.header_count, [None], children=[names, values])
    return pa.Array.from_buffers(list_type, columns.count, [None, wrap(columns.header_list_offsets)], children=[items])
