"""Opening after any kind of end: nothing durable is lost, what is cut is told, and the cost follows the segments."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from goqueue.host import OsDisk
from goqueue.record import decode
from goqueue.storage import Log, LogConfig, RecoveryReport
from goqueue.testing import SimDisk, SimulatedCrash
from tests.storage.logs import DIRECTORY, SMALL, START_NS, append, fill, make_disk, open_log, read_all, values_of


@pytest.fixture
def disk() -> SimDisk:
    return make_disk()


def raw_append(disk: SimDisk, path: str, data: bytes) -> None:
    file = disk.open(path, writable=True)
    file.append([data])
    file.close()


# -- clean ends -----------------------------------------------------------------------------------------------------


def test_after_a_clean_close_nothing_is_scanned_or_changed(disk: SimDisk) -> None:
    log = open_log(disk)
    fill(log, 5)
    expected = values_of(log)
    log.close()
    for _ in range(3):
        log = open_log(disk)
        assert log.report == RecoveryReport(was_clean=True)
        assert values_of(log) == expected
        log.close()


def test_a_log_of_200_segments_opens_at_the_cost_of_their_ends(disk: SimDisk) -> None:
    log = open_log(disk)
    fill(log, 200)
    expected = log.log_end_offset
    log.close()
    log = open_log(disk)
    assert log.report.scanned_bytes == 0
    assert (len(log.segments), log.log_end_offset) == (200, expected)
    assert [r.offset for r in read_all(log)] == list(range(expected))


# -- torn tails -----------------------------------------------------------------------------------------------------


def test_after_a_kill_only_the_active_segment_is_scanned(disk: SimDisk) -> None:
    log = open_log(disk)
    fill(log, 5)
    log.sync()
    append(log, b"unsynced")
    expected, active_bytes = values_of(log), log.segments[-1].size_bytes
    disk.kill()
    log = open_log(disk)
    assert not log.report.was_clean
    assert log.report.scanned_bytes == active_bytes
    assert values_of(log) == expected
    assert log.synced_offset == log.log_end_offset


@pytest.mark.parametrize("kept", range(1, 43))
def test_a_torn_record_is_cut_and_reported_with_its_bytes(disk: SimDisk, kept: int) -> None:
    log = open_log(disk)
    append(log, b"a")
    log.sync()
    size = log.size_bytes
    append(log, b"torn" * 2)
    disk.kill()
    disk.open(log.segments[0].path, writable=True).truncate(size + kept - 1)
    log = open_log(disk)
    if kept - 1:
        [cut] = log.report.cuts
        assert (cut.file, cut.position, cut.byte_count) == (log.segments[0].path, size, kept - 1)
        assert cut.reason == "RECORD_TRUNCATED"
        assert cut.kept_in is None
    assert disk.size(log.segments[0].path) == size
    append(log, b"b")
    assert values_of(log) == [b"a", b"b"]
    assert not log.damages


def test_readable_records_behind_a_torn_one_are_kept_in_a_file_of_their_own(disk: SimDisk) -> None:
    log = open_log(disk)
    append(log, b"a")
    log.sync()
    position = log.size_bytes
    append(log, b"torn")
    append(log, b"whole")
    tail = bytes(disk.map(log.segments[0].path))[position:]
    disk.kill()
    disk.flip_bit(log.segments[0].path, position + 36, 0)
    log = open_log(disk)
    [cut] = log.report.cuts
    assert (cut.position, cut.byte_count, cut.reason) == (position, len(tail), "CHECKSUM_MISMATCH")
    assert cut.kept_in == f"{DIRECTORY}/{0:020d}.cut-{position}"
    kept = bytes(disk.map(cut.kept_in))
    assert len(kept) == len(tail)
    assert decode(kept[38:])[0].value == b"whole"
    disk.crash()
    assert bytes(disk.map(cut.kept_in)) == kept
    assert values_of(open_log(disk)) == [b"a"]


def test_segments_behind_a_torn_one_are_cut_and_kept(disk: SimDisk) -> None:
    log = open_log(disk)
    append(log, b"a")
    log.sync()
    position = log.size_bytes
    append(log, b"torn")
    log.roll()
    append(log, b"follows")
    disk.kill()
    disk.flip_bit(log.segments[0].path, position + 36, 0)
    log = open_log(disk)
    assert values_of(log) == [b"a"]
    assert [cut.position for cut in log.report.cuts] == [position, 0]
    kept_in = log.report.cuts[1].kept_in
    assert kept_in is not None
    assert decode(disk.map(kept_in))[0].value == b"follows"
    append(log, b"b")
    log.close()
    assert values_of(open_log(disk)) == [b"a", b"b"]


def test_garbage_behind_the_last_record_is_cut(disk: SimDisk) -> None:
    log = open_log(disk)
    append(log, b"a")
    log.close()
    raw_append(disk, log.segments[0].path, bytes(1000))
    log = open_log(disk)
    assert [cut.byte_count for cut in log.report.cuts] == [1000]
    assert values_of(log) == [b"a"]


def test_a_cut_that_the_disk_has_no_room_to_keep_is_not_made(disk: SimDisk) -> None:
    log = open_log(disk)
    append(log, b"a")
    log.sync()
    position = log.size_bytes
    append(log, b"torn")
    append(log, b"whole")
    disk.kill()
    disk.flip_bit(log.segments[0].path, position + 36, 0)
    disk.fail_next("write", 28, path_part=".cut-")
    with pytest.raises(OSError, match="No space"):
        open_log(disk)
    disk.kill()
    [cut] = open_log(disk).report.cuts
    assert cut.kept_in is not None
    assert decode(bytes(disk.map(cut.kept_in))[38:])[0].value == b"whole"


@pytest.mark.parametrize("seed", range(40))
def test_a_crash_during_recovery_is_recovered_from(seed: int) -> None:
    """Power goes again and again while the log is being opened; synced records stay, without any false damage."""
    disk = make_disk(seed)
    log = open_log(disk)
    for number in range(60):
        append(log, b"%d" % number + bytes(150))
        if number == 40:
            log.sync()
    disk.crash()
    rng = random.Random(seed)
    for _ in range(5):
        disk.crash_after(rng.randrange(30))
        with contextlib.suppress(SimulatedCrash):
            open_log(disk).close()
        if rng.random() < 0.5:
            disk.crash()
        else:
            disk.kill()
    log = open_log(disk)
    values = values_of(log)
    assert len(values) >= 41
    assert values == [b"%d" % number + bytes(150) for number in range(len(values))]
    assert not log.damages


# -- indexes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("harm", ["missing", "torn", "empty", "ahead", "garbage"])
def test_a_bad_index_is_rebuilt_from_the_log(disk: SimDisk, suffix: str, harm: str) -> None:
    config = LogConfig(segment_bytes=16384, retention_ms=0)
    log = open_log(disk, config)
    for number in range(300):
        append(log, b"v" * 200, timestamp_ns=START_NS + number)
    log.close()
    for segment in log.segments:
        path = f"{DIRECTORY}/{segment.base_offset:020d}{suffix}"
        size = disk.size(path)
        match harm:
            case "missing":
                disk.remove(path)
            case "torn":
                disk.open(path, writable=True).truncate(size - 5)
            case "empty":
                disk.open(path, writable=True).truncate(0)
            case "ahead":
                raw_append(disk, path, bytes(disk.map(path)[-16:]))
            case "garbage":
                disk.open(path, writable=True).truncate(0)
                raw_append(disk, path, random.Random(1).randbytes(size))
    log = open_log(disk, config)
    assert len(log.report.rebuilt_indexes) == len(log.segments)
    assert not log.report.damages
    assert [log.offset_at_time(START_NS + n) for n in range(300)] == list(range(300))
    assert [r.offset for r in read_all(log)] == list(range(300))
    log.close()
    assert not open_log(disk, config).report.rebuilt_indexes


def test_a_damaged_entry_in_the_middle_is_mended_by_the_reader_that_meets_it(disk: SimDisk) -> None:
    config = LogConfig(segment_bytes=65536, retention_ms=0)
    log = open_log(disk, config)
    for number in range(250):
        append(log, b"v" * 200, timestamp_ns=START_NS + number)
    log.close()
    for suffix in (".index", ".timeindex"):
        for entry in range(10):
            disk.flip_bit(f"{DIRECTORY}/{0:020d}{suffix}", entry * 16 + 2, 5)
    log = open_log(disk, config)
    assert [log.offset_at_time(START_NS + n) for n in range(250)] == list(range(250))
    assert [r.offset for r in read_all(log, bytes_max=1)] == list(range(250))
    assert not log.damages


# -- the checkpoint -------------------------------------------------------------------------------------------------


def test_a_lost_checkpoint_is_reported_and_costs_only_a_scan(disk: SimDisk) -> None:
    log = open_log(disk)
    fill(log, 3)
    log.delete_before(log.segments[1].base_offset)
    start, expected = log.log_start_offset, values_of(log)
    log.close()
    disk.remove(f"{DIRECTORY}/checkpoint")
    log = open_log(disk)
    assert log.report.checkpoint_lost
    assert log.log_start_offset == start
    assert values_of(log) == expected


def test_unfinished_compactions_and_indexes_without_a_log_are_removed(disk: SimDisk) -> None:
    log = open_log(disk)
    append(log, b"a")
    log.close()
    leftovers = [f"{DIRECTORY}/{base:020d}{suffix}" for base, suffix in ((0, ".compacting"), (7, ".index"))]
    for path in leftovers:
        disk.create(path).close()
    disk.create(f"{DIRECTORY}/notes.txt").close()
    log = open_log(disk)
    assert not any(disk.exists(path) for path in leftovers)
    assert disk.exists(f"{DIRECTORY}/notes.txt")
    assert len(log.report.removed_files) == 2
    assert not log.damages


# -- a real process is killed -------------------------------------------------------------------------------------

CHILD = """
import sys, time
from goqueue.host import OsDisk
from goqueue.record import BatchBuilder
from goqueue.storage import Log, LogConfig
log = Log.open(OsDisk(), sys.argv[1], LogConfig(segment_bytes=16384, retention_ms=0))
print(log.log_end_offset, flush=True)
while True:
    builder = BatchBuilder()
    for number in range(5):
        builder.add(b"%d" % (log.log_end_offset + number) + bytes(100))
    log.append(builder.take(), now_ns=time.time_ns())
    if log.log_end_offset % 3 == 0:
        log.sync()
        print(log.synced_offset, flush=True)
"""


def test_a_killed_process_loses_nothing_that_it_reported_as_synced(tmp_path: Path) -> None:
    directory = f"{tmp_path}/log"
    rng = random.Random()
    config = LogConfig(segment_bytes=16384, retention_ms=0)
    for _ in range(5):
        child = subprocess.Popen([sys.executable, "-c", CHILD, directory], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        # It is some segments into its work by then, and where exactly is up to chance.
        lines = [child.stdout.readline() for _ in range(rng.randrange(30, 90))]
        os.kill(child.pid, signal.SIGKILL)
        lines += child.stdout.readlines()
        child.wait()
        child.stdout.close()
        synced = max(int(line) for line in lines if line.endswith("\n"))
        log = Log.open(OsDisk(), directory, config)
        assert log.log_end_offset >= synced
        assert not log.damages
        # The recovery point is written after the sync it tells of, so one segment more may have to be read.
        assert log.report.scanned_bytes <= sum(segment.size_bytes for segment in log.segments[-2:])
        assert len(log.segments) > 2
        values = [record.value for record in read_all(log)]
        assert values == [b"%d" % offset + bytes(100) for offset in range(log.log_end_offset)]
        log.close()
        assert Log.open(OsDisk(), directory, config).report.scanned_bytes == 0


def test_a_log_recovers_the_same_on_real_files(tmp_path: Path) -> None:
    disk, directory = OsDisk(), f"{tmp_path}/log"
    log = Log.open(disk, directory, SMALL)
    fill(log, 3)
    append(log, b"last")
    log.close()
    path = Path(log.segments[-1].path)
    path.write_bytes(path.read_bytes() + b"GQ\x01torn")
    log = Log.open(disk, directory, SMALL)
    assert [cut.byte_count for cut in log.report.cuts] == [7]
    assert values_of(log)[-1] == b"last"
    log.close()
    assert path.read_bytes().endswith(b"last")
