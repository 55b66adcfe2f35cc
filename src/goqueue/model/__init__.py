"""Ids and values that every layer shares. Nothing here does I/O."""

from goqueue.model.ids import LeaderEpoch, Offset, PartitionId, ProducerId, TopicPartition
from goqueue.model.names import NAME_LENGTH_MAX, is_internal_name, validate_name
from goqueue.model.partitioner import partition_for_key

__all__ = [
    "NAME_LENGTH_MAX",
    "LeaderEpoch",
    "Offset",
    "PartitionId",
    "ProducerId",
    "TopicPartition",
    "is_internal_name",
    "partition_for_key",
    "validate_name",
]
