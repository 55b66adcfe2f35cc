"""Objects of the broker as every face shows them."""

from __future__ import annotations

from goqueue.broker import BrokerApi
from goqueue.metadata import TopicInfo


def topic_fields(info: TopicInfo) -> dict[str, object]:
    return {
        "name": info.name,
        "partitions": info.partition_count,
        "topic_id": info.topic_id,
        "created_ms": info.created_ms,
        "config": info.settings.as_dict(),
    }


def size_fields(broker: BrokerApi, topic: str) -> dict[str, object]:
    """Sizes and offsets of a topic's partitions, keyed by partition as text."""
    logs = [partition.log for partition in broker.topics.partitions_of(topic)]
    return {
        "total_messages": sum(log.log_end_offset - log.log_start_offset for log in logs),
        "total_size_bytes": sum(log.size_bytes for log in logs),
        "partition_offsets": {
            str(number): {"earliest": log.log_start_offset, "latest": log.log_end_offset}
            for number, log in enumerate(logs)
        },
    }
