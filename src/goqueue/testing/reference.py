"""The record format a second time, in plain Python: the oracle that the native kernel is compared with.

Written from docs/formats/record.md and not from the kernel: one frozen value per record, no in-place work, its own
CRC32C. It shares only the error classes, because which error a bad byte gives, and where, is part of the format.
It is slow and must stay obvious; nothing but tests and the fuzzer may use it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from goqueue import errors

MAGIC = b"GQ"
VERSION = 1
HEADER = struct.Struct(">2sBBIqqBBHIH")
ENTRY_BODY = struct.Struct(">qI")
KEY_BYTES_MAX = 65_535
VALUE_BYTES_MAX = 16 * 1024 * 1024
HEADERS_BYTES_MAX = 65_535
PRIORITY_MAX = 4
OFFSET_END = 2**63 - 1  # offsets are below it, so that the offset after any record is a number too
INDEX_INTERVAL_BYTES = 4096

HAS_HEADERS, TOMBSTONE, CONTROL, COMMIT = 0x02, 0x04, 0x08, 0x10
DELAYED, TRANSACTIONAL, NULL_KEY = 0x20, 0x40, 0x80

Text = str | bytes
Pair = tuple[bytes, bytes]


def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return tuple(table)


_TABLE = _crc_table()


# The cache changes no result; the fuzzer asks for the checksum of the same bytes through many functions.
@lru_cache(maxsize=1024)
def crc32c(data: bytes) -> int:
    """CRC32C (Castagnoli, reflected), one byte at a time."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def record_checksum(record: bytes) -> int:
    """Every byte of the record except bytes 4 to 7, which hold the result."""
    return crc32c(record[:4] + record[8:])


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRecord:
    offset: int
    timestamp_ns: int
    priority: int
    flags: int
    key: bytes | None  # None: no key
    value: bytes | None  # None: tombstone
    header_pairs: tuple[Pair, ...]
    raw: bytes

    @property
    def headers(self) -> tuple[tuple[Text, bytes], ...]:
        """Names are text where they are UTF-8."""
        return tuple((_text(name), value) for name, value in self.header_pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceFacts:
    """The fields of the kernel's `BatchFacts`."""

    count: int
    byte_count: int
    base_offset: int
    last_offset: int
    next_offset: int
    min_timestamp_ns: int
    max_timestamp_ns: int
    delayed_count: int
    transactional_count: int
    control_count: int
    tombstone_count: int
    flags_any: int
    lane_counts: tuple[int, ...]
    priorities: bytes | None
    offset_entries: bytes = b""
    time_entries: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """The fields of the kernel's `IndexCursor`; functions return the next one instead of changing it."""

    segment_base: int
    position: int = 0
    next_index_at: int = 0
    max_timestamp_ns: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What a reader gets of a batch, how many bytes that took, and where it reads on."""

    records: tuple[ReferenceRecord, ...]
    consumed: int
    next_offset: int


# -- writing ----------------------------------------------------------------------------------------------------


def encode_record(
    value: bytes | None,
    key: bytes | None = None,
    headers: Sequence[tuple[Text, Text]] = (),
    *,
    priority: int = 2,
    timestamp_ns: int = 0,
    flags: int = 0,
    offset: int = 0,
) -> bytes:
    """One record; raises the error of the first limit that it breaks."""
    if not 0 <= priority <= PRIORITY_MAX:
        raise errors.PriorityInvalidError("priority", priority=priority)
    if timestamp_ns < 0:
        raise errors.TimestampInvalidError("timestamp", timestamp_ns=timestamp_ns)
    if not 0 <= offset < OFFSET_END:
        raise errors.RecordMalformedError("offset", offset=offset)
    if flags & ~0xFF or flags & (HAS_HEADERS | TOMBSTONE | NULL_KEY) or (flags & COMMIT and not flags & CONTROL):
        raise errors.RecordMalformedError("flags", flags=flags)
    if key is not None and len(key) > KEY_BYTES_MAX:
        raise errors.KeyTooLargeError("key", key_bytes=len(key))
    if value is not None and len(value) > VALUE_BYTES_MAX:
        raise errors.ValueTooLargeError("value", value_bytes=len(value))
    block = _encode_headers([(_bytes(name), _bytes(text)) for name, text in headers])
    flags |= (HAS_HEADERS if block else 0) | (TOMBSTONE if value is None else 0) | (NULL_KEY if key is None else 0)
    body = (key or b"") + (value or b"") + block
    lengths = (len(key or b""), len(value or b""), len(block))
    return _seal(HEADER.pack(MAGIC, VERSION, flags, 0, offset, timestamp_ns, priority, 0, *lengths) + body)


def _encode_headers(pairs: Sequence[Pair]) -> bytes:
    if not pairs:
        return b""
    size = 2 + sum(4 + len(name) + len(text) for name, text in pairs)
    if size > HEADERS_BYTES_MAX:
        raise errors.HeadersTooLargeError("headers", headers_bytes=size)
    parts = [len(pairs).to_bytes(2, "big")]
    for part in (part for pair in pairs for part in pair):
        parts += [len(part).to_bytes(2, "big"), part]
    return b"".join(parts)


def _seal(record: bytes) -> bytes:
    return record[:4] + record_checksum(record).to_bytes(4, "big") + record[8:]


def _bytes(text: Text) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _text(name: bytes) -> Text:
    try:
        return name.decode()
    except UnicodeDecodeError:
        return name


# -- reading one record -----------------------------------------------------------------------------------------


def parse_record(data: bytes, position: int, value_bytes_max: int = VALUE_BYTES_MAX) -> ReferenceRecord:
    """The record that starts at `position`. The order of the checks decides which error a record with several
    faults gives, and follows the table in docs/formats/record.md."""
    if len(data) - position < HEADER.size:
        raise errors.RecordTruncatedError("header", position=position)
    fields = HEADER.unpack_from(data, position)
    magic, version, flags, checksum, offset, timestamp_ns, priority, reserved = fields[:8]
    key_bytes, value_bytes, headers_bytes = fields[8:]
    if magic != MAGIC:
        raise errors.MagicInvalidError("magic", position=position)
    if version != VERSION:
        raise errors.VersionUnsupportedError("version", position=position)
    if value_bytes > min(value_bytes_max, VALUE_BYTES_MAX):
        raise errors.ValueTooLargeError("value", position=position, value_bytes=value_bytes)
    raw = data[position : position + HEADER.size + key_bytes + value_bytes + headers_bytes]
    if len(raw) < HEADER.size + key_bytes + value_bytes + headers_bytes:
        raise errors.RecordTruncatedError("body", position=position)
    if record_checksum(raw) != checksum:
        raise errors.ChecksumMismatchError("checksum", position=position)
    if priority > PRIORITY_MAX:
        raise errors.PriorityInvalidError("priority", position=position, priority=priority)
    if timestamp_ns < 0:
        raise errors.TimestampInvalidError("timestamp", position=position)
    key = raw[HEADER.size : HEADER.size + key_bytes]
    value = raw[HEADER.size + key_bytes : HEADER.size + key_bytes + value_bytes]
    pairs = _decode_headers(raw[HEADER.size + key_bytes + value_bytes :]) if headers_bytes else ()
    contradictions = (
        reserved != 0,
        not 0 <= offset < OFFSET_END,
        bool(flags & NULL_KEY and key),
        bool(flags & TOMBSTONE and value),
        bool(flags & COMMIT and not flags & CONTROL),
        bool(flags & HAS_HEADERS) != bool(headers_bytes),
        pairs is None,
    )
    if pairs is None or any(contradictions):
        raise errors.RecordMalformedError("contradiction", position=position)
    return ReferenceRecord(
        offset=offset,
        timestamp_ns=timestamp_ns,
        priority=priority,
        flags=flags,
        key=None if flags & NULL_KEY else key,
        value=None if flags & TOMBSTONE else value,
        header_pairs=pairs,
        raw=raw,
    )


def _decode_headers(block: bytes) -> tuple[Pair, ...] | None:
    """None when the block does not hold exactly what its count announces, or announces nothing."""
    if len(block) < 2:
        return None
    count, rest = int.from_bytes(block[:2], "big"), block[2:]
    parts: list[bytes] = []
    while rest:
        size = int.from_bytes(rest[:2], "big")
        if len(rest) < 2 + size:
            return None
        parts.append(rest[2 : 2 + size])
        rest = rest[2 + size :]
    if count == 0 or len(parts) != 2 * count:
        return None
    return tuple(zip(parts[::2], parts[1::2], strict=True))


def _records(data: bytes, value_bytes_max: int = VALUE_BYTES_MAX) -> Iterator[tuple[int, ReferenceRecord]]:
    """(position, record) until the end; raises at the first bad one."""
    position = 0
    while position < len(data):
        record = parse_record(data, position, value_bytes_max)
        yield position, record
        position += len(record.raw)


# -- batches ----------------------------------------------------------------------------------------------------


def verify(batch: bytes, value_bytes_max: int = VALUE_BYTES_MAX, forbidden_flags: int = 0) -> ReferenceFacts:
    return _facts(_verified(batch, value_bytes_max, forbidden_flags))


def stamp(
    batch: bytes,
    base_offset: int,
    timestamp_ns: int,
    cursor: Cursor,
    value_bytes_max: int = VALUE_BYTES_MAX,
    forbidden_flags: int = 0,
    force_timestamp: bool = False,
) -> tuple[bytes, ReferenceFacts, Cursor]:
    """The stamped batch, its facts with the index entries due, and the cursor behind it."""
    records = _verified(batch, value_bytes_max, forbidden_flags)
    if base_offset + len(records) > OFFSET_END:
        raise errors.OffsetGapError("no offsets left", offset=base_offset)
    stamped = [
        _restamp(record, base_offset + number, timestamp_ns if force_timestamp or record.timestamp_ns == 0 else None)
        for number, record in enumerate(records)
    ]
    offset_entries, time_entries, cursor = _index(stamped, cursor)
    facts = replace(_facts(stamped), offset_entries=offset_entries, time_entries=time_entries)
    return b"".join(record.raw for record in stamped), facts, cursor


def scan(
    batch: bytes,
    expected_offset: int,
    cursor: Cursor,
    allow_gaps: bool = False,
    value_bytes_max: int = VALUE_BYTES_MAX,
) -> tuple[ReferenceFacts, errors.RecordError | None, Cursor]:
    """Facts of the valid prefix, what ended it (None: the end), and the cursor behind it."""
    found: list[ReferenceRecord] = []
    error: errors.RecordError | None = None
    expected = expected_offset
    try:
        for position, record in _records(batch, value_bytes_max):
            if record.offset < expected or (record.offset > expected and not allow_gaps):
                raise errors.OffsetGapError("gap", position=position, offset=record.offset)
            found.append(record)
            expected = record.offset + 1
    except errors.RecordError as problem:
        error = problem
    offset_entries, time_entries, cursor = _index(found, cursor)
    facts = replace(_facts(found, expected_offset), offset_entries=offset_entries, time_entries=time_entries)
    return facts, error, cursor


def _verified(batch: bytes, value_bytes_max: int, forbidden_flags: int) -> list[ReferenceRecord]:
    if not batch:
        raise errors.BatchEmptyError("empty")
    found = []
    for position, record in _records(batch, value_bytes_max):
        if record.flags & forbidden_flags:
            raise errors.FlagsForbiddenError("flags", position=position, flags=record.flags)
        found.append(record)
    return found


def _restamp(record: ReferenceRecord, offset: int, timestamp_ns: int | None) -> ReferenceRecord:
    timestamp_ns = record.timestamp_ns if timestamp_ns is None else timestamp_ns
    raw = _seal(record.raw[:8] + struct.pack(">qq", offset, timestamp_ns) + record.raw[24:])
    return replace(record, offset=offset, timestamp_ns=timestamp_ns, raw=raw)


def _facts(records: Sequence[ReferenceRecord], empty_base: int = 0) -> ReferenceFacts:
    times = [record.timestamp_ns for record in records] or [-1]
    lanes = [record.priority for record in records]
    flags_any = 0
    for record in records:
        flags_any |= record.flags
    last_offset = records[-1].offset if records else empty_base - 1
    return ReferenceFacts(
        count=len(records),
        byte_count=sum(len(record.raw) for record in records),
        base_offset=records[0].offset if records else empty_base,
        last_offset=last_offset,
        next_offset=last_offset + 1,
        min_timestamp_ns=min(times),
        max_timestamp_ns=max(times),
        delayed_count=sum(bool(record.flags & DELAYED) for record in records),
        transactional_count=sum(bool(record.flags & TRANSACTIONAL) for record in records),
        control_count=sum(bool(record.flags & CONTROL) for record in records),
        tombstone_count=sum(bool(record.flags & TOMBSTONE) for record in records),
        flags_any=flags_any,
        lane_counts=tuple(lanes.count(lane) for lane in range(PRIORITY_MAX + 1)),
        priorities=bytes(lanes) if len(set(lanes)) > 1 else None,
    )


def _index(records: Sequence[ReferenceRecord], cursor: Cursor) -> tuple[bytes, bytes, Cursor]:
    """Entries for the first record of the segment and the first at or after each interval since the last entry."""
    offset_entries, time_entries = b"", b""
    position, due, newest = cursor.position, cursor.next_index_at, cursor.max_timestamp_ns
    for record in records:
        newest = max(newest, record.timestamp_ns)
        if position >= due:
            offset_entries += index_entry_bytes(record.offset, position)
            time_entries += index_entry_bytes(newest, record.offset - cursor.segment_base)
            due = position + INDEX_INTERVAL_BYTES
        position += len(record.raw)
    return offset_entries, time_entries, replace(cursor, position=position, next_index_at=due, max_timestamp_ns=newest)


def index_entry_bytes(key: int, place: int) -> bytes:
    """Key i64, place u32 (a position, or an offset relative to the segment), CRC32C of these twelve bytes.
    A segment never spans 2**32 of either; beyond it the number wraps."""
    body = ENTRY_BODY.pack(key, place & 0xFFFFFFFF)
    return body + crc32c(body).to_bytes(4, "big")


# -- reading batches --------------------------------------------------------------------------------------------


def decode(
    batch: bytes,
    skip_flags: int = 0,
    min_offset: int = 0,
    max_offset: int = OFFSET_END,
    limit: int = -1,
    allow_partial: bool = False,
) -> Selection:
    """Records with min_offset <= offset < max_offset and none of `skip_flags`, at most `limit` (negative: all).
    The batch is read, and so verified, only as far as needed."""
    chosen: list[ReferenceRecord] = []
    consumed, next_offset = 0, min_offset
    while consumed < len(batch) and len(chosen) != limit:
        try:
            record = parse_record(batch, consumed)
        except errors.RecordTruncatedError:
            if allow_partial:
                break
            raise
        if record.offset >= max_offset:
            break
        if record.offset >= min_offset and not record.flags & skip_flags:
            chosen.append(record)
        consumed += len(record.raw)
        next_offset = record.offset + 1
    return Selection(records=tuple(chosen), consumed=consumed, next_offset=next_offset)


def resync(data: bytes, position: int) -> int:
    """The first byte at or after `position` where a whole valid record starts, or -1."""
    for start in range(max(position, 0), len(data) - HEADER.size + 1):
        if data[start : start + 2] != MAGIC:
            continue
        try:
            parse_record(data, start)
        except errors.RecordError:
            continue
        return start
    return -1


def find_offset(data: bytes, offset: int) -> tuple[int, int]:
    """(position, offset) of the first record at or above `offset`; (length, -1) when there is none."""
    for position, record in _records(data):
        if record.offset >= offset:
            return position, record.offset
    return len(data), -1


def find_timestamp(data: bytes, timestamp_ns: int, min_offset: int) -> tuple[int, int]:
    """The same for the first record at or above `min_offset` with at least that timestamp."""
    for position, record in _records(data):
        if record.offset >= min_offset and record.timestamp_ns >= timestamp_ns:
            return position, record.offset
    return len(data), -1


def whole_records(data: bytes, bytes_max: int) -> int:
    """How many bytes of whole records fit into `bytes_max`, or the first record's where it alone is larger. Only
    lengths are looked at."""
    end = 0
    while len(data) - end >= HEADER.size:
        next_end = end + HEADER.size + sum(HEADER.unpack_from(data, end)[8:])
        if next_end > len(data) or (end > 0 and next_end > bytes_max):
            break
        end = next_end
    return end


# -- delays -----------------------------------------------------------------------------------------------------


def collect_delayed(data: bytes, due_name: bytes, min_offset: int = 0) -> tuple[list[tuple[int, int]], list[bytes]]:
    """(offset, due time) of the delayed records, and the control records as they stand."""
    pairs, controls = [], []
    for _, record in _records(data):
        if record.offset < min_offset:
            continue
        if record.flags & CONTROL:
            controls.append(record.raw)
        elif record.flags & DELAYED:
            pairs.append((record.offset, _due_in(record.header_pairs, due_name)))
    return pairs, controls


def _due_in(pairs: tuple[Pair, ...], due_name: bytes) -> int:
    if not pairs or pairs[0][0] != due_name:
        return 0
    text = pairs[0][1]
    if not 1 <= len(text) <= 20 or not all(0x30 <= byte <= 0x39 for byte in text):
        return 0
    # The last digit must fit whatever it is, as it is read digit by digit.
    return int(text) if int(text) // 10 <= (2**63 - 10) // 10 else 0


# -- compaction -------------------------------------------------------------------------------------------------


def collect_keys(data: bytes, latest: dict[bytes, int]) -> int:
    """Put the last offset of every key into `latest`, up to the first bad record; returns the records seen."""
    count = 0
    for _, record in _records(data):
        if record.key is not None and not record.flags & (CONTROL | DELAYED):
            latest[record.key] = record.offset
        count += 1
    return count


def retain_latest(data: bytes, latest: Mapping[bytes, int], tombstones_before_ns: int) -> bytes:
    """The records that compaction keeps."""
    return b"".join(record.raw for _, record in _records(data) if _survives(record, latest, tombstones_before_ns))


def _survives(record: ReferenceRecord, latest: Mapping[bytes, int], tombstones_before_ns: int) -> bool:
    if record.key is None or record.flags & (CONTROL | DELAYED):
        return True
    if record.value is None and record.timestamp_ns < tombstones_before_ns:
        return False
    return record.offset >= latest.get(record.key, -1)
