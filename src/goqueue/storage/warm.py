"""Sealed segments whose files and maps stay open between reads: a budget for the whole process, oldest use goes first.

A warm segment holds up to three descriptors (its file and one behind each memory map), so the budget bounds what
reading old data costs however many logs there are.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

WARM_SEGMENTS_MAX = 512


class Warmable(Protocol):
    def release(self) -> None: ...


class WarmSegments:
    def __init__(self, limit: int = WARM_SEGMENTS_MAX) -> None:
        self._limit = limit
        self._used: OrderedDict[Warmable, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._used)

    def touch(self, segment: Warmable) -> None:
        """The segment is being read; the one unread for longest may have to cool down."""
        used = self._used
        used[segment] = None
        used.move_to_end(segment)
        if len(used) > self._limit:
            used.popitem(last=False)[0].release()

    def forget(self, segment: Warmable) -> None:
        """The segment is going away or is being written to."""
        self._used.pop(segment, None)
