"""What a group coordinator needs around it, in memory: topics, their ends, and a log that can lose its tail."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import cast

from goqueue.broker.config import BrokerConfig
from goqueue.broker.group_offsets import GroupOffsets
from goqueue.broker.groups import GroupCoordinator
from goqueue.broker.topics import Topics
from goqueue.errors import ConnectionLostError
from goqueue.groups import GroupRecord
from goqueue.metadata import MetadataRecord, TopicCatalog, TopicSettings
from goqueue.model import TopicPartition
from goqueue.testing.sim_clock import SimClock
from goqueue.testing.sim_entropy import SimEntropy


class SimGroupLog:
    """A `MachineLog` whose records become durable a little later, and not at all if the broker dies before."""

    def __init__(self, randomness: random.Random) -> None:
        self._random = randomness
        self._records: list[GroupRecord] = []
        self._durable = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def replay(self) -> Iterator[GroupRecord]:
        yield from self._records

    def append(self, records: Iterable[GroupRecord]) -> asyncio.Future[None]:
        self._records.extend(records)
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._waiting.append((len(self._records), done))
        loop.call_later(self._random.choice((0.0, 0.001, 0.02)), self._sync, len(self._records))
        return done

    def _sync(self, end: int) -> None:
        self._durable = max(self._durable, min(end, len(self._records)))
        waiting, self._waiting = self._waiting, []
        for position, done in waiting:
            if position > self._durable:
                self._waiting.append((position, done))
            elif not done.done():
                done.set_result(None)

    def crash(self) -> None:
        """What was not durable survives in part, from the front."""
        del self._records[self._random.randint(self._durable, len(self._records)) :]
        self._durable = len(self._records)
        waiting, self._waiting = self._waiting, []
        for _, done in waiting:
            if not done.done():
                done.set_exception(ConnectionLostError("the broker died"))


@dataclass(slots=True)
class _SimEnds:
    log_start_offset: int = 0


@dataclass(slots=True)
class SimPartition:
    identity: TopicPartition
    high_watermark: int = 0
    log: _SimEnds = field(default_factory=_SimEnds)


class SimTopics:
    """The part of `Topics` that groups see."""

    def __init__(self, randomness: random.Random) -> None:
        self._random = randomness
        self.catalog = TopicCatalog()
        self.listeners: list[Callable[[str], None]] = []
        self._partitions: dict[str, list[SimPartition]] = {}
        self.logs: list[SimGroupLog] = []

    def create(self, name: str, partitions: int, topic_id: str) -> None:
        record = self.catalog.handle_create(
            name, partition_count=partitions, settings=TopicSettings(), topic_id=topic_id, now_ms=0
        )
        self._changed(name, record)

    def grow(self, name: str, more: int) -> None:
        info = self.catalog.get(name)
        value = {"topic_id": info.topic_id, "partitions": info.partition_count + more, "created_ms": 0}
        record = MetadataRecord(name.encode(), json.dumps({**value, "settings": info.settings.as_dict()}).encode())
        self._changed(name, record)

    def delete(self, name: str) -> None:
        del self._partitions[name]
        self._changed(name, self.catalog.handle_delete(name))

    def _changed(self, name: str, record: MetadataRecord) -> None:
        self.catalog.replay(record)
        if name in self.catalog:
            known = self._partitions.setdefault(name, [])
            for number in range(len(known), self.catalog.get(name).partition_count):
                known.append(SimPartition(TopicPartition(name, number)))
        for listener in self.listeners:
            listener(name)

    def partitions_of(self, topic: str) -> list[SimPartition]:
        self.catalog.get(topic)
        return self._partitions[topic]

    def check_public(self, topic: str) -> None:
        """Nothing internal is ever asked for here."""

    async def open_internal(self, name: str, count: int, settings: TopicSettings) -> list[SimGroupLog]:
        if not self.logs:
            self.logs = [SimGroupLog(self._random) for _ in range(count)]
            record = self.catalog.handle_create(
                name, partition_count=count, settings=settings, topic_id="00" * 16, now_ms=0, internal=True
            )
            self.catalog.replay(record)
        return self.logs


class GroupWorld:
    """One broker's groups, which can die and come back."""

    def __init__(self, clock: SimClock, randomness: random.Random, config: BrokerConfig) -> None:
        self.clock = clock
        self.topics = SimTopics(randomness)
        self._entropy = SimEntropy(randomness.getrandbits(32))
        self._config = config
        self.coordinator: GroupCoordinator
        self.offsets: GroupOffsets

    async def start(self) -> None:
        topics = cast(Topics, self.topics)
        self.coordinator = GroupCoordinator(topics, self.clock, self._entropy, self._config)
        self.offsets = GroupOffsets(self.coordinator, topics, self.clock, self._config)
        await self.coordinator.start()

    async def restart(self, *, orderly: bool) -> None:
        await self.coordinator.close()
        if orderly:
            await asyncio.sleep(0.05)  # everything appended becomes durable
        else:
            for log in self.topics.logs:
                log.crash()
        self.topics.listeners.clear()
        await self.start()
