"""Objects of the broker as every face shows them."""

from __future__ import annotations

from goqueue.broker import BrokerApi
from goqueue.delays import Delayed
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


def delayed_fields(broker: BrokerApi, partition: int, delayed: Delayed) -> dict[str, object]:
    """A delayed message and when it comes; where its copy is once it has come."""
    fields: dict[str, object] = {"partition": partition, "offset": delayed.offset, "state": str(delayed.state)}
    if delayed.due_ms is not None:
        remaining_ms = max(0, delayed.due_ms - broker.delays.now_ms())
        fields |= {"deliver_at": delayed.due_ms, "remaining_ms": remaining_ms}
    if delayed.released_offset is not None:
        fields["released_offset"] = delayed.released_offset
    return fields


def delay_statistics(broker: BrokerApi) -> dict[str, object]:
    counts = broker.delays.counts
    return {
        "pending": broker.delays.pending_count(),
        "scheduled": counts.scheduled,
        "released": counts.released,
        "cancelled": counts.cancelled,
        "rescheduled": counts.rescheduled,
        "expired": counts.expired,
        "unreadable": counts.unreadable,
        "lateness_max_ms": counts.lateness_max_ms,
        "lateness_mean_ms": round(counts.lateness_ms / counts.released, 3) if counts.released else 0,
        "topics": broker.delays.pending_by_topic(),
    }
