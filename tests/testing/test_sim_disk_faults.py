"""Faults of the simulated disk: planned, by chance, a full disk, damage, and the lie of a repeated sync."""

from __future__ import annotations

import errno
import random
import threading

import pytest

from goqueue.host import File
from goqueue.testing import DiskOperation, Faults, SimDisk


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk(random.Random(1), garbage_probability=0)
    disk.make_directory("/data")
    return disk


def durable_file(disk: SimDisk, path: str, data: bytes = b"") -> File:
    file = disk.create(path)
    file.append([data])
    file.sync()
    disk.sync_directory("/data")
    return file


def perform(disk: SimDisk, operation: DiskOperation) -> None:
    file = disk.open("/data/a", writable=True) if operation in ("read", "write", "sync", "truncate") else None
    match operation:
        case "read":
            assert file is not None
            file.pread(1, 0)
        case "write":
            assert file is not None
            file.append([b"x"])
        case "sync":
            assert file is not None
            file.sync()
        case "truncate":
            assert file is not None
            file.truncate(1)
        case "create":
            disk.create("/data/new")
        case "list":
            disk.list("/data")
        case "lock":
            disk.lock("/data/lock", "me")
        case "make_directory":
            disk.make_directory("/data/below")
        case "map":
            disk.map("/data/a")
        case "open":
            disk.open("/data/a")
        case "remove":
            disk.remove("/data/a")
        case "remove_directory":
            disk.remove_directory("/data/empty")
        case "rename":
            disk.rename("/data/a", "/data/b")
        case "sync_directory":
            disk.sync_directory("/data")


OPERATIONS: list[DiskOperation] = [
    "create",
    "list",
    "lock",
    "make_directory",
    "map",
    "open",
    "read",
    "remove",
    "remove_directory",
    "rename",
    "sync",
    "sync_directory",
    "truncate",
    "write",
]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_planned_failure_strikes_once_and_changes_nothing(disk: SimDisk, operation: DiskOperation) -> None:
    durable_file(disk, "/data/a", b"abc")
    disk.make_directory("/data/empty")
    disk.fail_next(operation, errno.EIO)
    with pytest.raises(OSError, match="Input/output") as caught:
        perform(disk, operation)
    assert caught.value.errno == errno.EIO
    assert disk.list("/data") == ["a", "empty"]
    assert bytes(disk.map("/data/a")) == b"abc"
    perform(disk, operation)


def test_planned_failures_wait_for_their_path_and_come_in_order(disk: SimDisk) -> None:
    disk.fail_next("create", errno.EMFILE, path_part=".index")
    disk.fail_next("create", errno.ENOSPC, path_part=".index")
    disk.create("/data/a.log")
    with pytest.raises(OSError, match="Too many"):
        disk.create("/data/a.index")
    with pytest.raises(OSError, match="No space"):
        disk.create("/data/a.index")
    disk.create("/data/a.index")
    disk.fail_next("create", errno.EIO)
    disk.clear_faults()
    disk.create("/data/b.log")
    assert disk.list("/data") == ["a.index", "a.log", "b.log"]


def test_after_a_failed_sync_a_later_success_is_a_lie(disk: SimDisk) -> None:
    file = durable_file(disk, "/data/a", b"old")
    file.append([b"lost"])
    disk.fail_next("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    file.sync()
    assert file.pread(100, 0) == b"oldlost", "the page cache still shows it"
    file.append([b"new"])
    file.sync()
    disk.crash()
    assert bytes(disk.map("/data/a")) == b"old\0\0\0\0new"


def test_after_a_failed_sync_alone_the_bytes_are_gone_with_the_power(disk: SimDisk) -> None:
    file = durable_file(disk, "/data/a", b"old")
    file.append([b"lost"])
    disk.fail_next("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    disk.kill()
    assert bytes(disk.map("/data/a")) == b"oldlost"
    disk.crash()
    assert bytes(disk.map("/data/a")) == b"old"
    disk.check_invariants()


def test_a_failed_directory_sync_leaves_the_names_pending(disk: SimDisk) -> None:
    disk.create("/data/a")
    disk.fail_next("sync_directory", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        disk.sync_directory("/data")
    assert disk.exists("/data/a")
    disk.sync_directory("/data")
    disk.crash()
    assert disk.exists("/data/a")


def test_a_full_disk_writes_what_fits_and_then_refuses(disk: SimDisk) -> None:
    file = durable_file(disk, "/data/a", b"x" * 60)
    disk.faults = Faults(capacity_bytes=100)
    assert disk.total_bytes("/data") == 100
    assert disk.free_bytes("/data") == 40
    assert file.append([b"y" * 30, b"z" * 30]) == 40
    assert file.append([]) == 0
    with pytest.raises(OSError, match="No space"):
        file.append([b"more"])
    assert file.pwrite(b"in place", 0) == 8
    assert file.pread(200, 92) == b"z" * 8
    assert disk.free_bytes("/data") == 0


def test_room_comes_back_by_truncate_remove_rename_and_capacity(disk: SimDisk) -> None:
    disk.faults = Faults(capacity_bytes=100)
    first, second = disk.create("/data/a"), disk.create("/data/b")
    first.append([b"x" * 50])
    second.append([b"x" * 50])
    first.truncate(10)
    assert disk.free_bytes("/data") == 40
    disk.rename("/data/a", "/data/b")
    assert disk.free_bytes("/data") == 90
    second.append([b"unlinked files count no more"])
    assert disk.free_bytes("/data") == 90
    disk.remove("/data/b")
    assert disk.free_bytes("/data") == 100
    disk.check_invariants()
    disk.clear_faults()
    assert disk.create("/data/c").append([b"x" * 200]) == 200


@pytest.mark.parametrize(
    ("faults", "operation"),
    [
        (Faults(sync_eio=0.3), "sync"),
        (Faults(directory_sync_eio=0.3), "sync_directory"),
        (Faults(write_eio=0.3), "write"),
        (Faults(read_eio=0.3), "read"),
        (Faults(read_eio=0.3), "map"),
    ],
)
def test_probable_failures_strike_about_as_often_as_asked(
    disk: SimDisk, faults: Faults, operation: DiskOperation
) -> None:
    durable_file(disk, "/data/a", b"abc")

    def failures() -> int:
        error_numbers = []
        for _ in range(1000):
            try:
                perform(disk, operation)
            except OSError as error:
                error_numbers.append(error.errno)
        assert set(error_numbers) <= {errno.EIO}
        return len(error_numbers)

    disk.faults = faults
    assert 200 < failures() < 400
    disk.faults = Faults()
    assert failures() == 0


def test_short_writes_write_a_proper_prefix(disk: SimDisk) -> None:
    file = disk.create("/data/a")
    disk.faults = Faults(short_write=1)
    expected = b""
    for _ in range(100):
        count = file.append([b"0123", b"456789"])
        assert 0 < count < 10
        expected += b"0123456789"[:count]
    assert file.pread(1000, 0) == expected
    assert file.append([b"x"]) == 1


def test_a_flipped_bit_is_wrong_for_every_reader_and_after_a_crash(disk: SimDisk) -> None:
    file = durable_file(disk, "/data/a", b"\0\0\0\0")
    disk.flip_bit("/data/a", 2, 7)
    assert file.pread(4, 0) == b"\0\0\x80\0"
    disk.crash()
    assert bytes(disk.map("/data/a")) == b"\0\0\x80\0"


def test_a_bit_flipped_before_the_sync_stays_flipped(disk: SimDisk) -> None:
    file = durable_file(disk, "/data/a", b"\0")
    file.append([b"\0\0"])
    file.truncate(2)
    disk.flip_bit("/data/a", 1, 0)
    file.sync()
    assert disk.durable_bytes("/data/a") == b"\0\1"
    disk.flip_bit("/data/a", 1, 0)
    assert file.pread(2, 0) == b"\0\0"


def test_a_snapshot_restores_visible_and_durable_state_again_and_again(disk: SimDisk) -> None:
    file = durable_file(disk, "/data/a", b"synced")
    file.append([b"unsynced"])
    disk.create("/data/pending")
    snapshot = disk.snapshot()
    contents, names = set(), set()
    for _ in range(50):
        disk.restore(snapshot)
        disk.check_invariants()
        assert disk.list("/data") == ["a", "pending"]
        assert bytes(disk.map("/data/a")) == b"syncedunsynced"
        assert disk.durable_bytes("/data/a") == b"synced"
        disk.crash()
        contents.add(bytes(disk.map("/data/a")))
        names.add(tuple(disk.list("/data")))
        disk.flip_bit("/data/a", 0, 0)
        disk.remove("/data/a")
    assert contents == {b"synced", b"syncedunsynced", b"synced" + bytes(8)}
    assert names == {("a",), ("a", "pending")}
    with pytest.raises(OSError, match="Bad file"):
        file.size()


def test_statistics_count_what_was_done(disk: SimDisk) -> None:
    before = disk.statistics()
    file = durable_file(disk, "/data/a", b"abc")
    file.append([b"de"])
    disk.crash()
    after = disk.statistics()
    assert after.sync_count - before.sync_count == 1
    assert after.directory_sync_count - before.directory_sync_count == 1
    assert after.write_count - before.write_count == 2
    assert after.written_bytes - before.written_bytes == 5


def test_a_simulated_file_has_no_descriptor(disk: SimDisk) -> None:
    with pytest.raises(OSError, match="not supported"):
        disk.create("/data/a").fileno()


def test_everything_appended_before_a_sync_in_another_thread_is_durable_after_it(disk: SimDisk) -> None:
    file = durable_file(disk, "/data/a")
    stop = threading.Event()

    def sync_until_stopped() -> None:
        while not stop.is_set():
            file.sync()

    thread = threading.Thread(target=sync_until_stopped)
    thread.start()
    for _ in range(2000):
        file.append([b"0123456789"])
    stop.set()
    thread.join()
    file.sync()
    assert disk.durable_bytes("/data/a") == b"0123456789" * 2000
