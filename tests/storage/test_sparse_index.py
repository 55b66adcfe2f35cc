"""Sparse indexes: searched without reading them whole, never trusted blindly, never a reason to fail."""

from __future__ import annotations

from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.record import crc32c
from goqueue.storage.sparse_index import IndexDamagedError, SparseIndex
from goqueue.testing import Faults, SimDisk
from tests.storage.logs import make_disk

PATH = "/data/index"


def entry(key: int, value: int) -> bytes:
    body = key.to_bytes(8, "big", signed=True) + value.to_bytes(4, "big")
    return body + crc32c(body).to_bytes(4, "big")


def entries(count: int) -> bytes:
    return b"".join(entry(number * 10, number * 4096) for number in range(count))


@pytest.fixture
def disk() -> SimDisk:
    disk = make_disk()
    disk.make_directory("/data")
    return disk


@given(keys=st.sets(st.integers(0, 10_000), max_size=700), stored=st.integers(0, 700), wanted=st.integers(-5, 10_005))
def test_floor_agrees_with_a_sorted_list_wherever_the_entries_are(keys: set[int], stored: int, wanted: int) -> None:
    disk = make_disk()
    disk.make_directory("/data")
    index = SparseIndex.create(disk, PATH)
    ordered = sorted(keys)
    for number, key in enumerate(ordered):
        index.append(entry(key, number * 7))
        if number == stored:
            index.flush()
    assert index.count == len(ordered)
    assert index.floor(wanted) == bisect_right(ordered, wanted) - 1
    assert index.floor_value(wanted) == bisect_right([number * 7 for number in range(len(ordered))], wanted) - 1
    assert [index.entry(number)[0] for number in range(index.count)] == ordered


def test_entries_survive_sealing_and_reopening(disk: SimDisk) -> None:
    index = SparseIndex.create(disk, PATH)
    index.append(entries(20))
    index.seal()
    again = SparseIndex.open(disk, PATH, writable=False)
    assert again.count == 20
    assert again.last() == (190, 19 * 4096)
    assert again.floor(55) == 5


def test_a_missing_or_torn_file_is_refused(disk: SimDisk) -> None:
    with pytest.raises(IndexDamagedError):
        SparseIndex.open(disk, PATH, writable=False)
    index = SparseIndex.create(disk, PATH)
    index.append(entries(3))
    index.close()
    disk.open(PATH, writable=True).truncate(40)
    with pytest.raises(IndexDamagedError):
        SparseIndex.open(disk, PATH, writable=False)


def test_a_damaged_entry_is_noticed_when_it_is_used(disk: SimDisk) -> None:
    index = SparseIndex.create(disk, PATH)
    index.append(entries(8))
    index.close()
    disk.flip_bit(PATH, 4 * 16 + 3, 1)
    index = SparseIndex.open(disk, PATH, writable=False)
    with pytest.raises(IndexDamagedError):
        index.floor(45)
    with pytest.raises(IndexDamagedError):
        index.entry(4)
    assert index.entry(5) == (50, 5 * 4096)


def test_a_file_removed_under_the_index_is_noticed(disk: SimDisk) -> None:
    index = SparseIndex.create(disk, PATH)
    index.append(entries(8))
    index.seal()
    disk.remove(PATH)
    with pytest.raises(IndexDamagedError):
        index.floor(45)


def test_on_a_full_disk_entries_wait_in_memory(disk: SimDisk) -> None:
    index = SparseIndex.create(disk, PATH)
    disk.faults = Faults(capacity_bytes=100)
    index.append(entries(20))
    index.flush()
    assert index.count == 20
    assert disk.size(PATH) % 16 == 0
    assert index.floor(155) == 15
    disk.clear_faults()
    index.seal()
    assert SparseIndex.open(disk, PATH, writable=False).count == 20


@pytest.mark.parametrize("flushed", [0, 5, 20])
@pytest.mark.parametrize("keep", [0, 1, 5, 12, 20])
def test_truncate_keeps_the_first_entries(disk: SimDisk, flushed: int, keep: int) -> None:
    index = SparseIndex.create(disk, PATH)
    index.append(entries(flushed))
    index.flush()
    index.append(entries(20)[flushed * 16 :])
    index.truncate(keep)
    assert index.count == keep
    assert index.floor(1000) == keep - 1
    index.append(entry(5000, 5))
    assert index.entry(keep) == (5000, 5)


def test_an_index_in_memory_leaves_no_file(disk: SimDisk) -> None:
    SparseIndex.create(disk, PATH).close()
    index = SparseIndex.in_memory(disk, PATH)
    index.append(entries(600))
    index.seal()
    index.release()
    assert index.floor(2555) == 255
    assert not disk.exists(PATH)
