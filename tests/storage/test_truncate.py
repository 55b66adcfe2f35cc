"""Truncation: file, index and time index end at the offset, in whichever segment it lies, and the log goes on there."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.errors import OffsetOutOfRangeError
from goqueue.record import decode
from goqueue.storage import Log, LogConfig, install_compaction, plan_compaction
from goqueue.testing import SimDisk, SimulatedCrash
from tests.storage.logs import DIRECTORY, START_NS, append, fill, make_disk, open_log, read_all, read_one, values_of

CONFIG = LogConfig(segment_bytes=16384, retention_ms=0)
COMPACTED = LogConfig(segment_bytes=16384, retention_ms=0, compact=True, tombstone_retention_ms=0)


@pytest.fixture
def disk() -> SimDisk:
    return make_disk()


def numbered(disk: SimDisk, count: int = 200, config: LogConfig = CONFIG) -> Log:
    log = open_log(disk, config)
    for number in range(count):
        append(log, b"%d" % number + bytes(200), timestamp_ns=START_NS + number)
    return log


@settings(max_examples=40)
@given(cut=st.integers(0, 200), again=st.integers(0, 260), synced=st.booleans(), reopened=st.booleans())
def test_a_cut_log_is_the_shorter_list(cut: int, again: int, synced: bool, reopened: bool) -> None:
    disk = make_disk()
    log = numbered(disk)
    model = [b"%d" % number + bytes(200) for number in range(200)]
    if synced:
        log.sync()
    for end in (cut, again):
        log.truncate(end)
        del model[end:]
        assert log.log_end_offset == len(model)
        assert log.size_bytes == sum(disk.size(segment.path) for segment in log.segments)
        for number in range(60):
            value = b"new %d" % number + bytes(300)
            append(log, value, timestamp_ns=START_NS + len(model))
            model.append(value)
        if reopened:
            log.close()
            log = open_log(disk, CONFIG)
            assert log.report.scanned_bytes == 0
            assert not log.report.rebuilt_indexes
        assert values_of(log) == model
        assert [log.offset_at_time(START_NS + n) for n in range(len(model))] == list(range(len(model)))
        assert log.offset_at_time(START_NS + len(model)) is None


def test_a_cut_into_a_sealed_segment_removes_the_later_files(disk: SimDisk) -> None:
    log = numbered(disk)
    second = log.segments[1]
    log.truncate(second.base_offset + 3)
    assert log.segments[-1] is second
    bases = {int(name.split(".")[0]) for name in disk.list(DIRECTORY) if name != "checkpoint"}
    assert bases == {0, second.base_offset}
    assert second.offset_index.count == second.time_index.count == 1
    log.sync()
    disk.crash()
    assert open_log(disk, CONFIG).log_end_offset == second.base_offset + 3


def test_a_cut_at_or_behind_the_end_changes_nothing(disk: SimDisk) -> None:
    log = numbered(disk, 10)
    log.truncate(10)
    log.truncate(1000)
    assert log.log_end_offset == 10


def test_a_cut_below_the_start_is_refused(disk: SimDisk) -> None:
    log = numbered(disk)
    log.delete_before(log.segments[1].base_offset)
    with pytest.raises(OffsetOutOfRangeError):
        log.truncate(log.log_start_offset - 1)
    log.truncate(log.log_start_offset)
    assert log.log_end_offset == log.log_start_offset
    log.close()
    log = open_log(disk, CONFIG)
    assert log.log_end_offset == log.log_start_offset > 0


def test_a_reader_keeps_the_range_it_has_while_the_log_is_cut(disk: SimDisk) -> None:
    log = numbered(disk)
    found = log.locate(0, 1000)
    expected = found.read()
    log.truncate(20)
    assert found.read() == expected


@pytest.mark.parametrize("step", range(40))
@pytest.mark.parametrize("power", [True, False], ids=["power", "process"])
def test_a_crash_at_any_step_of_a_cut_leaves_a_prefix_and_no_damage(step: int, power: bool) -> None:
    for seed in range(3):
        disk = make_disk(seed)
        log = numbered(disk)
        log.sync()
        disk.crash_after(step)
        try:
            log.truncate(90)
            append(log, b"after")
            log.sync()
            cut = True
        except SimulatedCrash:
            cut = False
        if power:
            disk.crash()
        else:
            disk.kill()
        log = open_log(disk, CONFIG)
        assert not log.damages
        assert log.log_end_offset >= 90
        values = values_of(log)
        assert values[:90] == [b"%d" % number + bytes(200) for number in range(90)]
        if cut:
            assert values[90:] == [b"after"]
        assert [log.offset_at_time(START_NS + number) for number in range(90)] == list(range(90))


@pytest.mark.parametrize("offset", [1, 5, 11, 15, 25, 39])
@pytest.mark.parametrize("end", ["close", "kill", "crash"])
def test_a_cut_where_compaction_has_removed_records_still_ends_at_its_offset(
    disk: SimDisk, offset: int, end: str
) -> None:
    log = open_log(disk, COMPACTED)
    for _ in range(2):
        for _ in range(20):
            append(log, b"v", key=b"same")
        log.roll()
    append(log, b"last", key=b"other")
    plan = plan_compaction(log, now_ns=START_NS)
    assert plan is not None
    install_compaction(log, plan.run())
    assert [r.offset for r in read_all(log)] == [39, 40]
    log.truncate(offset)
    assert log.log_end_offset == log.synced_offset == offset
    {"close": log.close, "kill": disk.kill, "crash": disk.crash}[end]()
    log = open_log(disk, COMPACTED)
    assert not log.damages
    assert log.log_end_offset == offset
    append(log, b"new")
    assert read_one(log, offset).value == b"new"
    assert decode(log.read(0, 10_000))[-1].offset == offset


def test_a_cut_behind_damage_keeps_the_damage_known(disk: SimDisk) -> None:
    log = numbered(disk)
    first = log.segments[0]
    disk.flip_bit(first.path, first.position_of(5) + 40, 0)
    with pytest.raises(Exception, match="damaged"):
        log.read(5, 1)
    log.truncate(30)
    append(log, b"new")
    for _ in range(2):
        assert [(damage.from_offset, damage.to_offset) for damage in log.damages] == [(5, 6)]
        assert read_one(log, 30).value == b"new"
        assert read_one(log, 29).value == b"29" + bytes(200)
        log.close()
        log = open_log(disk, CONFIG)
    fill(log, 4)
