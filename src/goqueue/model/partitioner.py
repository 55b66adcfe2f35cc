"""Which partition a key belongs to: murmur3 (x86, 32 bit, seed 0) modulo the number of partitions."""

from __future__ import annotations

import mmh3


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The same key always maps to the same partition of a topic with that many partitions."""
    return mmh3.hash(key, 0, False) % partition_count
