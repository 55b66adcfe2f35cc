"""What there is to read, as the driver sees it: from a broker, or from a data directory without one."""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from goqueue.client import ClientConfig, SyncClient
from goqueue.errors import DirectoryFormatError, GoQueueError, PartitionNotFoundError, TopicNotFoundError
from goqueue.host import OsDisk
from goqueue.model import NAME_LENGTH_MAX, is_internal_name
from goqueue.storage import LogView, SegmentSpan
from goqueue_spark.options import SourceOptions

CONNECT_TIMEOUT_MS = 10_000

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLayout:
    partition: int
    log_start_offset: int
    # The end of what this query may see.
    end_offset: int
    # The directory of its log, where readers may look for the sealed segments themselves.
    directory: str
    # Segments that will not grow any more, in order. Without a broker: all of them.
    sealed: tuple[SegmentSpan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLayout:
    topic: str
    partitions: tuple[PartitionLayout, ...]
    # Tells whether a directory that an executor finds under the same path is the broker's own.
    directory: str
    directory_id: str

    def partition(self, number: int) -> PartitionLayout:
        if number >= len(self.partitions):
            raise PartitionNotFoundError(
                f"topic {self.topic!r} has partitions 0 to {len(self.partitions) - 1}, not {number}", topic=self.topic
            )
        return self.partitions[number]


class Catalog(Protocol):
    def topics(self) -> list[str]: ...

    def layout(self, topic: str) -> TopicLayout: ...

    def offset_at_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """The first offset with at least that time, None when there is none yet."""
        ...

    def pin(self, name: str, offsets: Mapping[str, Mapping[str, int]]) -> None:
        """Keep what lies at and behind these offsets (topic -> partition -> offset) from being removed."""
        ...

    def show_progress(self, group: str, offsets: Mapping[str, Mapping[str, int]]) -> None:
        """Commit offsets for a group that has no members, so that its lag shows."""
        ...

    def close(self) -> None: ...


class BrokerCatalog:
    def __init__(self, options: SourceOptions) -> None:
        """`ConnectionLostError` when no broker answers in time."""
        self._committed = options.isolation == "read_committed"
        self._client = SyncClient(
            options.bootstrap, ClientConfig(client_id="goqueue-spark", connect_timeout_ms=CONNECT_TIMEOUT_MS)
        )

    def topics(self) -> list[str]:
        return [info["name"] for info in self._client.list_topics()]

    def layout(self, topic: str) -> TopicLayout:
        found = self._client.log_layout(topic)
        end = "last_stable_offset" if self._committed else "high_watermark"
        return TopicLayout(
            topic=topic,
            directory=found["directory"],
            directory_id=found["directory_id"],
            partitions=tuple(
                PartitionLayout(
                    partition=item["partition"],
                    log_start_offset=item["log_start_offset"],
                    end_offset=item[end],
                    directory=f"{found['directory']}/logs/{topic}/{item['partition']}",
                    sealed=tuple(SegmentSpan(*span) for span in item["sealed"]),
                )
                for item in found["partitions"]
            ),
        )

    def offset_at_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        return self._client.offset_at_time(topic, partition, timestamp_ms * 1_000_000)

    def pin(self, name: str, offsets: Mapping[str, Mapping[str, int]]) -> None:
        for topic, partitions in offsets.items():
            by_partition = {int(number): offset for number, offset in partitions.items()}
            self._client.set_pin(_pin_name(name, topic), topic, by_partition)

    def show_progress(self, group: str, offsets: Mapping[str, Mapping[str, int]]) -> None:
        commits = {(topic, int(number)): offset for topic, found in offsets.items() for number, offset in found.items()}
        try:
            self._client.commit_offsets(group, commits)
        except GoQueueError as error:
            # For people to look at; a query must not end because somebody reads under the same name.
            _logger.warning("the progress of this query cannot be shown as group %s: %s", group, error.message)

    def close(self) -> None:
        self._client.close()


class DirectoryCatalog:
    """A data directory as it lies there. Nothing is recovered or repaired: a torn tail simply is not read."""

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(path)
        self._logs = f"{self._path}/logs"
        if not os.path.isdir(self._logs):
            raise DirectoryFormatError(f"{path} is no GoQueue data directory: it has no logs/", path=path)

    def topics(self) -> list[str]:
        return sorted(name for name in os.listdir(self._logs) if not is_internal_name(name))

    def layout(self, topic: str) -> TopicLayout:
        folder = f"{self._logs}/{topic}"
        if not os.path.isdir(folder):
            raise TopicNotFoundError(f"there is no topic {topic!r} in {self._path}", topic=topic)
        numbers = sorted(int(name) for name in os.listdir(folder) if name.isdecimal())
        return TopicLayout(
            topic=topic,
            directory=self._path,
            directory_id="",
            partitions=tuple(self._partition(f"{folder}/{number}", number) for number in numbers),
        )

    def _partition(self, directory: str, number: int) -> PartitionLayout:
        view = LogView(OsDisk(), directory)
        return PartitionLayout(
            partition=number,
            log_start_offset=view.log_start_offset,
            end_offset=view.log_end_offset,
            directory=directory,
            sealed=view.spans,
        )

    def offset_at_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        return LogView(OsDisk(), f"{self._logs}/{topic}/{partition}").offset_at_time(timestamp_ms * 1_000_000)

    def pin(self, name: str, offsets: Mapping[str, Mapping[str, int]]) -> None:
        """Nobody removes anything here."""

    def show_progress(self, group: str, offsets: Mapping[str, Mapping[str, int]]) -> None:
        """There is no broker to show it."""

    def close(self) -> None:
        """Nothing is held."""


def _pin_name(group: str, topic: str) -> str:
    """After both, and no longer than a name may be."""
    name = f"{group}.{topic}"
    return name if len(name) <= NAME_LENGTH_MAX else f"spark-{hashlib.sha256(name.encode()).hexdigest()}"


def open_catalog(options: SourceOptions) -> Catalog:
    return DirectoryCatalog(options.path) if options.path is not None else BrokerCatalog(options)


def chosen(catalog: Catalog, options: SourceOptions) -> list[tuple[TopicLayout, tuple[int, ...]]]:
    """The topics and partitions that the options select, as they are now."""
    if options.assign:
        layouts = [(catalog.layout(topic), numbers) for topic, numbers in options.assign.items()]
        for layout, numbers in layouts:
            for number in numbers:
                layout.partition(number)
        return layouts
    names = options.subscribe
    if options.subscribe_pattern is not None:
        pattern = re.compile(options.subscribe_pattern)
        names = tuple(name for name in catalog.topics() if pattern.fullmatch(name))
    found = [catalog.layout(name) for name in names]
    return [(layout, tuple(range(len(layout.partitions)))) for layout in found]
