"""Compaction: the latest value of every key stays where it was, through restarts, crashes and traffic."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.errors import DataDamagedError, PartitionFailedError
from goqueue.record import BatchBuilder, Flag, Record
from goqueue.storage import Log, LogConfig, install_compaction, plan_compaction
from goqueue.testing import DiskOperation, Faults, SimDisk, SimulatedCrash
from tests.storage.logs import (
    DIRECTORY,
    HOUR_NS,
    START_NS,
    append,
    batch,
    make_disk,
    open_log,
    read_all,
    read_one,
)

CONFIG = LogConfig(segment_bytes=4096, retention_ms=0, compact=True)
DAY_NS = 24 * HOUR_NS
GAP_KEY = b"\x00\x01"


@pytest.fixture
def disk() -> SimDisk:
    return make_disk()


def compact(log: Log, *, now_ns: int = START_NS, everything: bool = False) -> int:
    plan = plan_compaction(log, now_ns=now_ns, everything=everything)
    return install_compaction(log, plan.run()) if plan else 0


def messages(log: Log) -> list[Record]:
    """What a reader of messages sees: everything but the markers that stand for gaps."""
    return [r for r in read_all(log) if not (r.flags & Flag.CONTROL and r.key == GAP_KEY)]


def latest(log: Log) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in messages(log)}


def keyed(disk: SimDisk, count: int = 100, keys: int = 7, config: LogConfig = CONFIG) -> Log:
    log = open_log(disk, config)
    for number in range(count):
        append(log, b"%d" % number + bytes(150), key=b"k%d" % (number % keys), timestamp_ns=START_NS + number)
    return log


# -- what stays -----------------------------------------------------------------------------------------------------


def test_the_latest_value_of_every_key_stays_at_its_offset_and_in_order(disk: SimDisk) -> None:
    log = keyed(disk)
    before = {record.offset: record.raw() for record in read_all(log)}
    sealed_end, size = log.segments[-1].base_offset, log.size_bytes
    assert compact(log) > 0
    assert log.size_bytes < size / 2
    found = messages(log)
    assert [r.offset for r in found] == [r.offset for r in sorted(found, key=lambda r: r.offset)]
    assert all(before[r.offset] == r.raw() for r in found)
    kept = {r.offset for r in found if r.offset < sealed_end}
    assert kept == set(range(sealed_end - 7, sealed_end))
    assert log.log_end_offset == 100
    assert log.compacted_to == sealed_end


def test_records_that_are_not_plain_keyed_values_are_kept(disk: SimDisk) -> None:
    log = open_log(disk, CONFIG)
    builder = BatchBuilder()
    for number in range(3):
        builder.add(b"keyless %d" % number)
        builder.add(b"", b"\x00\x00", flags=int(Flag.CONTROL))
        builder.add(b"delayed %d" % number, b"key", flags=int(Flag.DELAYED))
        builder.add(b"plain %d" % number, b"key")
        builder.add(b"empty key %d" % number, b"")
    log.append(builder.take(), now_ns=START_NS)
    log.roll()
    append(log, b"end")
    compact(log)
    assert [record.offset for record in messages(log)] == [0, 1, 2, 5, 6, 7, 10, 11, 12, 13, 14, 15]


def test_reading_from_any_offset_gives_the_next_record_that_is_left(disk: SimDisk) -> None:
    log = keyed(disk)
    compact(log)
    for _ in range(2):
        offsets = [record.offset for record in read_all(log)]
        for offset in range(log.log_end_offset):
            assert read_one(log, offset).offset == next(o for o in offsets if o >= offset)
        log.close()
        log = open_log(disk, CONFIG)
        assert log.report.scanned_bytes == 0
        assert not log.damages


def test_times_are_found_among_what_is_left(disk: SimDisk) -> None:
    log = keyed(disk)
    compact(log)
    stored = read_all(log)
    for number in range(100):
        expected = next(r.offset for r in stored if r.timestamp_ns >= START_NS + number)
        assert log.offset_at_time(START_NS + number) == expected


def test_a_tombstone_stays_for_its_time_and_then_goes_with_all_before_it(disk: SimDisk) -> None:
    log = open_log(disk, CONFIG)
    append(log, b"value", key=b"gone")
    append(log, b"stays", key=b"other")
    append(log, None, key=b"gone", timestamp_ns=START_NS)
    log.roll()
    append(log, b"end", key=b"end")
    compact(log, now_ns=START_NS + DAY_NS)
    assert [(r.key, r.value) for r in messages(log)] == [(b"other", b"stays"), (b"gone", None), (b"end", b"end")]
    assert compact(log, now_ns=START_NS + 2 * DAY_NS) == 0, "nothing is new"
    compact(log, now_ns=START_NS + DAY_NS + 1, everything=True)
    assert [(r.key, r.value) for r in messages(log)] == [(b"other", b"stays"), (b"end", b"end")]
    assert log.log_end_offset == 4
    log.close()
    log = open_log(disk, CONFIG)
    assert not log.damages
    assert [segment.next_offset for segment in log.sealed_segments] == [3]


def test_small_segments_are_merged(disk: SimDisk) -> None:
    log = keyed(disk, 300)
    count = len(log.segments)
    compact(log)
    assert count > 10
    assert len(log.segments) == 2
    assert len({name.split(".")[0] for name in disk.list(DIRECTORY) if name != "checkpoint"}) == 2


def test_more_keys_than_memory_allows_take_more_passes(disk: SimDisk) -> None:
    config = LogConfig(segment_bytes=4096, retention_ms=0, compact=True, compaction_keys_max=25)
    log = keyed(disk, 300, keys=40, config=config)
    expected = latest(log)
    passes = 0
    while compact(log):
        passes += 1
        assert latest(log) == expected
    assert passes > 2
    sealed_end = log.segments[-1].base_offset
    assert log.compacted_to == sealed_end


def test_unsettled_records_are_left_alone(disk: SimDisk) -> None:
    log = keyed(disk)
    limit = log.segments[2].base_offset + 1
    plan = plan_compaction(log, now_ns=START_NS, end_offset=limit)
    assert plan is not None
    install_compaction(log, plan.run())
    assert [r.offset for r in messages(log) if r.offset >= limit] == list(range(limit, 100))
    assert log.compacted_to <= limit


def test_without_a_sealed_segment_there_is_nothing_to_do(disk: SimDisk) -> None:
    log = open_log(disk, CONFIG)
    append(log, b"a", key=b"k")
    assert plan_compaction(log, now_ns=START_NS) is None


KEYS = st.sampled_from([None, b"", b"a", b"b", b"c", b"d"])
ACTIONS = st.lists(
    st.one_of(
        st.tuples(KEYS, st.one_of(st.none(), st.binary(max_size=400))),
        st.sampled_from(["roll", "compact", "everything", "reopen", "kill"]),
    ),
    max_size=60,
)


@settings(max_examples=100)
@given(actions=ACTIONS)
def test_no_sequence_of_writes_and_compactions_loses_a_latest_value(actions: list[object]) -> None:
    disk = make_disk()
    config = LogConfig(segment_bytes=4096, retention_ms=0, compact=True, tombstone_retention_ms=0)
    log = open_log(disk, config)
    model: dict[bytes, tuple[int, bytes | None]] = {}
    keyless: list[int] = []
    now_ns = START_NS
    for action in actions:
        now_ns += 1
        match action:
            case (key, value):
                offset = log.append(batch(value, key=key), now_ns=now_ns).base_offset
                if key is None:
                    keyless.append(offset)
                else:
                    model[key] = (offset, value)
            case "roll" if log.segments[-1].size_bytes:
                log.roll()
            case "compact" | "everything":
                compact(log, now_ns=now_ns + 1, everything=action == "everything")
            case "reopen":
                log.close()
                log = open_log(disk, config)
            case "kill":
                disk.kill()
                log = open_log(disk, config)
    found = messages(log)
    last = {record.key: (record.offset, record.value) for record in found if record.key is not None}
    for key, (offset, value) in model.items():
        # An old tombstone may be gone; the value it deletes must be gone with it.
        assert last.get(key, (offset, None)) == (offset, value)
    assert [record.offset for record in found if record.key is None] == keyless
    assert [r.offset for r in found] == sorted({r.offset for r in found})
    assert not log.damages


# -- traffic and other work meanwhile ---------------------------------------------------------------------------------


def test_the_log_is_writable_and_readable_while_a_plan_runs(disk: SimDisk) -> None:
    log = keyed(disk)
    before = [record.raw() for record in read_all(log)]
    plan = plan_compaction(log, now_ns=START_NS)
    assert plan is not None
    append(log, b"after the plan", key=b"k0")
    assert [record.raw() for record in read_all(log)][:-1] == before
    old = log.locate(0, 1 << 20)
    old_bytes = old.read()
    result = plan.run()
    append(log, b"after the run", key=b"k1")
    assert len(read_all(log)) == len(before) + 2
    install_compaction(log, result)
    append(log, b"after all", key=b"k2")
    assert old.read() == old_bytes, "a reader keeps the file it has begun to read"
    found = latest(log)
    assert (found[b"k0"], found[b"k1"], found[b"k2"]) == (b"after the plan", b"after the run", b"after all")
    assert log.log_end_offset == 103


def test_a_plan_whose_segments_retention_removed_is_dropped(disk: SimDisk) -> None:
    log = keyed(disk)
    plan = plan_compaction(log, now_ns=START_NS)
    assert plan is not None
    log.delete_before(log.segments[2].base_offset)
    expected = read_all(log)
    result = plan.run()
    install_compaction(log, result)
    assert log.log_start_offset > 0
    assert [r.raw() for r in read_all(log)] == [r.raw() for r in expected]
    assert log.compacted_to == 0, "an incomplete pass must not count: tombstones rely on it"
    assert not any(name.endswith(".compacting") for name in disk.list(DIRECTORY))
    assert compact(log) > 0


def test_a_plan_made_before_a_cut_is_dropped(disk: SimDisk) -> None:
    log = keyed(disk)
    plan = plan_compaction(log, now_ns=START_NS)
    assert plan is not None
    result = plan.run()
    log.truncate(10)
    for number in range(10, 100):
        append(log, b"other %d" % number + bytes(150), key=b"o%d" % number)
    expected = [r.raw() for r in read_all(log)]
    assert install_compaction(log, result) == 0
    assert [r.raw() for r in read_all(log)] == expected


def test_a_damaged_segment_stops_compaction_before_it_can_hide_the_damage(disk: SimDisk) -> None:
    log = keyed(disk)
    second = log.segments[1]
    hit = second.base_offset + 2
    disk.flip_bit(second.path, second.position_of(hit) + 50, 0)
    plan = plan_compaction(log, now_ns=START_NS)
    assert plan is not None
    with pytest.raises(DataDamagedError, match=second.path):
        plan.run()
    with pytest.raises(DataDamagedError):
        log.read(hit, 1)
    compact(log)
    assert log.segments[1].base_offset == second.base_offset
    assert log.compacted_to <= second.base_offset
    assert len(log.damages) == 1


# -- crashes and failing disks ------------------------------------------------------------------------------------


def crash_in_compaction(seed: int, step: int, *, power: bool) -> tuple[SimDisk, dict[bytes | None, bytes | None], bool]:
    disk = make_disk(seed)
    log = keyed(disk, 60)
    append(log, None, key=b"k0", timestamp_ns=START_NS)
    log.roll()
    append(log, b"end", key=b"end")
    log.sync()
    expected = {key: value for key, value in latest(log).items() if value is not None}
    plan = plan_compaction(log, now_ns=START_NS + 2 * DAY_NS)
    assert plan is not None
    disk.crash_after(step)
    done = False
    try:
        install_compaction(log, plan.run())
        done = True
    except SimulatedCrash:
        pass
    if power:
        disk.crash()
    else:
        disk.kill()
    return disk, expected, done


@pytest.mark.parametrize("power", [True, False], ids=["power", "process"])
@pytest.mark.parametrize("seed", range(6))
def test_a_crash_at_any_step_leaves_every_latest_value_and_no_damage(seed: int, power: bool) -> None:
    done, step = False, 0
    while not done:
        disk, expected, done = crash_in_compaction(seed, step, power=power)
        log = open_log(disk, CONFIG)
        assert not log.damages, step
        assert {key: value for key, value in latest(log).items() if value is not None} == expected
        assert log.log_end_offset == 62
        assert [s.next_offset for s in log.sealed_segments] == [s.base_offset for s in log.segments[1:]]
        append(log, b"goes on", key=b"k1")
        compact(log, now_ns=START_NS + 2 * DAY_NS)
        expected[b"k1"] = b"goes on"
        log.close()
        log = open_log(disk, CONFIG)
        assert not log.damages
        assert {key: value for key, value in latest(log).items() if value is not None} == expected
        step += 1
    assert step > 15, "the steps are those of the whole pass"


def test_a_full_disk_stops_a_plan_and_leaves_nothing_behind(disk: SimDisk) -> None:
    log = keyed(disk)
    expected = read_all(log)
    plan = plan_compaction(log, now_ns=START_NS)
    assert plan is not None
    disk.faults = Faults(capacity_bytes=(1 << 40) - disk.free_bytes("/") + 100)
    with pytest.raises(OSError, match="No space"):
        plan.run()
    assert not any(name.endswith(".compacting") for name in disk.list(DIRECTORY))
    disk.clear_faults()
    assert [r.raw() for r in read_all(log)] == [r.raw() for r in expected]
    assert compact(log) > 0


@pytest.mark.parametrize("operation", ["remove", "rename", "sync_directory", "create"])
def test_a_disk_that_fails_in_the_swap_ends_the_log_and_recovery_finds_out(
    disk: SimDisk, operation: DiskOperation
) -> None:
    log = keyed(disk)
    expected = latest(log)
    plan = plan_compaction(log, now_ns=START_NS)
    assert plan is not None
    result = plan.run()
    disk.fail_next(operation, errno.EIO)
    with pytest.raises(PartitionFailedError):
        install_compaction(log, result)
    assert log.failure is not None
    log.close()
    log = open_log(disk, CONFIG)
    assert not log.damages
    assert latest(log) == expected
    compact(log)
    assert latest(log) == expected
    assert log.compacted_to == log.segments[-1].base_offset
