"""Simulated time moves when told to, and a loop on it never sleeps."""

from __future__ import annotations

import asyncio
import random

import pytest

from goqueue.host import Clock, Entropy
from goqueue.testing import SimClock, SimEntropy, run_simulated

HOUR_NS = 3600 * 10**9


def test_time_stands_still_until_it_is_advanced() -> None:
    sim = SimClock(wall_ns=1000, monotonic_ns=50)
    clock: Clock = sim
    assert (clock.wall_ns(), clock.monotonic_ns()) == (1000, 50)
    sim.advance_ns(7)
    assert (clock.wall_ns(), clock.monotonic_ns()) == (1007, 57)


def test_a_jump_moves_only_the_wall_clock() -> None:
    clock = SimClock(wall_ns=1000, monotonic_ns=50)
    clock.jump_wall_ns(-400)
    assert (clock.wall_ns(), clock.monotonic_ns()) == (600, 50)


def test_time_cannot_be_advanced_backwards() -> None:
    with pytest.raises(AssertionError, match="forwards"):
        SimClock().advance_ns(-1)


def test_a_loop_on_simulated_time_runs_timers_in_order_without_waiting() -> None:
    clock = SimClock()
    start_ns = clock.monotonic_ns()
    woken: list[int] = []

    async def wake_after(hours: int) -> None:
        await asyncio.sleep(hours * 3600)
        woken.append(hours)
        assert clock.monotonic_ns() - start_ns == pytest.approx(hours * HOUR_NS, abs=10_000)

    async def main() -> str:
        hours = list(range(1, 200))
        random.Random(1).shuffle(hours)
        await asyncio.gather(*map(wake_after, hours))
        return "done"

    assert run_simulated(clock, main()) == "done"
    assert woken == list(range(1, 200))


def test_a_timeout_on_simulated_time_fires_at_its_moment() -> None:
    clock = SimClock()
    start_ns = clock.monotonic_ns()

    async def main() -> None:
        async with asyncio.timeout(30):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        run_simulated(clock, main())
    assert clock.monotonic_ns() - start_ns == pytest.approx(30 * 10**9, abs=10_000)


def test_a_simulation_in_which_nothing_can_happen_says_so() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="stuck"):
        run_simulated(SimClock(), main())


def test_the_same_seed_draws_the_same() -> None:
    first: Entropy = SimEntropy(7)
    second: Entropy = SimEntropy(7)
    assert [first.random_bytes(8) for _ in range(5)] == [second.random_bytes(8) for _ in range(5)]
    assert first.uniform(1, 2) == second.uniform(1, 2)
    assert SimEntropy(7).random_bytes(8) != SimEntropy(8).random_bytes(8)


def test_simulated_draws_keep_their_bounds() -> None:
    entropy = SimEntropy(1)
    assert len(entropy.random_bytes(16)) == 16
    assert all(0.5 <= entropy.uniform(0.5, 2.0) <= 2.0 for _ in range(100))
