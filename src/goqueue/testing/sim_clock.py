"""Time that moves only when told to.

`SimClock` is advanced by its owner. `SimEventLoop` is an asyncio loop that lives on such a clock: when every task
waits, it advances the clock to the next timer instead of sleeping, so an hour of timeouts runs in milliseconds and the
order of events depends on nothing but the program. Threads have no place in it: time would pass while they work.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_START_WALL_NS = 1_700_000_000_000_000_000
_START_MONOTONIC_NS = 1_000_000_000


class SimClock:
    """The twin of `OsClock`. The wall clock may be made to jump; the monotonic one cannot go back."""

    __slots__ = ("_monotonic_ns", "_wall_ns")

    def __init__(self, *, wall_ns: int = _START_WALL_NS, monotonic_ns: int = _START_MONOTONIC_NS) -> None:
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns

    def wall_ns(self) -> int:
        return self._wall_ns

    def monotonic_ns(self) -> int:
        return self._monotonic_ns

    def advance_ns(self, duration_ns: int) -> None:
        """Let time pass on both clocks."""
        assert duration_ns >= 0, "time passes forwards; use jump_wall_ns for a clock that is set back"
        self._wall_ns += duration_ns
        self._monotonic_ns += duration_ns

    def jump_wall_ns(self, delta_ns: int) -> None:
        """Somebody set the wall clock, forwards or back; the monotonic clock does not notice."""
        self._wall_ns += delta_ns


class _ClockSelector(selectors.SelectSelector):
    """Where a real loop would sleep until its next timer, the clock is moved there."""

    def __init__(self, clock: SimClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events or timeout == 0:
            return events
        if timeout is None:
            raise RuntimeError("the simulation is stuck: every task waits and no timer is set")
        self._clock.advance_ns(max(1, math.ceil(timeout * 1e9)))
        return events


class SimEventLoop(asyncio.SelectorEventLoop):
    """An event loop on simulated time."""

    def __init__(self, clock: SimClock) -> None:
        super().__init__(_ClockSelector(clock))
        self._sim_clock = clock

    def time(self) -> float:
        return self._sim_clock.monotonic_ns() / 1e9


def run_simulated(clock: SimClock, main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on simulated time."""
    with asyncio.Runner(loop_factory=lambda: SimEventLoop(clock)) as runner:
        return runner.run(main)
