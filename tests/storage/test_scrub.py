"""The scrub finds damage before a reader does, and touches nothing that is whole."""

from __future__ import annotations

import pytest

from goqueue.errors import DataDamagedError
from goqueue.storage import LogConfig, Scrubber, install_compaction, plan_compaction
from goqueue.testing import SimDisk
from tests.storage.logs import START_NS, append, fill, make_disk, open_log, read_all, read_one


@pytest.fixture
def disk() -> SimDisk:
    return make_disk()


def test_a_round_reads_every_sealed_segment_and_finds_nothing_in_whole_ones(disk: SimDisk) -> None:
    log = open_log(disk)
    fill(log, 5)
    scrubber = Scrubber(log)
    scrubber.run_round()
    assert scrubber.rounds == 1
    assert scrubber.scrubbed_bytes == sum(segment.size_bytes for segment in log.sealed_segments)
    assert log.damages == ()
    names = disk.list(log.directory)
    scrubber.run_round()
    assert disk.list(log.directory) == names
    assert len(read_all(log)) == log.log_end_offset


def test_damage_is_found_without_a_reader_and_stays_apart(disk: SimDisk) -> None:
    log = open_log(disk)
    fill(log, 4)
    second = log.segments[1]
    hit = second.base_offset + 3
    disk.flip_bit(second.path, second.position_of(hit) + 40, 2)
    scrubber = Scrubber(log)
    scrubber.run_round()
    scrubber.run_round()
    [damage] = log.damages
    assert (damage.file, damage.from_offset, damage.to_offset) == (second.path, hit, hit + 1)
    with pytest.raises(DataDamagedError):
        log.read(hit, 1)
    assert [read_one(log, o).offset for o in range(log.log_end_offset) if o != hit] == [
        offset for offset in range(log.log_end_offset) if offset != hit
    ]


def test_damage_found_once_is_known_after_a_restart_without_another_round(disk: SimDisk) -> None:
    log = open_log(disk)
    fill(log, 4)
    second = log.segments[1]
    disk.flip_bit(second.path, 50, 2)
    Scrubber(log).run_round()
    log.close()
    log = open_log(disk)
    assert [damage.file for damage in log.damages] == [second.path]


def test_a_file_that_was_taken_away_is_found(disk: SimDisk) -> None:
    log = open_log(disk)
    fill(log, 4)
    second = log.segments[1]
    disk.remove(second.path)
    Scrubber(log).run_round()
    [damage] = log.damages
    assert (damage.from_offset, damage.to_offset) == (second.base_offset, second.next_offset)


def test_a_segment_that_retention_removes_meanwhile_is_no_damage(disk: SimDisk) -> None:
    log = open_log(disk)
    fill(log, 4)
    scrubber = Scrubber(log)
    step = scrubber.next_step()
    assert step is not None
    log.delete_before(step.end_offset)
    scrubber.finish(step, step.run())
    assert log.damages == ()


def test_a_segment_that_compaction_replaces_meanwhile_is_no_damage(disk: SimDisk) -> None:
    log = open_log(disk, LogConfig(segment_bytes=4096, retention_ms=0, compact=True))
    for number in range(80):
        append(log, bytes(150), key=b"k%d" % (number % 3))
    scrubber = Scrubber(log)
    step = scrubber.next_step()
    assert step is not None
    plan = plan_compaction(log, now_ns=START_NS)
    assert plan is not None
    install_compaction(log, plan.run())
    scrubber.finish(step, step.run())
    assert log.damages == ()
    scrubber.run_round()
    assert log.damages == ()
