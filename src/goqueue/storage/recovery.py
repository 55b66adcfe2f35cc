"""Opening a partition's directory after any kind of end: clean close, kill -9, power loss, damage.

Three regions, told apart by the checkpoint's recovery point:
* Segments below it are durable as a whole. They are opened at the cost of their last few kilobytes; whatever is missing
  or unreadable in them is damage, reported and kept.
* The part of the tail below the recovery point: the same, but read in full.
* What lies above it may be torn. The first bad record and all that follows is cut, and the report says how much.
Segments are contiguous by construction: compaction keeps a record at the last offset of every segment, so the name of
the next file says where a segment must end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from goqueue.host import Disk
from goqueue.record import IndexCursor, resync, scan
from goqueue.storage.checkpoint import Checkpoint
from goqueue.storage.damage import Damage, Examination, examine
from goqueue.storage.segment import LOG_SUFFIX, Segment, remove_segment_files, segment_path, write_all
from goqueue.storage.sparse_index import IndexDamagedError

_SEGMENT_FILE = re.compile(r"(\d{20})\.(log|index|timeindex|txnindex)")
UNFINISHED_SUFFIX = ".compacting"
_REWRITE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TailCut:
    """What recovery took away because it was never durable. `kept_in` names a copy if it held readable records."""

    file: str
    position: int
    byte_count: int
    reason: str
    kept_in: str | None = None


@dataclass(slots=True, kw_only=True)
class RecoveryReport:
    """What opening a log found and did; empty lists mean that there was nothing to do."""

    was_clean: bool = True
    checkpoint_lost: bool = False
    scanned_bytes: int = 0
    cuts: list[TailCut] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    rebuilt_indexes: list[str] = field(default_factory=list)
    removed_files: list[str] = field(default_factory=list)

    @property
    def untouched(self) -> bool:
        """The log was closed in order and opening it changed nothing."""
        changes = (self.cuts, self.damages, self.rebuilt_indexes, self.removed_files)
        return self.was_clean and not self.checkpoint_lost and not any(changes)


class Recovery:
    """One use: `run` returns the segments, the last of them writable, and fills `report`."""

    def __init__(self, disk: Disk, directory: str, checkpoint: Checkpoint | None) -> None:
        self._disk = disk
        self._directory = directory
        self._known = checkpoint is not None
        self._checkpoint = checkpoint or Checkpoint()
        self.report = RecoveryReport(was_clean=self._checkpoint.clean)
        self._segments: list[Segment] = []
        # Bases of which there is an index and no log.
        self._orphans: set[int] = set()

    def run(self) -> list[Segment]:
        bases = self._sweep()
        tail_base = self._checkpoint.segment_base if self._known else (bases[-1] if bases else 0)
        self._open_durable([base for base in bases if base < tail_base], tail_base)
        self._open_tail([base for base in bases if base >= tail_base], tail_base)
        for base in self._orphans:
            self._remove_segment(base)
        self._ensure_writable()
        return self._segments

    # -- names --------------------------------------------------------------------------------------------------

    def _sweep(self) -> list[int]:
        """Base offsets of the segments present, after removing what a crash left half done."""
        logs: set[int] = set()
        others: set[int] = set()
        for name in self._disk.list(self._directory):
            if name.endswith(UNFINISHED_SUFFIX):
                self._remove_file(f"{self._directory}/{name}")
            elif match := _SEGMENT_FILE.fullmatch(name):
                (logs if match[2] == LOG_SUFFIX[1:] else others).add(int(match[1]))
        bases = sorted(logs)
        # Retention moves the start before it removes files: what lies wholly below it was on its way out.
        while len(bases) > 1 and bases[1] <= self._checkpoint.log_start_offset:
            self._remove_segment(bases.pop(0))
        self._orphans = others - logs
        return bases

    # -- durable segments ---------------------------------------------------------------------------------------

    def _open_durable(self, bases: list[int], tail_base: int) -> None:
        start = self._checkpoint.log_start_offset
        first = bases[0] if bases else tail_base
        if self._known and first > start and not (not bases and tail_base <= start):
            self._note_missing(start, first)
        bases = list(bases)
        while bases:
            base = bases.pop(0)
            end = bases[0] if bases else tail_base
            segment = self._open_sealed(base, end)
            # A merged segment covers the files it replaces; a crash may have left those behind.
            while bases and bases[0] < segment.next_offset:
                self._remove_segment(bases.pop(0))
            end = bases[0] if bases else tail_base
            if segment.next_offset < end:
                self._note_short(segment, end)
            self._segments.append(segment)

    def _open_sealed(self, base: int, end: int) -> Segment:
        try:
            segment = Segment.load(self._disk, self._directory, base, writable=False)
            segment.release()
            return segment
        except IndexDamagedError:
            return self._rebuild(base, self._examine(base, end), writable=False)

    def _examine(self, base: int, end: int) -> Examination:
        """What the whole file holds; judged against its known end only when something is missing."""
        path = segment_path(self._directory, base)
        data = self._disk.map(path)
        self.report.scanned_bytes += len(data)
        found = examine(data, file=path, base_offset=base, end_offset=None)
        # Damaged, its end is where the next file begins: bytes that look like a later record must not pass for a merge.
        if found.damages or found.next_offset < end or found.end_position < len(data):
            found = examine(data, file=path, base_offset=base, end_offset=end)
        self.report.damages.extend(found.damages)
        return found

    def _rebuild(self, base: int, found: Examination, *, writable: bool) -> Segment:
        self.report.rebuilt_indexes.append(segment_path(self._directory, base))
        segment = Segment.rebuild(self._disk, self._directory, base, found, writable=writable)
        if found.damages:
            segment.next_offset = max(segment.next_offset, found.damages[-1].to_offset)
        return segment

    # -- the tail -----------------------------------------------------------------------------------------------

    def _open_tail(self, bases: list[int], tail_base: int) -> None:
        if self._known and (not bases or bases[0] != tail_base):
            if self._checkpoint.synced_offset > tail_base:
                self._note_missing(tail_base, self._checkpoint.synced_offset)
            expected = self._checkpoint.synced_offset
        else:
            expected = tail_base
        while bases:
            base = bases.pop(0)
            if base != expected:
                self._cut_segments([base, *bases], f"starts at {base} where {expected} was to follow")
                return
            if not bases and self._is_untouched(base):
                segment, torn = self._open_clean(base), False
            else:
                segment, torn = self._scan_tail(base, following=bases[0] if bases else None)
            self._segments.append(segment)
            if torn:
                self._cut_segments(bases, "follows a torn segment")
                return
            expected = segment.next_offset

    def _is_untouched(self, base: int) -> bool:
        point = self._checkpoint
        size = self._disk.size(segment_path(self._directory, base))
        return point.clean and base == point.segment_base and size == point.synced_position

    def _open_clean(self, base: int) -> Segment:
        end = self._checkpoint.synced_offset
        try:
            segment = Segment.load(self._disk, self._directory, base, writable=True)
        except IndexDamagedError:
            return self._rebuild(base, self._examine(base, end), writable=True)
        if segment.next_offset < end:
            self._note_short(segment, end)
        return segment

    def _scan_tail(self, base: int, following: int | None) -> tuple[Segment, bool]:
        """Read a segment that may be torn; returns it and whether something was cut."""
        self.report.was_clean = False
        path = segment_path(self._directory, base)
        data = self._disk.map(path)
        self.report.scanned_bytes += len(data)
        found = self._examine_committed(data, path, base)
        synced = max(self._synced_position(base), found.end_position)
        cursor = _cursor_behind(found, base, synced)
        facts, error = scan(data[synced:], found.next_offset, cursor, True)
        whole = replace(
            found,
            next_offset=facts.next_offset,
            end_position=cursor.position,
            max_timestamp_ns=cursor.max_timestamp_ns,
            offset_entries=found.offset_entries + facts.offset_entries,
            time_entries=found.time_entries + facts.time_entries,
        )
        torn = error is not None or (following is not None and facts.next_offset != following)
        segment = self._rebuild(base, whole, writable=True)
        if error is not None:
            self._cut(segment, data, error.code)
        self._make_durable(segment, data, synced)
        return segment, torn

    def _make_durable(self, segment: Segment, data: memoryview, position: int) -> None:
        """Sync what lies above the recovery point, after writing it once more.

        Where a sync has failed before, the kernel may hold these bytes as clean pages that the disk never got, and a
        sync alone would be told that all is well.
        """
        end = segment.size_bytes
        while position < end:
            chunk = bytes(data[position : min(position + _REWRITE_BYTES, end)])
            position += segment.file.pwrite(chunk, position)
        segment.file.sync()

    def _synced_position(self, base: int) -> int:
        return self._checkpoint.synced_position if self._known and base == self._checkpoint.segment_base else 0

    def _examine_committed(self, data: memoryview, path: str, base: int) -> Examination:
        """The part below the recovery point; anything wrong in it is damage."""
        synced = self._synced_position(base)
        end = self._checkpoint.synced_offset if synced else base
        found = examine(data[:synced], file=path, base_offset=base, end_offset=end)
        self.report.damages.extend(found.damages)
        return replace(found, next_offset=end)

    def _cut(self, segment: Segment, data: memoryview, reason: str) -> None:
        position = segment.size_bytes
        kept_in = None
        if resync(data, position + 1) >= 0:
            kept_in = self._keep(segment.base_offset, position, data[position:])
        cut = TailCut(
            file=segment.path, position=position, byte_count=len(data) - position, reason=reason, kept_in=kept_in
        )
        self.report.cuts.append(cut)
        segment.file.truncate(position)

    def _keep(self, base: int, position: int, data: memoryview) -> str:
        """Copy readable records out of harm's way before they are cut: they were not durable, but who knows."""
        path = segment_path(self._directory, base, f".cut-{position}")
        if self._disk.exists(path):
            self._disk.remove(path)
        file = self._disk.create(path)
        write_all(file, data)
        file.sync()
        file.close()
        return path

    def _cut_segments(self, bases: list[int], reason: str) -> None:
        for base in bases:
            path = segment_path(self._directory, base)
            data = self._disk.map(path)
            kept_in = self._keep(base, 0, data) if resync(data, 0) >= 0 else None
            cut = TailCut(file=path, position=0, byte_count=len(data), reason=reason, kept_in=kept_in)
            self.report.cuts.append(cut)
            self._remove_segment(base)

    # -- the end ------------------------------------------------------------------------------------------------

    def _ensure_writable(self) -> None:
        """The last segment takes new records, unless it is damaged: then it is left alone and a new one follows."""
        damaged = {damage.file for damage in self.report.damages}
        for segment in self._segments[:-1]:
            if segment.writable:
                segment.seal()
        last = self._segments[-1] if self._segments else None
        if last is not None and last.writable and last.path not in damaged:
            return
        if last is not None and last.writable:
            last.seal()
        ends = [damage.to_offset for damage in self.report.damages]
        end = max([self._checkpoint.synced_offset, *ends, last.next_offset if last else 0])
        remove_segment_files(self._disk, self._directory, end)
        self._segments.append(Segment.create(self._disk, self._directory, end))

    def _note_missing(self, start: int, end: int) -> None:
        # An index without its log tells which file is missing; kept, it tells the same at the next start.
        self._orphans.discard(start)
        self._note(segment_path(self._directory, start), start, end, 0, "the file is missing")

    def _note_short(self, segment: Segment, end: int) -> None:
        start, segment.next_offset = segment.next_offset, end
        if start in self._orphans:
            self._note_missing(start, end)
        else:
            self._note(segment.path, start, end, segment.size_bytes, "the file is shorter than it was")

    def _note(self, file: str, start: int, end: int, position: int, reason: str) -> None:
        damage = Damage(
            from_offset=start, to_offset=end, file=file, from_position=position, to_position=position, reason=reason
        )
        self.report.damages.append(damage)

    def _remove_segment(self, base: int) -> None:
        remove_segment_files(self._disk, self._directory, base)
        self.report.removed_files.append(segment_path(self._directory, base))

    def _remove_file(self, path: str) -> None:
        self._disk.remove(path)
        self.report.removed_files.append(path)


def _cursor_behind(found: Examination, base: int, position: int) -> IndexCursor:
    next_index_at = 0
    if found.offset_entries:
        next_index_at = int.from_bytes(found.offset_entries[-8:-4], "big") + 4096
    if found.damages:
        next_index_at = position
    return IndexCursor(base, position, next_index_at, found.max_timestamp_ns)
