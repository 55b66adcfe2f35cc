"""Filters that need no row to be looked at: on offset, timestamp, partition and priority."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the filters leave: half-open offsets, a lowest time, partitions and priorities."""

    offset_min: int = 0
    offset_end: int | None = None
    # Only a hint where to begin: rows with earlier times may follow and are filtered by Spark.
    timestamp_min_ms: int | None = None
    partitions: frozenset[int] | None = None
    priorities: frozenset[int] | None = None

    def allows_partition(self, number: int) -> bool:
        return self.partitions is None or number in self.partitions

    def offsets(self, start: int, end: int) -> tuple[int, int]:
        high = end if self.offset_end is None else min(end, self.offset_end)
        low = max(start, self.offset_min)
        return low, max(high, low)


NO_BOUNDS = Bounds()


def narrow(filters: Iterable[Filter]) -> tuple[Bounds, list[Filter]]:
    """Bounds from what can be used, and the filters that Spark must still apply to the rows."""
    bounds, left = NO_BOUNDS, []
    for item in filters:
        found = _narrowed(bounds, item)
        if found is None:
            left.append(item)
            continue
        bounds, exact = found
        if not exact:
            left.append(item)
    return bounds, left


def _narrowed(bounds: Bounds, item: Filter) -> tuple[Bounds, bool] | None:
    """The bounds with one more filter, and whether they say all that it says."""
    if not isinstance(item, EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual | In):
        return None
    if len(item.attribute) != 1 or item.value is None:
        return None
    column = item.attribute[0]
    if column == "offset" and not isinstance(item, In) and isinstance(item.value, int):
        return _offsets(bounds, item), True
    if column in ("partition", "priority") and isinstance(item, EqualTo | In):
        values = frozenset(item.value if isinstance(item, In) else (item.value,))
        if column == "partition":
            return replace(bounds, partitions=_both(bounds.partitions, values)), True
        return replace(bounds, priorities=_both(bounds.priorities, values)), True
    if column == "timestamp" and isinstance(item, EqualTo | GreaterThan | GreaterThanOrEqual):
        if not isinstance(item.value, datetime):
            return None
        at_ms = int(item.value.timestamp() * 1000) - 1
        return replace(bounds, timestamp_min_ms=max(at_ms, bounds.timestamp_min_ms or 0)), False
    return None


def _both(before: frozenset[int] | None, values: frozenset[int]) -> frozenset[int]:
    return values if before is None else before & values


def _offsets(bounds: Bounds, item: Filter) -> Bounds:
    low, end = bounds.offset_min, bounds.offset_end
    if isinstance(item, EqualTo | GreaterThanOrEqual):
        low = max(low, item.value)
    if isinstance(item, GreaterThan):
        low = max(low, item.value + 1)
    if isinstance(item, EqualTo | LessThanOrEqual):
        end = item.value + 1 if end is None else min(end, item.value + 1)
    if isinstance(item, LessThan):
        end = item.value if end is None else min(end, item.value)
    return replace(bounds, offset_min=low, offset_end=end)
