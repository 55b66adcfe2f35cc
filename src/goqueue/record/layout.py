"""The words of the record format: flags, priorities, control records.

Control records (flag 0x08) are written by the broker only and seen by no consumer. Their key is a u16 kind; transaction
markers are told apart by flags 0x18 (commit) and 0x08 (abort), so kind 0 is theirs.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum, IntFlag

from goqueue.record._kernel import BatchBuilder


class Flag(IntFlag):
    """Byte 3 of a record."""

    COMPRESSED = 0x01
    HAS_HEADERS = 0x02
    TOMBSTONE = 0x04
    CONTROL = 0x08
    COMMIT = 0x10
    DELAYED = 0x20
    TRANSACTIONAL = 0x40
    NULL_KEY = 0x80


# What a reader of messages never sees, whatever its isolation: markers, and delayed records before their release.
INVISIBLE_FLAGS = int(Flag.CONTROL | Flag.DELAYED)


class Priority(IntEnum):
    """Lanes, most urgent first."""

    CRITICAL = 0
    HIGH = 1
    NORMAL = 2
    LOW = 3
    BACKGROUND = 4


class ControlKind(IntEnum):
    """The first two bytes of a control record's key."""

    TRANSACTION = 0
    GAP = 1
    # Delayed messages (docs/formats/record.md): what became of those that the value lists.
    RELEASED = 2
    CANCELLED = 3
    RESCHEDULED = 4


def encode(records: Iterable[tuple[bytes | None, bytes | None]]) -> bytearray:
    """A batch of plain (key, value) records; `BatchBuilder` has the other fields."""
    builder = BatchBuilder()
    for key, value in records:
        builder.add(value, key)
    return builder.take()


def gap_marker(*, offset: int, timestamp_ns: int) -> bytearray:
    """Stands where compaction removed the last record of a segment, so that a segment's end is always on disk
    and a shortened file can never pass for a compacted one."""
    builder = BatchBuilder()
    key = ControlKind.GAP.to_bytes(2, "big")
    builder.add(b"", key, timestamp_ns=timestamp_ns, flags=int(Flag.CONTROL), offset=offset)
    return builder.take()
