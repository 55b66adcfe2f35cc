"""Group commit: one sync for all who wrote before it, an answer for each, a deadline for those who do not wait."""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue

import pytest

from goqueue.errors import GoQueueError, PartitionFailedError
from goqueue.host import OsClock
from goqueue.storage import GroupCommit, Log
from goqueue.testing import SimClock, SimDisk
from tests.storage.logs import SMALL, append, fill, make_disk, open_log

DEADLINE_S = 20


class Owner:
    """The thread that owns the logs: runs what is posted, one callback at a time, in the test's own thread."""

    def __init__(self) -> None:
        self.posted: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def run_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.posted.get(timeout=DEADLINE_S)()

    def run_posted(self) -> None:
        """What is waiting now, and nothing that comes later."""
        try:
            while True:
                self.posted.get_nowait()()
        except Empty:
            return


class Answers:
    """Collects what waiters are told."""

    def __init__(self) -> None:
        self.received: list[tuple[str, GoQueueError | None]] = []

    def named(self, name: str) -> Callable[[GoQueueError | None], None]:
        return lambda error: self.received.append((name, error))

    def __len__(self) -> int:
        return len(self.received)


@pytest.fixture
def owner() -> Owner:
    return Owner()


@pytest.fixture
def commit(owner: Owner) -> Iterator[GroupCommit]:
    commit = GroupCommit(post=owner.posted.put, clock=OsClock())
    yield commit
    commit.close()


@pytest.fixture
def disk() -> SimDisk:
    return make_disk()


@pytest.fixture
def log(disk: SimDisk) -> Log:
    return open_log(disk)


def test_a_waiter_is_told_when_its_record_is_durable(
    disk: SimDisk, log: Log, commit: GroupCommit, owner: Owner
) -> None:
    answers = Answers()
    commit.wait(log, append(log, b"a"), answers.named("a"))
    assert not answers.received, "nobody is told inside the call that makes the promise"
    owner.run_until(lambda: len(answers) == 1)
    assert answers.received == [("a", None)]
    assert log.synced_offset == 1
    disk.crash()
    assert open_log(disk).log_end_offset == 1


def test_what_is_already_durable_is_answered_at_once(log: Log, commit: GroupCommit) -> None:
    end = append(log, b"a")
    log.sync()
    answers = Answers()
    commit.wait(log, end, answers.named("a"))
    assert answers.received == [("a", None)]


def test_one_sync_serves_everybody_who_wrote_before_it(
    disk: SimDisk, log: Log, commit: GroupCommit, owner: Owner
) -> None:
    answers = Answers()
    before = disk.statistics().sync_count
    for number in range(100):
        commit.wait(log, append(log, b"%d" % number), answers.named(str(number)))
    owner.run_until(lambda: len(answers) == 100)
    assert [name for name, _ in answers.received] == [str(number) for number in range(100)]
    assert all(error is None for _, error in answers.received)
    assert disk.statistics().sync_count - before <= 2


def test_those_who_come_during_a_sync_share_the_next(log: Log, commit: GroupCommit, owner: Owner) -> None:
    answers = Answers()
    gate = threading.Lock()
    gate.acquire()
    file = log.segments[-1].file
    started, syncs = threading.Event(), []

    class Held:
        """The active file, with syncs that stop in the middle."""

        path = file.path

        def sync(self) -> None:
            syncs.append(log.log_end_offset)
            started.set()
            with gate:
                file.sync()

        def __getattr__(self, name: str) -> object:
            return getattr(file, name)

    log.segments[-1]._file = Held()  # type: ignore[assignment]
    commit.wait(log, append(log, b"first"), answers.named("first"))
    owner.run_posted()
    assert started.wait(DEADLINE_S)
    for number in range(50):
        commit.wait(log, append(log, b"x"), answers.named(str(number)))
    owner.run_posted()
    assert len(answers) == 0
    gate.release()
    owner.run_until(lambda: len(answers) == 51)
    assert len(syncs) == 2
    assert log.synced_offset == 51


def test_logs_are_independent_of_each_other(disk: SimDisk, commit: GroupCommit, owner: Owner) -> None:
    logs = [Log.open(disk, f"/data/{number}", SMALL) for number in range(5)]
    answers = Answers()
    for number, log in enumerate(logs):
        commit.wait(log, append(log, b"a"), answers.named(str(number)))
    disk.fail_next("sync", errno.EIO, path_part="/data/3/")
    owner.run_until(lambda: len(answers) == 5)
    failed = {name for name, error in answers.received if error is not None}
    assert failed == {"3"}
    assert [log.failure is None for log in logs] == [True, True, True, False, True]


def test_a_failing_callback_does_not_cost_the_others_their_answer(
    log: Log, commit: GroupCommit, owner: Owner, caplog: pytest.LogCaptureFixture
) -> None:
    answers = Answers()

    def broken(error: GoQueueError | None) -> None:
        raise ValueError("this waiter has a bug")

    end = append(log, b"a")
    with caplog.at_level(logging.CRITICAL, logger="goqueue"):
        commit.wait(log, end, answers.named("before"))
        commit.wait(log, end, broken)
        commit.wait(log, end, answers.named("after"))
        owner.run_until(lambda: len(answers) == 2)
    assert answers.received == [("before", None), ("after", None)]


def test_after_a_failed_sync_every_waiter_learns_it_and_nobody_is_told_otherwise_later(
    disk: SimDisk, log: Log, commit: GroupCommit, owner: Owner
) -> None:
    answers = Answers()
    disk.fail_next("sync", errno.EIO)
    for number in range(3):
        commit.wait(log, append(log, b"a"), answers.named(str(number)))
    end = log.log_end_offset
    owner.run_until(lambda: len(answers) == 3)
    assert all(isinstance(error, PartitionFailedError) for _, error in answers.received)
    with pytest.raises(PartitionFailedError):
        append(log, b"b")
    commit.wait(log, end, answers.named("later"))
    owner.run_until(lambda: len(answers) == 4)
    assert isinstance(answers.received[-1][1], PartitionFailedError)
    assert log.synced_offset == 0


def test_a_callback_may_write_and_wait_again(log: Log, commit: GroupCommit, owner: Owner) -> None:
    remaining = 20
    done: list[int] = []

    def again(error: GoQueueError | None) -> None:
        assert error is None
        done.append(log.synced_offset)
        if len(done) < remaining:
            commit.wait(log, append(log, b"x"), again)

    commit.wait(log, append(log, b"x"), again)
    owner.run_until(lambda: len(done) == remaining)
    assert done == sorted(done)
    assert log.synced_offset == log.log_end_offset == remaining


def test_a_log_that_rolls_is_committed_as_a_whole(disk: SimDisk, log: Log, commit: GroupCommit, owner: Owner) -> None:
    answers = Answers()
    fill(log, 4)
    commit.wait(log, log.log_end_offset, answers.named("all"))
    owner.run_until(lambda: len(answers) == 1)
    end = log.log_end_offset
    disk.crash()
    again = open_log(disk)
    assert again.log_end_offset == end
    assert not again.damages


def test_maintenance_may_sync_while_a_commit_is_under_way(
    disk: SimDisk, log: Log, commit: GroupCommit, owner: Owner
) -> None:
    answers = Answers()
    for number in range(60):
        commit.wait(log, append(log, bytes(300)), answers.named(str(number)))
        if number % 10 == 0:
            log.sync()
        if number % 25 == 24:
            log.delete_before(log.segments[-1].base_offset)
        owner.run_posted()
    owner.run_until(lambda: len(answers) == 60)
    assert all(error is None for _, error in answers.received)
    disk.crash()
    again = open_log(disk)
    assert again.log_end_offset == 60
    assert not again.damages


# -- nobody waits ---------------------------------------------------------------------------------------------------


def test_a_log_nobody_waits_for_is_synced_within_the_promised_time(log: Log, owner: Owner) -> None:
    clock = SimClock()
    commit = GroupCommit(post=owner.posted.put, clock=clock, sync_within_ms=50)
    try:
        append(log, b"a")
        commit.note_write(log)
        clock.advance_ns(44_000_000)
        # The timer looks at the clock again and again; the time is not yet come.
        for _ in range(3):
            owner.posted.get(timeout=DEADLINE_S)()
        assert log.synced_offset == 0
        clock.advance_ns(2_000_000)
        owner.run_until(lambda: log.synced_offset == 1)
    finally:
        commit.close()


def test_the_deadline_counts_from_the_first_write(log: Log, owner: Owner) -> None:
    clock = SimClock()
    commit = GroupCommit(post=owner.posted.put, clock=clock, sync_within_ms=50)
    try:
        for _ in range(10):
            append(log, b"a")
            commit.note_write(log)
            clock.advance_ns(5_000_000)
        owner.run_until(lambda: log.synced_offset == 10)
        assert log.begin_sync() is None
    finally:
        commit.close()


def test_a_sync_for_a_waiter_serves_the_deadline_too(
    disk: SimDisk, log: Log, commit: GroupCommit, owner: Owner
) -> None:
    answers = Answers()
    append(log, b"quiet")
    commit.note_write(log)
    commit.wait(log, append(log, b"a"), answers.named("a"))
    owner.run_until(lambda: len(answers) == 1)
    assert log.synced_offset == 2
    assert log.begin_sync() is None


# -- the end ----------------------------------------------------------------------------------------------------------


def test_waiters_of_a_log_that_goes_away_are_told(log: Log, commit: GroupCommit) -> None:
    answers = Answers()
    commit.wait(log, append(log, b"a"), answers.named("a"))
    commit.forget(log)
    [(name, error)] = answers.received
    assert name == "a"
    assert isinstance(error, GoQueueError)


def test_close_ends_every_thread(owner: Owner) -> None:
    before = threading.active_count()
    commit = GroupCommit(post=owner.posted.put, clock=OsClock(), threads=3)
    assert threading.active_count() == before + 4
    commit.close()
    assert threading.active_count() == before
