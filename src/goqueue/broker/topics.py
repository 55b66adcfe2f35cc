"""The topics of this node: the catalog, the logs behind it, and the order in which the two change.

Creating: the catalog record is durable before the first log exists, so a crash leaves an empty topic. Deleting: the
tombstone is durable before the first file goes, so a crash leaves refuse that the next start removes. A directory that
the catalog has never heard of is nobody's to remove: if the catalog is damaged it is adopted with default settings,
else it is reported and left alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping

from goqueue.broker.partition import Partition
from goqueue.coordination import MachineLog
from goqueue.errors import PartitionNotFoundError, TopicInternalError
from goqueue.host import Clock, Entropy
from goqueue.metadata import CleanupPolicy, MetadataRecord, TopicCatalog, TopicInfo, TopicSettings
from goqueue.model import TopicPartition, is_internal_name
from goqueue.storage import DataDirectory, GroupCommit, LogConfig

METADATA_TOPIC = "__metadata"
_METADATA = TopicPartition(METADATA_TOPIC, 0)
# Partitions opened between two turns of the event loop.
_OPEN_CHUNK = 16

_logger = logging.getLogger(__name__)


class Topics:
    def __init__(self, directory: DataDirectory, commit: GroupCommit, clock: Clock, entropy: Entropy) -> None:
        self._directory = directory
        self._commit = commit
        self._clock = clock
        self._entropy = entropy
        self.catalog = TopicCatalog()
        self._partitions: dict[str, list[Partition]] = {}
        # One change of the catalog at a time: what was decided must still be true when it is durable.
        self._changing = asyncio.Lock()
        self._metadata: MachineLog | None = None
        self.unknown_directories: list[str] = []
        # Changes whenever a partition comes or goes; whoever remembers partitions compares it.
        self.generation = 0
        # Told the name of a topic after it was created, altered or deleted.
        self.listeners: list[Callable[[str], None]] = []

    # -- finding ------------------------------------------------------------------------------------------------

    def partition(self, topic: str, number: int) -> Partition:
        partitions = self._partitions.get(topic)
        if partitions is None:
            self.catalog.get(topic)
            raise PartitionNotFoundError(f"topic {topic!r} is not open here", topic=topic)
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(partitions):
            raise PartitionNotFoundError(
                f"topic {topic!r} has partitions 0 to {len(partitions) - 1}, not {number}",
                topic=topic,
                partition=number,
            )
        return partitions[number]

    def partitions_of(self, topic: str) -> list[Partition]:
        self.catalog.get(topic)
        return self._partitions[topic]

    def partitions(self, *, internal: bool = True) -> Iterator[Partition]:
        for topic, partitions in self._partitions.items():
            if internal or not is_internal_name(topic):
                yield from partitions

    def check_public(self, topic: str) -> None:
        if is_internal_name(topic):
            raise TopicInternalError(f"{topic!r} is internal and cannot be written to", topic=topic)

    # -- starting -----------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Replay the catalog and open every partition."""
        settings = LogConfig(retention_ms=0, compact=True)
        log = self._directory.open_log(_METADATA, settings)
        self._metadata = MachineLog(log, self._commit, self._clock)
        # Not in the catalog, which it holds; here it is tended and its health is shown like any other.
        self._partitions[METADATA_TOPIC] = [Partition(_METADATA, log, self._commit)]
        for key, value in self._metadata.replay():
            self.catalog.replay(MetadataRecord(key, value))
        await self._settle_directories(damaged=bool(log.damages))
        for opened, info in enumerate(self.catalog.topics(internal=True)):
            self._open(info)
            if opened % _OPEN_CHUNK == 0:
                await asyncio.sleep(0)

    async def _settle_directories(self, *, damaged: bool) -> None:
        on_disk: dict[str, list[int]] = {}
        for partition in self._directory.partitions():
            on_disk.setdefault(partition.topic, []).append(partition.partition)
        for topic, numbers in on_disk.items():
            if topic in self.catalog or is_internal_name(topic):
                continue
            if self.catalog.was_deleted(topic):
                for number in numbers:
                    self._directory.delete_log(TopicPartition(topic, number))
            elif damaged:
                _logger.warning("adopting a topic that the damaged catalog does not know", extra={"topic": topic})
                await self._commit_create(topic, max(numbers) + 1, TopicSettings())
            else:
                self.unknown_directories.append(topic)

    def _open(self, info: TopicInfo) -> None:
        config = log_config(info.settings)
        opened = []
        for number in range(info.partition_count):
            identity = TopicPartition(info.name, number)
            log = self._directory.open_log(identity, config)
            for damage in log.damages:
                _logger.error("damaged data", extra={"partition": str(identity), **damage.as_error().context})
            for cut in log.report.cuts:
                _logger.warning("torn tail cut", extra={"partition": str(identity), "bytes": cut.byte_count})
            opened.append(Partition(identity, log, self._commit))
        self._partitions[info.name] = opened
        self.generation += 1

    # -- the broker's own ---------------------------------------------------------------------------------------

    async def open_internal(self, name: str, partition_count: int, settings: TopicSettings) -> list[MachineLog]:
        """The logs of an internal topic, which is created when it is missing.

        `partition_count` counts only then: records of a key must be found where they were written."""
        async with self._changing:
            if name not in self.catalog:
                await self._commit_create(name, partition_count, settings, internal=True)
                self._open(self.catalog.get(name))
        return [MachineLog(partition.log, self._commit, self._clock) for partition in self._partitions[name]]

    # -- changing -----------------------------------------------------------------------------------------------

    async def create(self, name: str, partition_count: int, settings: TopicSettings) -> TopicInfo:
        async with self._changing:
            await self._commit_create(name, partition_count, settings)
            info = self.catalog.get(name)
            self._open(info)
        self._tell(name)
        return info

    async def _commit_create(
        self, name: str, partition_count: int, settings: TopicSettings, *, internal: bool = False
    ) -> None:
        record = self.catalog.handle_create(
            name,
            partition_count=partition_count,
            settings=settings,
            topic_id=self._entropy.random_bytes(16).hex(),
            now_ms=self._clock.wall_ns() // 1_000_000,
            internal=internal,
        )
        await self._decide(record)

    def _tell(self, name: str) -> None:
        for listener in self.listeners:
            listener(name)

    async def alter(self, name: str, changes: Mapping[str, object]) -> TopicInfo:
        async with self._changing:
            settings = TopicSettings.from_mapping(changes, self.catalog.get(name).settings)
            await self._decide(self.catalog.handle_alter(name, settings))
            for partition in self._partitions[name]:
                partition.log.config = log_config(settings)
        self._tell(name)
        return self.catalog.get(name)

    async def delete(self, name: str) -> None:
        async with self._changing:
            await self._decide(self.catalog.handle_delete(name))
            self.generation += 1
            for partition in self._partitions.pop(name):
                self._commit.forget(partition.log)
                self._directory.delete_log(partition.identity)
                partition.wake_readers()
        self._tell(name)

    async def _decide(self, record: MetadataRecord) -> None:
        assert self._metadata is not None, "topics are loaded before they change"
        await self._metadata.commit(record.key, record.value)
        self.catalog.replay(record)


def log_config(settings: TopicSettings) -> LogConfig:
    """What the storage engine needs of a topic's settings."""
    compact = settings.cleanup_policy is CleanupPolicy.COMPACT
    return LogConfig(
        segment_bytes=settings.segment_bytes,
        segment_ms=settings.segment_ms,
        retention_ms=0 if compact else settings.retention_ms,
        retention_bytes=0 if compact else settings.retention_bytes,
        value_bytes_max=settings.max_message_bytes,
        compact=compact,
        tombstone_retention_ms=settings.tombstone_retention_ms,
    )
