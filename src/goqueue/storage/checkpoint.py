"""What a partition must remember beside its segments: where it starts, how far it is durable, whether it was closed.

The recovery point makes the difference between a torn tail, which may be cut, and damage in committed data, which may
not: bytes below it have been synced, so if they are unreadable or gone something else than a crash took them. It is
written after the sync it tells of and is therefore never ahead of the data.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

_LAYOUT = struct.Struct(">qqqqqB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    # Nothing below this offset exists any more; retention moves it before it removes a file.
    log_start_offset: int = 0
    # The segment that holds the recovery point; every earlier segment is durable as a whole.
    segment_base: int = 0
    # Bytes of that segment that are durable, and the offset after the last record in them.
    synced_position: int = 0
    synced_offset: int = 0
    # Compaction has seen every key below this offset.
    compacted_to: int = 0
    # The log was closed in order; nothing was written after the recovery point.
    clean: bool = False

    def pack(self) -> bytes:
        return _LAYOUT.pack(
            self.log_start_offset,
            self.segment_base,
            self.synced_position,
            self.synced_offset,
            self.compacted_to,
            self.clean,
        )

    @classmethod
    def unpack(cls, payload: bytes) -> Checkpoint:
        start, base, position, offset, compacted, clean = _LAYOUT.unpack(payload)
        return cls(
            log_start_offset=start,
            segment_base=base,
            synced_position=position,
            synced_offset=offset,
            compacted_to=compacted,
            clean=bool(clean),
        )
