"""A broker in a process of its own, pinned to the first core; the load generator takes the last one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from bench.machine import REPOSITORY
from bench.workspace import Workspace

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BrokerProcess:
    wire: str
    http: str
    pid: int

    def rss_bytes(self) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) << 10
        raise RuntimeError("the broker is gone")


@contextlib.contextmanager
def running_broker(workspace: Workspace, *, keep: str | None = None) -> Iterator[BrokerProcess]:
    """`goqueue serve` on free ports, in a new directory unless `keep` names one."""
    data = keep or workspace.directory("broker")
    command = [sys.executable, "-m", "goqueue", "serve", "--data", data, "--print-addresses", "--log-level", "error"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
    cores = sorted(os.sched_getaffinity(0))
    process = subprocess.Popen(
        [*command, "--wire", "127.0.0.1:0", "--http", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True, env=environment
    )
    os.sched_setaffinity(process.pid, {cores[0]})
    os.sched_setaffinity(0, {cores[-1]})
    try:
        assert process.stdout is not None
        addresses = json.loads(process.stdout.readline())
        yield BrokerProcess(addresses["wire"], addresses["http"], process.pid)
    finally:
        os.sched_setaffinity(0, set(cores))
        process.terminate()
        process.wait(60)
        if keep is None:
            shutil.rmtree(data, ignore_errors=True)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on uvloop where it is installed, as the broker does."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)
