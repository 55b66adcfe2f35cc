"""Calls about where the records of a topic lie, for readers that open sealed segments themselves."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

from goqueue.broker import BrokerApi, Partition


def log_calls(broker: BrokerApi) -> dict[str, Callable[..., Awaitable[object]]]:
    async def layout(topic: str) -> dict[str, object]:
        broker.topics.check_public(topic)
        return {
            "topic": topic,
            "topic_id": broker.topics.catalog.get(topic).topic_id,
            # Whether a path means the same thing to the caller shows by the id in the directory it leads to.
            "directory": os.path.abspath(broker.directory.path),
            "directory_id": broker.directory.meta.directory_id.hex(),
            "partitions": [_partition_fields(partition) for partition in broker.topics.partitions_of(topic)],
        }

    return {"log.layout": layout}


def _partition_fields(partition: Partition) -> dict[str, object]:
    log = partition.log
    return {
        "partition": partition.identity.partition,
        "log_start_offset": log.log_start_offset,
        "high_watermark": partition.high_watermark,
        "last_stable_offset": partition.last_stable_offset,
        "sealed": [[segment.base_offset, segment.next_offset] for segment in log.sealed_segments],
    }
