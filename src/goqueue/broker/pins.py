"""Retention pins of this broker: the machine, its log `__pins`, and what retention asks."""

from __future__ import annotations

from collections.abc import Mapping

from goqueue.broker.partition import Partition
from goqueue.broker.topics import Topics
from goqueue.coordination import MachineLog
from goqueue.host import Clock
from goqueue.metadata import CleanupPolicy, MetadataRecord, RetentionPins, TopicSettings
from goqueue.metadata.pins import LIFETIME_MS_DEFAULT, Pin

PINS_TOPIC = "__pins"


class Pins:
    def __init__(self, topics: Topics, clock: Clock) -> None:
        self._topics = topics
        self._clock = clock
        self._machine = RetentionPins()
        self._log: MachineLog | None = None

    async def load(self) -> None:
        settings = TopicSettings(cleanup_policy=CleanupPolicy.COMPACT)
        (self._log,) = await self._topics.open_internal(PINS_TOPIC, 1, settings)
        for key, value in self._log.replay():
            self._machine.replay(MetadataRecord(key, value))

    async def set(
        self, name: str, topic: str, offsets: Mapping[int, int], lifetime_ms: int = LIFETIME_MS_DEFAULT
    ) -> None:
        """Keep everything from these offsets on, until the pin is moved, removed or has outlived itself."""
        self._topics.check_public(topic)
        for number in offsets:
            self._topics.partition(topic, number)
        record = self._machine.handle_set(
            name,
            topic=topic,
            topic_id=self._topics.catalog.get(topic).topic_id,
            offsets=offsets,
            lifetime_ms=lifetime_ms,
            now_ms=self._now_ms(),
        )
        await self._commit(record)

    async def remove(self, name: str) -> bool:
        """Whether there was such a pin."""
        record = self._machine.handle_remove(name)
        if record is None:
            return False
        await self._commit(record)
        return True

    def pins(self) -> list[Pin]:
        return self._machine.pins()

    def lowest(self, partition: Partition) -> int | None:
        """The lowest offset of a partition that retention must keep, None when there is none."""
        topic = partition.identity.topic
        if topic not in self._topics.catalog:
            return None
        info = self._topics.catalog.get(topic)
        return self._machine.lowest(info.topic_id, partition.identity.partition, now_ms=self._now_ms())

    async def sweep(self) -> None:
        """Remove pins that have outlived themselves."""
        for name in self._machine.expired(now_ms=self._now_ms()):
            await self.remove(name)

    async def _commit(self, record: MetadataRecord) -> None:
        assert self._log is not None, "pins are loaded before they change"
        durable = self._log.append([(record.key, record.value)])
        self._machine.replay(record)
        await durable

    def _now_ms(self) -> int:
        return self._clock.wall_ns() // 1_000_000
