"""Delayed messages of this broker: taking them, releasing them in time, cancelling, looking them up.

Decisions are the machine's (`goqueue.delays`); here they become records. Everything is decided, appended and replayed
in one step on the event loop, and answered when durable. Messages that fall due together are released in portions, one
per turn of the loop and partition.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from goqueue.broker import delay_store
from goqueue.broker.config import BrokerConfig
from goqueue.broker.partition import Partition
from goqueue.broker.topics import Topics
from goqueue.coordination import settler
from goqueue.delays import Delayed, DelayIndex, DelayRecord, control_batch, release_batch
from goqueue.errors import (
    DelayedNotFoundError,
    DelayInvalidError,
    DelayTooLongError,
    GoQueueError,
    InvalidRequestError,
    StorageError,
)
from goqueue.host import Clock
from goqueue.record import BatchFacts, ControlKind, Flag, Record, decode

# Messages and bytes of one release; what is due beyond it follows in the next turn of the loop.
RELEASE_RECORDS_MAX = 1_000
RELEASE_BYTES_MAX = 4 << 20
# Messages of one page of the list.
LIST_MAX = 1_000
LATENESS_BUCKETS_MS = (1, 2, 5, 10, 20, 50, 100, 250, 1_000, 10_000)
# Offsets this close are read together.
_NEAR_OFFSETS = 256
_READ_BYTES = 64 << 10
_RETRY_MS = 1_000
# A message whose bytes are damaged stays pending and is tried again this much later.
_UNREADABLE_RETRY_MS = 30_000
# The wall clock may be set forward while the loop sleeps.
_SLEEP_MAX_S = 1.0
# Changes that make a new snapshot worth its while, and the share of the pending ones they must reach.
_SNAPSHOT_CHANGES_MIN = 1_000
_SNAPSHOT_SHARE = 4

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class DelayCounts:
    scheduled: int = 0
    released: int = 0
    cancelled: int = 0
    rescheduled: int = 0
    expired: int = 0
    unreadable: int = 0
    lateness_ms: int = 0
    lateness_max_ms: int = 0
    # Releases up to each bound of LATENESS_BUCKETS_MS, and beyond the last.
    lateness: list[int] = field(default_factory=lambda: [0] * (len(LATENESS_BUCKETS_MS) + 1))

    def note_release(self, late_ms: int) -> None:
        self.released += 1
        self.lateness_ms += late_ms
        self.lateness_max_ms = max(self.lateness_max_ms, late_ms)
        self.lateness[bisect_left(LATENESS_BUCKETS_MS, late_ms)] += 1


class Delays:
    def __init__(self, topics: Topics, clock: Clock, config: BrokerConfig) -> None:
        self._topics = topics
        self._clock = clock
        self._config = config
        self._indexes: dict[Partition, DelayIndex] = {}
        self._snapshot_at: dict[Partition, int] = {}
        # When to look at which partition, earliest first; only the entry that `_planned` agrees with counts.
        self._agenda: list[tuple[int, int, Partition]] = []
        self._planned: dict[Partition, int] = {}
        self._entries = 0
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.counts = DelayCounts()
        topics.listeners.append(self._forget_deleted)

    # -- life ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Find out what is pending, and begin to release it."""
        for place in list(self._topics.partitions(internal=False)):
            if delay_store.has_delays(place.log):
                index = delay_store.recover(place.log, now_ns=self._clock.wall_ns())
                self.counts.expired += index.expire_below(place.log.log_start_offset)
                self._indexes[place] = index
                self._plan(place, index.next_ms())
                await asyncio.sleep(0)
        self._tasks = [asyncio.create_task(self._release_in_time()), asyncio.create_task(self._keep_snapshots())]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if not self._tasks:
            return
        for place, index in self._live():
            with contextlib.suppress(GoQueueError, OSError):
                place.write()
                place.log.sync()
                snapshot = delay_store.take_snapshot(place.log, index)
                if snapshot is not None:
                    delay_store.store_snapshot(place.log.disk, place.log.directory, snapshot)
        self._tasks = []

    def _live(self) -> Iterator[tuple[Partition, DelayIndex]]:
        for place, index in list(self._indexes.items()):
            if not place.log.closed and place.log.failure is None:
                yield place, index

    def _forget_deleted(self, topic: str) -> None:
        for place in [place for place in self._indexes if place.log.closed]:
            del self._indexes[place]
            self._planned.pop(place, None)
            self._snapshot_at.pop(place, None)

    # -- scheduling ---------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        return self._clock.wall_ns() // 1_000_000

    def due_ms(self, delay_ms: int | None, deliver_at_ms: int | None) -> int | None:
        """When a message is due; None for now. Refuses what makes no sense or lies too far ahead."""
        if delay_ms is None and deliver_at_ms is None:
            return None
        if delay_ms is not None and deliver_at_ms is not None:
            raise DelayInvalidError("give delay or deliver_at, not both")
        given = delay_ms if deliver_at_ms is None else deliver_at_ms
        if isinstance(given, bool) or not isinstance(given, int) or given < 0:
            raise DelayInvalidError(f"a delay or time of {str(given)[:40]} ms; it must be a whole number, 0 or more")
        now_ms = self.now_ms()
        ahead_ms = given if deliver_at_ms is None else given - now_ms
        if ahead_ms > self._config.delay_max_ms:
            raise DelayTooLongError(
                f"{ahead_ms} ms ahead is too far; at most {self._config.delay_max_ms} (setting delay_max_ms)",
                maximum_ms=self._config.delay_max_ms,
            )
        return now_ms + ahead_ms if ahead_ms > 0 else None

    def append(
        self, place: Partition, batch: bytearray, dues: Sequence[tuple[int, int]], *, durable: bool
    ) -> tuple[BatchFacts, asyncio.Future[None]]:
        """Append a batch of which the records `dues` names as (number in the batch, due time) are delayed."""
        index = self._index(place)
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        tell = settler(settled)
        offsets: list[int] = []

        def done(error: GoQueueError | None) -> None:
            # At once: offsets of a batch that was not written go to the next one.
            if error is not None:
                index.forget(offsets)
            tell(error)

        facts = place.append_own(batch, done, self._clock.wall_ns(), durable=durable)
        for number, due_ms in dues:
            offsets.append(facts.base_offset + number)
            index.replay_delayed(facts.base_offset + number, due_ms)
        self.counts.scheduled += len(dues)
        self._plan(place, min(due_ms for _, due_ms in dues))
        return facts, settled

    def _index(self, place: Partition) -> DelayIndex:
        index = self._indexes.get(place)
        if index is None:
            try:
                delay_store.mark(place.log)
            except OSError as error:
                raise StorageError(f"could not prepare {place.identity} for delays: {error}") from error
            index = self._indexes[place] = DelayIndex(self.now_ms())
        return index

    # -- changing and looking up --------------------------------------------------------------------------------

    async def cancel(self, topic: str, partition: int, offset: int) -> Delayed:
        """Cancel a message unless it is finished; the answer is durable, whichever it is."""
        place, index = self._find(topic, partition, offset)
        record, state = index.handle_cancel(offset)
        if record is not None:
            await self._decide(place, index, record, index.look_up(offset))
            self.counts.cancelled += 1
        else:
            await self._wait_durable(place)
        return state

    async def reschedule(
        self, topic: str, partition: int, offset: int, *, delay_ms: int | None = None, deliver_at_ms: int | None = None
    ) -> Delayed:
        """Give a pending message another time; 0 or the past is now."""
        if delay_ms is None and deliver_at_ms is None:
            raise DelayInvalidError("give delay or deliver_at")
        due_ms = self.due_ms(delay_ms, deliver_at_ms) or self.now_ms()
        place, index = self._find(topic, partition, offset)
        record, state = index.handle_reschedule(offset, due_ms)
        await self._decide(place, index, record, index.look_up(offset))
        self.counts.rescheduled += 1
        return state

    async def _decide(self, place: Partition, index: DelayIndex, record: DelayRecord, before: Delayed) -> None:
        """Append a record and replay it; returns when it is durable."""
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        tell = settler(settled)

        def done(error: GoQueueError | None) -> None:
            if error is not None and before.due_ms is not None:
                index.restore([(before.offset, before.due_ms)])
                self._plan(place, self.now_ms() + _RETRY_MS)
            tell(error)

        facts = place.append_own(control_batch(record), done, self._clock.wall_ns(), durable=True)
        index.replay_control(facts.base_offset, record)
        if record.kind is ControlKind.RESCHEDULED:
            self._plan(place, record.entries[0][1])
        await settled

    async def _wait_durable(self, place: Partition) -> None:
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place.write()
        place.when_durable(place.log.log_end_offset, settler(settled))
        await settled

    def _find(self, topic: str, partition: int, offset: int) -> tuple[Partition, DelayIndex]:
        self._topics.check_public(topic)
        place = self._topics.partition(topic, partition)
        index = self._indexes.get(place)
        if index is None:
            raise DelayedNotFoundError(f"{place.identity} has no delayed messages", offset=offset)
        return place, index

    def look_up(self, topic: str, partition: int, offset: int) -> Delayed:
        return self._find(topic, partition, offset)[1].look_up(offset)

    def message(self, topic: str, partition: int, offset: int) -> Record:
        """A delayed message as it is stored, whatever its state."""
        place, _ = self._find(topic, partition, offset)
        return decode(place.log.read(offset, 1))[0]

    def pending(self, topic: str, *, limit: int, skip: int = 0) -> list[tuple[int, Delayed]]:
        """(partition, message) of a topic's pending messages, the earliest first."""
        if not 1 <= limit <= LIST_MAX or skip < 0:
            raise InvalidRequestError(f"limit must be 1 to {LIST_MAX} and skip 0 or more, not {limit} and {skip}")
        found: list[tuple[int, int, int, Delayed]] = []
        for place in self._topics.partitions_of(topic):
            index = self._indexes.get(place)
            number = place.identity.partition
            if index is not None:
                found += [(one.due_ms or 0, number, one.offset, one) for one in index.first(skip + limit)]
        return [(number, delayed) for _, number, _, delayed in sorted(found)[skip : skip + limit]]

    def pending_count(self, topic: str | None = None) -> int:
        return sum(len(index) for place, index in self._indexes.items() if topic in (None, place.identity.topic))

    def pending_by_topic(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for place, index in self._indexes.items():
            counts[place.identity.topic] = counts.get(place.identity.topic, 0) + len(index)
        return counts

    def lowest_pending(self, place: Partition) -> int | None:
        index = self._indexes.get(place)
        return None if index is None else index.lowest_pending()

    # -- releasing ----------------------------------------------------------------------------------------------

    def _plan(self, place: Partition, when_ms: int | None) -> None:
        """Look at a partition at that time, unless an earlier look is planned."""
        if when_ms is None or self._planned.get(place, when_ms + 1) <= when_ms:
            return
        self._planned[place] = when_ms
        self._entries += 1
        heapq.heappush(self._agenda, (when_ms, self._entries, place))
        if self._agenda[0][2] is place:
            self._wake.set()

    async def _release_in_time(self) -> None:
        while True:
            self._wake.clear()
            self.release_due()
            wait_s = _SLEEP_MAX_S if self._agenda else None
            if self._agenda:
                wait_s = min(_SLEEP_MAX_S, max(0, self._agenda[0][0] - self.now_ms()) / 1000)
            if not wait_s and wait_s is not None:
                await asyncio.sleep(0)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()

    def release_due(self) -> None:
        """One portion for every partition that has something due."""
        now_ms = self.now_ms()
        for _ in range(len(self._agenda)):
            if not self._agenda or self._agenda[0][0] > now_ms:
                break
            when_ms, _, place = heapq.heappop(self._agenda)
            index = self._indexes.get(place)
            if self._planned.get(place) != when_ms or index is None:
                continue
            del self._planned[place]
            if place.log.closed or place.log.failure is not None:
                continue
            self._release_from(place, index, now_ms)

    def _release_from(self, place: Partition, index: DelayIndex, now_ms: int) -> None:
        due = index.take_due(now_ms, RELEASE_RECORDS_MAX)
        try:
            if due:
                self._release(place, index, due, now_ms)
        except (GoQueueError, OSError) as error:
            _logger.error("release failed", extra={"partition": str(place.identity), "error": str(error)})
            index.put_back(offset for _, offset in due)
            self._plan(place, now_ms + _RETRY_MS)
        except Exception:
            # Our bug; the other partitions must not wait for its repair.
            _logger.exception("release failed", extra={"partition": str(place.identity)})
            index.put_back(offset for _, offset in due)
            self._plan(place, now_ms + _UNREADABLE_RETRY_MS)
        else:
            self._plan(place, index.next_ms())

    def _release(self, place: Partition, index: DelayIndex, due: list[tuple[int, int]], now_ms: int) -> None:
        # What is staged must be in the log before it can be read; should that fail, it is forgotten at once.
        place.write()
        originals = self._read(place, index, due, now_ms)
        chosen = [(due_ms, offset) for due_ms, offset in due if offset in originals]
        if chosen:
            record = DelayRecord(ControlKind.RELEASED, tuple((offset, due_ms) for due_ms, offset in chosen))
            batch = release_batch(record, [originals[offset] for _, offset in chosen])
            facts = place.append_own(batch, _ignore, self._clock.wall_ns(), durable=False)
            place.write()
            index.replay_control(facts.base_offset, record)
            for due_ms, _ in chosen:
                self.counts.note_release(now_ms - due_ms)
        index.put_back(offset for _, offset in due if offset not in originals)

    def _read(self, place: Partition, index: DelayIndex, due: list[tuple[int, int]], now_ms: int) -> dict[int, Record]:
        """The messages by offset, as many as one release takes. Damaged ones are put off."""
        log, found, size = place.log, dict[int, Record](), 0
        wanted = sorted(offset for _, offset in due)
        position = 0
        while position < len(wanted) and size < RELEASE_BYTES_MAX:
            start = wanted[position]
            near = position + 1 < len(wanted) and wanted[position + 1] - start <= _NEAR_OFFSETS
            try:
                data = log.read(start, _READ_BYTES if near else 1)
            except StorageError as error:
                self.counts.unreadable += 1
                text = {"partition": str(place.identity), "offset": start, "error": str(error)}
                _logger.error("a delayed message cannot be read and stays pending", extra=text)
                index.put_off(start, now_ms + _UNREADABLE_RETRY_MS)
                position += 1
                continue
            records = {record.offset: record for record in decode(data)}
            last = max(records)
            while position < len(wanted) and wanted[position] <= last:
                record = records[wanted[position]]
                assert record.flags & Flag.DELAYED, f"offset {record.offset} is pending and not delayed"
                found[record.offset] = record
                size += record.size_bytes
                position += 1
        return found

    # -- snapshots ----------------------------------------------------------------------------------------------

    async def _keep_snapshots(self) -> None:
        while True:
            await asyncio.sleep(self._config.delay_snapshot_interval_ms / 1000)
            for place, index in self._live():
                changes = index.replayed - self._snapshot_at.get(place, 0)
                if changes >= max(_SNAPSHOT_CHANGES_MIN, len(index) // _SNAPSHOT_SHARE):
                    await self.snapshot(place)

    async def snapshot(self, place: Partition) -> None:
        """Store the delays of a partition as they are now, once what they follow from is durable."""
        index = self._indexes[place]
        try:
            place.write()
            snapshot, replayed = delay_store.take_snapshot(place.log, index), index.replayed
            if snapshot is None:
                return
            await self._wait_durable(place)
            await asyncio.to_thread(delay_store.store_snapshot, place.log.disk, place.log.directory, snapshot)
            self._snapshot_at[place] = replayed
        except (GoQueueError, OSError) as error:
            _logger.error("snapshot failed", extra={"partition": str(place.identity), "error": str(error)})


def _ignore(error: GoQueueError | None) -> None:
    """Whoever writes at once learns of the outcome from the write."""
