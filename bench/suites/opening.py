"""Opening a log of 200 segments: after a clean close, after kill -9, and what it holds in memory while idle."""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from bench.child import memory_bytes, run_child, start_child
from bench.loads import log_config, make_batch
from bench.measurement import Measurement, Target
from bench.registry import case
from bench.workspace import Workspace
from goqueue.host import OsClock, OsDisk
from goqueue.storage import GroupCommit, Log

OPEN_SECONDS_MAX = 1.0
IDLE_MB_MAX = 10
_TAIL_BYTES = 64 << 10


@case("a cleanly closed log of 200 segments", durability="synced and closed before")
def clean(workspace: Workspace) -> Iterator[Measurement]:
    path = workspace.large_log()
    repeats = workspace.sized(5, 1)
    warm = [_open_in_child(workspace, path, evict=False) for _ in range(repeats)]
    cold = [_open_in_child(workspace, path, evict=True) for _ in range(repeats)]
    assert all(found["was_clean"] and found["scanned_bytes"] == 0 for found in warm + cold)
    where = f"{warm[0]['segments']} segments, {warm[0]['size_bytes'] / 1e9:.1f} GB"
    for name, found in (("open, page cache warm", warm), ("open, indexes and segment ends not cached", cold)):
        seconds = statistics.median(one["seconds"] for one in found)
        yield Measurement(name=name, value=seconds, unit="s", target=Target(at_most=OPEN_SECONDS_MAX), note=where)
    grown = statistics.median(one["grown"]["Private_Clean"] + one["grown"]["Private_Dirty"] for one in warm)
    yield Measurement(
        name="private memory of the open, idle log", value=grown / 1e6, unit="MB", target=Target(at_most=IDLE_MB_MAX)
    )


@case("the same log after kill -9 of its writer", durability="page cache; fdatasync within 1000 ms")
def killed(workspace: Workspace) -> Iterator[Measurement]:
    path = workspace.large_log()
    for name, rate in (("10 MB/s", 10e6), ("as fast as it can", None)):
        scanned, active, seconds = _kill_and_open(workspace, path, rate)
        yield Measurement(
            name=f"scanned beyond the active segment, writer at {name}",
            value=(scanned - active) / 1e6,
            unit="MB",
            # Without a limit the writer fills segments faster than they are synced; those must be read too.
            target=Target(at_most=0) if rate is not None else None,
            note=f"scanned {scanned / 1e6:.1f} MB, active segment {active / 1e6:.1f} MB, opened in {seconds:.3f} s",
        )


def _open_in_child(workspace: Workspace, path: str, *, evict: bool) -> dict[str, Any]:
    if evict:
        _evict(path)
    workspace.progress("opening.clean: opening")
    found: dict[str, Any] = run_child(open_idle, path=path)
    return found


def _evict(path: str) -> None:
    """Ask the kernel to forget what opening reads: the indexes, the checkpoint, the end of each segment."""
    for name in os.listdir(path):
        fd = os.open(os.path.join(path, name), os.O_RDONLY)
        start = max(os.fstat(fd).st_size - _TAIL_BYTES, 0) & -4096 if name.endswith(".log") else 0
        os.posix_fadvise(fd, start, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def open_idle(path: str) -> dict[str, Any]:
    """Runs in a child: what is in memory afterwards and was not before is the log's."""
    gc.collect()
    before = memory_bytes()
    start = time.perf_counter()
    log = Log.open(OsDisk(), path, log_config())
    seconds = time.perf_counter() - start
    gc.collect()
    after = memory_bytes()
    found = {
        "seconds": seconds,
        "segments": len(log.segments),
        "size_bytes": log.size_bytes,
        "was_clean": log.report.was_clean,
        "scanned_bytes": log.report.scanned_bytes,
        "grown": {field: after[field] - before[field] for field in before},
    }
    log.close()
    return found


def _kill_and_open(workspace: Workspace, path: str, bytes_per_second: float | None) -> tuple[int, int, float]:
    """(bytes that recovery scanned, bytes the active segment had, seconds)"""
    workspace.progress("opening.killed: writing until killed")
    segment_bytes = workspace.sized(64 << 20, 256 << 10)
    writer = start_child(write_for_ever, path=path, segment_bytes=segment_bytes, bytes_per_second=bytes_per_second)
    assert writer.stdout is not None
    writer.stdout.readline()
    time.sleep(workspace.sized(3.0, 0.1))
    writer.kill()
    writer.communicate()
    start = time.perf_counter()
    log = Log.open(OsDisk(), path, log_config(segment_bytes))
    seconds = time.perf_counter() - start
    active = log.segments[-1]
    torn = sum(cut.byte_count for cut in log.report.cuts if cut.file == active.path)
    found = log.report.scanned_bytes, active.size_bytes + torn, seconds
    assert not log.report.was_clean
    assert not log.damages
    log.close()
    return found


def write_for_ever(path: str, segment_bytes: int, bytes_per_second: float | None) -> None:
    """Runs in a child, until it is killed."""
    posted: deque[Callable[[], None]] = deque()
    commit = GroupCommit(post=posted.append, clock=OsClock())
    log = Log.open(OsDisk(), path, log_config(segment_bytes))
    template = make_batch(100)
    print("writing", flush=True)
    start, written = time.monotonic(), 0
    while True:
        log.append(bytearray(template), now_ns=time.time_ns())
        commit.note_write(log)
        written += len(template)
        while posted:
            posted.popleft()()
        while bytes_per_second is not None and written > (time.monotonic() - start) * bytes_per_second:
            time.sleep(0.001)
