"""Open files of a simulated disk, and the medium below them: room, faults, counters.

The medium knows bytes and no names. It owns the generation: a crash or a kill starts a new one, and every handle of an
older generation is stale.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from goqueue.host import Buffer
from goqueue.testing.disk_faults import FaultInjector, disk_error
from goqueue.testing.sim_inode import Inode


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskStatistics:
    """Totals since the disk was made; crashes do not reset them."""

    sync_count: int  # successful File.sync calls
    directory_sync_count: int  # successful directory syncs, those inside make_directory included
    write_count: int
    written_bytes: int


class Medium:
    """Reads and writes inodes, as well as faults and room allow."""

    def __init__(self, injector: FaultInjector) -> None:
        self._injector = injector
        self.mutex = threading.RLock()  # `File.sync` may run in a thread beside the writer
        self.generation = 0
        self.used_bytes = 0  # visible bytes of all files that have a name
        self.directory_sync_count = 0
        self._sync_count = self._write_count = self._written_bytes = 0

    def read(self, inode: Inode, length: int, position: int, path: str) -> bytes:
        self._injector.check("read", path)
        with self.mutex:
            return bytes(memoryview(inode.visible)[position : position + length])

    def write(self, inode: Inode, data: bytes, position: int | None, path: str) -> int:
        """Write at `position`, or at the end for None."""
        self._injector.check("write", path)
        with self.mutex:
            start = len(inode.visible) if position is None else position
            count = self._fitting(inode, start, self._injector.shorten(len(data)), path)
            if count:
                self._resize(inode, max(len(inode.visible), start + count))
                inode.write(data if count == len(data) else data[:count], start)
            self._write_count += 1
            self._written_bytes += count
            return count

    def truncate(self, inode: Inode, length: int, path: str) -> None:
        self._injector.check("truncate", path)
        with self.mutex:
            self._resize(inode, length)
            inode.truncate(length)

    def sync(self, inode: Inode, path: str) -> None:
        with self.mutex:
            try:
                self._injector.check("sync", path)
            except OSError:
                inode.lose_unsynced()
                raise
            inode.sync()
            self._sync_count += 1

    def forget(self, inode: Inode) -> None:
        """The file lost its last name: its room is free."""
        self._resize(inode, 0)
        inode.linked = False

    def start_generation(self, files: Iterable[Inode]) -> None:
        self.generation += 1
        self.used_bytes = 0
        for inode in files:
            inode.linked = True  # A crash may have brought a removed name back.
            self.used_bytes += len(inode.visible)

    def statistics(self) -> DiskStatistics:
        return DiskStatistics(
            sync_count=self._sync_count,
            directory_sync_count=self.directory_sync_count,
            write_count=self._write_count,
            written_bytes=self._written_bytes,
        )

    def _fitting(self, inode: Inode, start: int, length: int, path: str) -> int:
        """How much of a write finds room; a write for which there is none at all fails."""
        capacity_bytes = self._injector.faults.capacity_bytes
        if capacity_bytes is None:
            return length
        end_max = len(inode.visible) + max(0, capacity_bytes - self.used_bytes)
        if length and end_max <= start:
            raise disk_error(errno.ENOSPC, path)
        return min(length, end_max - start)

    def _resize(self, inode: Inode, length: int) -> None:
        if inode.linked:
            self.used_bytes += length - len(inode.visible)


class SimFile:
    """One handle. After `close`, a crash or a kill every use is EBADF."""

    __slots__ = ("_generation", "_inode", "_medium", "_path", "_writable")

    def __init__(self, medium: Medium, inode: Inode, path: str, *, writable: bool) -> None:
        self._medium = medium
        self._inode = inode
        self._path = path
        self._generation = medium.generation
        self._writable = writable

    @property
    def path(self) -> str:
        return self._path

    def size(self) -> int:
        self._check_open()
        return len(self._inode.visible)

    def pread(self, length: int, position: int) -> bytes:
        self._check_open()
        return self._medium.read(self._inode, length, position, self._path)

    def append(self, buffers: Sequence[Buffer]) -> int:
        self._check_writable()
        data = bytes(buffers[0]) if len(buffers) == 1 else b"".join(buffers)
        return self._medium.write(self._inode, data, None, self._path)

    def pwrite(self, data: Buffer, position: int) -> int:
        self._check_writable()
        return self._medium.write(self._inode, bytes(data), position, self._path)

    def truncate(self, length: int) -> None:
        self._check_writable()
        self._medium.truncate(self._inode, length, self._path)

    def sync(self) -> None:
        self._check_open()
        self._medium.sync(self._inode, self._path)

    def fileno(self) -> int:
        raise disk_error(errno.ENOTSUP, self._path)

    def close(self) -> None:
        self._generation = -1

    def _check_open(self) -> None:
        if self._generation != self._medium.generation:
            raise disk_error(errno.EBADF, self._path)

    def _check_writable(self) -> None:
        self._check_open()
        if not self._writable:
            raise disk_error(errno.EBADF, self._path)
