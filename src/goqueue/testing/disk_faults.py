"""Which operation of a simulated disk fails next, and with what.

Two sources: failures planned one by one (`plan`), and probabilities (`Faults`) that may be swapped at any time.
A run draws random numbers only for probabilities above zero, so switching a fault on does not reshuffle the others.
A third is the end of everything: after a number of changing operations the machine stops (`SimulatedCrash`).
"""

from __future__ import annotations

import errno
import os
import random
from dataclasses import dataclass
from typing import Literal

DiskOperation = Literal[
    "create",
    "list",
    "lock",
    "make_directory",
    "map",
    "open",
    "read",
    "remove",
    "remove_directory",
    "rename",
    "sync",
    "sync_directory",
    "truncate",
    "write",
]

_READING: frozenset[DiskOperation] = frozenset({"list", "map", "open", "read"})


class SimulatedCrash(BaseException):
    """The machine has stopped in the middle of things. Not an `Exception`: no code under test may handle it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """How bad the disk is. The default is a perfect one."""

    sync_eio: float = 0.0  # probability per File.sync; the file's unsynced bytes are lost with it
    directory_sync_eio: float = 0.0  # probability per Disk.sync_directory; the pending names stay pending
    write_eio: float = 0.0  # probability per append or pwrite; nothing is written
    read_eio: float = 0.0  # probability per pread or map
    short_write: float = 0.0  # probability per append or pwrite that only a proper, non-empty prefix is written
    capacity_bytes: int | None = None  # room for file contents; None is a disk that never fills

    def probability_of(self, operation: DiskOperation) -> float:
        match operation:
            case "sync":
                return self.sync_eio
            case "sync_directory":
                return self.directory_sync_eio
            case "write":
                return self.write_eio
            case "read" | "map":
                return self.read_eio
            case _:
                return 0.0


NO_FAULTS = Faults()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFault:
    operation: DiskOperation
    error_number: int
    path_part: str  # the fault waits for a path that contains this; "" is any path


class FaultInjector:
    """Decides, at the start of each operation, whether it fails."""

    __slots__ = ("_changes_left", "_planned", "_random", "faults")

    def __init__(self, rng: random.Random, faults: Faults) -> None:
        self._random = rng
        self._planned: list[PlannedFault] = []
        self._changes_left: int | None = None  # until the machine stops; None is never
        self.faults = faults

    def plan(self, fault: PlannedFault) -> None:
        self._planned.append(fault)

    def clear(self) -> None:
        self._planned.clear()

    @property
    def planned_count(self) -> int:
        return len(self._planned)

    def stop_after(self, change_count: int | None) -> None:
        self._changes_left = change_count

    def check(self, operation: DiskOperation, path: str) -> None:
        """Raise the fault that is due for this operation, if any."""
        if self._changes_left is not None:
            self._count_down(operation, path)
        if self._planned:
            self._raise_planned(operation, path)
        if self.faults is NO_FAULTS:
            return
        probability = self.faults.probability_of(operation)
        if probability and self._random.random() < probability:
            raise disk_error(errno.EIO, path)

    def _count_down(self, operation: DiskOperation, path: str) -> None:
        assert self._changes_left is not None, "called only when a stop is due"
        if self._changes_left <= 0 and (self._changes_left < 0 or operation not in _READING):
            self._changes_left = -1  # From now on not even reads work: the process is gone.
            raise SimulatedCrash(f"before {operation} of {path}")
        if operation not in _READING:
            self._changes_left -= 1

    def _raise_planned(self, operation: DiskOperation, path: str) -> None:
        for index, fault in enumerate(self._planned):
            if fault.operation == operation and fault.path_part in path:
                del self._planned[index]
                raise disk_error(fault.error_number, path)

    def shorten(self, length: int) -> int:
        """How many of `length` bytes a write takes before room is considered."""
        probability = self.faults.short_write
        if probability and length > 1 and self._random.random() < probability:
            return self._random.randrange(1, length)
        return length


def disk_error(error_number: int, path: str) -> OSError:
    """The `OSError` subclass the kernel's errno would become."""
    return OSError(error_number, os.strerror(error_number), path)
