"""Durability: what was synced survives a power cut, what failed to sync is never called durable, a full disk costs
nothing but the append it refused."""

from __future__ import annotations

import errno

import pytest

from goqueue.errors import DataDamagedError, DiskFullError, OffsetOutOfRangeError, PartitionFailedError
from goqueue.storage import Log, LogConfig
from goqueue.testing import Faults, SimDisk
from tests.storage.logs import SMALL, START_NS, append, batch, fill, make_disk, open_log, read_one, values_of


@pytest.fixture
def disk() -> SimDisk:
    return make_disk()


@pytest.fixture
def log(disk: SimDisk) -> Log:
    return open_log(disk)


# -- syncing --------------------------------------------------------------------------------------------------------


def test_synced_offset_moves_only_when_the_sync_is_complete(log: Log) -> None:
    append(log, b"a")
    ticket = log.begin_sync()
    assert ticket is not None
    append(log, b"b")
    ticket.run()
    assert log.synced_offset == 0
    log.complete_sync(ticket)
    assert log.synced_offset == 1
    log.sync()
    assert log.synced_offset == 2
    assert log.begin_sync() is None


@pytest.mark.parametrize("seed", range(60))
def test_synced_records_survive_a_power_cut_and_nothing_half_written_appears(seed: int) -> None:
    disk = make_disk(seed)
    log = open_log(disk)
    values = [b"%03d" % number + b"v" * (seed * 7 % 300) for number in range(60)]
    for number, value in enumerate(values):
        append(log, value)
        if number % (seed % 9 + 2) == 0:
            log.sync()
    synced = log.synced_offset
    disk.crash()
    log = open_log(disk)
    found = values_of(log)
    assert len(found) >= synced
    assert found == values[: len(found)]
    assert not log.report.damages
    # What recovery shows is durable: another power cut takes nothing of it.
    disk.crash()
    assert values_of(open_log(disk)) == found


@pytest.mark.parametrize("seed", range(30))
def test_names_of_new_segments_are_durable_with_their_records(seed: int) -> None:
    disk = make_disk(seed)
    log = open_log(disk)
    fill(log, 4)
    log.sync()
    expected = log.log_end_offset
    disk.crash()
    log = open_log(disk)
    assert log.log_end_offset == expected
    assert not log.report.damages
    assert [segment.next_offset for segment in log.sealed_segments] == [s.base_offset for s in log.segments[1:]]


@pytest.mark.parametrize("seed", range(20))
def test_after_a_kill_recovery_makes_every_segment_durable_that_it_shows(seed: int) -> None:
    """Segments that were rolled and never synced lie in the page cache only."""
    disk = make_disk(seed)
    fill(open_log(disk), 4)
    disk.kill()
    log = open_log(disk)
    expected = values_of(log)
    assert len(expected) > 40
    disk.crash()
    log = open_log(disk)
    assert values_of(log) == expected
    assert not log.report.damages


@pytest.mark.parametrize("seed", range(10))
def test_a_second_sync_covers_what_the_first_has_not_finished(seed: int) -> None:
    """Maintenance syncs while a group commit is under way: the sealed file belongs to both."""
    disk = make_disk(seed)
    log = open_log(disk)
    append(log, b"a")
    log.roll()
    append(log, b"b")
    slow = log.begin_sync()
    assert slow is not None
    append(log, b"c")
    log.sync()
    assert log.synced_offset == 3
    disk.crash()
    assert values_of(open_log(disk)) == [b"a", b"b", b"c"]


def test_a_sync_that_ends_late_does_not_move_the_recovery_point_back(disk: SimDisk, log: Log) -> None:
    append(log, b"a")
    slow = log.begin_sync()
    assert slow is not None
    slow.run()
    log.roll()
    log.delete_before(1)
    log.complete_sync(slow)
    assert log.synced_offset == 1
    disk.kill()
    log = open_log(disk)
    assert not log.report.damages
    assert (log.log_start_offset, log.log_end_offset) == (1, 1)


def test_a_sync_begun_before_a_cut_does_not_bring_the_cut_records_back(disk: SimDisk, log: Log) -> None:
    append(log, b"a", b"b", b"c")
    slow = log.begin_sync()
    assert slow is not None
    slow.run()
    log.truncate(1)
    log.complete_sync(slow)
    assert log.synced_offset == 1
    disk.kill()
    log = open_log(disk)
    assert not log.report.damages
    assert values_of(log) == [b"a"]


# -- failed syncs -------------------------------------------------------------------------------------------------


def test_a_failed_sync_ends_the_log_until_it_is_reopened(disk: SimDisk, log: Log) -> None:
    append(log, b"a")
    log.sync()
    append(log, b"b")
    disk.fail_next("sync", errno.EIO)
    with pytest.raises(PartitionFailedError):
        log.sync()
    for action in (lambda: append(log, b"c"), log.sync, lambda: log.truncate(0)):
        with pytest.raises(PartitionFailedError):
            action()
    assert log.synced_offset == 1
    assert read_one(log, 0).value == b"a"
    assert log.read(1, 100) == b""
    with pytest.raises(OffsetOutOfRangeError):
        log.read(2, 100)
    assert log.offset_at_time(START_NS) == 0
    assert "sync" in str(log.statistics().failure)
    log.close()
    log = open_log(disk)
    append(log, b"d")
    log.sync()


def test_a_time_is_looked_up_only_among_synced_records_of_a_failed_log(disk: SimDisk, log: Log) -> None:
    append(log, b"a")
    log.sync()
    append(log, b"b", timestamp_ns=START_NS + 5)
    disk.fail_next("sync", errno.EIO)
    with pytest.raises(PartitionFailedError):
        log.sync()
    assert log.offset_at_time(START_NS + 1) is None


@pytest.mark.parametrize("segments", [1, 3])
@pytest.mark.parametrize("seed", range(10))
def test_records_seen_after_a_failed_sync_and_a_restart_are_really_durable(seed: int, segments: int) -> None:
    """The kernel drops dirty pages of a failed fsync yet shows them, and the next fsync succeeds: it must not be
    enough."""
    disk = make_disk(seed)
    log = open_log(disk)
    append(log, b"a")
    log.sync()
    fill(log, segments)
    append(log, b"b")
    disk.fail_next("sync", errno.EIO)
    with pytest.raises(PartitionFailedError):
        log.sync()
    log.close()
    log = open_log(disk)
    expected = values_of(log)
    disk.crash()
    log = open_log(disk)
    assert values_of(log) == expected
    assert not log.report.damages


def test_a_sync_that_follows_a_failed_one_fails_too(disk: SimDisk, log: Log) -> None:
    """Two tickets at once: the kernel tells of an error once, so the second must not be believed."""
    append(log, b"a")
    first = log.begin_sync()
    append(log, b"b")
    second = log.begin_sync()
    assert first is not None
    assert second is not None
    disk.fail_next("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        first.run()
    with pytest.raises(OSError, match="earlier"):
        second.run()


def test_a_failed_directory_sync_is_as_fatal(disk: SimDisk, log: Log) -> None:
    append(log, b"a")
    log.roll()
    append(log, b"b")
    disk.fail_next("sync_directory", errno.EIO)
    with pytest.raises(PartitionFailedError):
        log.sync()
    assert log.failure is not None
    assert log.synced_offset == 0


def test_the_recovery_point_is_a_hint_whose_loss_costs_nothing(disk: SimDisk, log: Log) -> None:
    for value in (b"a", b"b", b"c"):
        append(log, value)
        disk.fail_next("write", errno.EIO, path_part="checkpoint")
        log.sync()
    disk.kill()
    assert values_of(open_log(disk)) == [b"a", b"b", b"c"]


# -- full disks and failing writes --------------------------------------------------------------------------------


def used_bytes(disk: SimDisk) -> int:
    return (1 << 40) - disk.free_bytes("/")


@pytest.mark.parametrize("room", [0, 1, 33, 34, 100, 233])
def test_an_append_to_a_full_disk_is_refused_and_works_again_with_room(disk: SimDisk, log: Log, room: int) -> None:
    append(log, b"a" * 200)
    log.sync()
    disk.faults = Faults(capacity_bytes=used_bytes(disk) + room)
    for _ in range(3):
        with pytest.raises(DiskFullError):
            append(log, b"b" * 200)
    assert log.failure is None
    assert values_of(log) == [b"a" * 200]
    assert disk.size(log.segments[0].path) == log.size_bytes
    disk.clear_faults()
    append(log, b"c" * 200)
    log.close()
    assert values_of(open_log(disk)) == [b"a" * 200, b"c" * 200]


def test_a_roll_on_a_full_disk_is_refused_and_works_again_with_room(disk: SimDisk, log: Log) -> None:
    fill(log, 1)
    while log.size_bytes + 234 <= 4096:
        append(log, b"v" * 200)
    disk.fail_next("create", errno.ENOSPC, path_part=".timeindex")
    count = log.log_end_offset
    with pytest.raises(DiskFullError):
        append(log, b"v" * 200)
    assert (log.log_end_offset, len(log.segments), log.failure) == (count, 1, None)
    append(log, b"w")
    append(log, b"v" * 200)
    assert len(values_of(log)) == count + 2
    log.close()
    assert len(values_of(open_log(disk))) == count + 2


def test_batches_staged_before_a_refused_roll_are_not_lost_silently(disk: SimDisk, log: Log) -> None:
    """A roll writes what others have staged; if that fails, they must learn it from their own write."""
    log.stage(batch(b"a" * 3000), now_ns=START_NS)
    disk.faults = Faults(capacity_bytes=used_bytes(disk))
    with pytest.raises(DiskFullError):
        log.stage(batch(b"b" * 3000), now_ns=START_NS)
    disk.clear_faults()
    log.stage(batch(b"c"), now_ns=START_NS)
    with pytest.raises(DiskFullError):
        log.write_staged()
    assert values_of(log) == []
    append(log, b"d")
    assert values_of(log) == [b"d"]


@pytest.mark.parametrize("seed", range(10))
def test_short_writes_are_completed(seed: int) -> None:
    disk = make_disk(seed)
    log = open_log(disk)
    disk.faults = Faults(short_write=0.5)
    values = [b"%d" % number * 50 for number in range(100)]
    for first, second in zip(values[::2], values[1::2], strict=True):
        log.stage(batch(first), now_ns=START_NS)
        log.stage(batch(second), now_ns=START_NS)
        log.write_staged()
    disk.clear_faults()
    assert values_of(log) == values
    log.close()
    assert values_of(open_log(disk)) == values


def test_a_failed_write_is_undone_and_ends_the_log(disk: SimDisk, log: Log) -> None:
    append(log, b"a")
    log.sync()
    disk.fail_next("write", errno.EIO, path_part=".log")
    with pytest.raises(PartitionFailedError):
        append(log, b"b")
    with pytest.raises(PartitionFailedError):
        append(log, b"c")
    assert values_of(log) == [b"a"]
    log.close()
    assert values_of(open_log(disk)) == [b"a"]


def test_a_write_that_cannot_be_undone_ends_the_log_and_recovery_cuts_it(disk: SimDisk, log: Log) -> None:
    append(log, b"a")
    log.sync()
    disk.faults = Faults(capacity_bytes=used_bytes(disk) + 10)
    disk.fail_next("truncate", errno.EIO)
    with pytest.raises(PartitionFailedError, match="undone"):
        append(log, b"b")
    disk.clear_faults()
    log.close()
    log = open_log(disk)
    assert values_of(log) == [b"a"]
    assert [cut.byte_count for cut in log.report.cuts] == [10]


@pytest.mark.parametrize("seed", range(30))
def test_a_log_on_a_bad_disk_loses_nothing_that_it_called_durable(seed: int) -> None:
    disk = make_disk(seed)
    config = LogConfig(segment_bytes=4096, retention_ms=0)
    log = Log.open(disk, "/data/0", config)
    durable: list[bytes] = []
    for round_number in range(8):
        disk.faults = Faults(sync_eio=0.03, directory_sync_eio=0.03, write_eio=0.01, short_write=0.1)
        written = [value for value in values_of(log) if value is not None]
        try:
            for number in range(40):
                value = b"%d-%d" % (round_number, number) + bytes(150)
                append(log, value)
                written.append(value)
                if number % 5 == 0:
                    log.sync()
                    durable = list(written)
        except PartitionFailedError:
            pass
        disk.clear_faults()
        if round_number % 2:
            disk.crash()
        else:
            disk.kill()
        log = Log.open(disk, "/data/0", config)
        assert not log.report.damages
        assert values_of(log)[: len(durable)] == durable


def test_damage_does_not_stop_a_log_from_closing_in_order(disk: SimDisk) -> None:
    log = open_log(disk, SMALL)
    fill(log, 2)
    log.sync()
    disk.flip_bit(log.segments[0].path, 40, 0)
    with pytest.raises(DataDamagedError):
        log.read(0, 1)
    log.close()
    assert open_log(disk).report.was_clean
