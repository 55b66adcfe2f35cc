"""The disk guard: a warning at 85 % used, no more writes at 90 %, reads always.

Publishing on a full disk ends in torn batches and failed syncs; refusing early keeps every partition healthy.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from goqueue.errors import DiskGuardError
from goqueue.host import Disk


class DiskState(StrEnum):
    OK = "ok"
    WARN = "warn"
    REFUSING = "refusing"


@dataclass(slots=True)
class DiskGuard:
    disk: Disk
    path: str
    warn_percent: int
    refuse_percent: int
    state: DiskState = DiskState.OK
    free_bytes: int = 0
    total_bytes: int = 0

    def look(self) -> DiskState:
        """Measure now; returns the new state."""
        self.free_bytes = self.disk.free_bytes(self.path)
        self.total_bytes = self.disk.total_bytes(self.path)
        used = self.used_percent
        self.state = (
            DiskState.REFUSING
            if used >= self.refuse_percent
            else DiskState.WARN
            if used >= self.warn_percent
            else DiskState.OK
        )
        return self.state

    @property
    def used_percent(self) -> float:
        return 100.0 * (1 - self.free_bytes / self.total_bytes) if self.total_bytes else 0.0

    def check_write(self) -> None:
        if self.state is DiskState.REFUSING:
            raise DiskGuardError(
                f"the disk is {self.used_percent:.0f} % full and writes are refused from {self.refuse_percent} % on; "
                "free space, lower retention, or raise disk_refuse_percent",
                used_percent=round(self.used_percent, 1),
            )
