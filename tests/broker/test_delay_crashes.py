"""Delays on a simulated disk that loses, tears and reorders what was not synced: exactly once, whatever happens."""

from __future__ import annotations

from random import Random

import pytest

from goqueue.broker.delay_store import mark, recover, store_snapshot, take_snapshot
from goqueue.delays import (
    ORIGIN_HEADER,
    DelayIndex,
    DelayRecord,
    DelayState,
    control_batch,
    due_header,
    release_batch,
)
from goqueue.record import INVISIBLE_FLAGS, BatchBuilder, ControlKind, Flag, decode, last_offset
from goqueue.storage import Log
from goqueue.testing import SimDisk

START_MS = 1_700_000_000_000


class Run:
    """One partition under random work and crashes; remembers only what was durable."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.disk = SimDisk(self.rng)
        self.now = START_MS
        self.due: dict[int, int] = {}
        self.cancelled: set[int] = set()
        self.values: dict[int, bytes] = {}
        self.log = Log.open(self.disk, "/p")
        mark(self.log)
        self.index = DelayIndex(self.now)

    def publish(self) -> None:
        due_ms, value = self.now + self.rng.randrange(1, 400), b"%d" % self.rng.randrange(10**9)
        builder = BatchBuilder()
        builder.add(value, b"k", [due_header(due_ms)], flags=int(Flag.DELAYED))
        builder.add(b"ordinary")
        offset = self.log.append(builder.take(), now_ns=self.now * 1_000_000).base_offset
        self.index.replay_delayed(offset, due_ms)
        self._maybe_sync()
        if self.log.synced_offset > offset:
            self.due[offset], self.values[offset] = due_ms, value

    def cancel(self) -> None:
        offset = self.rng.choice(sorted(self.due) or [0])
        if offset not in self.due:
            return
        record, _ = self.index.handle_cancel(offset)
        if record is not None:
            facts = self.log.append(control_batch(record), now_ns=self.now * 1_000_000)
            self.index.replay_control(facts.base_offset, record)
            self.log.sync()
            self.cancelled.add(offset)

    def release(self) -> None:
        self.now += self.rng.randrange(200)
        due = self.index.take_due(self.now, 5)
        if due:
            originals = [decode(self.log.read(offset, 1))[0] for _, offset in due]
            record = DelayRecord(ControlKind.RELEASED, tuple((offset, due_ms) for due_ms, offset in due))
            facts = self.log.append(release_batch(record, originals), now_ns=self.now * 1_000_000)
            self.index.replay_control(facts.base_offset, record)
            self._maybe_sync()

    def snapshot(self) -> None:
        found = take_snapshot(self.log, self.index)
        self.log.sync()
        if found is not None:
            store_snapshot(self.disk, "/p", found)

    def crash(self) -> None:
        self.disk.crash() if self.rng.random() < 0.8 else self.disk.kill()
        self.log = Log.open(self.disk, "/p")
        self.index = recover(self.log, now_ns=self.now * 1_000_000)
        self.index.check_invariants()

    def _maybe_sync(self) -> None:
        if self.rng.random() < 0.5:
            self.log.sync()

    def seen(self) -> dict[int, int]:
        """Copies by the offset of their origin, checked on the way."""
        copies: dict[int, int] = {}
        offset = self.log.log_start_offset
        while offset < self.log.log_end_offset:
            data = self.log.read(offset, 1 << 20)
            for record in decode(data, INVISIBLE_FLAGS):
                origin = dict(record.headers).get(ORIGIN_HEADER)
                if origin is not None:
                    number = int(origin)
                    copies[number] = copies.get(number, 0) + 1
                    if number in self.due:
                        assert record.value == self.values[number]
                        assert record.timestamp_ns // 1_000_000 >= self.due[number], "early"
            offset = last_offset(data) + 1
        return copies

    def check(self) -> None:
        copies = self.seen()
        assert set(copies.values()) <= {1}, "released twice"
        assert not self.cancelled & set(copies), "cancelled and seen"
        for offset in self.due:
            state = self.index.look_up(offset).state
            expected = DelayState.RELEASED if offset in copies else DelayState.PENDING
            assert state is (DelayState.CANCELLED if offset in self.cancelled else expected)


@pytest.mark.parametrize("seed", range(60))
def test_every_message_is_released_exactly_once_or_cancelled(seed: int) -> None:
    run = Run(seed)
    steps = [run.publish, run.publish, run.cancel, run.release, run.release, run.snapshot, run.crash]
    for _ in range(120):
        run.rng.choice(steps)()
        run.check()
    run.now += 1000
    while len(run.index):
        run.release()
    run.log.sync()
    run.check()
    assert set(run.due) - run.cancelled <= set(run.seen())


def test_a_release_torn_behind_each_of_its_copies_is_completed() -> None:
    for kept in range(4):
        run = Run(7)
        for _ in range(3):
            run.publish()
        run.log.sync()
        end = run.log.log_end_offset
        run.now += 1000
        run.release()
        run.log.truncate(end + 1 + kept)
        run.index = recover(run.log, now_ns=run.now * 1_000_000)
        assert len(run.index) == 3 - kept
        while len(run.index):
            run.release()
        assert sorted(run.seen().values()) == [1, 1, 1]
        run.log.close()
        run.log = Log.open(run.disk, "/p")
        assert len(recover(run.log, now_ns=run.now * 1_000_000)) == 0
