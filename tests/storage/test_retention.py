"""Retention: whole segments, oldest first, only those that the settings no longer keep, and for good."""

from __future__ import annotations

import contextlib

import pytest

from goqueue.errors import DataDamagedError, OffsetOutOfRangeError
from goqueue.storage import Log, LogConfig, apply_retention
from goqueue.testing import SimDisk, SimulatedCrash
from tests.storage.logs import DIRECTORY, HOUR_NS, START_NS, append, fill, make_disk, open_log, read_all, values_of

BY_TIME = LogConfig(segment_bytes=4096, retention_ms=3_600_000)
BY_SIZE = LogConfig(segment_bytes=4096, retention_ms=0, retention_bytes=10_000)


@pytest.fixture
def disk() -> SimDisk:
    return make_disk()


def hourly(disk: SimDisk, config: LogConfig, segment_count: int = 5) -> Log:
    """A log whose segment n holds records of hour n."""
    log = open_log(disk, config)
    for hour in range(segment_count):
        if hour:
            log.roll()
        append(log, *[b"v" * 100] * 10, timestamp_ns=START_NS + hour * HOUR_NS)
    return log


def test_segments_go_when_their_newest_record_is_too_old(disk: SimDisk) -> None:
    log = hourly(disk, BY_TIME)
    now_ns = START_NS + 2 * HOUR_NS
    assert apply_retention(log, now_ns=now_ns) == 1, "one hour old is not yet too old"
    assert apply_retention(log, now_ns=now_ns + 1) == 1
    assert apply_retention(log, now_ns=now_ns + 1) == 0
    assert log.log_start_offset == 20
    assert [r.offset for r in read_all(log)] == list(range(20, 50))
    with pytest.raises(OffsetOutOfRangeError):
        log.read(19, 100)
    assert log.offset_at_time(0) == 20


def test_one_young_record_keeps_its_segment_and_all_that_follow(disk: SimDisk) -> None:
    log = open_log(disk, BY_TIME)
    append(log, b"old")
    append(log, b"young", timestamp_ns=START_NS + 9 * HOUR_NS)
    log.roll()
    append(log, b"old")
    log.roll()
    append(log, b"new", timestamp_ns=START_NS + 9 * HOUR_NS)
    assert apply_retention(log, now_ns=START_NS + 9 * HOUR_NS) == 0
    assert len(values_of(log)) == 4


def test_retention_zero_keeps_everything_for_ever(disk: SimDisk) -> None:
    log = hourly(disk, LogConfig(segment_bytes=4096, retention_ms=0))
    assert apply_retention(log, now_ns=START_NS + 10**6 * HOUR_NS) == 0
    assert log.log_start_offset == 0


def test_a_quiet_log_gives_up_its_last_records_too(disk: SimDisk) -> None:
    log = hourly(disk, BY_TIME)
    assert apply_retention(log, now_ns=START_NS + 100 * HOUR_NS) == 5
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (50, 50, 0)
    append(log, b"next", timestamp_ns=START_NS + 100 * HOUR_NS)
    assert [r.offset for r in read_all(log)] == [50]
    log.close()
    assert [r.offset for r in read_all(open_log(disk, BY_TIME))] == [50]


def test_the_size_limit_keeps_at_least_what_it_promises(disk: SimDisk) -> None:
    log = open_log(disk, BY_SIZE)
    fill(log, 12)
    assert apply_retention(log, now_ns=START_NS) > 0
    assert 10_000 <= log.size_bytes < 10_000 + 4096
    assert apply_retention(log, now_ns=START_NS) == 0
    assert [r.offset for r in read_all(log)] == list(range(log.log_start_offset, log.log_end_offset))


def test_a_pinned_offset_keeps_its_segment(disk: SimDisk) -> None:
    log = hourly(disk, BY_TIME)
    now_ns = START_NS + 4 * HOUR_NS
    assert apply_retention(log, now_ns=now_ns, pinned_offset=0) == 0
    assert apply_retention(log, now_ns=now_ns, pinned_offset=15) == 1
    assert log.log_start_offset == 10
    assert apply_retention(log, now_ns=now_ns, pinned_offset=40) == 2


@pytest.mark.parametrize("end", ["close", "kill", "crash"])
def test_the_start_survives_a_restart_and_retention_goes_on_there(disk: SimDisk, end: str) -> None:
    log = hourly(disk, BY_TIME)
    apply_retention(log, now_ns=START_NS + 2 * HOUR_NS + 1)
    {"close": log.close, "kill": disk.kill, "crash": disk.crash}[end]()
    log = open_log(disk, BY_TIME)
    assert log.log_start_offset == 20
    assert not log.damages
    assert apply_retention(log, now_ns=START_NS + 3 * HOUR_NS + 1) == 1
    assert log.log_start_offset == 30


def test_files_of_removed_segments_are_gone(disk: SimDisk) -> None:
    log = hourly(disk, BY_TIME)
    apply_retention(log, now_ns=START_NS + 3 * HOUR_NS + 1)
    names = [name for name in disk.list(DIRECTORY) if name != "checkpoint"]
    bases = sorted({int(name.split(".")[0]) for name in names})
    assert bases == [30, 40]
    disk.crash()
    assert sorted({int(name.split(".")[0]) for name in disk.list(DIRECTORY) if name != "checkpoint"}) == [30, 40]


@pytest.mark.parametrize("step", range(30))
@pytest.mark.parametrize("power", [True, False], ids=["power", "process"])
def test_a_crash_at_any_step_leaves_either_start_and_no_false_damage(step: int, power: bool) -> None:
    for seed in range(3):
        disk = make_disk(seed)
        log = hourly(disk, BY_TIME)
        log.sync()
        expected = {record.offset: record.raw() for record in read_all(log)}
        disk.crash_after(step)
        with contextlib.suppress(SimulatedCrash):
            apply_retention(log, now_ns=START_NS + 3 * HOUR_NS + 1)
        if power:
            disk.crash()
        else:
            disk.kill()
        log = open_log(disk, BY_TIME)
        assert not log.damages
        assert log.log_start_offset in (0, 30)
        assert {r.offset: r.raw() for r in read_all(log)} == {
            offset: raw for offset, raw in expected.items() if offset >= log.log_start_offset
        }
        append(log, b"goes on")


def test_damage_goes_with_its_segment(disk: SimDisk) -> None:
    log = hourly(disk, BY_TIME)
    log.close()
    disk.flip_bit(log.segments[0].path, 40, 0)
    log = open_log(disk, BY_TIME)
    with pytest.raises(DataDamagedError):
        log.read(0, 1)
    assert len(log.damages) == 1
    apply_retention(log, now_ns=START_NS + HOUR_NS + 1)
    assert log.damages == ()
    assert log.offset_at_time(0) == 10
