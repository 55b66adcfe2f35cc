"""The timer wheel against a list that is searched: never early, never twice, never forgotten."""

from __future__ import annotations

import tracemalloc
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from goqueue.stdx.timer_wheel import SHIFTS, TICK_MS, TimerWheel

START_MS = 1_700_000_000_000
SPANS_MS = [TICK_MS << shift for shift in SHIFTS]

keys = st.integers(0, 30) | st.just(2**63 - 1)
durations = (
    st.integers(0, 30)
    | st.sampled_from(SPANS_MS).flatmap(lambda span: st.integers(max(0, span - 20), span + 20))
    | st.integers(0, 4 * SPANS_MS[-1])
)


class WheelAgainstList(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = START_MS
        self.wheel = TimerWheel(self.now)
        self.expected: dict[int, int] = {}

    @rule(key=keys, after=durations)
    def add(self, key: int, after: int) -> None:
        self.wheel.add(key, self.now + after)
        self.expected[key] = self.now + after

    @rule(key=keys, before=st.integers(0, 10_000))
    def add_in_the_past(self, key: int, before: int) -> None:
        self.wheel.add(key, self.now - before)
        self.expected[key] = self.now - before

    @rule(key=keys)
    def cancel(self, key: int) -> None:
        assert self.wheel.cancel(key) == (self.expected.pop(key, None) is not None)

    @rule(after=durations, limit=st.integers(1, 40))
    def advance(self, after: int, limit: int) -> None:
        self.now += after
        self._drain(limit)

    @rule()
    def sleep_until_told(self) -> None:
        wake = self.wheel.next_ms()
        if wake is None:
            assert not self.expected
            return
        if self.expected:
            assert wake <= min(self.expected.values())
        self.now = max(self.now, wake)
        self._drain(100)

    @rule(back=durations)
    def the_clock_is_set_back(self, back: int) -> None:
        self.now = max(0, self.now - back)
        self._drain(100)

    def _drain(self, limit: int) -> None:
        given: list[tuple[int, int]] = []
        while True:
            due = self.wheel.advance(self.now, limit)
            assert len(due) <= limit
            given += due
            wake = self.wheel.next_ms()
            if not due and wake != 0:
                break
        assert len(given) == len(set(given)), "given twice"
        for due_ms, key in given:
            assert self.expected.pop(key) == due_ms
            assert due_ms <= self.now, "given early"
        late = [key for key, due_ms in self.expected.items() if due_ms <= self.now]
        assert not late or limit < 40, "forgotten"

    @rule()
    def nothing_due_is_held_back_longer_than_its_tick(self) -> None:
        self.now += TICK_MS
        self._drain(100)
        assert all(due_ms > self.now for due_ms in self.expected.values())

    @invariant()
    def same_timers(self) -> None:
        assert len(self.wheel) == len(self.expected)
        assert self.wheel.first(5) == sorted((due, key) for key, due in self.expected.items())[:5]
        self.wheel.check_invariants()


WheelAgainstList.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestWheelAgainstList = WheelAgainstList.TestCase


def test_a_timer_inside_the_running_tick_fires_to_the_millisecond() -> None:
    wheel = TimerWheel(START_MS)
    wheel.add(1, START_MS + 3)
    assert wheel.advance(START_MS + 2, 10) == []
    assert wheel.next_ms() == START_MS + 3
    assert wheel.advance(START_MS + 3, 10) == [(START_MS + 3, 1)]


def test_a_stall_of_a_year_gives_everything_and_leaves_no_drift() -> None:
    wheel = TimerWheel(START_MS)
    rng = Random(1)
    year_ms = 365 * 86_400_000
    for key in range(500):
        wheel.add(key, START_MS + rng.randrange(year_ms))
    given: list[tuple[int, int]] = []
    while len(wheel):
        given += wheel.advance(START_MS + year_ms, 64)
    assert sorted(key for _, key in given) == list(range(500))
    ticks = [due_ms // TICK_MS for due_ms, _ in given]
    assert ticks == sorted(ticks)
    wheel.add(7, START_MS + year_ms + 25)
    assert wheel.advance(START_MS + year_ms + 24, 64) == []
    assert wheel.advance(START_MS + year_ms + 25, 64) == [(START_MS + year_ms + 25, 7)]


def test_a_crowd_is_given_out_in_bounded_portions() -> None:
    wheel = TimerWheel(START_MS)
    for key in range(10_000):
        wheel.add(key, START_MS + 3_600_000)
    portions = []
    while len(wheel):
        portions.append(len(wheel.advance(START_MS + 3_600_010, 256)))
    assert max(portions) <= 256
    assert sum(portions) == 10_000


def test_setting_and_cancelling_for_ever_does_not_grow() -> None:
    wheel = TimerWheel(START_MS)
    wheel.add(0, START_MS + 500_000)
    for key in range(1, 20_000):
        wheel.add(key, START_MS + 500_000)
        wheel.cancel(key)
    assert sum(len(slot) for level in wheel._levels for slot in level.values()) < 500
    for _ in range(20_000):
        wheel.add(0, START_MS + 500_000)
    assert sum(len(slot) for level in wheel._levels for slot in level.values()) < 500


def test_a_timer_takes_less_than_150_bytes() -> None:
    count = 100_000
    tracemalloc.start()
    wheel = TimerWheel(START_MS)
    for key in range(count):
        wheel.add((1 << 40) + key, START_MS + key % 600_000_000)
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert taken / count < 150
