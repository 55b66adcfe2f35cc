"""The log of one partition: batches in, ranges of bytes out, and an honest account of what is durable.

A log has one owner (an event loop or a thread); only `SyncTicket.run` and reads of a `FileRange` may happen elsewhere.
Offsets: log_start_offset <= synced_offset <= log_end_offset, the last being the next one to be given out. All ranges
are half-open. The log knows nothing of topics, watermarks, consumers or acks; it tells when bytes are written and
synced.

    stage -> write_staged            one write for everything staged in between
    begin_sync -> run -> complete    one fdatasync for everything written before it began
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from goqueue.errors import (
    BatchEmptyError,
    BatchTooLargeError,
    DiskFullError,
    GoQueueError,
    LogClosedError,
    OffsetOutOfRangeError,
    PartitionFailedError,
    RecordError,
)
from goqueue.host import Buffer, Disk, File
from goqueue.record import BatchFacts, IndexCursor, gap_marker, scan, stamp
from goqueue.storage.checkpoint import Checkpoint
from goqueue.storage.config import LogConfig
from goqueue.storage.damage import Damage
from goqueue.storage.damage_register import DamageRegister
from goqueue.storage.recovery import Recovery, RecoveryReport
from goqueue.storage.segment import (
    RELATIVE_OFFSET_LIMIT,
    SEGMENT_BYTES_LIMIT,
    FileRange,
    Segment,
    remove_segment_files,
    segment_path,
)
from goqueue.storage.segment_list import SegmentList
from goqueue.storage.slots import SlotFile
from goqueue.storage.sparse_index import IndexDamagedError
from goqueue.storage.sync_ticket import SyncGate, SyncTicket
from goqueue.storage.warm import WarmSegments

CHECKPOINT_FILE = "checkpoint"

_NEVER = 1 << 63

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStatistics:
    log_start_offset: int
    log_end_offset: int
    synced_offset: int
    size_bytes: int
    segment_count: int
    max_timestamp_ns: int
    appended_records: int
    appended_bytes: int
    sync_count: int
    damages: tuple[Damage, ...]
    failure: str | None


class Log:
    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: LogConfig,
        segments: list[Segment],
        slots: SlotFile,
        *,
        start: int,
        warm: WarmSegments,
    ) -> None:
        self.directory = directory
        self._config = config
        self.disk = disk
        self._segments = SegmentList(segments, warm)
        self._slots = slots
        self._checkpoint = Checkpoint(log_start_offset=start)
        self._damages = DamageRegister()
        self._staged: list[Buffer] = []
        self._staged_facts: list[BatchFacts] = []
        self._staged_cursor: IndexCursor | None = None
        self._staged_end = segments[-1].next_offset
        self._staged_ns = 0
        # Sealed files stay here until a ticket with them has run: of two tickets, the later may complete first.
        self._unsynced: list[File] = []
        self._names_version = self._names_synced = 0
        self._sync_gate = SyncGate()
        self._truncations = 0
        self._staging_error: GoQueueError | None = None
        self._failure: PartitionFailedError | None = None
        self._closed = False
        self.appended_records = self.appended_bytes = self._sync_count = 0
        self.report = RecoveryReport()
        self._roll_at_ns = self._roll_at_offset = _NEVER
        self._plan_roll()

    @classmethod
    def open(
        cls, disk: Disk, directory: str, config: LogConfig | None = None, *, warm: WarmSegments | None = None
    ) -> Log:
        """Open or create the log in `directory`, recovering whatever state it was left in; see `report`.

        `warm` is the budget of open files that the log shares with others."""
        disk.make_directory(directory)
        slots, checkpoint = _open_checkpoint(disk, directory)
        if slots is not None and slots.payload is not None and not (checkpoint and checkpoint.clean):
            # A process that died may have left checkpoint and names in the cache only. Recovery removes files on the
            # strength of them, so they come first.
            slots.write(slots.payload, sync=True)
            disk.sync_directory(directory)
        recovery = Recovery(disk, directory, checkpoint)
        segments = recovery.run()
        report = recovery.report
        report.checkpoint_lost = slots is None and len(segments) + len(report.cuts) + len(report.damages) > 1
        start = max(checkpoint.log_start_offset if checkpoint else 0, 0 if report.damages else segments[0].base_offset)
        if slots is None:
            slots = SlotFile.create(disk, f"{directory}/{CHECKPOINT_FILE}", Checkpoint(log_start_offset=start).pack())
        log = cls(disk, directory, config or LogConfig(), segments, slots, start=start, warm=warm or WarmSegments())
        log.report = report
        log._damages = DamageRegister(report.damages)
        log._settle(compacted_to=checkpoint.compacted_to if checkpoint else 0)
        return log

    def _settle(self, *, compacted_to: int) -> None:
        """Make what recovery left durable, so that everything visible from now on is committed."""
        active, untouched = self._active, self.report.untouched
        if not untouched:
            active.file.sync()
            self.disk.sync_directory(self.directory)
        self._checkpoint = Checkpoint(
            log_start_offset=self.log_start_offset,
            segment_base=active.base_offset,
            synced_position=active.size_bytes,
            synced_offset=active.next_offset,
            compacted_to=compacted_to,
        )
        # After a clean close all of it is durable already. Should the note that the log is open again be lost, its
        # size shows that it was written to.
        self._slots.write(self._checkpoint.pack(), sync=not untouched)

    # -- what it is ---------------------------------------------------------------------------------------------

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        """Settings may change while the log is open."""
        self._config = config
        self._plan_roll()

    @property
    def log_start_offset(self) -> int:
        return self._checkpoint.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The next offset to be written."""
        return self._active.next_offset

    @property
    def synced_offset(self) -> int:
        """Everything below survives a power loss."""
        return self._checkpoint.synced_offset

    @property
    def truncations(self) -> int:
        """How often the log was cut; a plan made before a cut is void."""
        return self._truncations

    @property
    def compacted_to(self) -> int:
        return self._checkpoint.compacted_to

    @property
    def failure(self) -> PartitionFailedError | None:
        return self._failure

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def damages(self) -> tuple[Damage, ...]:
        return tuple(self._damages)

    @property
    def size_bytes(self) -> int:
        return self._segments.size_bytes

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(self._segments)

    @property
    def sealed_segments(self) -> tuple[Segment, ...]:
        return tuple(self._segments.sealed)

    @property
    def _active(self) -> Segment:
        return self._segments.active

    def statistics(self) -> LogStatistics:
        return LogStatistics(
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            synced_offset=self.synced_offset,
            size_bytes=self.size_bytes,
            segment_count=len(self._segments),
            max_timestamp_ns=self._segments.max_timestamp_ns,
            appended_records=self.appended_records,
            appended_bytes=self.appended_bytes,
            sync_count=self._sync_count,
            damages=self.damages,
            failure=str(self._failure) if self._failure else None,
        )

    # -- appending ----------------------------------------------------------------------------------------------

    def append(self, batch: bytearray | memoryview, *, now_ns: int, forbidden_flags: int = 0) -> BatchFacts:
        """Stamp a batch in place and write it. It is readable now and durable after a sync."""
        facts = self.stage(batch, now_ns=now_ns, forbidden_flags=forbidden_flags)
        self.write_staged()
        return facts

    def stage(
        self,
        batch: bytearray | memoryview,
        *,
        now_ns: int,
        forbidden_flags: int = 0,
        value_bytes_max: int | None = None,
    ) -> BatchFacts:
        """Stamp a batch in place for the next `write_staged`; a refused batch changes nothing.

        `value_bytes_max` stands in for the setting, which may have been lowered since a value was accepted."""
        cursor = self._reserve(len(batch), now_ns)
        limit = self._config.value_bytes_max if value_bytes_max is None else value_bytes_max
        facts = stamp(batch, self._staged_end, now_ns, cursor, limit, forbidden_flags)
        self._staged.append(batch)
        self._staged_facts.append(facts)
        self._staged_end = facts.next_offset
        return facts

    def append_replica(self, batch: Buffer, *, now_ns: int) -> BatchFacts:
        """Write a batch that another log has stamped; it must continue this one. Gaps are taken from compacted logs."""
        cursor = self._reserve(len(batch), now_ns)
        before = cursor.copy()
        facts, error = scan(batch, self._staged_end, cursor, self._config.compact)
        if error is not None or not facts.count:
            self._staged_cursor = before
            raise error or BatchEmptyError("the batch holds no record")
        self._staged.append(batch)
        self._staged_facts.append(facts)
        self._staged_end = facts.next_offset
        self.write_staged()
        return facts

    def write_staged(self) -> int:
        """Write everything staged with one call; returns the bytes. On an error nothing of it is in the log."""
        if not self._staged and self._staging_error is None:
            return 0
        staged, facts, after = self._staged, self._staged_facts, self._staged_cursor
        self._staged, self._staged_facts, self._staged_cursor = [], [], None
        active = self._segments.active
        try:
            if self._staging_error is not None or self._failure is not None:
                self._raise_unwritten()
            assert after is not None, "staging sets the cursor"
            active.write(staged, facts, after)
        except PartitionFailedError as error:
            self._failure = self._failure or error
            raise
        finally:
            self._staged_end = active.next_offset
        if self._roll_at_ns == _NEVER:
            # Age counts from the first write: timestamps are the clients' and may lie far in the past.
            self._roll_at_ns = self._staged_ns + self._config.segment_ms * 1_000_000
        byte_count = 0
        for batch in facts:
            self.appended_records += batch.count
            byte_count += batch.byte_count
        self.appended_bytes += byte_count
        return byte_count

    def _raise_unwritten(self) -> None:
        """Raise why staged batches did not make it; the owner is told once."""
        earlier, self._staging_error = self._staging_error, None
        if earlier is not None:
            raise earlier
        self._raise_unwritable()

    def _write_early(self) -> None:
        """Write what is staged before its owner asks for it. An error is also the owner's, who has not seen it yet."""
        try:
            self.write_staged()
        except GoQueueError as error:
            self._staging_error = error
            raise

    def _reserve(self, byte_count: int, now_ns: int) -> IndexCursor:
        """The cursor for a batch of that size, in a new segment when the present one is full or old."""
        if self._failure is not None or self._closed:
            self._raise_unwritable()
        cursor = self._staged_cursor
        if cursor is None or not self._staged:
            cursor = self._segments.active.cursor.copy()
        position = cursor.position
        if position and (
            position + byte_count > self._config.segment_bytes
            or now_ns >= self._roll_at_ns
            # A batch holds at most one record per 34 bytes, and a time index entry counts offsets in 32 bits.
            or self._staged_end + byte_count // 34 > self._roll_at_offset
        ):
            self.roll()
            cursor = self._active.cursor.copy()
        if byte_count > SEGMENT_BYTES_LIMIT:
            raise BatchTooLargeError(f"a batch of {byte_count} bytes fits into no segment", byte_count=byte_count)
        self._staged_cursor = cursor
        self._staged_ns = now_ns
        return cursor

    def _plan_roll(self) -> None:
        """When the active segment will be too old, and which offset it cannot hold any more."""
        first_ns = self._active.read_first_timestamp()
        self._roll_at_ns = _NEVER if first_ns is None else first_ns + self._config.segment_ms * 1_000_000
        self._roll_at_offset = self._active.base_offset + RELATIVE_OFFSET_LIMIT

    def roll(self) -> None:
        """Close the active segment and start the next one. The old one is synced with the next sync."""
        self._write_early()
        old, base = self._active, self.log_end_offset
        assert old.size_bytes, "an empty segment is not rolled"
        try:
            new = Segment.create(self.disk, self.directory, base)
        except OSError as error:
            with contextlib.suppress(OSError):
                remove_segment_files(self.disk, self.directory, base)
            self._refuse_roll(error, base)
        old.seal()
        self._unsynced.append(old.file)
        self._names_version += 1
        self._segments.add(new)
        self._segments.warmed(old)
        self._plan_roll()

    def _refuse_roll(self, error: OSError, base: int) -> None:
        path = segment_path(self.directory, base)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(f"no space left to create {path}; free some or add retention", file=path) from error
        self._failure = PartitionFailedError(f"could not create {path}: {error}", file=path)
        raise self._failure from error

    def roll_if_old(self, now_ns: int) -> bool:
        """Roll a segment that has become old without a new record coming."""
        active = self._active
        if self._failure or not active.size_bytes or now_ns < self._roll_at_ns:
            return False
        self.roll()
        return True

    def _raise_unwritable(self) -> None:
        if self._closed:
            raise LogClosedError(f"the log in {self.directory} is closed")
        assert self._failure is not None
        raise PartitionFailedError(
            f"the log in {self.directory} failed and takes nothing until it is reopened: {self._failure.message}",
            directory=self.directory,
        ) from self._failure

    # -- durability ---------------------------------------------------------------------------------------------

    def begin_sync(self) -> SyncTicket | None:
        """What to sync so that everything written so far is durable; None when it already is."""
        if self._failure is not None or self._closed:
            self._raise_unwritable()
        names_synced = self._names_synced == self._names_version
        if self.synced_offset == self.log_end_offset and not self._unsynced and names_synced:
            return None
        active = self._active
        return SyncTicket(
            gate=self._sync_gate,
            disk=self.disk,
            directory=None if names_synced else self.directory,
            sealed=tuple(self._unsynced),
            active=active.file if active.size_bytes else None,
            segment_base=active.base_offset,
            position=active.size_bytes,
            offset=active.next_offset,
            names_version=self._names_version,
            truncations=self._truncations,
        )

    def complete_sync(self, ticket: SyncTicket) -> None:
        """The ticket has run: move the recovery point, never back and never to what a truncation has taken away."""
        self._unsynced = [file for file in self._unsynced if file not in ticket.sealed]
        self._names_synced = max(self._names_synced, ticket.names_version)
        before = (self._checkpoint.segment_base, self.synced_offset)
        outdated = (ticket.segment_base, ticket.offset) <= before or ticket.truncations != self._truncations
        if outdated or self._closed or self._failure is not None:
            return
        crossed = ticket.segment_base != self._checkpoint.segment_base
        self._sync_count += 1
        self._move_checkpoint(
            segment_base=ticket.segment_base, synced_position=ticket.position, synced_offset=ticket.offset
        )
        # The recovery point is a hint that may lag, but a segment left behind should not be scanned again.
        with contextlib.suppress(OSError):
            self._slots.write(self._checkpoint.pack(), sync=crossed)

    def fail_sync(self, error: OSError) -> PartitionFailedError:
        """The ticket's run failed. What the kernel kept of the dirty pages is unknown, so this log is over."""
        self._failure = PartitionFailedError(f"sync of {self.directory} failed: {error}", directory=self.directory)
        return self._failure

    def sync(self) -> None:
        """Begin, run and complete a sync in this thread."""
        ticket = self.begin_sync()
        if ticket is None:
            return
        try:
            ticket.run()
        except OSError as error:
            raise self.fail_sync(error) from error
        self.complete_sync(ticket)

    # -- reading ------------------------------------------------------------------------------------------------

    def locate(self, offset: int, bytes_max: int, end_offset: int | None = None) -> FileRange:
        """Whole records from `offset` on, inside one segment and below `end_offset`; at least one if there is any.

        The bytes are not looked at: whoever decodes them verifies them. Known damage is never included; an offset
        inside it raises `DataDamagedError`.
        """
        end = self._readable_end() if end_offset is None else min(end_offset, self._readable_end())
        if not self.log_start_offset <= offset <= end:
            self._raise_out_of_range(offset, end)
        if offset == end:
            return FileRange(self._active.file, self._active.size_bytes, 0)
        self._damages.raise_at(offset)
        segment = self._segments.holding(offset)
        return self._reading(segment, offset, lambda: self._range_in(segment, offset, bytes_max, end))

    def _range_in(self, segment: Segment, offset: int, bytes_max: int, end: int) -> FileRange:
        position = segment.position_of(offset)
        end_position = segment.size_bytes if end >= segment.next_offset else segment.position_of(end)
        readable = self._damages.readable_end(segment.path, offset, end_position)
        return segment.whole_range(position, bytes_max, readable)

    def read(self, offset: int, bytes_max: int, end_offset: int | None = None) -> bytes:
        """Like `locate`, with the bytes read and verified. Records in front of damage found here are returned."""
        found = self.locate(offset, bytes_max, end_offset)
        if not found.length:
            return b""
        data = found.read()
        facts, error = scan(data, offset, IndexCursor(0), True)
        if error is None and len(data) == found.length:
            return data
        segment = self._segments.holding(offset)
        self._inspect(segment)
        if not facts.count:
            self._damages.raise_at(facts.next_offset)
            raise PartitionFailedError(f"{segment.path} reads differently each time", file=segment.path) from error
        return data[: facts.byte_count]

    def offset_at_time(self, timestamp_ns: int) -> int | None:
        """The first offset whose timestamp is at least `timestamp_ns`; None when every record is older.

        `DataDamagedError` when a record that cannot be read lies in front of the answer: it might be the answer.
        """
        found = self._first_at_time(timestamp_ns)
        self._damages.raise_before(found)
        return found

    def _first_at_time(self, timestamp_ns: int) -> int | None:
        for segment in self._segments.reaching(timestamp_ns):
            low = max(self.log_start_offset, segment.base_offset)
            found = self._find_time(segment, timestamp_ns, low)
            if found is not None:
                return found if found < self._readable_end() else None
        return None

    def _find_time(self, segment: Segment, timestamp_ns: int, low: int) -> int | None:
        return self._reading(segment, low, lambda: segment.offset_at_time(timestamp_ns, min_offset=low))

    def _readable_end(self) -> int:
        if self._closed:
            self._raise_unwritable()
        return self.synced_offset if self._failure else self.log_end_offset

    def _reading(self, segment: Segment, offset: int, action: Callable[[], T]) -> T:
        """Run a search; when it stumbles, find out what is wrong with the segment, mend its indexes and try again."""
        try:
            return action()
        except (IndexDamagedError, RecordError):
            self._inspect(segment)
            self._damages.raise_at(offset)
        try:
            return action()
        except (IndexDamagedError, RecordError) as error:
            for damage in self._damages.in_file(segment.path):
                raise damage.as_error() from error
            raise PartitionFailedError(f"{segment.path} reads differently each time", file=segment.path) from error

    def _raise_out_of_range(self, offset: int, end: int) -> None:
        raise OffsetOutOfRangeError(
            f"offset {offset} is outside the log, which holds {self.log_start_offset} to {end}",
            offset=offset,
            log_start_offset=self.log_start_offset,
            log_end_offset=end,
        )

    # -- damage -------------------------------------------------------------------------------------------------

    def _inspect(self, segment: Segment) -> None:
        """Read a suspicious segment in full, note its damage, and index what can be read."""
        found = segment.examine(segment.next_offset)
        segment.rebuild_indexes(found)
        self.note_damages(found.damages)
        self._segments.warmed(segment)

    def note_damages(self, damages: tuple[Damage, ...]) -> None:
        """Take damage that a scrub, a replica or a reader has found into account."""
        self._damages.note(damages)

    # -- removing -----------------------------------------------------------------------------------------------

    def delete_before(self, offset: int) -> int:
        """Remove the whole sealed segments below `offset`; returns how many."""
        gone = self._segments.below(offset)
        if not gone:
            return 0
        start = self._segments.behind(gone[-1])[0].base_offset
        self.sync()
        with self.changing_files():
            self._move_checkpoint(log_start_offset=start)
            self._slots.write_both(self._checkpoint.pack())
            self._drop(gone)
        self._damages.forget_below(start)
        return len(gone)

    def truncate(self, offset: int) -> None:
        """Forget every record from `offset` on. For followers that diverged; what is cut was never committed."""
        self._write_early()
        if offset >= self.log_end_offset:
            return
        if offset < self.log_start_offset:
            self._raise_out_of_range(offset, self.log_end_offset)
        self.sync()
        segment = self._segments.holding(offset)
        position, end = self._reading(segment, offset, lambda: segment.cut_point(offset))
        newest_ns = segment.max_timestamp_ns
        # Lowered first, and in both slots: a crash in between must not make the cut look like damage.
        self._move_checkpoint(
            segment_base=segment.base_offset,
            synced_position=position,
            synced_offset=end,
            compacted_to=min(self.compacted_to, offset),
        )
        self._truncations += 1
        with self.changing_files():
            self._slots.write_both(self._checkpoint.pack())
            self._drop(self._segments.behind(segment))
            self._segments.cool(segment)
            segment.truncate(position, end)
            self._names_version += 1
        self._staged_end = end
        self._segments.recount()
        self._plan_roll()
        self._damages.forget_from(offset)
        if end < offset:
            # Compaction has removed what was in front of the cut; the log still ends where it was told to.
            self._append_gap(offset, newest_ns)

    def _append_gap(self, end: int, timestamp_ns: int) -> None:
        cursor = self._active.cursor.copy()
        marker = gap_marker(offset=end - 1, timestamp_ns=timestamp_ns)
        facts, _ = scan(marker, self.log_end_offset, cursor, True)
        self._staged, self._staged_facts, self._staged_cursor = [marker], [facts], cursor
        self.write_staged()
        self.sync()

    def replace(self, old: list[Segment], new: Segment) -> None:
        """Put a compacted segment in the place of the ones it was made from."""
        self._segments.replace(old, new)

    def pin_checkpoint(self) -> None:
        """Sync, and let both slots of the checkpoint point into the active segment: files before it may now change."""
        self.sync()
        with self.changing_files():
            self._slots.write_both(self._checkpoint.pack())

    def note_compacted(self, offset: int) -> None:
        self._move_checkpoint(compacted_to=offset)
        # A hint like the recovery point: without it the next pass reads some segments again.
        with contextlib.suppress(OSError):
            self._slots.write(self._checkpoint.pack(), sync=False)

    @contextlib.contextmanager
    def changing_files(self) -> Iterator[None]:
        """While files change: an error half way leaves memory and disk at odds, so the log is over until reopened."""
        try:
            yield
        except OSError as error:
            self._failure = PartitionFailedError(f"the files of {self.directory} could not be changed: {error}")
            raise self._failure from error

    def _drop(self, gone: list[Segment]) -> None:
        self._segments.remove(gone)
        self.disk.sync_directory(self.directory)

    def _move_checkpoint(self, **changes: int) -> None:
        self._checkpoint = replace(self._checkpoint, clean=False, **changes)

    # -- closing ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Sync, note the clean end, release everything. A failed log closes without the note."""
        if self._closed:
            return
        try:
            if self._failure is None:
                self._close_clean()
        finally:
            self._closed = True
            self._segments.close()
            self._slots.close()

    def _close_clean(self) -> None:
        try:
            self.write_staged()
        finally:
            # What was refused is the caller's trouble; what is in the log is still closed in order.
            if self._failure is None:
                self.sync()
                for segment in self._segments:
                    segment.offset_index.flush()
                    segment.time_index.flush()
                self._checkpoint = replace(self._checkpoint, clean=True)
                self._slots.write(self._checkpoint.pack(), sync=True)


def _open_checkpoint(disk: Disk, directory: str) -> tuple[SlotFile | None, Checkpoint | None]:
    """The checkpoint file, or nothing when there is none that can be trusted."""
    path = f"{directory}/{CHECKPOINT_FILE}"
    if not disk.exists(path):
        return None, None
    slots = SlotFile.open(disk, path)
    if slots.payload is None:
        slots.close()
        disk.remove(path)
        return None, None
    return slots, Checkpoint.unpack(slots.payload)
