"""A hierarchical timer wheel: which numbers are due, asked with a clock instead of counting ticks.

Four levels of 256 x 10 ms, 64 x 2.56 s, 64 x 163.84 s and 64 x 2.91 h, and beyond them slots of 7.76 days. A timer
lies in the lowest level whose block also holds the present; when the present enters a slot of a higher level, the slot
is spread over the levels below. Slots exist only while they hold something.

A key's due time stands in one dictionary, and a slot holds nothing but keys. Cancelling removes the key from the
dictionary; what is left in a slot is passed over, or swept out once half of the slot is dead. So add and cancel take
constant time, a timer costs about 120 bytes, and the dictionary alone decides what is due: never early, never twice.
The clock may stall or jump in both directions; nothing drifts, because nothing is counted.
"""

from __future__ import annotations

from array import array
from collections import deque
from heapq import heappop, heappush, nsmallest

TICK_MS = 10
# Bits of a tick's number that lie below a slot of each level; the last is the one for what is far away.
SHIFTS = (0, 8, 14, 20, 26)
_KEY_BITS = 63
_KEY_MASK = (1 << _KEY_BITS) - 1
# Slots smaller than this are not worth sweeping, and their earliest due time is cheap to find.
_SMALL = 64
# Slots larger than this are not sorted before they are given out.
_SORTED = 4096


class _Portion:
    """A slot that is worked off from its front, a part at a time."""

    __slots__ = ("_keys", "_position")

    def __init__(self, keys: array[int]) -> None:
        self._keys = keys
        self._position = 0

    def take(self, count: int) -> array[int]:
        part = self._keys[self._position : self._position + count]
        self._position += len(part)
        return part

    @property
    def rest(self) -> array[int]:
        return self._keys[self._position :]

    @property
    def exhausted(self) -> bool:
        return self._position == len(self._keys)


class TimerWheel:
    """Keys are numbers from 0 to 2**63 - 1, times are milliseconds, not negative."""

    __slots__ = ("_dead", "_due", "_late", "_levels", "_ripe", "_spreading", "_tick")

    def __init__(self, now_ms: int) -> None:
        self._tick = now_ms // TICK_MS
        self._due: dict[int, int] = {}
        # Per level: number of the slot (a tick shifted right) -> keys, and how many of them are dead.
        self._levels: tuple[dict[int, array[int]], ...] = tuple({} for _ in SHIFTS)
        self._dead: tuple[dict[int, int], ...] = tuple({} for _ in SHIFTS)
        # Slots whose whole tick has passed, and slots of higher levels that the present has entered, with how far
        # each has been worked off.
        self._ripe: deque[_Portion] = deque()
        self._spreading: deque[_Portion] = deque()
        # Timers that were set for a tick already passed, as due time and key in one number, smallest first.
        self._late: list[int] = []

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, key: int) -> bool:
        return key in self._due

    def due_ms(self, key: int) -> int | None:
        return self._due.get(key)

    # -- setting ------------------------------------------------------------------------------------------------

    def add(self, key: int, due_ms: int) -> None:
        """Set a timer, or set it anew."""
        if key in self._due:
            self.cancel(key)
        self._due[key] = due_ms
        self._place(key, due_ms)

    def cancel(self, key: int) -> bool:
        """Remove a timer; False when there is none."""
        due_ms = self._due.pop(key, None)
        if due_ms is None:
            return False
        tick = due_ms // TICK_MS
        if tick >= self._tick:
            level, number = self._slot_of(tick)
            self._bury(level, number)
        return True

    def _slot_of(self, tick: int) -> tuple[int, int]:
        apart = tick ^ self._tick
        if apart < 0x100:
            return 0, tick
        if apart < 0x4000:
            return 1, tick >> 8
        if apart < 0x100000:
            return 2, tick >> 14
        if apart < 0x4000000:
            return 3, tick >> 20
        return 4, tick >> 26

    def _place(self, key: int, due_ms: int) -> None:
        tick = due_ms // TICK_MS
        if tick < self._tick:
            heappush(self._late, due_ms << _KEY_BITS | key)
            return
        level, number = self._slot_of(tick)
        slot = self._levels[level].get(number)
        if slot is None:
            self._levels[level][number] = array("q", (key,))
        else:
            slot.append(key)

    def _bury(self, level: int, number: int) -> None:
        """One key of this slot has died; sweep the slot when half of it has."""
        slot = self._levels[level].get(number)
        if slot is None:
            return
        dead = self._dead[level].get(number, 0) + 1
        if dead < _SMALL or 2 * dead < len(slot):
            self._dead[level][number] = dead
            return
        self._dead[level].pop(number, None)
        due, shift = self._due, SHIFTS[level]
        alive = array("q", dict.fromkeys(key for key in slot if due.get(key, -1) // TICK_MS >> shift == number))
        if alive:
            self._levels[level][number] = alive
        else:
            del self._levels[level][number]

    # -- time ---------------------------------------------------------------------------------------------------

    def advance(self, now_ms: int, limit: int) -> list[tuple[int, int]]:
        """Up to `limit` timers that are due as (due time, key), in the order of their ticks; they are no longer set.

        Looks at no more than `limit` timers, so that one call takes bounded time. `next_ms` tells whether more is
        to be done at once.
        """
        due: list[tuple[int, int]] = []
        budget = limit
        target = now_ms // TICK_MS
        while budget > 0:
            if self._late and self._late[0] >> _KEY_BITS <= now_ms:
                self._give(heappop(self._late) & _KEY_MASK, now_ms, due)
                budget -= 1
            elif self._ripe:
                budget -= self._take_ripe(now_ms, budget, due)
            elif self._spreading:
                budget -= self._spread(budget)
            elif self._tick < target:
                self._step(target)
            else:
                self._look_at_present(now_ms, budget, due)
                break
        return due

    def _give(self, key: int, now_ms: int, due: list[tuple[int, int]]) -> None:
        due_ms = self._due.get(key)
        if due_ms is None:
            return
        if due_ms <= now_ms:
            del self._due[key]
            due.append((due_ms, key))
        elif due_ms // TICK_MS < self._tick:
            # The clock was set back: it was due once and is not any more.
            heappush(self._late, due_ms << _KEY_BITS | key)

    def _take_ripe(self, now_ms: int, budget: int, due: list[tuple[int, int]]) -> int:
        part = self._portion(self._ripe, budget)
        for key in part:
            self._give(key, now_ms, due)
        return len(part)

    def _spread(self, budget: int) -> int:
        part = self._portion(self._spreading, budget)
        for key in part:
            due_ms = self._due.get(key)
            if due_ms is not None:
                self._place(key, due_ms)
        return len(part)

    @staticmethod
    def _portion(portions: deque[_Portion], count: int) -> array[int]:
        part = portions[0].take(count)
        if portions[0].exhausted:
            portions.popleft()
        return part

    def _step(self, target: int) -> None:
        """Move the present forward: one tick where the lowest level holds something, else to where one begins."""
        levels, tick = self._levels, self._tick
        for level in range(len(SHIFTS) - 1):
            if levels[level]:
                break
        else:
            level = len(SHIFTS) - 1
        if level == 0:
            self._pass_tick(tick)
            following = tick + 1
        elif level == len(SHIFTS) - 1 and not levels[level]:
            following = target
        else:
            following = ((tick >> SHIFTS[level]) + 1) << SHIFTS[level]
        self._tick = min(following, target)
        self._enter(tick)

    def _pass_tick(self, tick: int) -> None:
        slot = self._levels[0].pop(tick, None)
        self._dead[0].pop(tick, None)
        if slot is not None:
            if len(slot) <= _SORTED:
                # In order of their times; a crowd stays in the order in which it was set.
                slot = array("q", sorted(slot, key=lambda key: self._due.get(key, 0)))
            self._ripe.append(_Portion(slot))

    def _enter(self, before: int) -> None:
        """Spread the slot that the present has entered. Levels below the highest crossed one are empty by then."""
        for level in range(len(SHIFTS) - 1, 0, -1):
            number = self._tick >> SHIFTS[level]
            if before >> SHIFTS[level] != number:
                slot = self._levels[level].pop(number, None)
                self._dead[level].pop(number, None)
                if slot is not None:
                    self._spreading.append(_Portion(slot))

    def _look_at_present(self, now_ms: int, budget: int, due: list[tuple[int, int]]) -> None:
        """Some of the tick that is running may be due. A crowd waits for the end of the tick instead."""
        slot = self._levels[0].get(self._tick)
        if slot is None or len(slot) > budget or now_ms // TICK_MS < self._tick:
            return
        del self._levels[0][self._tick]
        self._dead[0].pop(self._tick, None)
        for key in slot:
            due_ms = self._due.get(key)
            if due_ms is not None and due_ms > now_ms:
                self._place(key, due_ms)
            else:
                self._give(key, now_ms, due)

    # -- looking ------------------------------------------------------------------------------------------------

    def next_ms(self) -> int | None:
        """No timer is due before this time; 0 when work is left over, None when nothing is set."""
        if self._ripe or self._spreading:
            return 0
        times = [self._late[0] >> _KEY_BITS] if self._late else []
        for level, slots in enumerate(self._levels):
            if slots:
                times.append(self._earliest(level, min(slots)))
                break
        return min(times, default=None)

    def _earliest(self, level: int, number: int) -> int:
        slot = self._levels[level][number]
        if level:
            return (number << SHIFTS[level]) * TICK_MS
        if len(slot) <= _SMALL:
            times = [self._due.get(key, 0) for key in slot]
            return min((due_ms for due_ms in times if due_ms // TICK_MS == number), default=number * TICK_MS)
        return (number + 1) * TICK_MS if number <= self._tick else number * TICK_MS

    def first(self, count: int) -> list[tuple[int, int]]:
        """The `count` earliest timers as (due time, key), in order."""
        return nsmallest(count, ((due_ms, key) for key, due_ms in self._due.items()))

    def keys(self) -> array[int]:
        return array("q", self._due.keys())

    def times(self) -> array[int]:
        """The due times, in the order of `keys`."""
        return array("q", self._due.values())

    def lowest_key(self) -> int | None:
        """The smallest key set. Looks at all of them."""
        return min(self._due, default=None)

    def check_invariants(self) -> None:
        """Every timer can be found where it will be looked for."""
        held = {entry & _KEY_MASK for entry in self._late}
        held.update(*(portion.rest for portion in (*self._ripe, *self._spreading)))
        for key, due_ms in self._due.items():
            tick = due_ms // TICK_MS
            level, number = self._slot_of(tick)
            there = tick >= self._tick and key in self._levels[level].get(number, ())
            assert there or key in held, f"timer {key} due at {due_ms} would never fire"
