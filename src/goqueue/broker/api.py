"""BrokerApi: what a broker can do, once, below every face.

Faces translate; rules live here or further down. All methods belong to the event loop that opened the broker.
Batches of records move as bytes; messages as objects exist only for faces that carry them one by one.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from goqueue.broker.config import BrokerConfig
from goqueue.broker.delays import Delays
from goqueue.broker.disk_guard import DiskGuard, DiskState
from goqueue.broker.gathering import Gathering, Placed
from goqueue.broker.group_offsets import GroupOffsets
from goqueue.broker.group_poll import GroupPoll
from goqueue.broker.groups import GroupCoordinator
from goqueue.broker.maintenance import Maintenance
from goqueue.broker.messages import Acks, Message, Published
from goqueue.broker.partition import Partition
from goqueue.broker.pins import Pins
from goqueue.broker.topics import Topics
from goqueue.errors import DataDamagedError, GoQueueError, LimitExceededError, NotReadyError, OffsetOutOfRangeError
from goqueue.host import Clock, Disk, Entropy
from goqueue.metadata import TopicInfo, TopicSettings
from goqueue.metadata.catalog import PARTITIONS_DEFAULT
from goqueue.record import INVISIBLE_FLAGS, BatchFacts, Record, decode, last_offset
from goqueue.storage import DataDirectory, GroupCommit

_logger = logging.getLogger(__name__)
_READ_PIECE_BYTES = 64 << 10


class Phase(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Health:
    """`ready` is false while the broker starts, drains, or has damaged or failed partitions; `checks` says why."""

    ready: bool
    phase: Phase
    checks: dict[str, str]


@dataclass(frozen=True, slots=True)
class ReadResult:
    records: list[Record]
    next_offset: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class FetchResult:
    """Records as they are stored, those that no reader is shown (`INVISIBLE_FLAGS`) among them."""

    data: bytes
    base_offset: int
    next_offset: int
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int


class BrokerApi:
    def __init__(self, directory: DataDirectory, clock: Clock, entropy: Entropy, config: BrokerConfig) -> None:
        self.config = config
        self.clock = clock
        self.directory = directory
        self.phase = Phase.STARTING
        loop = asyncio.get_running_loop()
        self._commit = GroupCommit(post=loop.call_soon_threadsafe, clock=clock, sync_within_ms=config.sync_within_ms)
        self.topics = Topics(directory, self._commit, clock, entropy)
        self.disk_guard = DiskGuard(
            directory.disk, directory.path, config.disk_warn_percent, config.disk_refuse_percent
        )
        self.pins = Pins(self.topics, clock)
        self.groups = GroupCoordinator(self.topics, clock, entropy, config)
        self.group_offsets = GroupOffsets(self.groups, self.topics, clock, config)
        self.group_poll = GroupPoll(self.groups, self.group_offsets, self.topics, self._read_for_group)
        self.delays = Delays(self.topics, clock, config)
        self._maintenance = Maintenance(self.topics, self.pins, self.disk_guard, clock, config)
        self._maintenance.pinned_offset = self._pinned_offset
        self._turn = itertools.count()
        self._started_ns = clock.monotonic_ns()

    @classmethod
    async def open(
        cls, *, disk: Disk, path: str, clock: Clock, entropy: Entropy, config: BrokerConfig | None = None
    ) -> BrokerApi:
        """Open or create the data directory and everything in it."""
        directory = DataDirectory.open(disk, path, entropy)
        broker = None
        try:
            broker = cls(directory, clock, entropy, config or BrokerConfig())
            await broker.topics.load()
            await broker.delays.start()
            await broker.pins.load()
            await broker.groups.start()
            broker.disk_guard.look()
            broker._maintenance.start()
        except BaseException:
            if broker is not None:
                await broker.delays.stop()
                broker._commit.close()
            directory.close()
            raise
        broker.phase = Phase.READY
        return broker

    # -- publishing ---------------------------------------------------------------------------------------------

    def check_writable(self) -> None:
        """Raise what keeps the whole broker from taking messages now."""
        if self.phase is not Phase.READY:
            raise NotReadyError(f"the broker is {self.phase} and takes no messages", phase=str(self.phase))
        self.disk_guard.check_write()

    async def publish(self, topic: str, messages: Sequence[Message], acks: Acks = Acks.ALL) -> list[Published]:
        """Publish messages of one topic; one result per message, in order. A bad message costs only itself."""
        gathering = self.gather(topic, len(messages))
        for message in messages:
            self._gather(gathering, message)
        results: list[Published] = [Published()] * len(messages)
        for placed in await self.publish_gathered(gathering, acks):
            for n, position in enumerate(placed.positions):
                due_ms = gathering.delayed.get(position)
                results[position] = Published(placed.partition, placed.base_offset + n, placed.timestamp_ns, due_ms)
        for position, error in gathering.errors.items():
            results[position] = Published(error=error)
        return results

    def _gather(self, gathering: Gathering, message: Message) -> None:
        try:
            due_ms = self.delays.due_ms(message.delay_ms, message.deliver_at_ms)
        except GoQueueError as error:
            gathering.refuse(error)
            return
        headers = message.headers or None
        gathering.add(message.value, message.key, headers, message.priority, message.partition, due_ms)

    def gather(self, topic: str, count: int) -> Gathering:
        """Begin to publish `count` messages: add them to the answer, then hand it to `publish_gathered`."""
        self.check_writable()
        info = self.topics.catalog.get(topic)
        self.topics.check_public(topic)
        if count > self.config.publish_messages_max:
            raise LimitExceededError(
                f"{count} messages in one request; at most {self.config.publish_messages_max}",
                limit="publish_messages",
                maximum=self.config.publish_messages_max,
            )
        return Gathering(self.topics, info, next(self._turn))

    async def publish_gathered(self, gathering: Gathering, acks: Acks = Acks.ALL) -> list[Placed]:
        """Write what was gathered; a batch that fails adds its messages to `gathering.errors`."""
        # All are handed over before the first is awaited, so that writes and syncs run side by side.
        under_way: list[tuple[int, BatchFacts, asyncio.Future[None], list[int]]] = []
        for number, (builder, positions) in gathering.batches.items():
            if positions:
                try:
                    partition = self.topics.partition(gathering.info.name, number)
                    facts, settled = self._append(partition, builder.take(), gathering.dues.get(number), acks)
                except GoQueueError as error:
                    gathering.errors.update(dict.fromkeys(positions, error))
                else:
                    under_way.append((number, facts, settled, positions))
        placed = []
        for number, facts, settled, positions in under_way:
            try:
                await settled
            except GoQueueError as error:
                gathering.errors.update(dict.fromkeys(positions, error))
            else:
                placed.append(Placed(number, positions, facts.base_offset, facts.max_timestamp_ns))
        return placed

    def _append(
        self, partition: Partition, batch: bytearray, dues: list[tuple[int, int]] | None, acks: Acks
    ) -> tuple[BatchFacts, asyncio.Future[None]]:
        if dues is not None:
            return self.delays.append(partition, batch, dues, durable=acks is Acks.ALL)
        return partition.append(batch, self.clock.wall_ns(), durable=acks is Acks.ALL)

    async def publish_batch(self, topic: str, number: int, batch: bytearray, acks: Acks = Acks.ALL) -> BatchFacts:
        """Publish records that the client has encoded (docs/formats/record.md); the buffer is stamped in place."""
        self.check_writable()
        self.topics.check_public(topic)
        partition = self.topics.partition(topic, number)
        facts, settled = partition.append(batch, self.clock.wall_ns(), durable=acks is Acks.ALL)
        await settled
        return facts

    # -- reading ------------------------------------------------------------------------------------------------

    async def read(
        self,
        topic: str,
        partition: int,
        *,
        offset: int | None = None,
        timestamp_ns: int | None = None,
        limit: int | None = None,
        bytes_max: int | None = None,
        committed: bool = True,
        wait_ms: int = 0,
    ) -> ReadResult:
        """Messages in log order from an offset or a time on; waits up to `wait_ms` when there are none yet."""
        limit = min(limit or self.config.read_limit_default, self.config.read_limit_max)
        size = min(bytes_max or self.config.fetch_bytes_default, self.config.fetch_bytes_max)
        place = self.topics.partition(topic, partition)
        start = self._start_offset(place, offset, timestamp_ns)
        deadline_ns = self._deadline_ns(wait_ms)
        while True:
            result = self._read_now(place, start, limit, size, committed)
            if result.records or self._is_over(deadline_ns):
                return result
            start = result.next_offset
            place = await self._wait_until(place, start, deadline_ns)

    async def fetch(
        self,
        topic: str,
        partition: int,
        *,
        offset: int | None = None,
        timestamp_ns: int | None = None,
        bytes_max: int | None = None,
        committed: bool = True,
        wait_ms: int = 0,
    ) -> FetchResult:
        """Like `read`, with whole records as bytes; they are verified and of one segment."""
        size = min(bytes_max or self.config.fetch_bytes_default, self.config.fetch_bytes_max)
        place = self.topics.partition(topic, partition)
        start = self._start_offset(place, offset, timestamp_ns)
        deadline_ns = self._deadline_ns(wait_ms)
        while True:
            data = place.log.read(start, size, place.last_stable_offset if committed else place.high_watermark)
            if data or self._is_over(deadline_ns):
                break
            place = await self._wait_until(place, start, deadline_ns)
        place.fetched_bytes += len(data)
        return FetchResult(
            data=data,
            base_offset=start,
            next_offset=last_offset(data) + 1 if data else start,
            log_start_offset=place.log.log_start_offset,
            high_watermark=place.high_watermark,
            last_stable_offset=place.last_stable_offset,
        )

    def _deadline_ns(self, wait_ms: int) -> int:
        return self.clock.monotonic_ns() + min(wait_ms, self.config.wait_max_ms) * 1_000_000 if wait_ms else 0

    def _is_over(self, deadline_ns: int) -> bool:
        return not deadline_ns or self.phase is not Phase.READY or deadline_ns <= self.clock.monotonic_ns()

    async def _wait_until(self, place: Partition, offset: int, deadline_ns: int) -> Partition:
        """Wait for something at `offset`; returns where to look, `TopicNotFoundError` when it is gone meanwhile."""
        await self.wait_data(place, offset, (deadline_ns - self.clock.monotonic_ns()) / 1e9)
        return place if not place.log.closed else self.topics.partition(place.identity.topic, place.identity.partition)

    def _start_offset(self, place: Partition, offset: int | None, timestamp_ns: int | None) -> int:
        if timestamp_ns is not None:
            found = place.log.offset_at_time(timestamp_ns)
            return place.high_watermark if found is None else found
        return place.log.log_start_offset if offset is None else offset

    def _read_now(self, place: Partition, offset: int, limit: int, bytes_max: int, committed: bool) -> ReadResult:
        """Visible records at or behind `offset`, passing over stretches that hold none."""
        end = place.last_stable_offset if committed else place.high_watermark
        if offset > end:
            raise OffsetOutOfRangeError(
                f"offset {offset} is beyond the end of {place.identity}, which is {end}",
                offset=offset,
                log_end_offset=end,
            )
        # In pieces: a hundred small messages should not cost the reading of a megabyte.
        piece = max(_READ_PIECE_BYTES, limit * 256)
        records: list[Record] = []
        while offset < end and len(records) < limit and bytes_max > 0:
            try:
                data = place.log.read(offset, min(bytes_max, piece), end)
            except DataDamagedError:
                if records:
                    break  # what is in front of the damage first
                raise
            if not data or (records and len(data) > bytes_max):
                break
            found = decode(data, INVISIBLE_FLAGS, offset, limit=limit - len(records))
            records += found
            offset = (records[-1].offset if len(records) == limit else last_offset(data)) + 1
            if records:
                bytes_max -= len(data)
                place.fetched_bytes += len(data)
        return ReadResult(records, offset, place.high_watermark)

    def _read_for_group(self, place: Partition, offset: int, limit: int) -> tuple[list[Record], int]:
        result = self._read_now(place, offset, limit, self.config.fetch_bytes_default, committed=True)
        return result.records, result.next_offset

    async def wait_data(self, place: Partition, offset: int, timeout_s: float) -> None:
        """Return when the partition has something at `offset`, or after the time."""
        if place.high_watermark > offset:
            return
        reader = place.wait_data()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await reader
        finally:
            place.stop_waiting(reader)

    # -- topics -------------------------------------------------------------------------------------------------

    async def create_topic(
        self, name: str, *, partition_count: int = PARTITIONS_DEFAULT, settings: Mapping[str, object] | None = None
    ) -> TopicInfo:
        self.check_writable()
        return await self.topics.create(name, partition_count, TopicSettings.from_mapping(settings or {}))

    async def alter_topic(self, name: str, settings: Mapping[str, object]) -> TopicInfo:
        self.check_writable()
        return await self.topics.alter(name, settings)

    async def delete_topic(self, name: str) -> None:
        if self.phase is not Phase.READY:
            raise NotReadyError(f"the broker is {self.phase}", phase=str(self.phase))
        await self.topics.delete(name)

    def _pinned_offset(self, partition: Partition) -> int | None:
        """The lowest offset that a pending delay or a reader's pin still needs."""
        wanted = (self.delays.lowest_pending(partition), self.pins.lowest(partition))
        return min((offset for offset in wanted if offset is not None), default=None)

    # -- state --------------------------------------------------------------------------------------------------

    @property
    def maintenance(self) -> Maintenance:
        return self._maintenance

    @property
    def uptime_s(self) -> float:
        return (self.clock.monotonic_ns() - self._started_ns) / 1e9

    def health(self) -> Health:
        checks = {"phase": str(self.phase), "disk": str(self.disk_guard.state)}
        damaged = [str(p.identity) for p in self.topics.partitions() if p.log.damages]
        failed = [str(p.identity) for p in self.topics.partitions() if p.log.failure]
        checks["damage"] = "ok" if not damaged else f"damaged partitions: {', '.join(damaged[:20])}"
        checks["storage"] = "ok" if not failed else f"failed partitions, reopen them: {', '.join(failed[:20])}"
        if self.topics.unknown_directories:
            checks["catalog"] = f"directories without a topic: {', '.join(self.topics.unknown_directories[:20])}"
        ready = self.phase is Phase.READY and not damaged and not failed
        return Health(ready and self.disk_guard.state is not DiskState.REFUSING, self.phase, checks)

    def drain(self) -> None:
        """Take no more messages and let long polls end; what is under way finishes."""
        if self.phase is Phase.READY:
            self.phase = Phase.DRAINING
            for partition in self.topics.partitions():
                partition.wake_readers()
            self.groups.drain()

    async def close(self) -> None:
        """Drain, sync everything, release the directory."""
        if self.phase is Phase.CLOSED:
            return
        self.drain()
        await self._maintenance.stop()
        await self.groups.close()
        await self.delays.stop()
        self.phase = Phase.CLOSED
        self._commit.close()
        self.directory.close()
