"""Which operation of a simulated disk fails next, and with what.

Two sources: failures planned one by one (`plan`), and probabilities (`Faults`) that may be swapped at any time.
A run draws random numbers only for probabilities above zero, so switching a fault on does not reshuffle the others.
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

    __slots__ = ("_planned", "_random", "faults")

    def __init__(self, rng: random.Random, faults: Faults) -> None:
        self._random = rng
        self._planned: list[PlannedFault] = []
        self.faults = faults

    def plan(self, fault: PlannedFault) -> None:
        self._planned.append(fault)

    def clear(self) -> None:
        self._planned.clear()

    def check(self, operation: DiskOperation, path: str) -> None:
        """Raise the fault that is due for this operation, if any."""
        if self._planned:
            self._raise_planned(operation, path)
        if self.faults is NO_FAULTS:
            return
        probability = self.faults.probability_of(operation)
        if probability and self._random.random() < probability:
            raise disk_error(errno.EIO, path)

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
