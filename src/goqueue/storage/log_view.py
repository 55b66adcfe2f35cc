"""A partition's files as somebody sees them who does not own them: nothing is locked, repaired or written.

For readers beside a running broker (sealed segments, which only ever disappear or are replaced by a compacted form
with the same offsets) and for data directories without one. A segment file that is open stays readable after its name
is gone. Every record is verified by whoever decodes the blocks; whether a segment is complete is checked here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from goqueue.errors import DataDamagedError, OffsetOutOfRangeError, RecordError
from goqueue.host import Disk
from goqueue.record import (
    HEADER_BYTES,
    INDEX_ENTRY_BYTES,
    IndexCursor,
    find_timestamp,
    index_entry,
    index_floor,
    scan,
)
from goqueue.storage.checkpoint import Checkpoint
from goqueue.storage.log import CHECKPOINT_FILE
from goqueue.storage.segment import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, segment_path
from goqueue.storage.slots import read_slots

_LOG_NAME = re.compile(r"(\d{20})\.log")

# Decodes a run of records from the view, which may end inside a record: (result, bytes used, next offset).
Decoder = Callable[[memoryview], tuple[object, int, int]]

_NO_OFFSET = -1


@dataclass(frozen=True, slots=True)
class SegmentSpan:
    """Records of one segment: those with base_offset <= offset < end_offset."""

    base_offset: int
    end_offset: int


class LogView:
    def __init__(self, disk: Disk, directory: str) -> None:
        """Looks at the directory once; call it again to see what has changed."""
        self._disk = disk
        self.directory = directory
        # Whole records of the last segment.
        self._last_bytes = 0
        bases = sorted(int(match[1]) for name in disk.list(directory) if (match := _LOG_NAME.fullmatch(name)))
        checkpoint = self._checkpoint()
        first = bases[0] if bases else 0
        self.log_start_offset = max(checkpoint.log_start_offset if checkpoint else 0, first)
        self.spans = self._spans(bases)

    @property
    def log_end_offset(self) -> int:
        return self.spans[-1].end_offset if self.spans else self.log_start_offset

    def _checkpoint(self) -> Checkpoint | None:
        path = f"{self.directory}/{CHECKPOINT_FILE}"
        payload = read_slots(self._disk, path) if self._disk.exists(path) else None
        return None if payload is None else Checkpoint.unpack(payload)

    def _spans(self, bases: list[int]) -> tuple[SegmentSpan, ...]:
        """A segment ends where the next one begins; the last one is looked into."""
        ends = [*bases[1:], self._readable_end(bases[-1])] if bases else []
        spans = [SegmentSpan(base, end) for base, end in zip(bases, ends, strict=True)]
        return tuple(span for span in spans if span.end_offset > self.log_start_offset or span is spans[-1])

    def _readable_end(self, base: int) -> int:
        """The offset behind the last whole record of a segment that may be torn at its end."""
        data = self._map(base)
        if not len(data):
            return base
        cursor = IndexCursor(base)
        facts, _ = scan(data, base, cursor, True)
        self._last_bytes = facts.byte_count
        return facts.next_offset if facts.count else base

    def offset_at_time(self, timestamp_ns: int) -> int | None:
        """The first offset whose timestamp is at least `timestamp_ns`, None when there is none."""
        for span in self.spans:
            data = self._map(span.base_offset)
            if span is self.spans[-1]:
                data = data[: self._last_bytes]
            _, found = find_timestamp(data, timestamp_ns, self.log_start_offset)
            if found >= 0:
                return found
        return None

    # -- reading ------------------------------------------------------------------------------------------------

    def decode(self, span: SegmentSpan, start: int, end: int, block_bytes: int, decoder: Decoder) -> Iterator[object]:
        """What `decoder` makes of the records from `start` up to `end`, block by block.

        `DataDamagedError` when bytes are not what was written or the segment ends too early. The first block may begin
        with records below `start`, the last may hold records from `end` on: the decoder leaves them out.
        """
        if start < self.log_start_offset:
            raise OffsetOutOfRangeError(
                f"offset {start} is gone from {self.directory}, which starts at {self.log_start_offset}",
                offset=start,
                log_start_offset=self.log_start_offset,
            )
        data = self._map(span.base_offset)
        position, next_offset = self._floor_position(span.base_offset, start), start
        size = block_bytes
        while next_offset < min(end, span.end_offset):
            block = data[position : position + size]
            try:
                result, used, reached = decoder(block)
            except RecordError as error:
                raise self._damaged(span, next_offset, str(error)) from error
            if not used:
                if _offset_at(data, position) >= end:
                    return  # compaction has removed what lay in front of it
                if position + size >= len(data):
                    raise self._damaged(span, next_offset, "the file ends before the segment does")
                size *= 2
                continue
            position, next_offset = position + used, reached
            yield result

    def _map(self, base: int) -> memoryview:
        return self._disk.map(segment_path(self.directory, base, LOG_SUFFIX))

    def _floor_position(self, base: int, offset: int) -> int:
        """Where to begin looking for `offset`; the segment's start when the index cannot help."""
        path = segment_path(self.directory, base, OFFSET_INDEX_SUFFIX)
        if offset <= base or not self._disk.exists(path):
            return 0
        entries = self._disk.map(path)
        whole = entries[: len(entries) - len(entries) % INDEX_ENTRY_BYTES]
        number = index_floor(whole, offset)
        found = index_entry(whole, number) if number >= 0 else None
        return 0 if found is None else found[1]

    def _damaged(self, span: SegmentSpan, offset: int, reason: str) -> DataDamagedError:
        file = segment_path(self.directory, span.base_offset, LOG_SUFFIX)
        return DataDamagedError(
            f"{file} is damaged from offset {offset} on: {reason}",
            file=file,
            from_offset=offset,
            to_offset=span.end_offset,
        )


def _offset_at(data: memoryview, position: int) -> int:
    """The offset of the record that begins at `position`, -1 when there is not even a header."""
    if len(data) - position < HEADER_BYTES:
        return _NO_OFFSET
    return int.from_bytes(data[position + 8 : position + 16], "big")
