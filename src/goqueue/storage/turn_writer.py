"""Many callers, one write: what is appended in one turn of the owner's loop goes to the file with one call at its end.

A caller's batch is stamped at once, so its offsets are known and in order; the answer comes when it is written
(acks=leader) or durable (acks=all). Whoever has staged batches by other means calls `write_now`, which writes those of
all callers and settles them: a log's staged batches succeed or fail together.
"""

from __future__ import annotations

from collections.abc import Callable

from goqueue.errors import GoQueueError
from goqueue.record import BatchFacts
from goqueue.storage.group_commit import Done, GroupCommit, tell
from goqueue.storage.log import Log


class TurnWriter:
    __slots__ = ("_commit", "_log", "_soon", "_waiting", "_written")

    def __init__(
        self,
        log: Log,
        commit: GroupCommit,
        *,
        soon: Callable[[Callable[[], None]], object],
        written: Callable[[], None] = lambda: None,
    ) -> None:
        """`soon` runs a function at the end of this turn (`loop.call_soon`); `written` is told after every write."""
        self._log = log
        self._commit = commit
        self._soon = soon
        self._written = written
        # (whom to tell, whether it waits for durability) of the batches staged in this turn
        self._waiting: list[tuple[Done, bool]] = []

    def append(
        self,
        batch: bytearray | memoryview,
        done: Done,
        *,
        now_ns: int,
        durable: bool,
        forbidden_flags: int = 0,
        value_bytes_max: int | None = None,
    ) -> BatchFacts:
        """Stamp `batch`, which must stay untouched until `done` is called; raises when it is refused."""
        facts = self._log.stage(batch, now_ns=now_ns, forbidden_flags=forbidden_flags, value_bytes_max=value_bytes_max)
        if not self._waiting:
            self._soon(self._end_turn)
        self._waiting.append((done, durable))
        return facts

    def write_now(self) -> int:
        """Write everything staged and return the bytes; raises what the callers are told as well."""
        waiting, self._waiting = self._waiting, []
        try:
            byte_count = self._log.write_staged()
        except GoQueueError as error:
            for done, _ in waiting:
                tell(done, error)
            raise
        if not self._log.closed:
            self._commit.note_write(self._log)
        self._written()
        if waiting:
            self._settle(waiting)
        return byte_count

    def _end_turn(self) -> None:
        if self._waiting:
            try:
                self.write_now()
            except GoQueueError:
                # The callers have been told, each of them.
                return

    def _settle(self, waiting: list[tuple[Done, bool]]) -> None:
        """One wait for durability serves all who want it."""
        patient = [done for done, durable in waiting if durable]
        if patient:

            def synced(error: GoQueueError | None) -> None:
                for done in patient:
                    tell(done, error)

            self._commit.wait(self._log, self._log.log_end_offset, synced)
        for done, durable in waiting:
            if not durable:
                tell(done, None)
