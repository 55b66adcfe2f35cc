"""The machine a figure belongs to."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    cpu: str
    cores: int
    memory_gib: float
    kernel: str
    file_system: str
    python: str
    commit: str
    # Runnable processes per core when the run began; near 0 on a quiet machine.
    load_per_core: float
    started_at: str

    @classmethod
    def describe(cls, directory: str) -> Machine:
        cores = len(os.sched_getaffinity(0))
        return cls(
            cpu=_cpu_model(),
            cores=cores,
            memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1),
            kernel=platform.release(),
            file_system=_file_system(directory),
            python=platform.python_version(),
            commit=_commit(),
            load_per_core=round(os.getloadavg()[0] / cores, 2),
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"{self.cpu}, {self.cores} cores, {self.memory_gib} GiB, Linux {self.kernel}, {self.file_system}, "
            f"Python {self.python}, commit {self.commit}, load per core at start {self.load_per_core}"
        )


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(directory: str) -> str:
    """Type of the mount that holds `directory`: the one with the longest matching mount point."""
    best, found = "", "unknown"
    real = os.path.realpath(directory)
    for line in Path("/proc/mounts").read_text().splitlines():
        _, point, kind, *_ = line.split()
        if len(point) >= len(best) and (real == point or real.startswith(point.rstrip("/") + "/")):
            best, found = point, kind
    return found


def _commit() -> str:
    """The checked out commit, marked where the tree differs from it."""
    try:
        command = [
            "git",
            "-C",
            str(REPOSITORY),
            "describe",
            "--always",
            "--dirty=+changes",
            "--abbrev=10",
            "--exclude=*",
        ]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
