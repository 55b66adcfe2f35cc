"""What is written is what is read, through objects and through Arrow."""

from __future__ import annotations

import gc

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.errors import ChecksumMismatchError, InvalidRequestError, RecordTruncatedError
from goqueue.record import (
    BatchBuilder,
    Flag,
    Record,
    collect_keys,
    decode,
    decode_columns,
    encode,
    gap_marker,
    retain_latest,
    verify,
)
from goqueue.record.arrow import arrow_schema, decode_arrow
from goqueue.testing import reference

optional = st.none() | st.binary(max_size=30)
rows = st.lists(
    st.fixed_dictionaries(
        {
            "value": optional,
            "key": optional,
            "headers": st.lists(st.tuples(st.binary(max_size=6), st.binary(max_size=6)), max_size=4),
            "priority": st.integers(0, 4),
            "timestamp_ns": st.integers(0, 2**62),
            "flags": st.sampled_from([0, 1, 8, 0x18, 0x20, 0x40]),
        }
    ),
    max_size=12,
)


def build(contents: list[dict[str, object]], base: int = 0) -> bytes:
    builder = BatchBuilder()
    for offset, row in enumerate(contents, base):
        builder.add(**row, offset=offset)  # type: ignore[arg-type]
    return bytes(builder.take())


def as_row(record: Record) -> dict[str, object]:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp_ns,
        "priority": record.priority,
        "flags": record.flags,
        "key": record.key,
        "value": record.value,
        "headers": [{"key": n.encode() if isinstance(n, str) else n, "value": v} for n, v in record.headers],
    }


def arrow_rows(batch: pa.RecordBatch) -> list[dict[str, object]]:
    plain = batch.set_column(1, "timestamp", batch.column("timestamp").cast(pa.int64()))
    return list(plain.to_pylist())


FOUR = [(None, b"v"), (b"", b"v"), (b"k", b""), (b"k", None), (None, None), (b"", b"")]


def test_null_key_empty_key_empty_value_and_tombstone_stay_different() -> None:
    batch = encode(FOUR)
    assert [(record.key, record.value) for record in decode(batch)] == FOUR
    columns = decode_arrow(batch).to_pydict()
    assert list(zip(columns["key"], columns["value"], strict=True)) == FOUR


@given(rows)
def test_builder_writes_what_the_reference_writes(contents: list[dict[str, object]]) -> None:
    expected = [reference.encode_record(**row, offset=n) for n, row in enumerate(contents)]  # type: ignore[arg-type]
    assert build(contents) == b"".join(expected)


def test_headers_keep_order_duplicates_and_binary_names() -> None:
    pairs: list[tuple[str | bytes, bytes]] = [
        ("b", b"1"),
        ("a", b"\xff\0"),
        ("b", b"1"),
        (b"\xff\xfe", b""),
        ("", b"x"),
        ("\u00fc", b""),
    ]
    builder = BatchBuilder()
    builder.add(b"v", headers=pairs)
    builder.add(b"v", headers=[])
    first, second = decode(batch := builder.take())
    assert first.headers == tuple(pairs)
    assert second.headers == ()
    names = [[item["key"] for item in row] for row in decode_arrow(batch).column("headers").to_pylist()]
    assert names == [[b"b", b"a", b"b", b"\xff\xfe", b"", "\u00fc".encode()], []]


@given(rows, st.integers(0, 255), st.integers(0, 14), st.integers(0, 14))
def test_arrow_equals_decode(contents: list[dict[str, object]], skip: int, low: int, high: int) -> None:
    batch = build(contents)
    for options in ({}, {"skip_flags": skip}, {"min_offset": low, "max_offset": high}):
        table = decode_arrow(batch, **options)  # type: ignore[arg-type]
        table.validate(full=True)
        assert table.schema == arrow_schema()
        assert arrow_rows(table) == [as_row(record) for record in decode(batch, **options)]  # type: ignore[arg-type]


@given(rows.filter(bool), st.data())
def test_a_partial_batch_gives_its_whole_records_when_allowed(
    contents: list[dict[str, object]], data: st.DataObject
) -> None:
    batch = build(contents)
    cut = batch[: data.draw(st.integers(1, len(batch)))]
    whole = reference.decode(cut, allow_partial=True)
    table = decode_arrow(cut, allow_partial=True)
    table.validate(full=True)
    assert table.num_rows == len(decode(cut, allow_partial=True)) == len(whole.records)
    columns = decode_columns(cut, allow_partial=True)
    assert (columns.consumed, columns.next_offset) == (whole.consumed, whole.next_offset)
    if whole.consumed < len(cut):
        with pytest.raises(RecordTruncatedError):
            decode_arrow(cut)


def test_partial_does_not_excuse_damage() -> None:
    batch = bytearray(encode([(b"k", b"v"), (b"k", b"w")]))
    batch[-1] ^= 1
    for read in (decode, decode_columns):
        with pytest.raises(ChecksumMismatchError):
            read(batch, allow_partial=True)


def test_microseconds_round_down() -> None:
    batch = build([{"value": b"", "timestamp_ns": 1_999}])
    table = decode_arrow(batch, unit="us")
    assert table.schema == arrow_schema("us")
    assert table.column("timestamp").cast(pa.int64()).to_pylist() == [1]
    with pytest.raises(InvalidRequestError):
        decode_columns(batch, timestamp_unit_ns=0)


def test_large_batches_without_the_interpreter_lock_decode_the_same() -> None:
    builder = BatchBuilder()
    for number in range(3000):
        builder.add(bytes(100), str(number).encode(), [("n", str(number))], priority=number % 5, offset=number)
    batch = builder.take()
    assert len(batch) > 262_144
    facts = verify(batch)
    assert (facts.count, facts.lane_counts) == (3000, (600,) * 5)
    table = decode_arrow(batch, min_offset=10, max_offset=2990)
    table.validate(full=True)
    assert table.column("offset").to_pylist() == list(range(10, 2990))
    assert table.column("headers")[5].as_py() == [{"key": b"n", "value": b"15"}]


def test_a_record_keeps_its_buffer_alive() -> None:
    batch = bytearray(encode([(b"key", b"value" * 1000)]))
    (record,) = decode(batch)
    batch[:] = bytes(len(batch))
    del batch
    gc.collect()
    filler = [bytes([n]) * 5034 for n in range(200)]
    assert (record.key, record.value) == (b"key", b"value" * 1000)
    assert len(filler) == 200


def test_a_record_made_by_hand_is_harmless() -> None:
    with pytest.raises(TypeError):
        Record()
    empty = Record.__new__(Record)
    assert (empty.offset, empty.key, empty.headers, len(empty.raw())) == (0, b"", (), 34)


def test_a_gap_marker_is_a_control_record_of_kind_one() -> None:
    (record,) = decode(gap_marker(offset=9, timestamp_ns=5))
    assert (record.offset, record.timestamp_ns, record.key, record.value) == (9, 5, b"\0\1", b"")
    assert record.flags == Flag.CONTROL


# A key, a value or tombstone, a timestamp, flags.
log = st.lists(
    st.tuples(
        st.sampled_from([None, b"", b"a", b"b"]),
        st.sampled_from([None, b"", b"v"]),
        st.integers(0, 9),
        st.sampled_from([0, 0, 8, 0x20]),
    ),
    max_size=20,
)


@given(log, st.integers(0, 10))
def test_compaction_keeps_what_a_plain_model_keeps(
    rows: list[tuple[bytes | None, bytes | None, int, int]], before_ns: int
) -> None:
    builder = BatchBuilder()
    newest: dict[bytes, int] = {}
    for offset, (key, value, time_ns, flags) in enumerate(rows):
        builder.add(value, key, timestamp_ns=time_ns, flags=flags, offset=offset)
        if key is not None and not flags:
            newest[key] = offset
    batch = bytes(builder.take())
    latest: dict[bytes, int] = {}
    assert collect_keys(batch, latest) == len(rows)
    assert latest == newest
    kept = [
        offset
        for offset, (key, value, time_ns, flags) in enumerate(rows)
        if key is None or flags or (newest[key] == offset and not (value is None and time_ns < before_ns))
    ]
    survivors = decode(retain_latest(batch, latest, before_ns))
    assert [record.offset for record in survivors] == kept
    everything = {record.offset: record.raw() for record in decode(batch)}
    assert all(everything[record.offset] == record.raw() for record in survivors)
