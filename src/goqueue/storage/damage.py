"""Damage: committed bytes that are no longer what was written.

A damaged range is named by file, bytes and offsets; readers that touch it get an error, everything else stays readable.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from goqueue.errors import DataDamagedError, RecordError
from goqueue.host import Buffer
from goqueue.record import HEADER_BYTES, IndexCursor, find_offset, resync, scan, whole_records

# Key, value and headers length in a record (docs/formats/record.md).
_LENGTHS = struct.Struct(">HIH")
_LENGTHS_AT = 26


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Damage:
    # Offsets in [from_offset, to_offset) cannot be read; bytes in [from_position, to_position) of `file` are why.
    from_offset: int
    to_offset: int
    file: str
    from_position: int
    to_position: int
    reason: str

    def as_error(self) -> DataDamagedError:
        return DataDamagedError(
            f"{self.file} is damaged: offsets {self.from_offset} to {self.to_offset - 1} cannot be read "
            f"(bytes {self.from_position} to {self.to_position}: {self.reason}); "
            "restore the file from a replica or backup",
            file=self.file,
            from_offset=self.from_offset,
            to_offset=self.to_offset,
            from_position=self.from_position,
            to_position=self.to_position,
            reason=self.reason,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """A segment file read from end to end: the damage in it, and indexes for what can be read."""

    damages: tuple[Damage, ...]
    # The offset after the last readable record, and the byte after it.
    next_offset: int
    end_position: int
    max_timestamp_ns: int
    record_count: int
    offset_entries: bytes
    time_entries: bytes


def examine(data: Buffer, *, file: str, base_offset: int, end_offset: int | None) -> Examination:
    """Find every damaged range of a segment.

    `end_offset` is where the segment is known to end, from the name of the next one or from the checkpoint; records
    missing before it are damage. Without it the readable part simply ends where the last valid record does.
    """
    cursor = IndexCursor(base_offset)
    damages: list[Damage] = []
    offset_entries, time_entries = bytearray(), bytearray()
    view = memoryview(data)
    expected, position, record_count = base_offset, 0, 0
    while True:
        facts, error = scan(view[position:], expected, cursor, True)
        offset_entries += facts.offset_entries
        time_entries += facts.time_entries
        record_count += facts.count
        position += facts.byte_count
        expected = facts.next_offset
        if error is None:
            break
        resumed = _resume(view, position, after_offset=expected, end_offset=end_offset)
        if resumed is None:
            break
        damages.append(_damage(file, expected, resumed[1], position, resumed[0], error))
        position, expected = resumed
        # An entry of its own for the first record behind the damage, so that no search has to cross it.
        cursor.position = cursor.next_index_at = position
    end_position = position
    if end_offset is not None and expected < end_offset:
        reason = error or RecordError("the file is shorter than it was")
        damages.append(_damage(file, expected, end_offset, position, len(view), reason))
    return Examination(
        damages=tuple(damages),
        next_offset=expected,
        end_position=end_position,
        max_timestamp_ns=cursor.max_timestamp_ns,
        record_count=record_count,
        offset_entries=bytes(offset_entries),
        time_entries=bytes(time_entries),
    )


def _resume(view: memoryview, position: int, *, after_offset: int, end_offset: int | None) -> tuple[int, int] | None:
    """Where readable records go on after the bad one at `position`: (position, offset), or None.

    A value may hold bytes that look like a record. If the length in the bad record leads to a record or to the end,
    what lies in between is its inside. Otherwise a candidate must carry a later offset and be followed by another
    record of the log or by the end of the data.
    """
    following = _end_of(view, position)
    if following == len(view):
        return None
    position = following if following is not None and resync(view, following) == following else position + 1
    while (position := resync(view, position)) >= 0:
        offset = find_offset(view[position:], 0)[1]
        in_range = offset > after_offset and (end_offset is None or offset < end_offset)
        if in_range and _continues(view, position, offset):
            return position, offset
        position += 1
    return None


def _end_of(view: memoryview, position: int) -> int | None:
    """Where the record at `position` ends by its own account, if it has room for one."""
    if len(view) - position < HEADER_BYTES:
        return None
    return position + HEADER_BYTES + int(sum(_LENGTHS.unpack_from(view, position + _LENGTHS_AT)))


def _continues(view: memoryview, position: int, offset: int) -> bool:
    second = position + whole_records(view[position:], 0)
    end = second + whole_records(view[second:], 0)
    if end == second:
        # One record and then something else is believable only where the data ends with it.
        return second == len(view)
    return scan(view[position:end], offset, IndexCursor(0), True)[1] is None


def _damage(file: str, from_offset: int, to_offset: int, start: int, end: int, error: RecordError) -> Damage:
    return Damage(
        from_offset=from_offset,
        to_offset=to_offset,
        file=file,
        from_position=start,
        to_position=end,
        reason=error.code if error.code != RecordError.code else error.message,
    )
