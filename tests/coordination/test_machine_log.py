"""The log behind a machine: order, durability, and what a failing disk means for it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from goqueue.coordination import MachineLog
from goqueue.errors import GoQueueError, LogClosedError
from goqueue.storage import GroupCommit, Log, LogConfig
from goqueue.testing import SimClock, SimDisk

DIRECTORY = "/data/logs/__machine/0"


@contextmanager
def machine_log(disk: SimDisk) -> Iterator[MachineLog]:
    loop = asyncio.get_running_loop()
    clock = SimClock()
    commit = GroupCommit(post=loop.call_soon_threadsafe, clock=clock)
    log = Log.open(disk, DIRECTORY, LogConfig(retention_ms=0, compact=True))
    try:
        yield MachineLog(log, commit, clock)
    finally:
        commit.close()
        log.close()


def make_disk() -> SimDisk:
    return SimDisk(random.Random(1))


async def test_records_are_replayed_in_the_order_in_which_they_were_decided() -> None:
    disk = make_disk()
    with machine_log(disk) as log:
        first = log.append([(b"a", b"1"), (b"b", b"2")])
        second = log.append([(b"a", None)])
        await asyncio.gather(first, second)
    with machine_log(disk) as log:
        assert list(log.replay()) == [(b"a", b"1"), (b"b", b"2"), (b"a", None)]


async def test_the_future_is_done_only_when_the_records_are_durable() -> None:
    with machine_log(make_disk()) as log:
        durable = log.append([(b"k", b"v")])
        await asyncio.sleep(0)
        assert not durable.done() or log.log.synced_offset == 1
        await durable
        assert log.log.synced_offset == 1


async def test_appends_of_one_turn_share_a_write() -> None:
    disk = make_disk()
    with machine_log(disk) as log:
        before = disk.statistics().write_count
        await asyncio.gather(*(log.append([(b"k%d" % n, b"v")]) for n in range(50)))
        assert log.log.log_end_offset == 50
        assert disk.statistics().write_count - before < 10


async def test_a_log_that_cannot_take_records_refuses_them_before_anything_is_replayed() -> None:
    with machine_log(make_disk()) as log:
        log.log.close()
        with pytest.raises(LogClosedError):
            log.append([(b"k", b"v")])


async def test_a_record_that_is_too_large_appends_nothing_of_its_batch() -> None:
    with machine_log(make_disk()) as log:
        with pytest.raises(GoQueueError):
            log.append([(b"k", b"v"), (b"x" * 70_000, b"v")])
        await log.append([(b"next", b"v")])
        assert [key for key, _ in log.replay()] == [b"next"]
