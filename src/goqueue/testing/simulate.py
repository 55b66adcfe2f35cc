"""The storage simulator's door: `python -m goqueue.testing.simulate --seeds 100 [--start S]`, or `--seed n` for one
run.

A seed is a run (docs/simulation.md). A failing one prints itself, the end of its trace and how to replay it.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from dataclasses import dataclass

from goqueue.testing.simulation import StorageRun

_TRACE_LINES = 40
_PROGRESS_SECONDS = 5.0


@dataclass(slots=True)
class Progress:
    """Counts runs and says how it goes: in place on a terminal, now and then elsewhere."""

    total: int
    done: int = 0
    failed: int = 0
    operations: int = 0
    outages: int = 0
    _started: float = 0.0
    _shown: float = 0.0

    def start(self) -> None:
        self._started = self._shown = time.monotonic()

    def note(self, run: StorageRun) -> None:
        self.done += 1
        self.operations += run.operation_count
        self.outages += run.outage_count
        now = time.monotonic()
        interval = 0.2 if sys.stderr.isatty() else _PROGRESS_SECONDS
        if now - self._shown >= interval:
            self._shown = now
            print(f"\r{self}", end="" if sys.stderr.isatty() else "\n", file=sys.stderr, flush=True)

    def __str__(self) -> str:
        seconds = max(time.monotonic() - self._started, 1e-9)
        width = 30 * self.done // self.total
        return (
            f"[{'#' * width:<30}] {self.done:,}/{self.total:,} seeds  {self.operations:,} operations  "
            f"{self.outages:,} outages  {self.operations / seconds:,.0f} operations/s  {self.failed} failed"
        )


def failure_of(seed: int, *, verbose: bool = False) -> tuple[StorageRun, str | None]:
    """Run one seed; the second part is the report of its failure, or None."""
    run = StorageRun(seed, report=print if verbose else None)
    try:
        run.run()
    except Exception:
        trace = "" if verbose else "".join(f"  {line}\n" for line in run.trace[-_TRACE_LINES:])
        replay = f"replay with: make sim SEED={seed}"
        return (
            run,
            f"\nseed {seed} failed after {run.operation_count} operations\n{trace}{traceback.format_exc()}{replay}",
        )
    return run, None


def simulate(start: int, count: int) -> int:
    """Run seeds one after the other; returns how many failed."""
    progress = Progress(count)
    progress.start()
    failed = []
    for seed in range(start, start + count):
        run, report = failure_of(seed)
        if report is not None:
            failed.append(seed)
            progress.failed += 1
            print(report, flush=True)
        progress.note(run)
    print(f"\r{progress}", file=sys.stderr)
    print(f"seeds {start} to {start + count - 1}: " + (f"failed {failed}" if failed else "all passed"))
    return len(failed)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m goqueue.testing.simulate", description="Simulate the storage.")
    parser.add_argument("--seeds", type=int, default=100, help="how many runs")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, default=None, help="one run, told step by step")
    options = parser.parse_args(arguments)
    if options.seed is None:
        return int(bool(simulate(options.start, options.seeds)))
    run, report = failure_of(options.seed, verbose=True)
    print(report or f"seed {options.seed} passed: {run.operation_count} operations, {run.outage_count} outages")
    return int(report is not None)


if __name__ == "__main__":
    sys.exit(main())
