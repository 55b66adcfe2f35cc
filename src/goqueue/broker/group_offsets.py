"""Committed offsets: checked against the log and the group, shown with their lag, reset by operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from goqueue.broker.config import BrokerConfig
from goqueue.broker.groups import GroupCoordinator, check_group_name
from goqueue.broker.partition import Partition
from goqueue.broker.topics import Topics
from goqueue.errors import InvalidRequestError, LimitExceededError, OffsetOutOfRangeError, PartitionNotFoundError
from goqueue.groups import Commit, Committed
from goqueue.host import Clock

# An offset, alone or with a text of the consumer's own.
Wanted = int | tuple[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetView:
    topic: str
    partition: int
    # None when the group has committed nothing here.
    offset: int | None
    metadata: str
    committed_ms: int | None
    log_start_offset: int
    log_end_offset: int
    # Messages between the committed offset (or the log's start) and the end.
    lag: int


class GroupOffsets:
    def __init__(self, coordinator: GroupCoordinator, topics: Topics, clock: Clock, config: BrokerConfig) -> None:
        self._coordinator = coordinator
        self._topics = topics
        self._clock = clock
        self._config = config
        # Committed partitions since the start.
        self.commits = 0

    # -- committing ---------------------------------------------------------------------------------------------

    async def commit(
        self, name: str, member_id: str | None, generation: int, offsets: Mapping[str, Mapping[int, Wanted]]
    ) -> None:
        """All or none; durable when this returns."""
        check_group_name(name)
        commits = self._checked(offsets)
        if member_id is not None:
            self._coordinator.fenced(name, member_id, generation)
        log = self._coordinator.log
        await log.open()
        machine = log.machine(name)
        records = machine.handle_commit(name, member_id, generation, commits, self._clock.wall_ns() // 1_000_000)
        if records:
            self.commits += len(records)
            await log.write(machine, records)

    def _checked(self, offsets: Mapping[str, Mapping[int, Wanted]]) -> list[Commit]:
        commits = []
        for topic, wanted in offsets.items():
            partitions = self._topics.partitions_of(topic)
            self._topics.check_public(topic)
            topic_id = bytes.fromhex(self._topics.catalog.get(topic).topic_id)
            for number, value in wanted.items():
                offset, metadata = (value, "") if isinstance(value, int) else value
                if not 0 <= number < len(partitions):
                    raise _no_partition(topic, number, len(partitions))
                if not 0 <= offset <= (end := partitions[number].high_watermark):
                    raise _outside(topic, number, offset, end)
                if metadata:
                    self._check_metadata(metadata)
                commits.append(Commit(topic, number, offset, topic_id, metadata))
        if len(commits) > self._config.commit_partitions_max:
            maximum = self._config.commit_partitions_max
            raise LimitExceededError(
                f"{len(commits)} partitions in one commit; at most {maximum}",
                limit="commit_partitions",
                maximum=maximum,
            )
        return commits

    def _check_metadata(self, text: str) -> None:
        maximum = self._config.commit_metadata_bytes_max
        if len(text.encode("utf-8", "surrogatepass")) > maximum:
            raise LimitExceededError(
                f"the metadata of an offset has at most {maximum} bytes", limit="commit_metadata", maximum=maximum
            )
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidRequestError("the metadata of an offset must be text") from None

    # -- showing ------------------------------------------------------------------------------------------------

    def committed(self, name: str, topic: str, partition: int) -> Committed | None:
        """Where the group goes on; None when it has no offset for the topic as it is now."""
        group = self._coordinator.log.machine(name).groups.get(name)
        found = None if group is None else group.offsets.get((topic, partition))
        if found is None or topic not in self._topics.catalog:
            return None
        return found if found.topic_id.hex() == self._topics.catalog.get(topic).topic_id else None

    def show(self, name: str, topics: Iterable[str] | None = None) -> list[OffsetView]:
        """Offsets and lag of the topics that a group reads or has committed, or of those asked for."""
        group = self._coordinator.group(name)
        if topics is None:
            known = {place[0] for place in group.offsets} | {t for member in group.members for t in member.topics}
            topics = sorted(topic for topic in known if topic in self._topics.catalog)
        return [self._view(name, place) for topic in topics for place in self._topics.partitions_of(topic)]

    def _view(self, name: str, place: Partition) -> OffsetView:
        topic, number = place.identity.topic, place.identity.partition
        found = self.committed(name, topic, number)
        start, end = place.log.log_start_offset, place.high_watermark
        return OffsetView(
            topic=topic,
            partition=number,
            offset=None if found is None else found.offset,
            metadata="" if found is None else found.metadata,
            committed_ms=None if found is None else found.committed_ms,
            log_start_offset=start,
            log_end_offset=end,
            lag=max(end - max(start if found is None else found.offset, start), 0),
        )

    # -- resetting ----------------------------------------------------------------------------------------------

    async def reset(
        self,
        name: str,
        topic: str,
        *,
        partitions: Sequence[int] | None = None,
        to: str | int,
        timestamp_ns: int | None = None,
        dry_run: bool = False,
    ) -> dict[int, int]:
        """Move a group without members to `earliest`, `latest`, a `timestamp` or an offset; returns where it is."""
        self._coordinator.group(name)
        places = self._topics.partitions_of(topic)
        self._topics.check_public(topic)
        numbers = range(len(places)) if partitions is None else partitions
        for number in numbers:
            if not 0 <= number < len(places):
                raise _no_partition(topic, number, len(places))
        found = {number: _target(places[number], to, timestamp_ns) for number in numbers}
        machine = self._coordinator.log.machine(name)
        commits = self._checked({topic: found})
        records = machine.handle_reset(name, commits, self._clock.wall_ns() // 1_000_000)
        if not dry_run and records:
            positions = self._coordinator.positions.get(name, {})
            for number in found:
                positions.pop((topic, number), None)
            await self._coordinator.log.write(machine, records)
        return found


def _target(place: Partition, to: str | int, timestamp_ns: int | None) -> int:
    if isinstance(to, int):
        if not place.log.log_start_offset <= to <= place.high_watermark:
            raise _outside(place.identity.topic, place.identity.partition, to, place.high_watermark)
        return to
    if to == "earliest":
        return place.log.log_start_offset
    if to == "latest":
        return place.high_watermark
    if to == "timestamp" and timestamp_ns is not None:
        found = place.log.offset_at_time(timestamp_ns)
        return place.high_watermark if found is None else found
    raise InvalidRequestError(f"cannot reset to {to!r}: use earliest, latest, an offset or a timestamp")


def _outside(topic: str, number: int, offset: int, end: int) -> OffsetOutOfRangeError:
    return OffsetOutOfRangeError(
        f"offset {offset} is outside of {topic}-{number}, whose end is {end}",
        topic=topic,
        partition=number,
        offset=offset,
        log_end_offset=end,
    )


def _no_partition(topic: str, number: int, count: int) -> PartitionNotFoundError:
    return PartitionNotFoundError(
        f"topic {topic!r} has partitions 0 to {count - 1}, not {number}", topic=topic, partition=number
    )
