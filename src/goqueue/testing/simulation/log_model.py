"""What a partition's log must hold, whatever happened to it.

The model is a plain list of records with three numbers (start, end, synced) and a note of what is in doubt: an
operation that ended by a crash or an error may have happened, or not, or in part, and `Doubt` says within which bounds.
Opening the log again settles every doubt: the log is compared in full with what was possible, and what it holds is then
the truth.

    written   every record below `end`: outlives the death of the process
    synced    every record below `synced`, which is what the log itself claims: outlives the loss of power
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter

from goqueue.record import Flag, decode
from goqueue.record.layout import ControlKind
from goqueue.storage import Log
from goqueue.testing.simulation.batch_source import Entry, entry_of

_READ_BYTES = 1 << 20
_OFFSET = attrgetter("offset")
_GAP_KEY = ControlKind.GAP.to_bytes(2, "big")


class SimulationFailure(AssertionError):
    """The system under test broke a promise."""


def expect(condition: object, message: str) -> None:
    if not condition:
        raise SimulationFailure(message)


class Outage(enum.IntEnum):
    """How the last life of a log ended, the worst of it."""

    CLOSED = 0
    KILLED = 1
    POWER_LOST = 2


@dataclass(slots=True, kw_only=True)
class Doubt:
    """What an unfinished operation may have done."""

    # Records that may have been written behind the end.
    appended: list[Entry] = field(default_factory=list)
    # A truncation may have taken everything from here on.
    end_min: int | None = None
    # Retention may have moved the start up to here.
    start_max: int | None = None
    # Compaction may have removed these offsets.
    doomed: frozenset[int] = frozenset()
    # The whole log may be gone.
    deleted: bool = False


class LogModel:
    def __init__(self, outage: Outage = Outage.CLOSED) -> None:
        self.entries: list[Entry] = []
        self.start = 0
        self.end = 0
        self.synced = 0
        self.size_bytes = 0
        # Given to the log and not written yet.
        self.staged: list[Entry] = []
        # Records whose write failed and took the partition with it: whether their bytes are there nobody knows.
        self.ghosts: dict[int, set[bytes]] = {}
        self.doubt: Doubt | None = None
        self.failed = False
        self.outage = outage
        # Since the log was opened.
        self.appended_records = 0
        self.appended_bytes = 0

    # -- changes ------------------------------------------------------------------------------------------------

    @property
    def staged_end(self) -> int:
        return self.staged[-1].offset + 1 if self.staged else self.end

    def write(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            assert entry.offset >= self.end, "records are written in order"
            self.entries.append(entry)
            self.end = entry.offset + 1
            self.size_bytes += len(entry.raw)
            self.appended_records += 1
            self.appended_bytes += len(entry.raw)

    def write_staged(self) -> None:
        self.write(self.staged)
        self.staged = []

    def refuse(self, entries: Iterable[Entry]) -> None:
        """The log failed over these; their bytes may still lie in unsynced sectors."""
        for entry in entries:
            self.ghosts.setdefault(entry.offset, set()).add(entry.raw)

    def truncate(self, offset: int) -> None:
        """Nothing from `offset` on; where compaction left a gap the log ends behind the record in front of it."""
        self.end = self.cut_end(offset)
        self.synced = min(self.synced, self.end)
        number = self.number_of(offset)
        self.size_bytes -= sum(len(entry.raw) for entry in self.entries[number:])
        del self.entries[number:]

    def cut_end(self, offset: int) -> int:
        """Where the log ends if everything from `offset` on goes."""
        number = self.number_of(offset)
        return self.entries[number - 1].offset + 1 if number else min(self.start, max(offset, 0))

    def move_start(self, offset: int) -> None:
        number = self.number_of(offset)
        self.size_bytes -= sum(len(entry.raw) for entry in self.entries[:number])
        del self.entries[:number]
        self.start = offset

    def compact(self, doomed: frozenset[int], markers: Iterable[Entry]) -> None:
        """Remove `doomed`; gap markers that the log put in their place are taken over."""
        kept = [entry for entry in self.entries if entry.offset not in doomed]
        self._check_tombstones(self.entries, kept)
        self.entries = sorted([*kept, *markers], key=_OFFSET)
        self.size_bytes = sum(len(entry.raw) for entry in self.entries)

    # -- questions ----------------------------------------------------------------------------------------------

    def number_of(self, offset: int) -> int:
        return bisect_left(self.entries, offset, key=_OFFSET)

    def between(self, start: int, end: int) -> list[Entry]:
        return self.entries[self.number_of(start) : self.number_of(end)]

    def offset_at_time(self, timestamp_ns: int, end: int) -> int | None:
        found = (e.offset for e in self.entries if e.timestamp_ns >= timestamp_ns and e.offset < end)
        return next(found, None)

    def doomed(self, *, first: int, end: int, tombstones_before_ns: int) -> frozenset[int]:
        """What a compaction that has read the keys from `first` to `end` removes below `end`."""
        latest = {entry.key: entry.offset for entry in self.between(first, end)}
        return frozenset(
            entry.offset
            for entry in self.between(self.start, end)
            if entry.key is not None
            and (
                latest.get(entry.key, -1) > entry.offset
                or (entry.is_tombstone and entry.timestamp_ns < tombstones_before_ns)
            )
        )

    # -- comparing ----------------------------------------------------------------------------------------------

    def check_numbers(self, log: Log) -> None:
        """Cheap, after every operation."""
        if self.doubt is not None:
            return
        got = (log.log_start_offset, log.log_end_offset, log.size_bytes)
        expect(got == (self.start, self.end, self.size_bytes), f"start, end, bytes {got}, not {self._numbers()}")
        expect(self.start <= log.synced_offset <= self.end, f"synced {log.synced_offset} outside {self._numbers()}")
        expect(log.synced_offset >= self.synced, f"synced went back from {self.synced} to {log.synced_offset}")
        self.synced = log.synced_offset
        expect(not log.damages, f"damage that nobody did: {log.damages}")

    def check_content(self, log: Log) -> None:
        """Every record and every number, while nothing is in doubt."""
        if self.doubt is not None:
            return
        self.check_numbers(log)
        end = log.synced_offset if log.failure else self.end
        expected = b"".join(entry.raw for entry in self.between(self.start, end))
        expect(read_all(log, self.start, end) == expected, f"the log reads differently from {self.start} to {end}")
        statistics = log.statistics()
        newest_ns = max((entry.timestamp_ns for entry in self.entries), default=-1)
        expect(statistics.max_timestamp_ns == newest_ns, f"newest {statistics.max_timestamp_ns}, not {newest_ns}")
        appended = (statistics.appended_records, statistics.appended_bytes)
        expect(appended == (self.appended_records, self.appended_bytes), f"appended {appended}")
        expect((statistics.failure is None) == (not self.failed), f"failure {statistics.failure}")

    def settle(self, log: Log) -> None:
        """The log was opened again: compare it with all that is possible, then believe it."""
        doubt = self.doubt or Doubt()
        lost_power = self.outage is Outage.POWER_LOST
        end_min = min(self.synced if lost_power else self.end, self.end if doubt.end_min is None else doubt.end_min)
        self._check_report(log, doubt)
        start, end = log.log_start_offset, log.log_end_offset
        expect(self.start <= start <= (doubt.start_max or self.start), f"start {start} after {self.start}, {doubt}")
        ghosts = self.ghosts
        end_max = max(self.end, *(entry.offset + 1 for entry in doubt.appended), *(offset + 1 for offset in ghosts), 0)
        expect(end_min <= end <= end_max, f"end {end}, not from {end_min} to {end_max}")
        found = [entry_of(record) for record in decode(read_all(log, start, end))]
        self._check_found(found, start=start, end=end, end_min=end_min, doubt=doubt, ghosts=ghosts)
        expect(log.synced_offset == end, f"opened, but synced only to {log.synced_offset} of {end}")
        expect(found[-1].offset + 1 == end if found else start == end, f"the log ends at {end} without a record there")
        self._believe(found, start, end)

    def _check_found(
        self, found: list[Entry], *, start: int, end: int, end_min: int, doubt: Doubt, ghosts: dict[int, set[bytes]]
    ) -> None:
        possible = {entry.offset: entry for entry in [*self.entries, *doubt.appended] if start <= entry.offset < end}
        haunted = end
        for entry in found:
            wanted = possible.pop(entry.offset, None)
            if wanted == entry:
                continue
            if entry.offset >= end_min and entry.raw in ghosts.get(entry.offset, ()):
                # It lies where other unsynced records were written later, and stands for them.
                haunted = end_min
                continue
            is_marker = is_gap_marker(entry) and (wanted is None or entry.offset in doubt.doomed)
            expect(is_marker, f"offset {entry.offset} holds {entry}, not {wanted}")
        missing = sorted(offset for offset in possible if offset not in doubt.doomed and offset < haunted)
        expect(not missing, f"missing below {end}: {missing}")
        self._check_tombstones(self.entries, found)

    def _check_report(self, log: Log, doubt: Doubt) -> None:
        report = log.report
        expect(not report.damages, f"recovery reports damage that nobody did: {report.damages}")
        expect(not report.checkpoint_lost, "recovery lost the checkpoint")
        orderly = self.outage is Outage.CLOSED and not self.failed and self.doubt is None
        expect(report.was_clean or not orderly or not self.end, "a closed log was not found clean")
        torn = self.outage is Outage.POWER_LOST or self.failed or doubt.appended or doubt.end_min is not None
        expect(torn or not report.cuts, f"recovery cut what no power loss tore: {report.cuts}")

    def _check_tombstones(self, before: list[Entry], after: list[Entry]) -> None:
        """A tombstone goes only after everything that it deleted."""
        kept = {entry.offset for entry in after}
        oldest: dict[bytes | None, int] = {}
        for entry in after:
            oldest.setdefault(entry.key, entry.offset)
        last = after[-1].offset if after else -1
        for entry in before:
            if entry.is_tombstone and entry.key is not None and entry.offset not in kept and entry.offset <= last:
                alive = oldest.get(entry.key, entry.offset)
                expect(alive >= entry.offset, f"the tombstone at {entry.offset} went before the value at {alive}")

    def _believe(self, found: list[Entry], start: int, end: int) -> None:
        self.entries, self.start, self.end, self.synced = found, start, end, end
        self.size_bytes = sum(len(entry.raw) for entry in found)
        self.staged, self.ghosts, self.doubt = [], {}, None
        self.failed, self.outage = False, Outage.CLOSED
        self.appended_records = self.appended_bytes = 0

    def _numbers(self) -> tuple[int, int, int]:
        return self.start, self.end, self.size_bytes


def is_gap_marker(entry: Entry) -> bool:
    record = decode(entry.raw)[0]
    return record.flags == Flag.CONTROL and record.key == _GAP_KEY and not record.value


def read_all(log: Log, start: int, end: int) -> bytes:
    """Everything from `start` to `end`, segment by segment."""
    parts = []
    while start < end:
        data = log.read(start, _READ_BYTES, end)
        expect(data, f"nothing to read at {start}, and the log goes on to {end}")
        parts.append(data)
        start = decode(data, min_offset=start)[-1].offset + 1
    return b"".join(parts)
