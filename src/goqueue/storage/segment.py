"""One segment of a partition's log: a run of records in one file, with its two sparse indexes.

A segment knows bytes, positions and offsets; it does not know which offsets readers may see, what is durable, or that
there are other segments. Only the last segment of a log is written to. Files of a segment share the base offset as
their name (docs/formats/log.md).
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Sequence
from dataclasses import dataclass

from goqueue.errors import DiskFullError, PartitionFailedError
from goqueue.host import Buffer, Disk, File
from goqueue.record import BatchFacts, IndexCursor, find_offset, find_timestamp, scan, whole_records
from goqueue.storage.damage import Examination, examine
from goqueue.storage.sparse_index import IndexDamagedError, SparseIndex

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SEGMENT_SUFFIXES = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

# Index entries hold positions in 32 bits.
SEGMENT_BYTES_LIMIT = (1 << 32) - 1
RELATIVE_OFFSET_LIMIT = (1 << 32) - 1


def segment_path(directory: str, base_offset: int, suffix: str = LOG_SUFFIX) -> str:
    return f"{directory}/{base_offset:020d}{suffix}"


@dataclass(frozen=True, slots=True)
class FileRange:
    """Whole records in one file, to be read or sent without looking at them."""

    file: File
    position: int
    length: int

    def read(self) -> bytes:
        return self.file.pread(self.length, self.position)


class Segment:
    __slots__ = (
        "_directory",
        "_disk",
        "_file",
        "_offset_index",
        "_time_index",
        "base_offset",
        "cursor",
        "next_offset",
        "writable",
    )

    def __init__(self, disk: Disk, directory: str, base_offset: int) -> None:
        self._disk = disk
        self._directory = directory
        self.base_offset = base_offset
        self.next_offset = base_offset
        # Position behind the last record, when the next index entry is due, and the highest timestamp so far.
        self.cursor = IndexCursor(base_offset)
        self.writable = False
        self._file: File | None = None
        self._offset_index: SparseIndex | None = None
        self._time_index: SparseIndex | None = None

    # -- coming into being --------------------------------------------------------------------------------------

    @classmethod
    def create(cls, disk: Disk, directory: str, base_offset: int) -> Segment:
        """A new, empty, writable segment. Its directory entries are durable once the directory is synced."""
        segment = cls(disk, directory, base_offset)
        segment._file = disk.create(segment.path)
        segment._create_indexes()
        segment.writable = True
        return segment

    @classmethod
    def load(cls, disk: Disk, directory: str, base_offset: int, *, writable: bool) -> Segment:
        """An existing segment that was written in full, at the cost of its last few kilobytes.

        Raises `IndexDamagedError` when the indexes cannot be trusted or the records after the last entry do not end
        with the file; the caller then examines the segment as a whole.
        """
        segment = cls(disk, directory, base_offset)
        offsets = SparseIndex.open(disk, segment._path(OFFSET_INDEX_SUFFIX), writable=writable)
        times = SparseIndex.open(disk, segment._path(TIME_INDEX_SUFFIX), writable=writable)
        segment._offset_index, segment._time_index = offsets, times
        segment.writable = writable
        segment._load_end(disk.size(segment.path))
        return segment

    @classmethod
    def rebuild(cls, disk: Disk, directory: str, base_offset: int, found: Examination, *, writable: bool) -> Segment:
        """A segment whose indexes are written anew from an examination of its file."""
        segment = cls(disk, directory, base_offset)
        segment._renew_indexes(found)
        segment.writable = writable
        segment._take(found)
        if not writable:
            segment._seal_indexes()
        return segment

    def _take(self, found: Examination) -> None:
        self.offset_index.append(found.offset_entries)
        self.time_index.append(found.time_entries)
        self.next_offset = found.next_offset
        next_index_at = self.offset_index.entry(self.offset_index.count - 1)[1] + 4096 if found.offset_entries else 0
        self.cursor = IndexCursor(self.base_offset, found.end_position, next_index_at, found.max_timestamp_ns)

    def _load_end(self, size: int) -> None:
        """Take next offset and highest timestamp from the records behind the last index entry."""
        last_offset, last_time = self.offset_index.last(), self.time_index.last()
        if (last_offset is None) != (last_time is None) or self.offset_index.count != self.time_index.count:
            raise IndexDamagedError(self.path)
        if last_offset is None or last_time is None:
            if size:
                raise IndexDamagedError(self.path)
            return
        offset, position = last_offset
        if offset - self.base_offset != last_time[1] or position >= size:
            raise IndexDamagedError(self.path)
        cursor = IndexCursor(self.base_offset, position, position, last_time[0])
        facts, error = scan(self.file.pread(size - position, position), offset, cursor, True)
        if error is not None or facts.base_offset != offset or len(facts.offset_entries) != 16:
            raise IndexDamagedError(self.path)
        self.next_offset = facts.next_offset
        self.cursor = cursor

    def _create_indexes(self) -> None:
        self._offset_index = SparseIndex.create(self._disk, self._path(OFFSET_INDEX_SUFFIX))
        self._time_index = SparseIndex.create(self._disk, self._path(TIME_INDEX_SUFFIX))

    def _renew_indexes(self, found: Examination) -> None:
        """Empty indexes in place of the present ones.

        Of a damaged segment they stay in memory: stored, they would lead the next opening past the damage.
        """
        if not found.damages:
            self._create_indexes()
            return
        self._offset_index = SparseIndex.in_memory(self._disk, self._path(OFFSET_INDEX_SUFFIX))
        self._time_index = SparseIndex.in_memory(self._disk, self._path(TIME_INDEX_SUFFIX))

    # -- what it is ---------------------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        return self._path(LOG_SUFFIX)

    @property
    def size_bytes(self) -> int:
        return self.cursor.position

    @property
    def max_timestamp_ns(self) -> int:
        """Highest timestamp in the segment, -1 when it is empty."""
        return self.cursor.max_timestamp_ns

    @property
    def file(self) -> File:
        """Opened when first needed. Whoever keeps the object may read from it after the segment is removed."""
        if self._file is None:
            self._file = self._disk.open(self.path, writable=self.writable)
        return self._file

    @property
    def offset_index(self) -> SparseIndex:
        assert self._offset_index is not None, "a segment in use has its indexes"
        return self._offset_index

    @property
    def time_index(self) -> SparseIndex:
        assert self._time_index is not None, "a segment in use has its indexes"
        return self._time_index

    # -- writing ------------------------------------------------------------------------------------------------

    def write(self, buffers: Sequence[Buffer], batches: Sequence[BatchFacts], after: IndexCursor) -> None:
        """Append stamped batches; `after` is the cursor behind them. Either all of them are in the file or none."""
        self._write_all(buffers, after.position - self.cursor.position)
        offset_index, time_index = self.offset_index, self.time_index
        for facts in batches:
            if entries := facts.offset_entries:
                offset_index.append(entries)
                time_index.append(facts.time_entries)
        self.cursor = after
        self.next_offset = batches[-1].next_offset

    def _write_all(self, buffers: Sequence[Buffer], length: int) -> None:
        start, written = self.cursor.position, 0
        try:
            written = self.file.append(buffers)
            while written < length:
                # A short write without an error: the rest is tried once more, so that the reason becomes known.
                rest = memoryview(b"".join(buffers))[written:]
                more = self.file.append([rest])
                if not more:
                    raise OSError(errno.ENOSPC, "no bytes written")
                written += more
        except OSError as error:
            self._undo_write(start, error)

    def _undo_write(self, start: int, error: OSError) -> None:
        """Cut the file back to its last good byte, durably: a power loss must not bring back what was refused.
        A full disk is then as if nothing had happened."""
        try:
            self.file.truncate(start)
            self.file.sync()
        except OSError as second:
            raise PartitionFailedError(
                f"{self.path}: a failed write could not be undone: {error}; then {second}", file=self.path
            ) from error
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(f"no space left to append to {self.path}; free some or add retention", file=self.path)
        raise PartitionFailedError(f"write to {self.path} failed: {error}", file=self.path) from error

    def seal(self) -> None:
        """No more records will come."""
        self.writable = False
        self._seal_indexes()

    def _seal_indexes(self) -> None:
        self.offset_index.seal()
        self.time_index.seal()

    def truncate(self, position: int, next_offset: int) -> None:
        """Cut the file at a record boundary and leave the segment writable and durable.

        The indexes are made anew: a crash could bring entries back that were only cut from a file.
        """
        # Not closed: a reader may still have it.
        self._file = None
        self.writable = True
        self.file.truncate(position)
        self.file.sync()
        self.offset_index.close()
        self.time_index.close()
        self.cursor = IndexCursor(self.base_offset, position)
        found = self.examine(None)
        self._renew_indexes(found)
        self._take(found)
        self.cursor.position, self.next_offset = position, next_offset

    # -- reading ------------------------------------------------------------------------------------------------

    def position_of(self, offset: int) -> int:
        """Byte position of the first record at or above `offset`; the segment's end when there is none."""
        if offset <= self.base_offset:
            return 0
        number = self.offset_index.floor(offset)
        if number < 0:
            # Compaction may have removed the first records; nothing else lies in front of the first entry.
            if self.offset_index.entry(0)[1]:
                raise IndexDamagedError(self.path)
            return 0
        start, data = self._between_entries(number)
        position, found = find_offset(data, offset)
        return start + position if found >= 0 else start + len(data)

    def cut_point(self, offset: int) -> tuple[int, int]:
        """Where a cut at `offset` falls: the byte, and the offset after the last record in front of it."""
        position = self.position_of(offset)
        if not position:
            return 0, self.base_offset
        start, data = self._between_entries(self.offset_index.floor_value(position - 1))
        facts, error = scan(data[: position - start], 0, IndexCursor(0), True)
        if error is not None:
            raise error
        return position, facts.next_offset

    def offset_at_time(self, timestamp_ns: int, *, min_offset: int) -> int | None:
        """The first offset at or above `min_offset` whose timestamp is at least `timestamp_ns`."""
        # Entries carry the running maximum, so no record up to the last entry below the time can qualify.
        number = max(self.time_index.floor(timestamp_ns - 1), 0)
        if min_offset > self.base_offset:
            number = max(number, self.offset_index.floor(min_offset))
        while number < self.offset_index.count:
            _, data = self._between_entries(number)
            _, found = find_timestamp(data, timestamp_ns, min_offset)
            if found >= 0:
                return found
            number += 1
        return None

    def _between_entries(self, number: int) -> tuple[int, bytes]:
        """The records from one index entry up to the next, which are whole and about 4 KiB."""
        offset, position = self.offset_index.entry(number)
        is_last = number + 1 >= self.offset_index.count
        end = self.size_bytes if is_last else self.offset_index.entry(number + 1)[1]
        data = self.file.pread(end - position, position)
        if find_offset(data, 0)[1] != offset:
            raise IndexDamagedError(self.path)
        return position, data

    def whole_range(self, position: int, bytes_max: int, end_position: int) -> FileRange:
        """Whole records from `position` on: at most `bytes_max`, at least one, none beyond `end_position`."""
        if end_position - position <= bytes_max:
            return FileRange(self.file, position, end_position - position)
        number = self.offset_index.floor_value(position + bytes_max)
        boundary = self.offset_index.entry(number)[1]
        if boundary > position:
            return FileRange(self.file, position, boundary - position)
        window = min(max(bytes_max, 64 << 10), end_position - position)
        data = self.file.pread(window, position)
        if not (length := whole_records(data, bytes_max)):
            data = self.file.pread(end_position - position, position)
            if not (length := whole_records(data, bytes_max)):
                raise IndexDamagedError(self.path)
        return FileRange(self.file, position, length)

    def read_first_timestamp(self) -> int | None:
        """Timestamp of the first record: how old a segment is that another process began."""
        return int.from_bytes(self.file.pread(8, 16), "big", signed=True) if self.size_bytes else None

    def examine(self, end_offset: int | None) -> Examination:
        """Read the whole file and say what is wrong with it; one that is gone is as bad as an empty one."""
        try:
            data = self._disk.map(self.path)[: self.size_bytes or None]
        except FileNotFoundError:
            data = memoryview(b"")
        return examine(data, file=self.path, base_offset=self.base_offset, end_offset=end_offset)

    def rebuild_indexes(self, found: Examination) -> None:
        """Write both indexes anew; the records stay as they are."""
        next_offset, cursor = self.next_offset, self.cursor
        self._renew_indexes(found)
        self._take(found)
        self.next_offset, self.cursor = next_offset, cursor
        if not self.writable:
            self._seal_indexes()

    # -- going away ---------------------------------------------------------------------------------------------

    def release(self) -> None:
        """Give descriptors and maps of a sealed segment back until the next read."""
        if not self.writable:
            self._file = None
            self.offset_index.release()
            self.time_index.release()

    def close(self) -> None:
        for index in (self._offset_index, self._time_index):
            if index is not None:
                index.close()
        if self._file is not None:
            self._file.close()
            self._file = None

    def remove(self) -> None:
        """Remove the files, the log last: as long as it is there the segment is. Readers keep their open file."""
        for index in (self._offset_index, self._time_index):
            if index is not None:
                index.close()
        self._file = None
        remove_segment_files(self._disk, self._directory, self.base_offset)

    def _path(self, suffix: str) -> str:
        return segment_path(self._directory, self.base_offset, suffix)


def write_all(file: File, data: Buffer) -> None:
    """Append everything or raise; a disk that takes no more has no room."""
    rest = memoryview(data)
    while rest:
        written = file.append([rest])
        if not written:
            raise OSError(errno.ENOSPC, "no bytes written", file.path)
        rest = rest[written:]


def remove_segment_files(disk: Disk, directory: str, base_offset: int) -> None:
    for suffix in reversed(SEGMENT_SUFFIXES):
        with contextlib.suppress(FileNotFoundError):
            disk.remove(segment_path(directory, base_offset, suffix))
