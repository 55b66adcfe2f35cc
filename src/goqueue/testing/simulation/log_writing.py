"""Operations that put records into a log and make them durable.

A sync takes three operations, begin, run and complete, as in a broker where it runs in a thread: appends, truncations
and crashes come in between.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from goqueue.errors import PartitionFailedError, RecordError
from goqueue.record import decode
from goqueue.storage import SyncTicket
from goqueue.testing.simulation.batch_source import Entry, entry_of
from goqueue.testing.simulation.log_model import expect
from goqueue.testing.simulation.log_subject import LogSubject


@dataclass(slots=True)
class _Sync:
    ticket: SyncTicket
    end: int
    truncations: int
    ran: bool = False


class LogWriting:
    def __init__(self, subject: LogSubject) -> None:
        self._subject = subject
        self._random = subject.random
        self._sync: _Sync | None = None

    def forget(self) -> None:
        self._sync = None

    # -- writing ------------------------------------------------------------------------------------------------

    def append(self) -> str:
        subject, now_ns = self._subject, self._subject.now_ns()
        count = self._random.choice((1, 1, 2, 3, 8, 20))
        batch = subject.source.batch(count, now_ns=now_ns)
        entries = batch.entries(base_offset=subject.model.staged_end, now_ns=now_ns)
        outcome = subject.write(lambda: subject.log.append(batch.data, now_ns=now_ns), entries)
        expect(outcome != "ok" or bytes(batch.data) == _joined(entries), "the batch was stamped differently")
        return f"{count} {outcome}"

    def stage(self) -> str:
        subject, now_ns = self._subject, self._subject.now_ns()
        batch = subject.source.batch(self._random.randrange(1, 5), now_ns=now_ns)
        entries = batch.entries(base_offset=subject.model.staged_end, now_ns=now_ns)
        outcome = subject.write(lambda: subject.log.stage(batch.data, now_ns=now_ns), entries, staging=True)
        if outcome == "ok":
            expect(bytes(batch.data) == _joined(entries), "the batch was stamped differently")
            subject.model.staged = [*subject.model.staged, *entries]
        return f"{len(entries)} {outcome}"

    def write_staged(self) -> str:
        outcome = self._subject.write(lambda: self._subject.log.write_staged(), [])
        self._subject.refusal_owed = False
        return outcome

    def append_replica(self) -> str:
        """A batch as a leader sends it, with gaps where compaction may have left some."""
        rng, subject, now_ns = self._random, self._subject, self._subject.now_ns()
        offset, offsets = subject.model.staged_end, []
        for _ in range(rng.randrange(1, 6)):
            offset += rng.randrange(5) if subject.config.compact and rng.random() < 0.3 else 0
            offsets.append(offset)
            offset += 1
        data = subject.source.replica(offsets, now_ns=now_ns)
        entries = [entry_of(record) for record in decode(data)]
        return f"{offsets} " + subject.write(lambda: subject.log.append_replica(data, now_ns=now_ns), entries)

    def append_invalid(self) -> str:
        """A batch with a wrong checksum or wrong offsets is refused as a whole."""
        subject, now_ns = self._subject, self._subject.now_ns()
        end = subject.model.staged_end
        if end and self._random.random() < 0.5:
            replica = subject.source.replica([end - 1, end], now_ns=now_ns)
            return self._refused(lambda: subject.log.append_replica(replica, now_ns=now_ns))
        data = subject.source.batch(3, now_ns=now_ns).data
        data[self._random.randrange(4, 8)] ^= 1
        return self._refused(lambda: subject.log.append(data, now_ns=now_ns))

    def _refused(self, action: Callable[[], object]) -> str:
        subject = self._subject
        try:
            outcome = subject.write(action, [], staging=True)
        except RecordError as error:
            # A roll for the sake of the batch may have written what was staged.
            subject.model.doubt = None
            subject.take_written(subject.model.staged, staging=True)
            return error.code
        expect(outcome != "ok", "a wrong batch was taken")
        return outcome

    def roll(self) -> str:
        subject = self._subject
        if not subject.log.segments[-1].size_bytes or subject.model.failed:
            return "skipped"
        return subject.write(lambda: subject.log.roll(), [])

    def roll_if_old(self) -> str:
        subject = self._subject
        return subject.write(lambda: subject.log.roll_if_old(subject.now_ns()), [], staging=True)

    # -- syncing ------------------------------------------------------------------------------------------------

    def sync(self) -> str:
        subject = self._subject
        try:
            subject.log.sync()
        except PartitionFailedError as error:
            return subject.note_failure(error)
        expect(subject.log.synced_offset == subject.model.end, f"synced only to {subject.log.synced_offset}")
        return "ok"

    def sync_step(self) -> str:
        """Begin, run or complete a sync."""
        subject, sync = self._subject, self._sync
        if sync is None:
            return self._begin()
        if not sync.ran:
            return self._run(sync)
        self._sync = None
        subject.log.complete_sync(sync.ticket)
        valid = not subject.model.failed and sync.truncations == subject.truncations
        expect(not valid or subject.log.synced_offset >= sync.end, f"complete, synced {subject.log.synced_offset}")
        return f"complete {sync.end}"

    def _begin(self) -> str:
        model = self._subject.model
        if model.failed:
            return "skipped"
        ticket = self._subject.log.begin_sync()
        if ticket is None:
            expect(self._subject.log.synced_offset == model.end, "nothing to sync, and not all is synced")
            return "nothing to do"
        self._sync = _Sync(ticket, model.end, self._subject.truncations)
        return f"begin {model.end}"

    def _run(self, sync: _Sync) -> str:
        try:
            sync.ticket.run()
        except OSError as error:
            expect(self._subject.faulty or self._subject.model.failed, f"a sync failed on a perfect disk: {error!r}")
            self._sync = None
            self._subject.log.fail_sync(error)
            self._subject.model.failed = True
            return f"run failed: {error}"
        sync.ran = True
        return "run"


def _joined(entries: list[Entry]) -> bytes:
    return b"".join(entry.raw for entry in entries)
