"""A sparse index: sorted 16-byte entries, each with its own checksum, derived from the log and rebuilt from it.

Entry: key i64, value u32, CRC32C u32 of the twelve bytes before. In `.index` the key is an offset and the value the
position of its record; in `.timeindex` the key is the highest timestamp up to and including a record and the value that
record's offset less the segment's base. Entries not yet written live in a short tail in memory; the rest is searched
through a memory map that is made when first needed. Appended entries are never synced: a lost index is only time lost.
"""

from __future__ import annotations

import contextlib

from goqueue.host import Disk, File
from goqueue.record import INDEX_ENTRY_BYTES, index_entry, index_floor

_TAIL_BYTES_MAX = 8192


class IndexDamagedError(Exception):
    """An entry fails its checksum or points where its record is not. The owner rebuilds the index."""


class SparseIndex:
    __slots__ = ("_disk", "_stored_bytes", "_tail", "_view", "_writable", "path")

    def __init__(self, disk: Disk, path: str, *, stored_bytes: int, writable: bool) -> None:
        self.path = path
        self._disk = disk
        self._stored_bytes = stored_bytes
        # Whether the tail may go to the file. It is opened for each write: an open log should not cost descriptors.
        self._writable = writable
        self._tail = bytearray()
        self._view: memoryview | None = None

    @classmethod
    def create(cls, disk: Disk, path: str) -> SparseIndex:
        """An empty, writable index in place of whatever was there."""
        if disk.exists(path):
            disk.remove(path)
        disk.create(path).close()
        return cls(disk, path, stored_bytes=0, writable=True)

    @classmethod
    def open(cls, disk: Disk, path: str, *, writable: bool) -> SparseIndex:
        """An existing index. Raises `IndexDamagedError` when the file is missing or not a whole number of entries."""
        if not disk.exists(path):
            raise IndexDamagedError(path)
        size = disk.size(path)
        if size % INDEX_ENTRY_BYTES:
            raise IndexDamagedError(path)
        return cls(disk, path, stored_bytes=size, writable=writable)

    @classmethod
    def in_memory(cls, disk: Disk, path: str) -> SparseIndex:
        """An empty index without a file. A damaged segment gets one: it is examined anew whenever it is opened."""
        if disk.exists(path):
            disk.remove(path)
        return cls(disk, path, stored_bytes=0, writable=False)

    @property
    def count(self) -> int:
        return (self._stored_bytes + len(self._tail)) // INDEX_ENTRY_BYTES

    def append(self, entries: bytes) -> None:
        self._tail += entries
        if len(self._tail) >= _TAIL_BYTES_MAX:
            self.flush()

    def flush(self) -> None:
        """Write the tail out. On a full or failing disk it simply stays in memory: the log itself is what counts."""
        if not self._tail or not self._writable:
            return
        with contextlib.suppress(OSError):
            file = self._disk.open(self.path, writable=True)
            try:
                self._write_tail(file)
            finally:
                file.close()
        self._view = None

    def _write_tail(self, file: File) -> None:
        whole = 0
        try:
            written = file.append([self._tail])
            whole = written - written % INDEX_ENTRY_BYTES
        finally:
            # Also after an error: no half entry may stay where the next one goes.
            if whole != len(self._tail):
                file.truncate(self._stored_bytes + whole)
            self._stored_bytes += whole
            del self._tail[:whole]

    def seal(self) -> None:
        """No more entries will come."""
        self.flush()

    def floor(self, key: int) -> int:
        """Number of the last entry whose key is at most `key`, or -1."""
        return self._floor(key, by_position=False)

    def floor_value(self, value: int) -> int:
        """Number of the last entry whose value is at most `value`, or -1."""
        return self._floor(value, by_position=True)

    def _floor(self, key: int, *, by_position: bool) -> int:
        if self._tail:
            found = _trusted(index_floor(self._tail, key, by_position), self.path)
            if found >= 0 or not self._stored_bytes:
                return found + self._stored_bytes // INDEX_ENTRY_BYTES if found >= 0 else -1
        return _trusted(index_floor(self._stored(), key, by_position), self.path)

    def entry(self, number: int) -> tuple[int, int]:
        """(key, value) of an entry that exists."""
        stored = self._stored_bytes // INDEX_ENTRY_BYTES
        found = index_entry(self._stored(), number) if number < stored else index_entry(self._tail, number - stored)
        if found is None:
            raise IndexDamagedError(self.path)
        return found

    def last(self) -> tuple[int, int] | None:
        """The last entry, without mapping the file: what opening a log needs of every sealed segment."""
        if self._tail:
            return self.entry(self.count - 1)
        if not self._stored_bytes:
            return None
        file = self._disk.open(self.path)
        try:
            found = index_entry(file.pread(INDEX_ENTRY_BYTES, self._stored_bytes - INDEX_ENTRY_BYTES), 0)
        finally:
            file.close()
        if found is None:
            raise IndexDamagedError(self.path)
        return found

    def truncate(self, count: int) -> None:
        """Keep the first `count` entries. The index must be writable."""
        self.flush()
        keep = count * INDEX_ENTRY_BYTES
        if keep < self._stored_bytes:
            assert self._writable, "only a writable index is cut"
            file = self._disk.open(self.path, writable=True)
            file.truncate(keep)
            # Or a crash could bring back entries that are whole and of records that are gone.
            file.sync()
            file.close()
            self._stored_bytes = keep
            self._tail.clear()
        else:
            del self._tail[keep - self._stored_bytes :]
        self._view = None

    def release(self) -> None:
        """Drop the memory map; the next search makes it again."""
        self._view = None

    def close(self) -> None:
        self.flush()
        self._writable = False
        self._view = None

    def _stored(self) -> memoryview:
        if self._view is None:
            try:
                view = self._disk.map(self.path)
            except FileNotFoundError:
                raise IndexDamagedError(self.path) from None
            if len(view) < self._stored_bytes:
                raise IndexDamagedError(self.path)
            self._view = view[: self._stored_bytes]
        return self._view


def _trusted(number: int, path: str) -> int:
    if number == -2:
        raise IndexDamagedError(path)
    return number
