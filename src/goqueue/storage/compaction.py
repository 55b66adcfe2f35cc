"""Compaction: the latest record of every key stays, at its offset and in its place.

Three steps, so that the log is writable and readable all the time: `plan_compaction` (owner, quick) chooses sealed
segments; `CompactionPlan.run` (any thread) writes survivors into new files beside the old ones; `install_compaction`
(owner, quick) renames them into place. Small neighbours are merged on the way.

Records without a key, control records and unreleased delayed records are kept. Tombstones go once they are older than
the topic says. When the last record of a new segment would be gone, a gap marker takes its offset (see `recovery`).
A crash at any point leaves either the old segment or the new one: the new file is durable before it gets the name,
and files that a merged segment covers are removed only after that name is durable.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

from goqueue.host import Disk, File
from goqueue.record import collect_keys, gap_marker, retain_latest
from goqueue.storage.damage import Damage, Examination, examine
from goqueue.storage.log import Log
from goqueue.storage.recovery import UNFINISHED_SUFFIX
from goqueue.storage.segment import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, Segment, segment_path, write_all


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """One new file and the segments it stands for."""

    path: str
    old: tuple[Segment, ...]
    found: Examination


@dataclass(slots=True, kw_only=True)
class CompactionResult:
    replacements: list[Replacement] = field(default_factory=list)
    # Every key below this offset has been seen.
    compacted_to: int = 0
    # Of the log, when the plan was made.
    truncations: int = 0
    bytes_before: int = 0
    bytes_after: int = 0


def plan_compaction(
    log: Log, *, now_ns: int, end_offset: int | None = None, everything: bool = False
) -> CompactionPlan | None:
    """What to compact now, or None when no sealed segment is new since the last time.

    `end_offset` keeps records out that are not settled yet (open transactions). `everything` looks at old segments
    again, which also drops tombstones that have come of age in a quiet log.
    """
    log.sync()
    limit = log.log_end_offset if end_offset is None else end_offset
    clean: list[Segment] = []
    for segment in log.sealed_segments:
        if segment.next_offset > limit or any(_touches(damage, segment) for damage in log.damages):
            break
        clean.append(segment)
    start = 0 if everything else log.compacted_to
    if not clean or clean[-1].next_offset <= start:
        return None
    tombstones_before_ns = now_ns - log.config.tombstone_retention_ms * 1_000_000
    return CompactionPlan(log, clean, start, tombstones_before_ns)


def _touches(damage: Damage, segment: Segment) -> bool:
    return damage.from_offset < segment.next_offset and damage.to_offset > segment.base_offset


@dataclass(frozen=True, slots=True)
class _Source:
    """A sealed segment as it was when the plan was made: the log may cut or remove it while the plan runs."""

    segment: Segment
    base_offset: int
    next_offset: int
    max_timestamp_ns: int
    data: memoryview

    @classmethod
    def of(cls, segment: Segment, disk: Disk) -> _Source:
        data = disk.map(segment.path)[: segment.size_bytes]
        return cls(segment, segment.base_offset, segment.next_offset, segment.max_timestamp_ns, data)


class CompactionPlan:
    """Reads sealed segments and writes new files; touches nothing that the log uses."""

    def __init__(self, log: Log, segments: list[Segment], start: int, tombstones_before_ns: int) -> None:
        self._disk: Disk = log.disk
        self._directory = log.directory
        self._config = log.config
        self._sources = [_Source.of(segment, log.disk) for segment in segments]
        self._truncations = log.truncations
        self._start = start
        self._tombstones_before_ns = tombstones_before_ns

    def run(self) -> CompactionResult:
        """Write the survivors; `DataDamagedError` when a segment turns out to be damaged."""
        for source in self._sources:
            self._check(source)
        latest, end = self._latest_offsets()
        result = CompactionResult(compacted_to=end, truncations=self._truncations)
        group: list[_Source] = []
        kept: list[bytearray] = []
        for source in self._sources:
            if source.base_offset >= end:
                break
            survivors = retain_latest(source.data, latest, self._tombstones_before_ns)
            if group and sum(map(len, kept)) + len(survivors) > self._config.segment_bytes:
                self._finish_group(group, kept, result)
                group, kept = [], []
            group.append(source)
            kept.append(survivors)
        self._finish_group(group, kept, result)
        return result

    def _latest_offsets(self) -> tuple[dict[bytes, int], int]:
        """The last offset of each key from the first new segment on, as far as memory allows: (offsets, end)."""
        latest: dict[bytes, int] = {}
        end = self._start
        for source in self._sources:
            if source.next_offset <= self._start:
                continue
            collect_keys(source.data, latest)
            end = source.next_offset
            if len(latest) >= self._config.compaction_keys_max:
                break
        return latest, end

    def _check(self, source: _Source) -> None:
        """What cannot be read must not be taken for superseded."""
        file, base, end = source.segment.path, source.base_offset, source.next_offset
        for damage in examine(source.data, file=file, base_offset=base, end_offset=end).damages:
            raise damage.as_error()

    def _finish_group(self, group: list[_Source], kept: list[bytearray], result: CompactionResult) -> None:
        before, after = sum(len(source.data) for source in group), sum(map(len, kept))
        result.bytes_before += before
        result.bytes_after += min(before, after)
        if len(group) == 1 and after == before:
            return
        result.replacements.append(self._write(group, kept))

    def _write(self, group: list[_Source], kept: list[bytearray]) -> Replacement:
        base, end = group[0].base_offset, group[-1].next_offset
        path = segment_path(self._directory, base, UNFINISHED_SUFFIX)
        if self._disk.exists(path):
            self._disk.remove(path)
        file = self._disk.create(path)
        try:
            self._write_file(file, group, kept, end)
        except BaseException:
            file.close()
            with contextlib.suppress(OSError):
                self._disk.remove(path)
            raise
        found = self._examine(path, base)
        assert not found.damages, "a new segment is whole"
        assert found.next_offset == end, "a new segment ends where the old ones did"
        file.close()
        return Replacement(path=path, old=tuple(source.segment for source in group), found=found)

    def _write_file(self, file: File, group: list[_Source], kept: list[bytearray], end: int) -> None:
        for survivors in kept:
            write_all(file, survivors)
        found = self._examine(file.path, group[0].base_offset)
        if found.next_offset != end:
            newest_ns = max(source.max_timestamp_ns for source in group)
            write_all(file, gap_marker(offset=end - 1, timestamp_ns=newest_ns))
        file.sync()

    def _examine(self, path: str, base: int) -> Examination:
        return examine(self._disk.map(path), file=path, base_offset=base, end_offset=None)


def install_compaction(log: Log, result: CompactionResult) -> int:
    """Put the new files in place; returns how many. Those whose segments have changed meanwhile are dropped."""
    installed = 0
    log.pin_checkpoint()
    sealed, valid = set(log.sealed_segments), result.truncations == log.truncations
    for replacement in result.replacements:
        present = sealed.intersection(replacement.old)
        if valid and len(present) == len(replacement.old):
            _swap(log, replacement)
            installed += 1
            continue
        # What stays of a half removed group may hold values whose tombstones the later files no longer have.
        valid = valid and not present
        with contextlib.suppress(OSError):
            log.disk.remove(replacement.path)
    # Only a complete pass counts: a tombstone below the mark goes without a look for the value it deletes.
    if valid and installed == len(result.replacements):
        log.note_compacted(max(log.compacted_to, result.compacted_to))
    return installed


def _swap(log: Log, replacement: Replacement) -> None:
    # After an error, whether the name leads to the old file or the new one is for recovery to find out.
    with log.changing_files():
        _swap_files(log, replacement)


def _swap_files(log: Log, replacement: Replacement) -> None:
    disk, directory, old = log.disk, log.directory, replacement.old
    base = old[0].base_offset
    # The indexes go first: a missing index is rebuilt, one that belongs to another file would mislead.
    for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        with contextlib.suppress(FileNotFoundError):
            disk.remove(segment_path(directory, base, suffix))
    disk.sync_directory(directory)
    disk.rename(replacement.path, segment_path(directory, base))
    disk.sync_directory(directory)
    new = Segment.rebuild(disk, directory, base, replacement.found, writable=False)
    log.replace(list(old), new)
    for segment in old[1:]:
        segment.remove()
    disk.sync_directory(directory)
