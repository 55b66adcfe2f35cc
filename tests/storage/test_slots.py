"""Slot files: small state that is overwritten in place and always has one whole version."""

from __future__ import annotations

import errno
import random

import pytest

from goqueue.storage.slots import PAYLOAD_BYTES_MAX, SLOT_BYTES, SlotFile
from goqueue.testing import SimDisk
from tests.storage.logs import make_disk

PATH = "/data/state"


@pytest.fixture
def disk() -> SimDisk:
    disk = make_disk()
    disk.make_directory("/data")
    return disk


def create(disk: SimDisk, payload: bytes = b"first") -> SlotFile:
    slots = SlotFile.create(disk, PATH, payload)
    disk.sync_directory("/data")
    return slots


@pytest.mark.parametrize("payload", [b"", b"x", bytes(range(100)), b"\xff" * PAYLOAD_BYTES_MAX])
def test_a_payload_comes_back(disk: SimDisk, payload: bytes) -> None:
    create(disk, payload).close()
    slots = SlotFile.open(disk, PATH)
    assert slots.payload == payload
    assert not slots.damaged


def test_the_newest_payload_wins(disk: SimDisk) -> None:
    slots = create(disk)
    for number in range(5):
        slots.write(b"%d" % number, sync=True)
        assert SlotFile.open(disk, PATH).payload == b"%d" % number


@pytest.mark.parametrize("slot", [0, 1])
def test_after_damage_to_one_slot_the_other_serves_and_both_are_whole_again(disk: SimDisk, slot: int) -> None:
    slots = create(disk, b"old")
    slots.write(b"new", sync=True)
    disk.flip_bit(PATH, slot * SLOT_BYTES + 20, 0)
    found = SlotFile.open(disk, PATH)
    assert found.damaged
    assert found.payload in (b"old", b"new")
    again = SlotFile.open(disk, PATH)
    assert not again.damaged
    assert again.payload == found.payload


def test_write_both_leaves_no_older_payload_to_fall_back_to(disk: SimDisk) -> None:
    create(disk, b"old").write_both(b"new")
    for slot in (0, 1):
        snapshot = disk.snapshot()
        disk.flip_bit(PATH, slot * SLOT_BYTES, 0)
        assert SlotFile.open(disk, PATH).payload == b"new"
        disk.restore(snapshot)


@pytest.mark.parametrize("length", [0, 1, SLOT_BYTES - 1])
def test_a_file_without_a_whole_slot_has_no_payload(disk: SimDisk, length: int) -> None:
    create(disk)
    disk.open(PATH, writable=True).truncate(length)
    slots = SlotFile.open(disk, PATH)
    assert slots.payload is None
    assert slots.damaged


def test_the_write_after_a_failed_one_does_not_touch_the_slot_that_is_whole(disk: SimDisk) -> None:
    slots = create(disk, b"good")
    slots.write(b"better", sync=True)
    disk.fail_next("write", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        slots.write(b"lost", sync=True)
    assert slots.payload == b"better"
    slots.write(b"best", sync=True)
    assert b"better" in disk.durable_bytes(PATH)
    assert SlotFile.open(disk, PATH).payload == b"best"


@pytest.mark.parametrize("seed", range(40))
def test_power_loss_leaves_a_payload_that_was_written(seed: int) -> None:
    disk = SimDisk(random.Random(seed))
    disk.make_directory("/data")
    slots = create(disk, b"0")
    synced = 0
    for number in range(1, 8):
        sync = random.Random(seed * 10 + number).random() < 0.4
        slots.write(b"%d" % number, sync=sync)
        synced = number if sync else synced
    disk.crash()
    payload = SlotFile.open(disk, PATH).payload
    assert payload is not None
    assert synced <= int(payload) <= 7
