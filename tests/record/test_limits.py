"""Every limit of the format has its error, for writers and for readers, and a refusal changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from goqueue import errors
from goqueue.record import BatchBuilder, IndexCursor, decode, find_offset, resync, scan, stamp, verify
from goqueue.testing.fuzz import repair_checksums
from goqueue.testing.reference import encode_record


def changed(position: int, value: bytes, record: bytes | None = None) -> bytes:
    """A record with other bytes at `position` and a right checksum."""
    data = bytearray(encode_record(b"value", b"key", [("h", "v")]) if record is None else record)
    data[position : position + len(value)] = value
    repair_checksums(data)
    return bytes(data)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"value": b"", "key": bytes(65_536)}, errors.KeyTooLargeError),
        ({"value": bytes(16 * 1024 * 1024 + 1)}, errors.ValueTooLargeError),
        ({"value": b"", "headers": [("n", bytes(65_536))]}, errors.HeadersTooLargeError),
        ({"value": b"", "headers": [("n", bytes(65_535 - 6))]}, errors.HeadersTooLargeError),
        ({"value": b"", "headers": [("", "")] * 16_384}, errors.HeadersTooLargeError),
        ({"value": b"", "priority": 5}, errors.PriorityInvalidError),
        ({"value": b"", "priority": -1}, errors.PriorityInvalidError),
        ({"value": b"", "timestamp_ns": -1}, errors.TimestampInvalidError),
        ({"value": b"", "offset": -1}, errors.RecordMalformedError),
        ({"value": b"", "offset": 2**63 - 1}, errors.RecordMalformedError),
        ({"value": b"", "flags": 0x02}, errors.RecordMalformedError),
        ({"value": b"", "flags": 0x04}, errors.RecordMalformedError),
        ({"value": b"", "flags": 0x80}, errors.RecordMalformedError),
        ({"value": b"", "flags": 0x10}, errors.RecordMalformedError),
        ({"value": b"", "flags": 0x100}, errors.RecordMalformedError),
        ({"value": b"", "flags": -1}, errors.RecordMalformedError),
        ({"value": b"", "headers": [("n", 3)]}, TypeError),
        ({"value": "text"}, TypeError),
    ],
)
def test_a_refused_record_leaves_the_batch_as_it_was(arguments: dict[str, object], error: type[Exception]) -> None:
    builder = BatchBuilder()
    builder.add(b"before")
    with pytest.raises(error):
        builder.add(**arguments)  # type: ignore[arg-type]
    assert (builder.count, builder.size_bytes) == (1, 40)
    builder.add(b"after")
    assert builder.take() == encode_record(b"before") + encode_record(b"after")


def test_the_largest_key_value_and_headers_are_accepted() -> None:
    builder = BatchBuilder()
    builder.add(bytes(16 * 1024 * 1024), bytes(65_535), [("n", bytes(65_535 - 7))], priority=4)
    batch = builder.take()
    assert len(batch) == 34 + 65_535 + 16 * 1024 * 1024 + 65_535
    assert verify(batch).count == 1


def test_extend_is_all_or_nothing() -> None:
    builder = BatchBuilder(value_bytes_max=10)
    assert builder.extend([b"one", bytearray(b"two")]) == 2
    with pytest.raises(errors.ValueTooLargeError):
        builder.extend([b"three", bytes(11)])
    with pytest.raises(TypeError):
        builder.extend([b"three", "text"])  # type: ignore[list-item]
    assert builder.count == 2
    assert builder.take() == encode_record(b"one") + encode_record(b"two")
    assert builder.take() == b""


def test_extend_survives_an_iterator_that_uses_the_builder() -> None:
    builder = BatchBuilder()
    builder.extend([bytes(5000)])

    def values() -> Iterator[bytes]:
        yield b"a"
        builder.take()
        raise RuntimeError

    with pytest.raises(RuntimeError):
        builder.extend(values())
    builder.add(b"b")
    assert builder.take() == encode_record(b"b")


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        (changed(0, b"g"), errors.MagicInvalidError),
        (changed(1, b"q"), errors.MagicInvalidError),
        (changed(2, b"\0"), errors.VersionUnsupportedError),
        (changed(2, b"\2"), errors.VersionUnsupportedError),
        (changed(24, b"\5"), errors.PriorityInvalidError),
        (changed(16, b"\x80"), errors.TimestampInvalidError),
        (changed(25, b"\1"), errors.RecordMalformedError),
        (changed(8, b"\x80"), errors.RecordMalformedError),
        (changed(8, b"\x7f" + b"\xff" * 7), errors.RecordMalformedError),
        (changed(3, b"\x82"), errors.RecordMalformedError),
        (changed(3, b"\x06"), errors.RecordMalformedError),
        (changed(3, b"\x12"), errors.RecordMalformedError),
        (changed(3, b"\x00"), errors.RecordMalformedError),
        (changed(3, b"\x02", encode_record(b"")), errors.RecordMalformedError),
        (changed(42, b"\0\0"), errors.RecordMalformedError),
        (changed(42, b"\0\2"), errors.RecordMalformedError),
        (changed(44, b"\xff\xff"), errors.RecordMalformedError),
        (changed(28, b"\x01\0\0\1"), errors.ValueTooLargeError),
        (changed(28, b"\xff\xff\xff\xff"), errors.ValueTooLargeError),
        (changed(26, b"\xff\xff"), errors.RecordTruncatedError),
        (encode_record(b"v")[:-1], errors.RecordTruncatedError),
        (encode_record(b"v")[:33], errors.RecordTruncatedError),
        (encode_record(b"v")[:-1] + b"w", errors.ChecksumMismatchError),
    ],
)
def test_a_bad_record_is_named_by_class_and_position(batch: bytes, error: type[errors.RecordError]) -> None:
    good = encode_record(b"good")
    for call in (verify, decode, lambda data: find_offset(data, 5)):
        with pytest.raises(error) as caught:
            call(good + batch)
        assert type(caught.value) is error
        assert caught.value.context["position"] == len(good)
    facts, problem = scan(good + batch, 0, IndexCursor(0))
    assert (facts.count, type(problem)) == (1, error)


@pytest.mark.parametrize("fault", ["damage", "flags", "size", "offsets", "empty"])
def test_a_failed_stamp_changes_neither_buffer_nor_cursor(fault: str) -> None:
    batch = bytearray(encode_record(b"first") + encode_record(b"second", flags=0x20))
    offset, value_max, forbidden = 10, 100, 0
    expected: type[errors.RecordError]
    if fault == "damage":
        batch[-1] ^= 1
        expected = errors.ChecksumMismatchError
    elif fault == "flags":
        forbidden, expected = 0x20, errors.FlagsForbiddenError
    elif fault == "size":
        value_max, expected = 5, errors.ValueTooLargeError
    elif fault == "offsets":
        offset, expected = 2**63 - 2, errors.OffsetGapError
    else:
        batch, expected = bytearray(), errors.BatchEmptyError
    before, cursor = bytes(batch), IndexCursor(3, 50, 60, 70)
    with pytest.raises(expected):
        stamp(batch, offset, 5, cursor, value_max, forbidden)
    assert batch == before
    assert (cursor.segment_base, cursor.position, cursor.next_index_at, cursor.max_timestamp_ns) == (3, 50, 60, 70)


def test_a_stamp_refuses_negative_numbers_and_read_only_buffers() -> None:
    batch = bytearray(encode_record(b""))
    with pytest.raises(errors.OffsetGapError):
        stamp(batch, -1, 5, IndexCursor(0))
    with pytest.raises(errors.TimestampInvalidError):
        stamp(batch, 0, -5, IndexCursor(0))
    with pytest.raises(BufferError):
        stamp(bytes(batch), 0, 5, IndexCursor(0))  # type: ignore[arg-type]
    assert batch == encode_record(b"")


def test_an_empty_batch_is_refused_and_an_empty_segment_is_not() -> None:
    with pytest.raises(errors.BatchEmptyError):
        verify(b"")
    facts, problem = scan(b"", 5, IndexCursor(5))
    assert (facts.count, facts.base_offset, facts.next_offset, problem) == (0, 5, 5, None)
    assert decode(b"") == []


def test_scan_names_a_gap_unless_gaps_are_allowed() -> None:
    data = encode_record(b"", offset=4) + encode_record(b"", offset=6)
    facts, problem = scan(data, 4, IndexCursor(0))
    assert (facts.count, type(problem)) == (1, errors.OffsetGapError)
    assert problem is not None
    assert problem.context == {"position": 34, "offset": 6}
    assert scan(data, 4, IndexCursor(0), allow_gaps=True)[1] is None
    backwards = encode_record(b"", offset=6) + encode_record(b"", offset=6)
    assert type(scan(backwards, 0, IndexCursor(0), allow_gaps=True)[1]) is errors.OffsetGapError
    with pytest.raises(errors.OffsetGapError):
        scan(data, -1, IndexCursor(0))


def test_a_caller_cannot_raise_the_value_limit_of_the_format() -> None:
    record = bytearray(encode_record(bytes(100)))
    record[28:32] = (16 * 1024 * 1024 + 1).to_bytes(4, "big")
    with pytest.raises(errors.ValueTooLargeError):
        verify(record, value_bytes_max=2**32 - 1)


def test_resync_beyond_the_end_finds_nothing() -> None:
    record = encode_record(b"v")
    assert [resync(record, at) for at in (-1, 0, 1, len(record), 2**63 - 1)] == [0, 0, -1, -1, -1]


def test_decode_takes_buffers_only() -> None:
    with pytest.raises(TypeError):
        decode(100)  # type: ignore[arg-type]
