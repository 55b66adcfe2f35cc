"""Where a run works: a scratch directory on the disk under test, the size of the run, and a line of progress."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from typing import TypeVar

from bench.loads import build_log

T = TypeVar("T")

GIB = 1 << 30
# A log of this many segments serves every case that wants a large one; sizes are per segment.
LARGE_LOG_SEGMENTS = 200
LARGE_LOG_FREE_BYTES = 30 * GIB
_PROGRESS_SECONDS = 5.0


class Workspace:
    def __init__(self, parent: str, *, quick: bool) -> None:
        os.makedirs(parent, exist_ok=True)
        self.quick = quick
        self.path = tempfile.mkdtemp(prefix="scratch-", dir=parent)
        self._large_log: str | None = None
        self._said_at = 0.0

    def sized(self, full: T, quick: T) -> T:
        return quick if self.quick else full

    def directory(self, name: str) -> str:
        """A path that does not exist yet."""
        path = os.path.join(self.path, name)
        shutil.rmtree(path, ignore_errors=True)
        return path

    def large_log(self) -> str:
        """A cleanly closed log of many segments, built when first asked for: 12.5 GiB where the disk allows it."""
        if self._large_log is None:
            path = self.directory("large-log")
            enough_room = shutil.disk_usage(self.path).free > LARGE_LOG_FREE_BYTES
            segment_bytes = 64 << 20 if enough_room and not self.quick else self.sized(4 << 20, 256 << 10)
            segment_count = self.sized(LARGE_LOG_SEGMENTS, 20)
            build_log(path, segment_count=segment_count, segment_bytes=segment_bytes, progress=self.progress)
            self._large_log = path
        return self._large_log

    def progress(self, text: str) -> None:
        """Rewrites one line on a terminal; elsewhere says something now and then."""
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\033[K{text}")
            sys.stderr.flush()
        elif time.monotonic() - self._said_at > _PROGRESS_SECONDS:
            self._said_at = time.monotonic()
            print(text, file=sys.stderr, flush=True)

    def end_progress(self) -> None:
        if sys.stderr.isatty():
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


Progress = Callable[[str], None]
