"""The kernel's clock and generator keep the promises of their protocols."""

from __future__ import annotations

from goqueue.host import Clock, Entropy, OsClock, OsEntropy

YEAR_2020_NS = 1_577_836_800 * 10**9


def test_wall_time_counts_from_1970_and_monotonic_time_never_goes_back() -> None:
    clock: Clock = OsClock()
    readings = [clock.monotonic_ns() for _ in range(100)]
    assert readings == sorted(readings)
    assert clock.wall_ns() > YEAR_2020_NS


def test_random_bytes_have_the_length_asked_and_differ() -> None:
    entropy: Entropy = OsEntropy()
    assert len(entropy.random_bytes(16)) == 16
    assert entropy.random_bytes(16) != entropy.random_bytes(16)


def test_uniform_stays_between_its_bounds() -> None:
    entropy: Entropy = OsEntropy()
    assert all(0.5 <= entropy.uniform(0.5, 2.0) <= 2.0 for _ in range(100))
