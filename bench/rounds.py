"""How two things are compared fairly on a machine that others use too: in turns, many short rounds, medians."""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping

Side = Callable[[], float]


def interleave(
    sides: Mapping[str, Side], *, rounds: int, progress: Callable[[str], None], label: str
) -> dict[str, list[float]]:
    """Run the sides A B A B ...; returns each side's figures in round order."""
    figures: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds):
        for name, side in sides.items():
            progress(f"{label}: round {number + 1}/{rounds}, {name}")
            figures[name].append(side())
    return figures


def time_calls(action: Callable[[], object], *, calls: int, before: Callable[[], object] | None = None) -> float:
    """Median nanoseconds of one call; `before` is not timed. A call that lost the CPU is an outlier, not the median."""
    samples = []
    for _ in range(calls):
        if before is not None:
            before()
        start = time.perf_counter_ns()
        action()
        samples.append(time.perf_counter_ns() - start)
    return statistics.median(samples)


@contextlib.contextmanager
def pinned() -> Iterator[None]:
    """Keep this thread on one core, for work that has no other thread: caches stay warm and clocks comparable."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
