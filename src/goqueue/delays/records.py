"""The records that delays are made of (docs/formats/record.md).

A delayed message is stored with flag 0x20; its first header is its due time. Control records tell what became of
messages by their offsets: released, cancelled, rescheduled. A release is one batch, the control record first and the
copies behind it in the same order, so that the copy of the n-th message listed has the offset of the control record
plus 1 + n. Which copies a torn batch has left follows from where the log ends, without a look at any copy.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from goqueue.record import BatchBuilder, ControlKind, Flag, Record

# Both names have 21 bytes and a due time 20 digits, so that a copy's headers are never longer than the original's.
DUE_HEADER = "goqueue.deliver-at-ms"
ORIGIN_HEADER = "goqueue.origin-offset"
_PAIR = struct.Struct(">qq")


@dataclass(frozen=True, slots=True)
class DelayRecord:
    """A control record about delays: (offset of the message, due time); the time counts only when rescheduled."""

    kind: ControlKind
    entries: tuple[tuple[int, int], ...]

    def key(self) -> bytes:
        return self.kind.to_bytes(2, "big")

    def value(self) -> bytes:
        return b"".join(_PAIR.pack(offset, due_ms) for offset, due_ms in self.entries)


def read_control(record: Record) -> DelayRecord | None:
    """What a control record says about delays; None when it is about something else."""
    key, value = record.key or b"", record.value or b""
    kind = int.from_bytes(key[:2], "big")
    if len(key) != 2 or kind not in (ControlKind.RELEASED, ControlKind.CANCELLED, ControlKind.RESCHEDULED):
        return None
    whole = len(value) - len(value) % _PAIR.size
    return DelayRecord(ControlKind(kind), tuple(_PAIR.iter_unpack(value[:whole])))


def due_header(due_ms: int) -> tuple[str, str]:
    return DUE_HEADER, f"{due_ms:020d}"


def control_batch(record: DelayRecord) -> bytearray:
    builder = BatchBuilder()
    builder.add(record.value(), record.key(), flags=int(Flag.CONTROL))
    return builder.take()


def release_batch(release: DelayRecord, originals: Sequence[Record]) -> bytearray:
    """The control record and a copy of each original, which every reader sees from now on."""
    assert len(release.entries) == len(originals), "every message listed has its copy"
    builder = BatchBuilder()
    builder.add(release.value(), release.key(), flags=int(Flag.CONTROL))
    for original in originals:
        headers = list(original.headers)
        if headers and headers[0][0] == DUE_HEADER:
            del headers[0]
        builder.add(
            original.value,
            original.key,
            [*headers, (ORIGIN_HEADER, str(original.offset))],
            original.priority,
            flags=original.flags & int(Flag.COMPRESSED),
        )
    return builder.take()
