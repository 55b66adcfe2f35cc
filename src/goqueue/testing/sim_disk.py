"""A disk in memory that can fail, fill, tear and lie, and that remembers what was really synced.

Promises: exactly those of `goqueue.host.disk`, and no more than them. `crash` is a power cut: unsynced bytes and names
survive by chance (see sim_inode and sim_tree). `kill` is the death of the process: the page cache outlives it. Both end
every lock and make every open handle stale. The same `random.Random` and the same calls give the same disk.

`map` returns a copy: unlike a real mapping it does not show later writes, and callers map finished files only.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from dataclasses import dataclass

from goqueue.testing.disk_faults import NO_FAULTS, DiskOperation, FaultInjector, Faults, PlannedFault, disk_error
from goqueue.testing.sim_file import DiskStatistics, Medium, SimFile
from goqueue.testing.sim_inode import Inode
from goqueue.testing.sim_tree import Directory, Tree

_UNLIMITED_BYTES = 1 << 40


@dataclass(frozen=True, slots=True)
class DiskSnapshot:
    """The whole disk, durable and visible, at one moment. Opaque; give it back to `restore` as often as you like."""

    tree: Tree


class SimDisk:
    """The twin of `OsDisk`."""

    def __init__(self, rng: random.Random, *, faults: Faults = NO_FAULTS, garbage_probability: float = 0.25) -> None:
        self._random = rng
        self._injector = FaultInjector(rng, faults)
        self._medium = Medium(self._injector)
        self._mutex = self._medium.mutex
        self._garbage_probability = garbage_probability  # that a crash fills gaps with garbage instead of zeros
        self._tree = Tree()
        self._locked: dict[Inode, SimDirectoryLock] = {}

    # -- the Disk protocol --------------------------------------------------------------------------------------

    def open(self, path: str, *, writable: bool = False) -> SimFile:
        self._injector.check("open", path)
        return SimFile(self._medium, self._tree.file(path), path, writable=writable)

    def create(self, path: str) -> SimFile:
        self._injector.check("create", path)
        inode = Inode()
        with self._mutex:
            self._tree.link(path, inode)
        return SimFile(self._medium, inode, path, writable=True)

    def map(self, path: str) -> memoryview:
        self._injector.check("map", path)
        with self._mutex:
            return memoryview(bytes(self._tree.file(path).visible))

    def exists(self, path: str) -> bool:
        try:
            return self._tree.find(path) is not None
        except NotADirectoryError:
            return False

    def size(self, path: str) -> int:
        node = self._tree.find(path)
        return 0 if isinstance(node, Directory) else len(self._tree.file(path).visible)

    def list(self, path: str) -> list[str]:
        self._injector.check("list", path)
        return sorted(self._tree.directory(path).visible)

    def make_directory(self, path: str) -> None:
        node = self._tree.find(path)
        if isinstance(node, Inode):
            raise disk_error(errno.EEXIST, path)
        if node is not None:
            return
        self._injector.check("make_directory", path)
        parent = os.path.dirname(path.rstrip("/"))
        self.make_directory(parent)
        with self._mutex:
            self._tree.link(path, self._tree.new_directory())
        self.sync_directory(parent)

    def remove(self, path: str) -> None:
        self._injector.check("remove", path)
        with self._mutex:
            inode = self._tree.file(path)
            self._tree.unlink(path)
            self._medium.forget(inode)

    def remove_directory(self, path: str) -> None:
        self._injector.check("remove_directory", path)
        with self._mutex:
            if self._tree.directory(path).visible:
                raise disk_error(errno.ENOTEMPTY, path)
            self._tree.unlink(path)

    def rename(self, source: str, target: str) -> None:
        self._injector.check("rename", source)
        with self._mutex:
            replaced = self._tree.rename(source, target)
            if isinstance(replaced, Inode):
                self._medium.forget(replaced)

    def sync_directory(self, path: str) -> None:
        self._injector.check("sync_directory", path)
        with self._mutex:
            self._tree.sync(self._tree.directory(path))
            self._medium.directory_sync_count += 1

    def lock(self, path: str, owner: str) -> SimDirectoryLock:
        self._injector.check("lock", path)
        with self._mutex:
            if self._tree.find(path) is None:
                self._tree.link(path, Inode())
            inode = self._tree.file(path)
            if inode in self._locked:
                raise disk_error(errno.EWOULDBLOCK, path)
            self._medium.truncate(inode, 0, path)
            self._medium.write(inode, owner.encode(), None, path)
            self._locked[inode] = lock = SimDirectoryLock(lambda: self._unlock(inode, lock))
            return lock

    def free_bytes(self, path: str) -> int:
        return max(0, self.total_bytes(path) - self._medium.used_bytes)

    def total_bytes(self, path: str) -> int:
        capacity_bytes = self.faults.capacity_bytes
        return _UNLIMITED_BYTES if capacity_bytes is None else capacity_bytes

    # -- what a real disk does to you -----------------------------------------------------------------------------

    def crash(self) -> None:
        """The power goes and comes back."""
        with self._mutex:
            self._tree.crash(self._random)
            for inode in self._tree.files():
                inode.crash(self._random, self._garbage_probability)
            self._start_generation()

    def kill(self) -> None:
        """The process dies; the kernel and its page cache live on."""
        with self._mutex:
            self._start_generation()

    def crash_after(self, change_count: int) -> None:
        """Let so many more changing operations happen, then raise `SimulatedCrash` from every one until `crash` or
        `kill` says how the machine ended. Which bytes survive is decided there."""
        self._injector.stop_after(change_count)

    def fail_next(self, operation: DiskOperation, error_number: int, *, path_part: str = "") -> None:
        """Fail the next such operation on a path that contains `path_part`. Calls add up, in order."""
        self._injector.plan(PlannedFault(operation=operation, error_number=error_number, path_part=path_part))

    @property
    def is_perfect(self) -> bool:
        """No fault is switched on or planned."""
        return self._injector.faults == NO_FAULTS and not self._injector.planned_count

    @property
    def faults(self) -> Faults:
        return self._injector.faults

    @faults.setter
    def faults(self, faults: Faults) -> None:
        self._injector.faults = faults

    def clear_faults(self) -> None:
        """A perfect disk from here on; planned failures are forgotten too."""
        self._injector.faults = NO_FAULTS
        self._injector.clear()

    def flip_bit(self, path: str, byte: int, bit: int) -> None:
        """Damage at rest: the bit is wrong for every reader, now and after a crash."""
        with self._mutex:
            self._tree.file(path).flip_bit(byte, bit)

    def snapshot(self) -> DiskSnapshot:
        with self._mutex:
            return DiskSnapshot(self._tree.copy())

    def restore(self, snapshot: DiskSnapshot) -> None:
        """Go back to the snapshot; handles and locks end as in `kill`. Faults and counters stay as they are."""
        with self._mutex:
            self._tree = snapshot.tree.copy()
            self._start_generation()

    def durable_bytes(self, path: str) -> bytes:
        """What the platter holds of the file's bytes, whatever its name's fate."""
        return bytes(self._tree.file(path).durable)

    def statistics(self) -> DiskStatistics:
        return self._medium.statistics()

    def check_invariants(self) -> None:
        assert self._medium.used_bytes == sum(len(inode.visible) for inode in self._tree.files())
        assert all(inode.linked for inode in self._tree.files())

    # -- internals ------------------------------------------------------------------------------------------------

    def _unlock(self, inode: Inode, lock: SimDirectoryLock) -> None:
        if self._locked.get(inode) is lock:
            del self._locked[inode]

    def _start_generation(self) -> None:
        self._injector.stop_after(None)
        self._locked.clear()
        self._medium.start_generation(self._tree.files())


class SimDirectoryLock:
    """Releasing a lock that a crash has ended does nothing, least of all to its next holder."""

    __slots__ = ("_unlock",)

    def __init__(self, unlock: Callable[[], None]) -> None:
        self._unlock = unlock

    def release(self) -> None:
        self._unlock()
