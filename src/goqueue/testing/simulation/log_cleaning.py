"""Operations that take records away: retention, truncation, compaction; and the scrub, which must find nothing.

A compaction takes three operations and a scrub step two, with others in between.
"""

from __future__ import annotations

from dataclasses import dataclass

from goqueue.errors import DiskFullError, OffsetOutOfRangeError, PartitionFailedError
from goqueue.record import decode
from goqueue.storage import (
    CompactionPlan,
    CompactionResult,
    Scrubber,
    apply_retention,
    install_compaction,
    plan_compaction,
)
from goqueue.storage.scrub import ScrubStep
from goqueue.testing.simulation.batch_source import entry_of
from goqueue.testing.simulation.log_model import Doubt, expect, is_gap_marker, read_all
from goqueue.testing.simulation.log_subject import LogSubject

_Bounds = tuple[int, int, int]  # base offset, next offset, bytes of a segment


@dataclass(slots=True)
class _Compaction:
    plan: CompactionPlan
    # Keys were read from here on.
    first: int
    tombstones_before_ns: int
    truncations: int
    result: CompactionResult | None = None
    doomed: frozenset[int] = frozenset()


class LogCleaning:
    def __init__(self, subject: LogSubject) -> None:
        self._subject = subject
        self._random = subject.random
        self._compaction: _Compaction | None = None
        self._scrubber: Scrubber | None = None
        self._scrub_step: ScrubStep | None = None

    def forget(self) -> None:
        self._compaction = self._scrubber = self._scrub_step = None

    # -- truncation ---------------------------------------------------------------------------------------------

    def truncate(self) -> str:
        subject, model, rng = self._subject, self._subject.model, self._random
        low = model.start if rng.random() < 0.3 else max(model.start, model.staged_end - 30)
        offset = rng.randint(low - 1, model.staged_end + 2)
        if model.doubt is not None:
            return "skipped"
        model.doubt = Doubt(appended=list(model.staged), end_min=model.cut_end(offset))
        try:
            subject.log.truncate(offset)
        except OffsetOutOfRangeError as error:
            expect(offset < model.start, f"truncate to {offset} refused")
            model.doubt = None
            subject.take_written(model.staged, staging=False)
            return f"{offset} {error.code}"
        except DiskFullError as error:
            outcome = subject.note_refusal(error, model.staged)
            self._take_truncated(offset)
            return f"{offset} {outcome}"
        except PartitionFailedError as error:
            doubt = model.doubt
            outcome = subject.note_refusal(error, model.staged)
            model.doubt = doubt
            subject.truncations += 1
            return f"{offset} {outcome}"
        model.doubt = None
        subject.take_written(model.staged, staging=False)
        self._take_truncated(offset)
        return f"{offset} ok"

    def _take_truncated(self, offset: int) -> None:
        """The log was cut, unless it ends where it did. A cut inside a gap leaves a marker if there was room for it."""
        subject, model, log = self._subject, self._subject.model, self._subject.log
        if offset >= model.end or log.log_end_offset == model.end:
            return
        subject.truncations += 1
        model.truncate(offset)
        if model.end < log.log_end_offset == offset:
            marker = entry_of(decode(log.read(model.end, 1))[0])
            expect(marker.offset == offset - 1 and is_gap_marker(marker), f"a cut at {offset} left {marker}")
            model.write([marker])

    # -- retention ----------------------------------------------------------------------------------------------

    def retain(self) -> str:
        subject, model, log = self._subject, self._subject.model, self._subject.log
        if model.doubt is not None:
            return "skipped"
        pin = self._random.randint(model.start, model.end) if self._random.random() < 0.4 else None
        before = self._bounds()
        model.doubt = Doubt(appended=list(model.staged), start_max=model.staged_end)
        try:
            count = apply_retention(log, now_ns=subject.now_ns(), pinned_offset=pin)
        except DiskFullError as error:
            return subject.note_refusal(error, model.staged)
        except PartitionFailedError as error:
            doubt = model.doubt
            outcome = subject.note_refusal(error, model.staged)
            model.doubt = doubt
            return outcome
        model.doubt = None
        subject.take_written(model.staged, staging=True)
        self._check_retention(before, pin)
        if count:
            model.move_start(log.log_start_offset)
        return f"pin {pin}: {count} gone"

    def _bounds(self) -> list[_Bounds]:
        return [(s.base_offset, s.next_offset, s.size_bytes) for s in self._subject.log.segments]

    def _check_retention(self, before: list[_Bounds], pin: int | None) -> None:
        """Whole segments went, each for a reason; and if none went, none had to. (One that goes for its size may free
        one that is old behind it; that goes the next time.)"""
        model, start = self._subject.model, self._subject.log.log_start_offset
        bases = [base for base, _, _ in before[1:]] + [model.end]
        expect(start == model.start or start in bases, f"retention cut a segment at {start}")
        expect(pin is None or start == model.start or start <= pin, f"retention went to {start} beyond the pin {pin}")
        for base, following in zip([b for b, _, _ in before], bases, strict=True):
            if base < start:
                expect(self._may_go(base, following), f"retention took {base} to {following} without a reason")
        kept = self._subject.log.sealed_segments
        if start == model.start and kept and (pin is None or kept[0].next_offset <= pin):
            oldest = kept[0]
            expect(not self._may_go(oldest.base_offset, oldest.next_offset), f"retention left {oldest.base_offset}")

    def _may_go(self, base: int, following: int) -> bool:
        subject = self._subject
        config, entries = subject.config, subject.model.between(base, following)
        newest_ns = max((entry.timestamp_ns for entry in entries), default=-1)
        if config.retention_ms and subject.now_ns() - newest_ns > config.retention_ms * 1_000_000:
            return True
        rest = sum(len(entry.raw) for entry in subject.model.between(following, subject.model.end))
        return bool(config.retention_bytes) and rest >= config.retention_bytes

    # -- compaction ---------------------------------------------------------------------------------------------

    def compaction_step(self) -> str:
        """Plan, run or install a compaction."""
        compaction = self._compaction
        if not self._subject.config.compact:
            return "skipped"
        if compaction is None:
            return self._plan()
        if compaction.result is None:
            return self._run(compaction)
        self._compaction = None
        return self._install(compaction, compaction.result)

    def _plan(self) -> str:
        subject, log = self._subject, self._subject.log
        everything = self._random.random() < 0.3
        end_offset = (
            self._random.randint(log.log_start_offset, log.log_end_offset) if self._random.random() < 0.2 else None
        )
        start = 0 if everything else log.compacted_to
        try:
            plan = plan_compaction(log, now_ns=subject.now_ns(), end_offset=end_offset, everything=everything)
        except PartitionFailedError as error:
            return subject.note_failure(error)
        if plan is None:
            return "nothing to do"
        first = next(s.base_offset for s in log.sealed_segments if s.next_offset > start)
        before_ns = subject.now_ns() - subject.config.tombstone_retention_ms * 1_000_000
        self._compaction = _Compaction(plan, first, before_ns, subject.truncations)
        return f"plan from {first}"

    def _run(self, compaction: _Compaction) -> str:
        try:
            compaction.result = compaction.plan.run()
        except OSError as error:
            expect(self._subject.faulty, f"compaction failed on a perfect disk: {error!r}")
            self._compaction = None
            return f"run failed: {error}"
        end, before_ns = compaction.result.compacted_to, compaction.tombstones_before_ns
        compaction.doomed = self._subject.model.doomed(first=compaction.first, end=end, tombstones_before_ns=before_ns)
        return f"run to {compaction.result.compacted_to}, {len(compaction.doomed)} doomed"

    def _install(self, compaction: _Compaction, result: CompactionResult) -> str:
        subject, model = self._subject, self._subject.model
        if model.doubt is not None:
            return "skipped"
        doomed = self._still_doomed(compaction, result)
        model.doubt = Doubt(doomed=doomed)
        try:
            installed = install_compaction(subject.log, result)
        except PartitionFailedError as error:
            return subject.note_failure(error)
        model.doubt = None
        if installed:
            self._take_compacted(doomed)
        expect(installed or not doomed, f"nothing installed, and {len(doomed)} should have gone")
        return f"installed {installed} of {len(result.replacements)}"

    def _still_doomed(self, compaction: _Compaction, result: CompactionResult) -> frozenset[int]:
        """What the files that may be installed leave out. None may after a truncation, and none when retention has
        taken a part of what one of them replaces: a tombstone could go while the value it deletes stays."""
        subject, sealed = self._subject, set(self._subject.log.sealed_segments)
        present = [(r.old, sealed.intersection(r.old)) for r in result.replacements]
        if compaction.truncations != subject.truncations or any(0 < len(p) < len(old) for old, p in present):
            return frozenset()
        ranges = [range(old[0].base_offset, old[-1].next_offset) for old, p in present if p]
        return frozenset(offset for offset in compaction.doomed if any(offset in r for r in ranges))

    def _take_compacted(self, doomed: frozenset[int]) -> None:
        model, log = self._subject.model, self._subject.log
        kept = {entry.offset for entry in model.entries} - doomed
        found = [entry_of(record) for record in decode(read_all(log, model.start, model.end))]
        model.compact(doomed, [entry for entry in found if entry.offset not in kept and is_gap_marker(entry)])
        model.check_content(log)

    # -- scrub --------------------------------------------------------------------------------------------------

    def scrub_step(self) -> str:
        """Choose the next segment, or read the chosen one."""
        if self._scrubber is None:
            self._scrubber = Scrubber(self._subject.log)
        if self._scrub_step is None:
            self._scrub_step = self._scrubber.next_step()
            return "round" if self._scrub_step is None else f"at {self._scrub_step.segment.base_offset}"
        step, self._scrub_step = self._scrub_step, None
        try:
            self._scrubber.finish(step, step.run())
        except FileNotFoundError:
            expect(step.segment not in self._subject.log.segments, f"{step.segment.path} is gone")
            return "overtaken"
        return f"done {step.segment.base_offset}"

    def scrub(self) -> str:
        if self._subject.model.doubt is not None:
            return "skipped"
        Scrubber(self._subject.log).run_round()
        return "round"
