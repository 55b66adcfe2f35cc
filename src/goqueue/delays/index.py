"""The delayed messages of one partition: pending = delayed - released - cancelled, derived from the log.

    DELAYED record -> pending -> taken -> released
                         |  ^------'        a release that could not be written
                         |-> cancelled      by its sender
                         '-> expired        the log no longer holds it

`replay_*` alone changes what is durable; it runs on live traffic and at the next start alike. `take_due` hands out
messages to be released, which stay pending until the release is replayed. Times are wall clock milliseconds. Knows
nothing of files, topics or clocks.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from goqueue.delays.records import DelayRecord
from goqueue.delays.snapshot import DelaySnapshot
from goqueue.errors import DelayedFinishedError, DelayedNotFoundError
from goqueue.record import ControlKind
from goqueue.stdx.timer_wheel import TimerWheel

# Finished messages whose fate can still be looked up.
FINISHED_MAX = 100_000


class DelayState(StrEnum):
    PENDING = "pending"
    RELEASED = "released"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delayed:
    """One message: `due_ms` while it is pending, `released_offset` of its copy when it is released."""

    offset: int
    state: DelayState
    due_ms: int | None = None
    released_offset: int | None = None


# A finished message is one number: the offset of its copy, or one of these.
_CANCELLED = -1
_EXPIRED = -2


class DelayIndex:
    def __init__(self, now_ms: int, *, finished_max: int = FINISHED_MAX) -> None:
        self._wheel = TimerWheel(now_ms)
        # Handed out by `take_due` and not released yet: offset -> due time.
        self._taken: dict[int, int] = {}
        self._finished: dict[int, int] = {}
        self._finished_max = finished_max
        # The last release: where its record is, and the messages it lists with their due times.
        self._release_offset = -1
        self._release: tuple[tuple[int, int], ...] = ()
        # Offset of the last record replayed, and how many there were.
        self.last_offset = -1
        self.replayed = 0

    def __len__(self) -> int:
        """Pending messages."""
        return len(self._wheel) + len(self._taken)

    # -- replay -------------------------------------------------------------------------------------------------

    def replay_delayed(self, offset: int, due_ms: int) -> None:
        self._wheel.add(offset, due_ms)
        self._note(offset)

    def replay_control(self, offset: int, record: DelayRecord) -> None:
        """`offset` is the record's own."""
        self._note(offset)
        if record.kind is ControlKind.RESCHEDULED:
            for origin, due_ms in record.entries:
                self._finished.pop(origin, None)
                self._taken.pop(origin, None)
                self._wheel.add(origin, due_ms)
        elif record.kind is ControlKind.CANCELLED:
            for origin, _ in record.entries:
                self._finish(origin, _CANCELLED)
        else:
            self._release_offset, self._release = offset, record.entries
            for number, (origin, _) in enumerate(record.entries):
                self._finish(origin, offset + 1 + number)

    def _note(self, offset: int) -> None:
        self.last_offset = offset
        self.replayed += 1

    def _finish(self, origin: int, fate: int) -> None:
        self._wheel.cancel(origin)
        self._taken.pop(origin, None)
        self._finished[origin] = fate
        while len(self._finished) > self._finished_max:
            del self._finished[next(iter(self._finished))]

    def forget(self, offsets: Iterable[int]) -> None:
        """These records were never written; their offsets will be given to others."""
        for offset in offsets:
            self._wheel.cancel(offset)
            self._taken.pop(offset, None)

    def restore(self, entries: Iterable[tuple[int, int]]) -> None:
        """The control record that finished these was never written."""
        for offset, due_ms in entries:
            self._finished.pop(offset, None)
            self._wheel.add(offset, due_ms)

    def torn_release(self, log_end_offset: int) -> tuple[tuple[int, int], ...]:
        """Messages whose release is in the log and whose copy is not, because a crash tore the batch."""
        written = max(0, log_end_offset - self._release_offset - 1)
        return self._release[written:] if self._release_offset >= 0 else ()

    def expire_below(self, log_start_offset: int) -> int:
        """Pending messages that the log no longer holds can never be delivered; returns how many."""
        gone = [offset for offset in self._wheel.keys() if offset < log_start_offset]  # noqa: SIM118 - not a dict
        for offset in gone:
            self._finish(offset, _EXPIRED)
        return len(gone)

    # -- decisions ----------------------------------------------------------------------------------------------

    def look_up(self, offset: int) -> Delayed:
        due_ms = self._due_ms(offset)
        if due_ms is not None:
            return Delayed(offset=offset, state=DelayState.PENDING, due_ms=due_ms)
        fate = self._finished.get(offset)
        if fate is None:
            raise DelayedNotFoundError(
                f"no delayed message is known at offset {offset}: there never was one, or it was finished long ago",
                offset=offset,
            )
        if fate >= 0:
            return Delayed(offset=offset, state=DelayState.RELEASED, released_offset=fate)
        state = DelayState.CANCELLED if fate == _CANCELLED else DelayState.EXPIRED
        return Delayed(offset=offset, state=state)

    def _due_ms(self, offset: int) -> int | None:
        due_ms = self._wheel.due_ms(offset)
        return self._taken.get(offset) if due_ms is None else due_ms

    def handle_cancel(self, offset: int) -> tuple[DelayRecord | None, Delayed]:
        """The record that cancels a message, None when nothing is left to cancel; and the state after it."""
        found = self.look_up(offset)
        if found.due_ms is None:
            return None, found
        record = DelayRecord(ControlKind.CANCELLED, ((offset, found.due_ms),))
        return record, Delayed(offset=offset, state=DelayState.CANCELLED)

    def handle_reschedule(self, offset: int, due_ms: int) -> tuple[DelayRecord, Delayed]:
        """The record that gives a pending message another due time."""
        found = self.look_up(offset)
        if found.state is not DelayState.PENDING:
            raise DelayedFinishedError(
                f"the message at offset {offset} is {found.state} and cannot be rescheduled",
                offset=offset,
                state=str(found.state),
            )
        record = DelayRecord(ControlKind.RESCHEDULED, ((offset, due_ms),))
        return record, Delayed(offset=offset, state=DelayState.PENDING, due_ms=due_ms)

    # -- releasing ----------------------------------------------------------------------------------------------

    def take_due(self, now_ms: int, limit: int) -> list[tuple[int, int]]:
        """Up to `limit` due messages as (due time, offset), ordered so; they must be released or put back."""
        due = sorted(self._wheel.advance(now_ms, limit))
        self._taken.update((offset, due_ms) for due_ms, offset in due)
        return due

    def put_back(self, offsets: Iterable[int]) -> None:
        """These could not be released; they are due as before."""
        for offset in offsets:
            due_ms = self._taken.pop(offset, None)
            if due_ms is not None:
                self._wheel.add(offset, due_ms)

    def put_off(self, offset: int, due_ms: int) -> None:
        """This one cannot be read now; it is tried again later, in this process."""
        if self._taken.pop(offset, None) is not None:
            self._wheel.add(offset, due_ms)

    def next_ms(self) -> int | None:
        """Nothing is due before this time; 0 when something is left to do at once."""
        return self._wheel.next_ms()

    # -- looking ------------------------------------------------------------------------------------------------

    def first(self, count: int) -> list[Delayed]:
        """The `count` messages that are due first."""
        taken = [(due_ms, offset) for offset, due_ms in self._taken.items()]
        pairs = sorted([*taken, *self._wheel.first(count)])[:count]
        return [Delayed(offset=offset, state=DelayState.PENDING, due_ms=due_ms) for due_ms, offset in pairs]

    def lowest_pending(self) -> int | None:
        """Retention must keep everything from here on."""
        found = [self._wheel.lowest_key(), min(self._taken, default=None)]
        return min((offset for offset in found if offset is not None), default=None)

    # -- snapshots ----------------------------------------------------------------------------------------------

    def snapshot(self, *, next_offset: int, witness: int) -> DelaySnapshot:
        """All of it as of `next_offset`; `witness` is a checksum of the last record replayed."""
        offsets, times = self._wheel.keys(), self._wheel.times()
        offsets.extend(self._taken.keys())
        times.extend(self._taken.values())
        return DelaySnapshot(
            next_offset=next_offset,
            last_offset=self.last_offset,
            witness=witness,
            pending=(offsets, times),
            finished=(array("q", self._finished.keys()), array("q", self._finished.values())),
        )

    @classmethod
    def restored(cls, snapshot: DelaySnapshot, now_ms: int) -> DelayIndex:
        index = cls(now_ms)
        add = index._wheel.add
        for offset, due_ms in zip(*snapshot.pending, strict=True):
            add(offset, due_ms)
        index._finished = dict(zip(*snapshot.finished, strict=True))
        index.last_offset = snapshot.last_offset
        return index

    def check_invariants(self) -> None:
        self._wheel.check_invariants()
        for offset in self._taken:
            assert offset not in self._wheel, f"{offset} is handed out and still set"
        for offset in self._finished:
            assert self._due_ms(offset) is None, f"{offset} is finished and pending"
