"""The catalog of topics, replayed from the internal topic `__metadata`.

`handle_*` validates and returns the record to append; only `replay` changes the catalog. A record is keyed by the
topic's name and holds the whole topic; a tombstone deletes it. The catalog remembers deleted names until they are
created anew, so that a directory left behind by a crash is known to be refuse and one without any record is not.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from goqueue.errors import (
    InvalidRequestError,
    LimitExceededError,
    TopicExistsError,
    TopicInternalError,
    TopicNotFoundError,
)
from goqueue.metadata.settings import TopicSettings
from goqueue.model import is_internal_name, validate_name

PARTITIONS_DEFAULT = 3
PARTITIONS_PER_TOPIC_MAX = 10_000
TOPICS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class MetadataRecord:
    key: bytes
    # None deletes the topic.
    value: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    name: str
    topic_id: str
    partition_count: int
    created_ms: int
    settings: TopicSettings


class TopicCatalog:
    def __init__(self, *, topics_max: int = TOPICS_MAX) -> None:
        self._topics: dict[str, TopicInfo] = {}
        self._deleted: set[str] = set()
        self._topics_max = topics_max

    # -- questions ----------------------------------------------------------------------------------------------

    def get(self, name: str) -> TopicInfo:
        """The topic, or `TopicNotFoundError`; a name that could never exist is invalid rather than unknown."""
        info = self._topics.get(name)
        if info is None:
            validate_name(name)
            raise TopicNotFoundError(f"there is no topic {name!r}", topic=name)
        return info

    def topics(self, *, internal: bool = False) -> list[TopicInfo]:
        """All topics by name; the broker's own only when asked for."""
        found = (info for info in self._topics.values() if internal or not is_internal_name(info.name))
        return sorted(found, key=lambda info: info.name)

    def __contains__(self, name: str) -> bool:
        return name in self._topics

    def was_deleted(self, name: str) -> bool:
        return name in self._deleted

    # -- decisions ----------------------------------------------------------------------------------------------

    def handle_create(
        self,
        name: str,
        *,
        partition_count: int,
        settings: TopicSettings,
        topic_id: str,
        now_ms: int,
        internal: bool = False,
    ) -> MetadataRecord:
        """`internal` is the broker itself asking, for a topic that no client may create."""
        if not internal:
            self._check_name(name)
        assert not internal or is_internal_name(name), "the broker's own topics start with '__'"
        if name in self._topics:
            raise TopicExistsError(f"topic {name!r} exists already", topic=name)
        if isinstance(partition_count, bool) or not isinstance(partition_count, int) or partition_count < 1:
            raise InvalidRequestError(f"a topic needs at least one partition, not {partition_count!r}", topic=name)
        if partition_count > PARTITIONS_PER_TOPIC_MAX:
            raise LimitExceededError(
                f"{partition_count} partitions; a topic has at most {PARTITIONS_PER_TOPIC_MAX}",
                limit="partitions_per_topic",
                maximum=PARTITIONS_PER_TOPIC_MAX,
            )
        if len(self._topics) >= self._topics_max:
            raise LimitExceededError(
                f"the broker holds {self._topics_max} topics, its limit", limit="topics", maximum=self._topics_max
            )
        info = TopicInfo(
            name=name, topic_id=topic_id, partition_count=partition_count, created_ms=now_ms, settings=settings
        )
        return _record(info)

    def handle_alter(self, name: str, settings: TopicSettings) -> MetadataRecord:
        self._check_name(name)
        info = self.get(name)
        return _record(
            TopicInfo(
                name=name,
                topic_id=info.topic_id,
                partition_count=info.partition_count,
                created_ms=info.created_ms,
                settings=settings,
            )
        )

    def handle_delete(self, name: str) -> MetadataRecord:
        self._check_name(name)
        self.get(name)
        return MetadataRecord(name.encode(), None)

    def _check_name(self, name: str) -> None:
        validate_name(name)
        if is_internal_name(name):
            raise TopicInternalError(f"{name!r} is internal: names starting with '__' are the broker's", topic=name)

    # -- state --------------------------------------------------------------------------------------------------

    def replay(self, record: MetadataRecord) -> None:
        name = record.key.decode()
        if record.value is None:
            self._topics.pop(name, None)
            self._deleted.add(name)
            return
        fields = json.loads(record.value)
        settings = TopicSettings.from_mapping(fields["settings"])
        self._topics[name] = TopicInfo(
            name=name,
            topic_id=fields["topic_id"],
            partition_count=fields["partitions"],
            created_ms=fields["created_ms"],
            settings=settings,
        )
        self._deleted.discard(name)


def _record(info: TopicInfo) -> MetadataRecord:
    value = {
        "topic_id": info.topic_id,
        "partitions": info.partition_count,
        "created_ms": info.created_ms,
        "settings": info.settings.as_dict(),
    }
    return MetadataRecord(info.name.encode(), json.dumps(value, sort_keys=True).encode())
