"""The segments of a log in order: which one holds an offset, which may hold a time. The last one takes new records."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from goqueue.storage.segment import Segment
from goqueue.storage.warm import WarmSegments


class SegmentList:
    """Whoever is handed a sealed segment to read from has warmed it up."""

    __slots__ = ("_bases", "_peaks", "_segments", "_warm")

    def __init__(self, segments: list[Segment], warm: WarmSegments) -> None:
        assert segments, "a log has at least the segment it writes to"
        self._segments = segments
        self._warm = warm
        self._bases: list[int] = []
        # Highest timestamp in each sealed segment or any before it: sorted, so that time can be searched.
        self._peaks: list[int] = []
        self.recount()

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    @property
    def sealed(self) -> list[Segment]:
        return self._segments[:-1]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def max_timestamp_ns(self) -> int:
        """Highest timestamp of the log, -1 when it is empty."""
        return max(self.active.max_timestamp_ns, self._peaks[-1] if self._peaks else -1)

    def holding(self, offset: int) -> Segment:
        """The segment with that offset; the first for one below all, the last for one beyond."""
        return self.warmed(self._segments[max(bisect_right(self._bases, offset) - 1, 0)])

    def reaching(self, timestamp_ns: int) -> Iterator[Segment]:
        """Segments with a record of at least that time, oldest first."""
        for segment in self._segments[bisect_left(self._peaks, timestamp_ns) :]:
            if segment.max_timestamp_ns >= timestamp_ns:
                yield self.warmed(segment)

    def below(self, offset: int) -> list[Segment]:
        """The sealed segments that lie wholly below `offset`."""
        found = []
        for segment in self._segments[:-1]:
            if segment.next_offset > offset:
                break
            found.append(segment)
        return found

    def behind(self, segment: Segment) -> list[Segment]:
        return self._segments[self._segments.index(segment) + 1 :]

    def warmed(self, segment: Segment) -> Segment:
        if not segment.writable:
            self._warm.touch(segment)
        return segment

    def cool(self, segment: Segment) -> None:
        """The segment is about to change or to go."""
        self._warm.forget(segment)

    def add(self, segment: Segment) -> None:
        """A new active segment; the one before it is sealed by now."""
        before = self.max_timestamp_ns
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self._peaks.append(before)

    def remove(self, gone: list[Segment]) -> None:
        """Forget segments, then remove their files, newest first."""
        self._segments = [segment for segment in self._segments if segment not in gone]
        self.recount()
        for segment in reversed(gone):
            self.cool(segment)
            segment.remove()

    def replace(self, old: list[Segment], new: Segment) -> None:
        """Put a compacted segment in the place of the ones it was made from."""
        at = self._segments.index(old[0])
        for segment in old:
            self.cool(segment)
        self._segments[at : at + len(old)] = [new]
        self.recount()

    def recount(self) -> None:
        """After segments or what they hold have changed."""
        self._bases = [segment.base_offset for segment in self._segments]
        self._peaks, peak = [], -1
        for segment in self._segments[:-1]:
            peak = max(peak, segment.max_timestamp_ns)
            self._peaks.append(peak)

    def close(self) -> None:
        for segment in self._segments:
            self.cool(segment)
            segment.close()
