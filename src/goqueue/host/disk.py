"""Files and directories, as storage sees them.

Promises kept by every implementation, and nothing more:
* `File.append` and `File.pwrite` may write fewer bytes than asked (a full disk); the caller checks the count.
* Nothing is durable before `File.sync` (bytes and length) or `Disk.sync_directory` (names) has returned.
* Errors are `OSError` with an errno. What a failed `sync` left behind is unknown.
Paths are POSIX strings relative to nothing: the caller composes them from validated names only.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview
_IOV_MAX = 1024


class File(Protocol):
    """One open file. Reading is positional, so readers and the writer share it without a lock."""

    @property
    def path(self) -> str: ...

    def size(self) -> int: ...

    def pread(self, length: int, position: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file."""
        ...

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write the buffers in order at the end of the file; returns the bytes written."""
        ...

    def pwrite(self, data: Buffer, position: int) -> int: ...

    def truncate(self, length: int) -> None: ...

    def sync(self) -> None:
        """Make bytes and length durable (fdatasync). Safe to call from another thread."""
        ...

    def fileno(self) -> int:
        """The descriptor, for sendfile. A simulated file has none and raises `OSError`."""
        ...

    def close(self) -> None: ...


class DirectoryLock(Protocol):
    """Held until `release` or the end of the process."""

    def release(self) -> None: ...


class Disk(Protocol):
    def open(self, path: str, *, writable: bool = False) -> File:
        """Open an existing file."""
        ...

    def create(self, path: str) -> File:
        """Create a new, empty, writable file; `FileExistsError` when it exists."""
        ...

    def map(self, path: str) -> memoryview:
        """The file's bytes, mapped read-only (empty for an empty file). Stays valid after the file is removed."""
        ...

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        ...

    def make_directory(self, path: str) -> None:
        """Create a directory and its missing parents; every level is made durable. No error if it exists."""
        ...

    def remove(self, path: str) -> None: ...

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Atomic; replaces `target`."""
        ...

    def sync_directory(self, path: str) -> None: ...

    def lock(self, path: str, owner: str) -> DirectoryLock:
        """Take the exclusive lock file at `path` and write `owner` into it; `BlockingIOError` when it is held."""
        ...

    def free_bytes(self, path: str) -> int: ...

    def total_bytes(self, path: str) -> int: ...


# Out of room rather than broken: after a partial append these end it short instead of failing it.
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class OsFile:
    """One descriptor, closed with the object, so that a retired file lives as long as its last reader.

    The descriptor is opened with O_APPEND: appends land at the end whatever else moved it. Linux makes pwrite append
    on such a descriptor too, so the rare `pwrite` goes through a second one, opened on first use.
    """

    __slots__ = ("_fd", "_path", "_positional_fd")

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._positional_fd = -1
        self._path = path

    @property
    def path(self) -> str:
        return self._path

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def pread(self, length: int, position: int) -> bytes:
        data = os.pread(self._fd, length, position)
        if len(data) == length:
            return data
        return self._pread_rest(data, length, position)

    def _pread_rest(self, data: bytes, length: int, position: int) -> bytes:
        # The kernel stops at 2 GiB per call; only an empty answer means the end of the file.
        parts = [data]
        count = len(data)
        while count < length and (part := os.pread(self._fd, length - count, position + count)):
            parts.append(part)
            count += len(part)
        return b"".join(parts)

    def append(self, buffers: Sequence[Buffer]) -> int:
        written = 0
        if len(buffers) == 1:
            buffer = buffers[0]
            written = os.write(self._fd, buffer)
            if written == len(buffer):
                return written
        elif len(buffers) <= _IOV_MAX:
            written = os.writev(self._fd, buffers)
            if written == sum(map(len, buffers)):
                return written
        return self._append_rest(buffers, written)

    def _append_rest(self, buffers: Sequence[Buffer], written: int) -> int:
        views = [memoryview(buffer).cast("B") for buffer in buffers if len(buffer)]
        first = _skip(views, 0, written)
        while first < len(views):
            try:
                count = os.writev(self._fd, views[first : first + _IOV_MAX])
            except OSError as error:
                if written and error.errno in _NO_ROOM:
                    return written
                raise
            written += count
            first = _skip(views, first, count)
        return written

    def pwrite(self, data: Buffer, position: int) -> int:
        if self._positional_fd < 0:
            self._positional_fd = self._open_positional()
        return os.pwrite(self._positional_fd, data, position)

    def _open_positional(self) -> int:
        fd = self.fileno()
        # Opening anew asks the file's permissions, not how this descriptor was opened.
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)
        # Through /proc, because the path may have been renamed or removed since.
        return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY)

    def truncate(self, length: int) -> None:
        os.ftruncate(self._fd, length)

    def sync(self) -> None:
        os.fdatasync(self.fileno())  # which turns a closed file into EBADF; fdatasync would raise ValueError

    def fileno(self) -> int:
        if self._fd < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)
        return self._fd

    def close(self) -> None:
        # Forget the numbers first: the kernel hands them out again, and a second close would hit a stranger.
        fds = (self._fd, self._positional_fd)
        self._fd = self._positional_fd = -1
        for fd in fds:
            if fd >= 0:
                os.close(fd)

    def __del__(self) -> None:
        self.close()


def _skip(views: list[memoryview], first: int, count: int) -> int:
    """Drop `count` written bytes from `views[first:]`; returns the index of the first view with bytes left."""
    while count:
        if count < len(views[first]):
            views[first] = views[first][count:]
            return first
        count -= len(views[first])
        first += 1
    return first


class OsDirectoryLock:
    """A flock. Deliberately not released by garbage collection: a forgotten lock must stay held."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class OsDisk:
    """The kernel's file systems."""

    __slots__ = ()

    def open(self, path: str, *, writable: bool = False) -> OsFile:
        return OsFile(os.open(path, os.O_RDWR | os.O_APPEND if writable else os.O_RDONLY), path)

    def create(self, path: str) -> OsFile:
        return OsFile(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644), path)

    def map(self, path: str) -> memoryview:
        fd = os.open(path, os.O_RDONLY)
        try:
            if os.fstat(fd).st_size == 0:
                return memoryview(b"")
            return memoryview(mmap.mmap(fd, 0, access=mmap.ACCESS_READ))
        finally:
            os.close(fd)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_directory(self, path: str) -> None:
        if os.path.isdir(path):
            return
        parent = os.path.dirname(path.rstrip("/")) or "."
        self.make_directory(parent)
        try:
            os.mkdir(path)
        except FileExistsError:
            if not os.path.isdir(path):
                raise
        self.sync_directory(parent)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str, owner: str) -> OsDirectoryLock:
        fd = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(fd, 0)
            os.write(fd, owner.encode())
        except BaseException:
            os.close(fd)
            raise
        return OsDirectoryLock(fd)

    def free_bytes(self, path: str) -> int:
        stat = os.statvfs(path)
        return stat.f_bavail * stat.f_frsize

    def total_bytes(self, path: str) -> int:
        stat = os.statvfs(path)
        return stat.f_blocks * stat.f_frsize
