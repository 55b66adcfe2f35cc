"""What every disk promises: the same assertions over the kernel's and the simulated one."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from goqueue.host import Disk, OsDisk
from goqueue.testing import SimDisk


@pytest.fixture(params=["os", "sim"])
def disk(request: pytest.FixtureRequest) -> Disk:
    return OsDisk() if request.param == "os" else SimDisk(random.Random(1))


@pytest.fixture
def root(disk: Disk, tmp_path: Path) -> str:
    path = f"{tmp_path}/data"
    disk.make_directory(path)
    return path


def fill(disk: Disk, path: str, data: bytes) -> None:
    file = disk.create(path)
    file.append([data])
    file.close()


def read(disk: Disk, path: str) -> bytes:
    file = disk.open(path)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def test_append_writes_buffers_of_every_kind_in_order_at_the_end(disk: Disk, root: str) -> None:
    file = disk.create(f"{root}/a")
    assert file.append([b"one"]) == 3
    assert file.append([b"", bytearray(b"two"), memoryview(b"three")[:2]]) == 5
    assert file.append([]) == 0
    assert file.append([b""]) == 0
    assert file.size() == disk.size(f"{root}/a") == 8
    assert file.pread(100, 0) == b"onetwoth"
    assert file.path == f"{root}/a"


def test_append_takes_more_buffers_than_the_kernel_does_in_one_call(disk: Disk, root: str) -> None:
    file = disk.create(f"{root}/a")
    buffers = [b"%d," % number for number in range(5000)]
    assert file.append(buffers) == sum(map(len, buffers))
    assert file.pread(1 << 20, 0) == b"".join(buffers)


def test_append_goes_to_the_end_whatever_moved_it(disk: Disk, root: str) -> None:
    file = disk.create(f"{root}/a")
    file.append([b"0123456789"])
    file.truncate(4)
    file.append([b"x"])
    assert file.pwrite(b"YY", 6) == 2
    file.append([b"z"])
    disk.open(f"{root}/a", writable=True).append([b"!"])
    file.append([b"?"])
    assert file.pread(100, 0) == b"0123x\0YYz!?"


def test_pwrite_changes_bytes_in_place_also_after_a_rename(disk: Disk, root: str) -> None:
    file = disk.create(f"{root}/a")
    file.append([b"0123456789"])
    disk.rename(f"{root}/a", f"{root}/b")
    assert file.pwrite(memoryview(b"ab"), 3) == 2
    assert read(disk, f"{root}/b") == b"012ab56789"


def test_pread_is_short_only_at_the_end(disk: Disk, root: str) -> None:
    fill(disk, f"{root}/a", b"0123456789")
    file = disk.open(f"{root}/a")
    assert file.pread(3, 2) == b"234"
    assert file.pread(30, 7) == b"789"
    assert file.pread(1, 10) == file.pread(1, 99) == b""


def test_truncate_shortens_and_lengthens_with_zeros(disk: Disk, root: str) -> None:
    file = disk.create(f"{root}/a")
    file.append([b"abcdef"])
    file.truncate(2)
    file.truncate(4)
    assert file.pread(10, 0) == b"ab\0\0"


def test_a_file_opened_for_reading_refuses_writes(disk: Disk, root: str) -> None:
    fill(disk, f"{root}/a", b"abc")
    file = disk.open(f"{root}/a")
    for write in (lambda: file.append([b"x"]), lambda: file.truncate(0), lambda: file.pwrite(b"x", 0)):
        with pytest.raises(OSError, match=r"Bad file|Invalid"):
            write()
    assert read(disk, f"{root}/a") == b"abc"


def test_close_may_be_repeated_and_ends_every_use(disk: Disk, root: str) -> None:
    file = disk.create(f"{root}/a")
    file.append([b"abc"])
    file.close()
    file.close()
    uses: list[Callable[[], object]] = [
        file.size,
        file.sync,
        file.fileno,
        lambda: file.pread(1, 0),
        lambda: file.append([b"x"]),
        lambda: file.append([b"x", b"y"]),
        lambda: file.pwrite(b"x", 0),
        lambda: file.truncate(0),
    ]
    for use in uses:
        with pytest.raises(OSError, match=r"Errno"):
            use()


def test_an_open_file_and_a_mapping_outlive_their_name(disk: Disk, root: str) -> None:
    fill(disk, f"{root}/a", b"abc")
    file, mapping = disk.open(f"{root}/a"), disk.map(f"{root}/a")
    disk.remove(f"{root}/a")
    assert not disk.exists(f"{root}/a")
    assert file.pread(3, 0) == bytes(mapping) == b"abc"


def test_map_is_read_only_and_empty_for_an_empty_file(disk: Disk, root: str) -> None:
    fill(disk, f"{root}/empty", b"")
    fill(disk, f"{root}/a", b"abc")
    assert len(disk.map(f"{root}/empty")) == 0
    mapping = disk.map(f"{root}/a")
    assert mapping.readonly
    assert mapping[1] == ord("b")


def test_create_refuses_a_name_that_exists(disk: Disk, root: str) -> None:
    fill(disk, f"{root}/a", b"abc")
    with pytest.raises(FileExistsError):
        disk.create(f"{root}/a")
    assert read(disk, f"{root}/a") == b"abc"


def test_missing_names_are_reported_as_such(disk: Disk, root: str) -> None:
    missing = f"{root}/missing"
    uses: list[Callable[[], object]] = [
        lambda: disk.open(missing),
        lambda: disk.map(missing),
        lambda: disk.size(missing),
        lambda: disk.list(missing),
        lambda: disk.remove(missing),
        lambda: disk.remove_directory(missing),
        lambda: disk.rename(missing, f"{root}/b"),
        lambda: disk.sync_directory(missing),
        lambda: disk.create(f"{missing}/a"),
    ]
    for use in uses:
        with pytest.raises(FileNotFoundError):
            use()
    assert not disk.exists(missing)


def test_files_and_directories_are_not_taken_for_each_other(disk: Disk, root: str) -> None:
    fill(disk, f"{root}/file", b"")
    disk.make_directory(f"{root}/dir")
    with pytest.raises(IsADirectoryError):
        disk.remove(f"{root}/dir")
    with pytest.raises(NotADirectoryError):
        disk.remove_directory(f"{root}/file")
    with pytest.raises(NotADirectoryError):
        disk.list(f"{root}/file")
    with pytest.raises(NotADirectoryError):
        disk.create(f"{root}/file/below")
    with pytest.raises(IsADirectoryError):
        disk.rename(f"{root}/file", f"{root}/dir")
    with pytest.raises(NotADirectoryError):
        disk.rename(f"{root}/dir", f"{root}/file")
    with pytest.raises(FileExistsError):
        disk.make_directory(f"{root}/file")
    assert not disk.exists(f"{root}/file/below")


def test_make_directory_makes_parents_and_may_be_repeated(disk: Disk, root: str) -> None:
    for _ in range(2):
        disk.make_directory(f"{root}/x/y/z")
    disk.make_directory(f"{root}/x/y/w/")
    assert disk.list(f"{root}/x/y") == ["w", "z"]
    assert disk.exists(f"{root}/x/y/z")


def test_remove_directory_refuses_one_that_is_not_empty(disk: Disk, root: str) -> None:
    disk.make_directory(f"{root}/x")
    fill(disk, f"{root}/x/a", b"")
    with pytest.raises(OSError, match="not empty") as caught:
        disk.remove_directory(f"{root}/x")
    assert caught.value.errno == errno.ENOTEMPTY
    disk.remove(f"{root}/x/a")
    disk.remove_directory(f"{root}/x")
    assert disk.list(root) == []


def test_rename_replaces_the_target_and_moves_directories(disk: Disk, root: str) -> None:
    fill(disk, f"{root}/a", b"new")
    fill(disk, f"{root}/b", b"old")
    disk.rename(f"{root}/a", f"{root}/b")
    disk.make_directory(f"{root}/x/y")
    fill(disk, f"{root}/x/y/c", b"c")
    disk.rename(f"{root}/x/y", f"{root}/z")
    disk.rename(f"{root}/b", f"{root}/b")
    assert disk.list(root) == ["b", "x", "z"]
    assert read(disk, f"{root}/b") == b"new"
    assert read(disk, f"{root}/z/c") == b"c"


def test_rename_refuses_to_move_a_directory_into_itself(disk: Disk, root: str) -> None:
    disk.make_directory(f"{root}/x/y")
    with pytest.raises(OSError, match="Invalid"):
        disk.rename(f"{root}/x", f"{root}/x/y/z")
    assert disk.exists(f"{root}/x/y")


def test_list_is_sorted(disk: Disk, root: str) -> None:
    for name in ("b", "a", "C", "10", "9"):
        fill(disk, f"{root}/{name}", b"")
    assert disk.list(root) == ["10", "9", "C", "a", "b"]


def test_sync_of_files_and_directories_changes_nothing_visible(disk: Disk, root: str) -> None:
    file = disk.create(f"{root}/a")
    file.append([b"abc"])
    file.sync()
    disk.sync_directory(root)
    disk.open(f"{root}/a").sync()
    assert read(disk, f"{root}/a") == b"abc"


def test_lock_is_exclusive_until_released_and_names_its_owner(disk: Disk, root: str) -> None:
    lock = disk.lock(f"{root}/lock", "first, a longer text")
    with pytest.raises(BlockingIOError):
        disk.lock(f"{root}/lock", "second")
    assert read(disk, f"{root}/lock") == b"first, a longer text"
    lock.release()
    lock.release()
    again = disk.lock(f"{root}/lock", "third")
    assert read(disk, f"{root}/lock") == b"third"
    lock.release()  # A lock given back long ago has no say over its next holder.
    with pytest.raises(BlockingIOError):
        disk.lock(f"{root}/lock", "fourth")
    again.release()


def test_free_and_total_bytes_are_plausible(disk: Disk, root: str) -> None:
    assert 0 <= disk.free_bytes(root) <= disk.total_bytes(root)
    assert disk.total_bytes(root) > 0
