"""The data directory: one process at a time, names that cannot leave it, logs that come and go as a whole."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from goqueue.errors import DirectoryFormatError, DirectoryLockedError, InvalidNameError, InvalidRequestError
from goqueue.host import OsDisk, OsEntropy
from goqueue.model import TopicPartition
from goqueue.storage import DataDirectory
from goqueue.storage.slots import SlotFile
from goqueue.testing import SimDisk, SimEntropy, SimulatedCrash
from tests.storage.logs import append, make_disk, values_of

ROOT = "/data"
ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def disk() -> SimDisk:
    return make_disk()


def open_directory(disk: SimDisk, seed: int = 1) -> DataDirectory:
    return DataDirectory.open(disk, ROOT, SimEntropy(seed))


# -- opening --------------------------------------------------------------------------------------------------------


def test_a_directory_keeps_its_identity_and_its_logs(disk: SimDisk) -> None:
    directory = open_directory(disk)
    append(directory.open_log(ORDERS), b"a")
    identity = directory.meta.directory_id
    directory.close()
    directory = open_directory(disk, seed=2)
    assert directory.meta.directory_id == identity
    assert not directory.meta_restored
    assert directory.partitions() == [ORDERS]
    assert values_of(directory.open_log(ORDERS)) == [b"a"]


def test_a_directory_in_use_is_refused_until_it_is_closed(disk: SimDisk) -> None:
    directory = open_directory(disk)
    with pytest.raises(DirectoryLockedError, match="in use"):
        open_directory(disk)
    directory.close()
    open_directory(disk).close()


HOLDER = """
import sys
from goqueue.host import OsDisk, OsEntropy
from goqueue.storage import DataDirectory
DataDirectory.open(OsDisk(), sys.argv[1], OsEntropy())
print("open", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_refused_and_the_lock_dies_with_its_holder(tmp_path: Path) -> None:
    path = f"{tmp_path}/data"
    command = [sys.executable, "-c", HOLDER, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(DirectoryLockedError):
            DataDirectory.open(OsDisk(), path, OsEntropy())
        second = subprocess.run(command, input="", capture_output=True, text=True, check=False)
        assert second.returncode != 0
        assert "DirectoryLockedError" in second.stderr
        holder.kill()
    DataDirectory.open(OsDisk(), path, OsEntropy()).close()


def test_a_newer_format_is_refused_and_left_alone(disk: SimDisk) -> None:
    open_directory(disk).close()
    slots = SlotFile.open(disk, f"{ROOT}/directory.meta")
    slots.write_both((2).to_bytes(2, "big") + bytes(16))
    slots.close()
    before = bytes(disk.map(f"{ROOT}/directory.meta"))
    with pytest.raises(DirectoryFormatError, match="format 2"):
        open_directory(disk)
    assert bytes(disk.map(f"{ROOT}/directory.meta")) == before
    with pytest.raises(DirectoryFormatError):
        open_directory(disk)


@pytest.mark.parametrize("harm", ["removed", "emptied", "one slot"])
def test_a_damaged_description_is_restored_and_said_so(disk: SimDisk, harm: str) -> None:
    directory = open_directory(disk)
    append(directory.open_log(ORDERS), b"a")
    directory.close()
    path = f"{ROOT}/directory.meta"
    match harm:
        case "removed":
            disk.remove(path)
        case "emptied":
            disk.open(path, writable=True).truncate(0)
        case "one slot":
            disk.flip_bit(path, 100, 0)
    directory = open_directory(disk, seed=2)
    assert directory.meta_restored
    assert values_of(directory.open_log(ORDERS)) == [b"a"]
    directory.close()
    assert not open_directory(disk, seed=3).meta_restored


@pytest.mark.parametrize("step", range(25))
def test_a_crash_while_a_directory_is_made_leaves_one_that_opens(step: int) -> None:
    disk = make_disk(step)
    disk.crash_after(step)
    with contextlib.suppress(SimulatedCrash):
        append(open_directory(disk).open_log(ORDERS), b"a")
    disk.crash()
    directory = open_directory(disk)
    log = directory.open_log(ORDERS)
    assert not log.damages
    append(log, b"b")
    directory.close()


# -- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "a/b", "/etc", "a\0b", "a b", "a\n", "ä", "x" * 250, "..\\x", "a:b", "~", "%2e%2e", "٣"],
)
def test_hostile_names_never_reach_the_disk(disk: SimDisk, name: str) -> None:
    directory = open_directory(disk)
    before = disk.list(f"{ROOT}/logs")
    partition = TopicPartition(name, 0)
    for action in (directory.open_log, directory.delete_log, directory.log_path):
        with pytest.raises(InvalidNameError):
            action(partition)
    assert disk.list(f"{ROOT}/logs") == before


@pytest.mark.parametrize("number", [-1, 1_000_001])
def test_partition_numbers_have_a_range(disk: SimDisk, number: int) -> None:
    with pytest.raises(InvalidRequestError, match="partition"):
        open_directory(disk).open_log(TopicPartition("orders", number))


def test_strangers_in_the_directory_are_not_taken_for_partitions(disk: SimDisk) -> None:
    directory = open_directory(disk)
    directory.open_log(ORDERS)
    for path in ("logs/lost+found/0", "logs/orders/007", "logs/orders/٣", "logs/orders/x"):
        disk.make_directory(f"{ROOT}/{path}")
    disk.create(f"{ROOT}/logs/README").close()
    assert directory.partitions() == [ORDERS]


# -- logs -----------------------------------------------------------------------------------------------------------


def test_a_log_is_open_at_most_once(disk: SimDisk) -> None:
    directory = open_directory(disk)
    directory.open_log(ORDERS)
    with pytest.raises(InvalidRequestError, match="already open"):
        directory.open_log(ORDERS)
    directory.close_log(ORDERS)
    directory.open_log(ORDERS)


def test_partitions_are_listed_in_order(disk: SimDisk) -> None:
    directory = open_directory(disk)
    partitions = [TopicPartition("b", 10), TopicPartition("b", 9), TopicPartition("a", 0)]
    for partition in partitions:
        directory.open_log(partition)
    assert directory.partitions() == sorted(partitions)


def test_a_deleted_log_is_gone_and_its_name_free(disk: SimDisk) -> None:
    directory = open_directory(disk)
    other = TopicPartition("orders", 1)
    append(directory.open_log(ORDERS), b"a")
    append(directory.open_log(other), b"b")
    directory.delete_log(ORDERS)
    directory.delete_log(ORDERS)
    assert directory.partitions() == [other]
    disk.crash()
    directory = open_directory(disk)
    assert directory.partitions() == [other]
    assert disk.list(f"{ROOT}/trash") == []
    assert directory.open_log(ORDERS).log_end_offset == 0
    directory.delete_log(other)
    directory.delete_log(ORDERS)
    assert directory.partitions() == []


@pytest.mark.parametrize("power", [True, False], ids=["power", "process"])
@pytest.mark.parametrize("step", range(24))
def test_a_crash_while_a_log_is_deleted_leaves_all_of_it_or_nothing(step: int, power: bool) -> None:
    for seed in range(3):
        disk = make_disk(seed)
        directory = open_directory(disk)
        log = directory.open_log(ORDERS)
        append(log, b"a")
        log.sync()
        disk.crash_after(step)
        with contextlib.suppress(SimulatedCrash):
            directory.delete_log(ORDERS)
        if power:
            disk.crash()
        else:
            disk.kill()
        directory = open_directory(disk)
        assert disk.exists(f"{ROOT}/trash") is False or disk.list(f"{ROOT}/trash") == []
        if directory.partitions():
            log = directory.open_log(ORDERS)
            assert values_of(log) == [b"a"]
            assert not log.damages


def test_one_log_that_fails_to_close_does_not_keep_the_others_from_it(disk: SimDisk) -> None:
    directory = open_directory(disk)
    partitions = [TopicPartition("orders", number) for number in range(3)]
    for partition in partitions:
        append(directory.open_log(partition), b"a")
    disk.fail_next("sync", 5, path_part="/orders/1/")
    with pytest.raises(Exception, match="orders/1"):
        directory.close()
    directory = open_directory(disk)
    assert [directory.open_log(partition).report.was_clean for partition in partitions] == [True, False, True]


def test_descriptors_are_given_back_on_close(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    directory = DataDirectory.open(OsDisk(), f"{tmp_path}/data", OsEntropy())
    for number in range(20):
        append(directory.open_log(TopicPartition("orders", number)), b"a")
    directory.close()
    assert len(os.listdir("/proc/self/fd")) == before
