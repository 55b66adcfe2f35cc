"""A partition that this node leads: its log, who waits for it, and what readers may see.

Everything runs on the event loop that owns the partition. On one node the high watermark is the log's end and the last
stable offset equals it; both are asked for by name so that replication and transactions can move them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from goqueue.coordination import settler
from goqueue.errors import GoQueueError
from goqueue.model import TopicPartition
from goqueue.record import VALUE_BYTES_MAX, BatchFacts, Flag
from goqueue.storage import FileRange, GroupCommit, Log, TurnWriter

# Flags that only the broker may set.
RESERVED_FLAGS = int(Flag.CONTROL | Flag.COMMIT | Flag.DELAYED | Flag.TRANSACTIONAL)

Done = Callable[[GoQueueError | None], None]


class Partition:
    __slots__ = ("_commit", "_readers", "_writer", "fetched_bytes", "identity", "log")

    def __init__(self, identity: TopicPartition, log: Log, commit: GroupCommit) -> None:
        self.identity = identity
        self.log = log
        self._commit = commit
        self._readers: list[asyncio.Future[None]] = []
        soon = asyncio.get_running_loop().call_soon
        self._writer = TurnWriter(log, commit, soon=soon, written=self.wake_readers)
        self.fetched_bytes = 0

    @property
    def published_records(self) -> int:
        return self.log.appended_records

    @property
    def published_bytes(self) -> int:
        return self.log.appended_bytes

    @property
    def high_watermark(self) -> int:
        return self.log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        return self.high_watermark

    # -- writing ------------------------------------------------------------------------------------------------

    def stage(self, batch: bytearray | memoryview, now_ns: int) -> BatchFacts:
        """Stamp a client's batch for the next `write`. The buffer must stay untouched until then."""
        return self.log.stage(batch, now_ns=now_ns, forbidden_flags=RESERVED_FLAGS)

    def write(self) -> None:
        """Write what is staged with one call and wake the readers once."""
        self._writer.write_now()

    def append(self, batch: bytearray, now_ns: int, *, durable: bool) -> tuple[BatchFacts, asyncio.Future[None]]:
        """Stamp a batch for the write at the end of this turn; the future is done when it is written or durable."""
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        facts = self._writer.append(
            batch, settler(settled), now_ns=now_ns, durable=durable, forbidden_flags=RESERVED_FLAGS
        )
        return facts, settled

    def append_own(self, batch: bytearray, done: Done, now_ns: int, *, durable: bool) -> BatchFacts:
        """Stamp a batch that the broker has built itself, with any flags; `done` is called when it is written or
        durable, and at once when the write fails."""
        return self._writer.append(batch, done, now_ns=now_ns, durable=durable, value_bytes_max=VALUE_BYTES_MAX)

    def when_durable(self, offset: int, done: Done) -> None:
        """Call `done` when everything below `offset` is durable, or with what makes it impossible."""
        self._commit.wait(self.log, offset, done)

    # -- reading ------------------------------------------------------------------------------------------------

    def locate(self, offset: int, bytes_max: int, *, committed: bool = True) -> FileRange:
        end = self.last_stable_offset if committed else self.high_watermark
        found = self.log.locate(offset, bytes_max, end)
        self.fetched_bytes += found.length
        return found

    def wait_data(self) -> asyncio.Future[None]:
        """A future that is done after the next write, or when the partition goes away."""
        reader: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._readers.append(reader)
        return reader

    def stop_waiting(self, reader: asyncio.Future[None]) -> None:
        """The reader has timed out or gone; forget it."""
        if reader in self._readers:
            self._readers.remove(reader)

    def wake_readers(self) -> None:
        readers, self._readers = self._readers, []
        for reader in readers:
            if not reader.done():
                reader.set_result(None)
