"""Bit rot: after an orderly close a bit flips in some file. Every offset then reads right or not at all.

The log opens whatever was hit; what it can read is what was written; what it cannot read is a `DataDamagedError`; a
scrub finds the damage in sealed segments; and new records are still taken.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from goqueue.errors import DataDamagedError
from goqueue.record import decode
from goqueue.storage import DataDirectory, Log, Scrubber
from goqueue.testing.sim_disk import SimDisk
from goqueue.testing.sim_entropy import SimEntropy
from goqueue.testing.simulation.batch_source import Entry
from goqueue.testing.simulation.log_model import expect
from goqueue.testing.simulation.log_subject import LogSubject


class BitRot:
    def __init__(self, rng: random.Random, disk: SimDisk, root: str, note: Callable[[str], None]) -> None:
        self._random = rng
        self._disk = disk
        self._root = root
        self._note = note

    def run(self, subjects: Sequence[LogSubject]) -> None:
        """One to three flips, each followed by a full look at every log."""
        for _ in range(self._random.randint(1, 3)):
            rotten = self._flip(subjects)
            directory = DataDirectory.open(self._disk, self._root, SimEntropy(0))
            for subject in subjects:
                log = directory.open_log(subject.partition, subject.config)
                self._check(subject, log, rotten)
            directory.close()

    def _flip(self, subjects: Sequence[LogSubject]) -> str:
        """Flip a bit somewhere; returns the path of the file."""
        rng = self._random
        paths = [f"{self._root}/directory.meta"]
        for subject in subjects:
            directory = f"{self._root}/logs/{subject.partition.topic}/{subject.partition.partition}"
            paths += [f"{directory}/{name}" for name in self._disk.list(directory)]
        paths = [path for path in paths if self._disk.size(path)]
        logs = [path for path in paths if path.endswith(".log")]
        path = rng.choice(logs if logs and rng.random() < 0.5 else paths)
        byte, bit = rng.randrange(self._disk.size(path)), rng.randrange(8)
        self._note(f"rot in {path} at {byte}.{bit}")
        self._disk.flip_bit(path, byte, bit)
        return path

    def _check(self, subject: LogSubject, log: Log, rotten: str) -> None:
        model = subject.model
        expect(log.log_end_offset == model.end, f"after rot the log ends at {log.log_end_offset}, not {model.end}")
        expect(log.log_start_offset == model.start, f"after rot it starts at {log.log_start_offset}, not {model.start}")
        expect(not log.report.cuts, f"rot was taken for a torn tail: {log.report.cuts}")
        if self._random.random() < 0.5:
            self._scrub(log, rotten)
        unreadable = self._read_everything(subject, log)
        self._look_up_times(subject, log)
        self._scrub(log, rotten)
        again = self._read_everything(subject, log)
        expect(again >= unreadable, f"damage healed by itself: {sorted(unreadable - again)}")
        self._note(
            f"  {subject.partition}: {len(again)} of {model.end - model.start} unreadable, {len(log.damages)} damages"
        )
        self._append(subject, log)

    def _scrub(self, log: Log, rotten: str) -> None:
        Scrubber(log).run_round()
        sealed = [segment.path for segment in log.sealed_segments]
        expect(rotten not in sealed or log.damages, f"the scrub did not see the rot in {rotten}")

    def _read_everything(self, subject: LogSubject, log: Log) -> set[int]:
        """Read from every offset; returns those that raise."""
        model, unreadable = subject.model, set()
        for offset in range(model.start, model.end):
            wanted = model.entries[model.number_of(offset)]
            try:
                data = log.read(offset, 1)
            except DataDamagedError:
                unreadable.add(offset)
                continue
            got = decode(data)[0]
            expect(got.raw() == wanted.raw, f"offset {offset} reads {got.offset} {got.raw()!r}, not {wanted}")
        return unreadable

    def _look_up_times(self, subject: LogSubject, log: Log) -> None:
        entries: list[Entry] = subject.model.entries
        for entry in self._random.sample(entries, min(20, len(entries))):
            wanted = subject.model.offset_at_time(entry.timestamp_ns, subject.model.end)
            try:
                found = log.offset_at_time(entry.timestamp_ns)
            except DataDamagedError:
                continue
            expect(found == wanted, f"after rot the first offset at {entry.timestamp_ns} is {found}, not {wanted}")

    def _append(self, subject: LogSubject, log: Log) -> None:
        """A damaged log still takes records."""
        now_ns = subject.now_ns()
        batch = subject.source.batch(self._random.randrange(1, 10), now_ns=now_ns)
        entries = batch.entries(base_offset=subject.model.end, now_ns=now_ns)
        log.append(batch.data, now_ns=now_ns)
        log.sync()
        subject.model.write(entries)
        expect(log.read(entries[0].offset, 1) == entries[0].raw, "a record behind damage cannot be read")
