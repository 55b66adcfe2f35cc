"""Numbers that must not be mixed up, as types of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

Offset = NewType("Offset", int)
PartitionId = NewType("PartitionId", int)
LeaderEpoch = NewType("LeaderEpoch", int)
ProducerId = NewType("ProducerId", int)


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One partition of one topic; prints as `orders-0`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
