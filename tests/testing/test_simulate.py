"""The storage simulator: seeds that found something, a short form of the search, and proof that it has teeth."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from goqueue.storage import Log, Scrubber, SyncTicket
from goqueue.storage.recovery import Recovery
from goqueue.storage.segment import Segment
from goqueue.testing import SimDisk, SimulatedCrash
from goqueue.testing.simulate import failure_of, main
from goqueue.testing.simulation import StorageRun

SOURCE = Path(__file__).parents[2] / "src"

# Seed, and what it catches: each was found with the mistake in place (docs/simulation.md) and must pass without it.
# A change of the workload gives the seeds another meaning; they stay as further runs, and new finds are added.
FOUND: tuple[tuple[int, str], ...] = (
    (58, "a sync that began before a roll took the rolled file off the list of files to be synced"),
    (17, "a sync that began before a truncation moved the recovery point beyond the end of the log"),
    (220, "recovery synced only the last segment of the tail"),
    (43, "recovery took clean pages for durable bytes after a failed sync"),
    (181, "a scrub step chosen before a truncation reported damage after it"),
    (30, "a compaction planned before a truncation read the segment as it was after it"),
    (165, "a compaction planned before a truncation was installed after it"),
    (107264, "a compaction without a change, from before a truncation, marked records as seen that came after it"),
    (1111, "half of a compaction was installed after retention: a tombstone went before its value"),
    (2042, "compaction removed the old files before the new name was durable"),
    (7, "a truncation, retention or compaction that failed half way left the log working"),
    (469, "a failed log wrote what was staged"),
    (345, "a log with a refused batch was closed without a sync"),
    (5717, "a checkpoint slot written in pieces was torn in both slots"),
    (4, "the names of new segments were not synced with their bytes"),
    (285, "a refused batch came back after a clean restart and a power loss"),
    (351, "the same with the batch refused in a compacted log"),
    (575, "the same with a delayed record"),
)

BLOCK = 10


@pytest.mark.parametrize(("seed", "caught"), FOUND, ids=[f"{seed}-{caught}" for seed, caught in FOUND])
def test_a_seed_that_found_a_mistake_passes(seed: int, caught: str) -> None:
    _, report = failure_of(seed)
    assert report is None, f"{caught}\n{report}"


@pytest.mark.parametrize("first", range(0, 60, BLOCK))
def test_random_runs_keep_every_promise(first: int) -> None:
    for seed in range(first, first + BLOCK):
        _, report = failure_of(seed)
        assert report is None, report


# -- a seed is a run --------------------------------------------------------------------------------------------


def digest_of(seed: int) -> str:
    run = StorageRun(seed)
    run.run()
    return hashlib.sha256("\n".join(run.trace).encode()).hexdigest()


def test_a_seed_runs_the_same_in_every_process() -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); "
        "import test_simulate as t; print(t.digest_of(7))"
    )
    digests = {digest_of(7)}
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        digests.add(done.stdout.strip())
    assert len(digests) == 1


def test_different_seeds_are_different_runs() -> None:
    assert digest_of(1) != digest_of(2)


# -- teeth ------------------------------------------------------------------------------------------------------


def plant_lost_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SyncTicket, "run", lambda ticket: None)


def plant_reader_off_by_one(patch: pytest.MonkeyPatch) -> None:
    honest = Log.offset_at_time
    patch.setattr(Log, "offset_at_time", lambda log, ns: honest(log, ns + 1))


def plant_uncut_tail(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Recovery, "_cut", lambda *_: None)


def plant_half_truncate(patch: pytest.MonkeyPatch) -> None:
    honest = Segment.truncate

    def truncate(segment: Segment, position: int, next_offset: int) -> None:
        honest(segment, position, next_offset)
        segment.next_offset += 1

    patch.setattr(Segment, "truncate", truncate)


def plant_blind_scrub(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Scrubber, "finish", lambda *_: None)


@pytest.mark.parametrize(
    "plant",
    [plant_lost_sync, plant_reader_off_by_one, plant_uncut_tail, plant_half_truncate, plant_blind_scrub],
    ids=lambda plant: plant.__name__.removeprefix("plant_"),
)
def test_a_planted_mistake_is_found_within_a_few_seeds(plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert any(failure_of(seed)[1] is not None for seed in range(40))


# -- the command ------------------------------------------------------------------------------------------------


def test_a_failing_seed_prints_itself_its_trace_and_how_to_replay(monkeypatch, capsys) -> None:
    plant_reader_off_by_one(monkeypatch)
    assert main(["--seeds", "5", "--start", "3"]) == 1
    printed = capsys.readouterr().out
    failed = [seed for seed in range(3, 8) if f"seed {seed} failed after" in printed]
    assert failed
    assert f"replay with: make sim SEED={failed[0]}" in printed
    assert "read_by_time" in printed


def test_one_seed_is_told_step_by_step(capsys) -> None:
    assert main(["--seed", "0"]) == 0
    printed = capsys.readouterr().out
    assert "LogConfig(" in printed.splitlines()[0]
    assert "seed 0 passed" in printed


def test_several_seeds_report_their_number_and_speed(capsys) -> None:
    assert main(["--seeds", "2"]) == 0
    captured = capsys.readouterr()
    assert "seeds 0 to 1: all passed" in captured.out
    assert "2/2 seeds" in captured.err
    assert "operations/s" in captured.err


# -- a machine that stops ---------------------------------------------------------------------------------------


def test_a_stopping_disk_lets_so_many_changes_happen_and_then_none() -> None:
    disk = SimDisk(random.Random(0))
    disk.crash_after(2)
    file = disk.create("/a")
    assert file.append([b"one"]) == 3
    assert file.pread(3, 0) == b"one"
    with pytest.raises(SimulatedCrash):
        file.append([b"two"])
    with pytest.raises(SimulatedCrash):
        file.pread(3, 0)
    with pytest.raises(SimulatedCrash):
        disk.remove("/a")


def test_a_stopped_disk_works_again_after_the_outage() -> None:
    disk = SimDisk(random.Random(0))
    disk.create("/a").append([b"one"])
    disk.crash_after(0)
    with pytest.raises(SimulatedCrash):
        disk.sync_directory("/")
    disk.kill()
    assert disk.open("/a").pread(3, 0) == b"one"
    disk.sync_directory("/")


def test_no_handler_for_exceptions_survives_a_stop() -> None:
    assert not issubclass(SimulatedCrash, Exception)
