"""Group commit: one fdatasync serves everyone who wrote before it began.

The owner of the logs (one thread, usually an event loop) calls `wait` for acks=all and `note_write` for acks=leader;
syncs run in worker threads and come back through `post`, so every callback runs in the owner's thread. While a log is
being synced, further waiters gather for its next sync. A written log is synced within `sync_within_ms` even if nobody
waits.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue

from goqueue.errors import GoQueueError
from goqueue.host import Clock
from goqueue.storage.log import Log
from goqueue.storage.sync_ticket import SyncTicket

Done = Callable[[GoQueueError | None], None]
Post = Callable[[Callable[[], None]], object]

_logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _LogState:
    log: Log
    # (offset that must be durable, whom to tell), in offset order
    waiters: deque[tuple[int, Done]] = field(default_factory=deque)
    syncing: bool = False


class GroupCommit:
    def __init__(self, *, post: Post, clock: Clock, sync_within_ms: int = 1000, threads: int = 2) -> None:
        self._post = post
        self._clock = clock
        # Begun a little early, because the sync itself takes time.
        self._delay_ns = sync_within_ms * 900_000
        self._states: dict[Log, _LogState] = {}
        # Logs written to and not synced since, in the order in which they are due.
        self._due: dict[Log, int] = {}
        self._work: SimpleQueue[tuple[_LogState, SyncTicket] | None] = SimpleQueue()
        self._wake_timer = threading.Event()
        self._closing = threading.Event()
        names = [f"goqueue-sync-{n}" for n in range(threads)]
        self._threads = [threading.Thread(target=self._run_syncs, name=name, daemon=True) for name in names]
        self._threads.append(threading.Thread(target=self._run_timer, name="goqueue-sync-timer", daemon=True))
        for thread in self._threads:
            thread.start()

    def wait(self, log: Log, offset: int, done: Done) -> None:
        """Call `done` once everything below `offset` is durable, or with the error that makes it impossible."""
        if log.synced_offset >= offset:
            done(None)
            return
        state = self._state(log)
        state.waiters.append((offset, done))
        if not state.syncing:
            self._start(state)

    def note_write(self, log: Log) -> None:
        """Something was written that nobody waits for; it will be durable within the promised time."""
        if log not in self._due:
            self._due[log] = self._clock.monotonic_ns() + self._delay_ns
            if len(self._due) == 1:
                self._wake_timer.set()

    def forget(self, log: Log) -> None:
        """The log is being closed or deleted; whoever still waits for it is told so."""
        self._due.pop(log, None)
        state = self._states.pop(log, None)
        if state is not None and state.waiters:
            self._release(state, log.failure or GoQueueError(f"the log in {log.directory} was closed"))

    def close(self) -> None:
        """Stop the threads; syncs under way finish."""
        self._closing.set()
        self._wake_timer.set()
        for _ in self._threads[:-1]:
            self._work.put(None)
        for thread in self._threads:
            thread.join()

    def _state(self, log: Log) -> _LogState:
        state = self._states.get(log)
        if state is None:
            state = self._states[log] = _LogState(log)
        return state

    def _start(self, state: _LogState) -> None:
        """Begin a sync of everything written so far, unless there is nothing to sync."""
        self._due.pop(state.log, None)
        try:
            ticket = state.log.begin_sync()
        except GoQueueError as error:
            self._release(state, error)
            return
        if ticket is None:
            self._release_synced(state)
            return
        state.syncing = True
        self._work.put((state, ticket))

    def _finished(self, state: _LogState, ticket: SyncTicket, error: OSError | None) -> None:
        state.syncing = False
        if error is not None:
            failure = state.log.fail_sync(error)
            _logger.error("sync failed", extra={"directory": state.log.directory, "error": str(error)})
            self._release(state, failure)
            return
        state.log.complete_sync(ticket)
        self._release_synced(state)
        if state.waiters:
            self._start(state)

    def _release_synced(self, state: _LogState) -> None:
        waiters, synced = state.waiters, state.log.synced_offset
        while waiters and waiters[0][0] <= synced:
            tell(waiters.popleft()[1], None)

    def _release(self, state: _LogState, error: GoQueueError) -> None:
        while state.waiters:
            tell(state.waiters.popleft()[1], error)

    def _sync_due(self) -> None:
        now = self._clock.monotonic_ns()
        for log in [log for log, due_ns in self._due.items() if due_ns <= now]:
            del self._due[log]
            state = self._state(log)
            if state.syncing:
                # What was written during that sync is not in it; look again when it could have ended.
                self._due[log] = now + self._delay_ns // 10
            elif log.failure is None:
                self._start(state)
        if self._due:
            self._wake_timer.set()

    # -- threads ------------------------------------------------------------------------------------------------

    def _run_syncs(self) -> None:
        while (item := self._work.get()) is not None:
            state, ticket = item
            error = None
            try:
                ticket.run()
            except OSError as caught:
                error = caught
            self._post(lambda state=state, ticket=ticket, error=error: self._finished(state, ticket, error))  # type: ignore[misc]

    def _run_timer(self) -> None:
        """Sleeps while nothing is due, then for a tenth of the promise at a time."""
        while not self._closing.is_set():
            self._wake_timer.wait()
            self._wake_timer.clear()
            if self._closing.wait(self._delay_ns / 10e9):
                return
            self._post(self._sync_due)


def tell(done: Done, error: GoQueueError | None) -> None:
    """One caller's failing callback must not cost the others their answer."""
    try:
        done(error)
    except Exception:
        _logger.exception("a commit callback failed")
