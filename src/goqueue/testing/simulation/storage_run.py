"""One seed, one run: a data directory with a few logs on a simulated disk, and everything that can happen to it.

All chance comes from one `random.Random`, all time from one `SimClock`, so a seed is a run: the same operations, the
same faults, the same surviving sectors. `trace` tells what happened, line by line.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

from goqueue.errors import GoQueueError
from goqueue.model import TopicPartition
from goqueue.storage import DataDirectory, LogConfig
from goqueue.testing.disk_faults import DiskOperation, Faults, SimulatedCrash
from goqueue.testing.sim_clock import SimClock
from goqueue.testing.sim_disk import SimDisk
from goqueue.testing.sim_entropy import SimEntropy
from goqueue.testing.simulation.bit_rot import BitRot
from goqueue.testing.simulation.log_cleaning import LogCleaning
from goqueue.testing.simulation.log_model import Outage, expect
from goqueue.testing.simulation.log_reading import LogReading
from goqueue.testing.simulation.log_subject import LogSubject
from goqueue.testing.simulation.log_writing import LogWriting

ROOT = "/data"
SECOND_NS = 1_000_000_000
_PATH_PARTS = (".log", ".log", ".log", ".index", "checkpoint", ".compacting", "")
_FAILING: tuple[DiskOperation, ...] = ("write", "sync", "truncate", "create", "rename", "remove", "sync_directory")


class LogWorkload:
    """The operations on one log, with how often each comes.

    Every run leaves some operations out and prefers others: what all runs do alike, all runs miss alike.
    """

    def __init__(self, subject: LogSubject) -> None:
        self.subject = subject
        self._parts = writing, reading, cleaning = LogWriting(subject), LogReading(subject), LogCleaning(subject)
        weights: dict[Callable[[], str], int] = {
            writing.append: 30,
            writing.stage: 12,
            writing.write_staged: 8,
            writing.append_replica: 6,
            writing.append_invalid: 2,
            writing.roll: 4,
            writing.roll_if_old: 2,
            writing.sync: 6,
            writing.sync_step: 18,
            reading.read: 10,
            reading.read_outside: 1,
            reading.read_held: 4,
            reading.read_by_time: 8,
            reading.compare: 2,
            cleaning.truncate: 5,
            cleaning.retain: 5,
            cleaning.compaction_step: 20 if subject.config.compact else 0,
            cleaning.scrub_step: 4,
            cleaning.scrub: 1,
        }
        favour = [subject.random.choice((0, 1, 1, 3)) for _ in weights]
        self._operations = list(weights)
        self._weights = [weight * times for weight, times in zip(weights.values(), favour, strict=True)]
        self._weights[0] += 10  # whatever else, a log is written to

    def forget(self, outage: Outage) -> None:
        self.subject.forget(outage)
        for part in self._parts:
            part.forget()

    def choose(self) -> Callable[[], str]:
        return self.subject.random.choices(self._operations, self._weights)[0]


class StorageRun:
    def __init__(self, seed: int, *, report: Callable[[str], None] | None = None) -> None:
        self.seed = seed
        self.trace: list[str] = []
        self.operation_count = 0
        self.outage_count = 0
        self._report = report
        self._random = rng = random.Random(seed)
        self._clock = SimClock()
        self._disk = SimDisk(rng)
        self._entropy = SimEntropy(seed)
        self._directory: DataDirectory | None = None
        self._workloads = [
            LogWorkload(LogSubject(rng, self._disk, self._clock, TopicPartition("orders", number), _config(rng)))
            for number in range(rng.choice((1, 1, 2, 3)))
        ]
        # Trouble per step. Where it is rare, logs grow and long work gets finished.
        self._disturbance = rng.choice((0.01, 0.04, 0.1))
        self._restarts = rng.choice((0.003, 0.01, 0.04))

    def run(self) -> None:
        """Raises `SimulationFailure`, or whatever the storage raised that it should not have."""
        for workload in self._workloads:
            self._note(f"{workload.subject.partition} {workload.subject.config}")
        self._open()
        for _ in range(self._random.randint(100, 400)):
            self.operation_count += 1
            try:
                self._step()
            except SimulatedCrash as crash:
                self._note(f"  stopped {crash}")
                self._end_process(power=self._random.random() < 0.7)
                self._open()
        self._finish()

    # -- one step -----------------------------------------------------------------------------------------------

    def _step(self) -> None:
        if self._random.random() < self._disturbance:
            self._disturb()
        elif self._random.random() < self._restarts:
            self._restart()
        elif self._random.random() < 0.06:
            self._pass_time()
        else:
            self._operate(self._random.choice(self._workloads))

    def _operate(self, workload: LogWorkload) -> None:
        subject = workload.subject
        if not subject.is_open or (subject.model.failed and self._random.random() < 0.5):
            self._reopen(workload)
            return
        if self._random.random() < 0.005:
            self._note(f"{subject.partition} delete")
            subject.faulty = not self._disk.is_perfect
            self._note(f"  {subject.delete(self._data())}")
            workload.forget(Outage.CLOSED)
            return
        operation = workload.choose()
        if self._random.random() < self._disturbance:
            self._disk.crash_after(self._random.randrange(20))
        self._note(f"{subject.partition} {operation.__name__}")
        self._note(f"  {subject.perform(operation)}")

    def _pass_time(self) -> None:
        duration_ns = self._random.choice((1, 30, 600, 3600, 20_000)) * SECOND_NS
        if self._random.random() < 0.1:
            self._note(f"the clock is set back: {duration_ns // SECOND_NS} s")
            self._clock.jump_wall_ns(-duration_ns)
            return
        self._note(f"time passes: {duration_ns // SECOND_NS} s")
        self._clock.advance_ns(duration_ns)

    def _disturb(self) -> None:
        """Switch a fault on or all of them off, or let the machine stop soon."""
        rng, disk = self._random, self._disk
        kind = rng.choice(("stop", "stop", "stop", "error", "error", "full", "short", "heal", "heal", "heal"))
        detail: object = ""
        match kind:
            case "stop":
                detail = change_count = rng.randrange(rng.choice((4, 40)))
                disk.crash_after(change_count)
            case "error":
                detail = operation, part = rng.choice(_FAILING), rng.choice(_PATH_PARTS)
                disk.fail_next(operation, errno.EIO, path_part=part)
            case "full":
                detail = room = rng.randrange(5000)
                disk.faults = Faults(capacity_bytes=disk.total_bytes(ROOT) - disk.free_bytes(ROOT) + room)
            case "short":
                disk.faults = Faults(short_write=0.3)
            case _:
                disk.clear_faults()
        self._note(f"disk {kind} {detail}")

    # -- ends and beginnings ------------------------------------------------------------------------------------

    def _restart(self) -> None:
        how = self._random.choice(("close", "kill", "power"))
        self._note(f"restart by {how}")
        if how == "close":
            self._close()
        else:
            self._end_process(power=how == "power")
        self._open()

    def _close(self) -> None:
        for workload in self._workloads:
            subject = workload.subject
            if subject.is_open:
                subject.faulty = not self._disk.is_perfect
                self._note(f"  {subject.partition} close: {subject.close(self._data())}")
            workload.forget(Outage.CLOSED)
        self._data().close()

    def _end_process(self, *, power: bool) -> None:
        self._note(f"  {'power lost' if power else 'killed'}")
        self.outage_count += 1
        if power:
            self._disk.crash()
        else:
            self._disk.kill()
        self._disk.check_invariants()
        for workload in self._workloads:
            workload.forget(Outage.POWER_LOST if power else Outage.KILLED)

    def _reopen(self, workload: LogWorkload) -> None:
        """Close and open one log: how a failed one comes back without a restart."""
        subject = workload.subject
        if subject.is_open:
            subject.faulty = not self._disk.is_perfect
            self._note(f"{subject.partition} close: {subject.close(self._data())}")
        workload.forget(Outage.CLOSED)
        self._disk.clear_faults()
        self._note(f"{subject.partition} open: {subject.open(self._data())}")

    def _open(self) -> None:
        """Open everything, through further crashes and errors if they come."""
        while True:
            if self._random.random() < 0.7:
                self._disk.clear_faults()
            if self._random.random() < 0.2:
                self._disk.crash_after(self._random.randrange(60))
            faulty = not self._disk.is_perfect
            try:
                self._open_once()
                return
            except SimulatedCrash as crash:
                self._note(f"  stopped {crash}")
                self._end_process(power=self._random.random() < 0.7)
            except (OSError, GoQueueError) as error:
                expect(faulty, f"could not open on a perfect disk: {error!r}")
                self._note(f"  open failed: {error!r}")
                self._disk.clear_faults()
                self._end_process(power=False)

    def _open_once(self) -> None:
        self._directory = DataDirectory.open(self._disk, ROOT, self._entropy)
        for workload in self._workloads:
            self._note(f"  {workload.subject.partition} open: {workload.subject.open(self._directory)}")

    def _finish(self) -> None:
        """A last orderly restart on a healthy disk; in some runs the disk then rots."""
        self._note("finish")
        self._disk.clear_faults()
        self._end_process(power=False)
        self._open()
        self._disk.clear_faults()
        self._end_process(power=True)
        self._open_once()
        self._close()
        if self._random.random() < 0.4:
            BitRot(self._random, self._disk, ROOT, self._note).run([w.subject for w in self._workloads])
            return
        self._open_once()
        self._close()

    def _data(self) -> DataDirectory:
        assert self._directory is not None, "the directory is open between restarts"
        return self._directory

    def _note(self, line: str) -> None:
        self.trace.append(line)
        if self._report is not None:
            self._report(line)


def _config(rng: random.Random) -> LogConfig:
    return LogConfig(
        segment_bytes=rng.choice((4096, 4096, 8192, 16_384, 32_768)),
        segment_ms=rng.choice((600_000, 7_200_000, 1 << 40)),
        retention_ms=rng.choice((0, 0, 3_600_000, 86_400_000)),
        retention_bytes=rng.choice((0, 0, 10_000, 50_000)),
        compact=rng.random() < 0.5,
        tombstone_retention_ms=rng.choice((0, 60_000, 36_000_000)),
        compaction_keys_max=rng.choice((1, 3, 1000)),
    )
