"""One partition's log under test, together with its model: opening, closing, deleting, and what errors may mean.

Every operation declares what it puts in doubt before it touches the disk and withdraws the doubt when it has returned,
so that a crash inside it leaves the model with exactly the possible outcomes.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from goqueue.errors import DiskFullError, GoQueueError, PartitionFailedError
from goqueue.model import TopicPartition
from goqueue.storage import DataDirectory, Log, LogConfig
from goqueue.testing.sim_clock import SimClock
from goqueue.testing.sim_disk import SimDisk
from goqueue.testing.simulation.batch_source import BatchSource, Entry
from goqueue.testing.simulation.log_model import Doubt, LogModel, Outage, expect


class LogSubject:
    def __init__(
        self, rng: random.Random, disk: SimDisk, clock: SimClock, partition: TopicPartition, config: LogConfig
    ) -> None:
        self.random = rng
        self.partition = partition
        self.config = config
        self.model = LogModel()
        self.source = BatchSource(rng, key_count=rng.choice((2, 5, 40)), value_bytes_max=config.value_bytes_max)
        # The disk had a fault switched on or planned when the present operation began.
        self.faulty = False
        # So far; what was begun before a truncation must not be completed after it.
        self.truncations = 0
        # A staged batch was refused early; the next write says so once more, to the one who staged it.
        self.refusal_owed = False
        self._disk = disk
        self._clock = clock
        self._log: Log | None = None

    @property
    def log(self) -> Log:
        assert self._log is not None, "operations run on an open log"
        return self._log

    @property
    def is_open(self) -> bool:
        return self._log is not None

    def now_ns(self) -> int:
        return self._clock.wall_ns()

    def where(self) -> str:
        model = self.model
        staged = f"+{len(model.staged)}" if model.staged else ""
        return f"[{model.start} {model.synced} {model.end}{staged}]{' FAILED' if model.failed else ''}"

    # -- life ---------------------------------------------------------------------------------------------------

    def open(self, directory: DataDirectory) -> str:
        """Open the log and hold it against the model; whatever was in doubt is settled by this."""
        doubt = self.model.doubt
        log = directory.open_log(self.partition, self.config)
        if doubt is not None and doubt.deleted and not log.log_end_offset:
            self.model = LogModel(self.model.outage)
        self.model.settle(log)
        self._log = log
        self.model.check_content(log)
        return f"{self.where()} cuts={len(log.report.cuts)} rebuilt={len(log.report.rebuilt_indexes)}"

    def forget(self, outage: Outage) -> None:
        """The log is closed or its process is gone, and with it everything in memory."""
        self.model.outage = max(self.model.outage, outage)
        self.model.staged = []
        self.refusal_owed = False
        self._log = None

    def close(self, directory: DataDirectory) -> str:
        """An orderly close writes what is staged and syncs everything."""
        model = self.model
        if model.failed:
            return self._end(lambda: directory.close_log(self.partition))
        model.doubt = Doubt(appended=list(model.staged))
        outcome = self._end(lambda: directory.close_log(self.partition))
        if outcome == "ok":
            model.write(model.doubt.appended)
            model.synced, model.doubt = model.end, None
        return outcome

    def delete(self, directory: DataDirectory) -> str:
        # What a failed operation left in doubt stays so if the deletion does not happen either.
        self.model.doubt = self.model.doubt or Doubt(appended=list(self.model.staged))
        self.model.doubt.deleted = True
        outcome = self._end(lambda: directory.delete_log(self.partition))
        if outcome == "ok":
            self.model = LogModel()
        return outcome

    def _end(self, action: Callable[[], None]) -> str:
        try:
            action()
        except (GoQueueError, OSError) as error:
            allowed = self.faulty or self.model.failed or (self.refusal_owed and isinstance(error, DiskFullError))
            expect(allowed, f"an error on a perfect disk: {error!r}")
            self.model.refuse(self.model.staged)
            self.model.failed = True
            self.forget(Outage.CLOSED)
            return repr(error)
        self.forget(Outage.CLOSED)
        return "ok"

    # -- operations ---------------------------------------------------------------------------------------------

    def perform(self, operation: Callable[[], str]) -> str:
        """Run one operation, with the checks that hold after every one."""
        self.faulty = not self._disk.is_perfect
        outcome = operation()
        expect(not self.model.failed or self.log.failure, "a failed log has forgotten its failure")
        expect(self.model.failed or not self.log.failure, f"the log failed unnoticed: {self.log.failure}")
        self.model.check_numbers(self.log)
        return f"{outcome} {self.where()}"

    def write(self, action: Callable[[], object], entries: list[Entry], *, staging: bool = False) -> str:
        """Something that writes what is staged and then `entries`; with `staging` it may leave all of it staged."""
        model = self.model
        whole = model.staged if staging else [*model.staged, *entries]
        if not model.failed:
            model.doubt = Doubt(appended=list(whole))
        try:
            action()
        except (DiskFullError, PartitionFailedError) as error:
            return self.note_refusal(error, [*model.staged, *entries])
        if not model.failed:
            model.doubt = None
            self.take_written(whole, staging=staging)
        return "ok"

    def take_written(self, whole: list[Entry], *, staging: bool) -> None:
        """Everything is in the log, or what was only staged still is not."""
        if staging and self.log.log_end_offset == self.model.end:
            return
        self.refusal_owed = False
        self.model.staged = []
        self.model.write(whole)

    def note_refusal(self, error: GoQueueError, risked: list[Entry]) -> str:
        """A write was refused or the log failed: what was staged is in the log as a whole or not at all."""
        model = self.model
        was_failed = model.failed
        self.note_failure(error)
        if not was_failed:
            model.doubt = None
        if not was_failed and model.staged and self.log.log_end_offset == model.staged_end:
            model.write(model.staged)
        if model.failed:
            model.refuse(entry for entry in risked if entry.offset >= model.end)
        model.staged = []
        return error.code

    def note_failure(self, error: GoQueueError) -> str:
        """An operation ended with an error: allowed on a faulty disk only, and fatal or not as the error says."""
        owed = self.refusal_owed and isinstance(error, DiskFullError)
        expect(self.faulty or self.model.failed or owed, f"an error on a perfect disk: {error!r}")
        self.refusal_owed = isinstance(error, DiskFullError) and (owed or bool(self.model.staged))
        fatal = isinstance(error, PartitionFailedError)
        expected = self.model.failed or fatal
        expect(expected == (self.log.failure is not None), f"after {error.code} its failure is {self.log.failure}")
        self.model.failed = expected
        return error.code
