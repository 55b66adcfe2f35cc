"""One sync of a log, from decision to result; see `Log.begin_sync`."""

from __future__ import annotations

import errno
import threading
from dataclasses import dataclass

from goqueue.host import Disk, File


class SyncGate:
    """One sync of a log at a time, and none after a failed one: the kernel tells of an error once, and whoever asks
    next is told that all is well."""

    __slots__ = ("failed", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.failed = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncTicket:
    """A sync that has been decided on: which files, and what will be durable afterwards."""

    gate: SyncGate
    disk: Disk
    directory: str | None
    # Files that take no more records, and the one that does: a sync of it covers only what it held by then.
    sealed: tuple[File, ...]
    active: File | None
    segment_base: int
    position: int
    offset: int
    # What the log had seen when the ticket was made: names changed, truncations.
    names_version: int
    truncations: int

    def run(self) -> None:
        """Do it; may block, may be called from any thread."""
        with self.gate.lock:
            if self.gate.failed:
                raise OSError(errno.EIO, "an earlier sync failed")
            try:
                self._sync()
            except OSError:
                self.gate.failed = True
                raise

    def _sync(self) -> None:
        if self.directory is not None:
            self.disk.sync_directory(self.directory)
        for file in self.sealed:
            file.sync()
        if self.active is not None:
            self.active.sync()
