"""From offsets to tasks: which offsets a query reads, and how they are cut into pieces for executors."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from goqueue.errors import OffsetOutOfRangeError
from goqueue.storage import SegmentSpan
from goqueue_spark.layout import Catalog, PartitionLayout, TopicLayout, chosen
from goqueue_spark.options import EARLIEST, LATEST, Boundary, Edge, SourceOptions
from goqueue_spark.pushdown import Bounds

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class OffsetRange(InputPartition):
    """One task: the offsets [start, end) of a partition, and where their records may be found."""

    topic: str
    partition: int
    start: int
    end: int
    directory: str
    # What to compare the files with before trusting them; empty when there is no broker and files are all there is.
    data_directory: str
    directory_id: str
    sealed: tuple[SegmentSpan, ...]
    bounds: Bounds


@dataclass(frozen=True, slots=True)
class Stretch:
    """What a query reads of one partition, before it is cut."""

    layout: TopicLayout
    partition: PartitionLayout
    start: int
    end: int

    @property
    def size(self) -> int:
        return max(self.end - self.start, 0)


def plan_batch(catalog: Catalog, options: SourceOptions, bounds: Bounds) -> list[OffsetRange]:
    stretches = []
    for layout, numbers in chosen(catalog, options):
        for number in numbers:
            if not bounds.allows_partition(number):
                continue
            place = layout.partition(number)
            start = first_offset(catalog, layout, place, options.starting, options.fail_on_data_loss)
            end = boundary_offset(catalog, layout, place, options.ending)
            if end > place.end_offset:
                raise beyond(layout, place, end)
            low, high = bounds.offsets(start, end)
            low = _after_time(catalog, layout.topic, number, low, high, bounds)
            stretches.append(Stretch(layout, place, low, high))
    return cut(stretches, options, bounds)


def _after_time(catalog: Catalog, topic: str, number: int, low: int, high: int, bounds: Bounds) -> int:
    """Timestamps may be out of order, so only the first offset of a time moves; rows are filtered anyway."""
    if bounds.timestamp_min_ms is None or low >= high:
        return low
    found = catalog.offset_at_time(topic, number, bounds.timestamp_min_ms)
    return high if found is None else max(low, found)


def cut(stretches: Iterable[Stretch], options: SourceOptions, bounds: Bounds) -> list[OffsetRange]:
    """Pieces of at most `rows_per_task` offsets, and at least `min_partitions` of them where there are so many rows."""
    stretches = [stretch for stretch in stretches if stretch.size]
    total = sum(stretch.size for stretch in stretches)
    size = min(options.rows_per_task, max(math.ceil(total / options.min_partitions), 1)) if total else 1
    ranges = []
    for stretch in stretches:
        pieces = math.ceil(stretch.size / size)
        for n in range(pieces):
            start = stretch.start + stretch.size * n // pieces
            ranges.append(_range(stretch, start, stretch.start + stretch.size * (n + 1) // pieces, bounds))
    return ranges


def _range(stretch: Stretch, start: int, end: int, bounds: Bounds) -> OffsetRange:
    place, layout = stretch.partition, stretch.layout
    return OffsetRange(
        topic=layout.topic,
        partition=place.partition,
        start=start,
        end=end,
        directory=place.directory,
        data_directory=layout.directory,
        directory_id=layout.directory_id,
        sealed=tuple(span for span in place.sealed if span.end_offset > start and span.base_offset < end),
        bounds=bounds,
    )


# -- offsets ------------------------------------------------------------------------------------------------------


def boundary_offset(catalog: Catalog, layout: TopicLayout, place: PartitionLayout, boundary: Boundary) -> int:
    if boundary.edge is Edge.TIMESTAMP:
        found = catalog.offset_at_time(layout.topic, place.partition, boundary.timestamp_ms)
        return place.end_offset if found is None else min(found, place.end_offset)
    if boundary.edge is Edge.OFFSETS:
        named = boundary.offsets.get(layout.topic, {}).get(place.partition)
        if named is None:
            raise OffsetOutOfRangeError(
                f"the given offsets say nothing of {layout.topic} partition {place.partition}; "
                "name every partition that is read (-2 is earliest, -1 latest)",
                topic=layout.topic,
                partition=place.partition,
            )
        return {LATEST: place.end_offset, EARLIEST: place.log_start_offset}.get(named, named)
    return place.log_start_offset if boundary.edge is Edge.EARLIEST else place.end_offset


def first_offset(
    catalog: Catalog, layout: TopicLayout, place: PartitionLayout, boundary: Boundary, fail_on_data_loss: bool
) -> int:
    offset = boundary_offset(catalog, layout, place, boundary)
    if offset > place.end_offset:
        raise beyond(layout, place, offset)
    return present_offset(layout, place, offset, fail_on_data_loss)


def present_offset(layout: TopicLayout, place: PartitionLayout, offset: int, fail_on_data_loss: bool) -> int:
    """`offset` if the log still has it; what is gone is an error, or passed over when the query says so."""
    if offset >= place.log_start_offset:
        return offset
    text = (
        f"offsets {offset} to {place.log_start_offset - 1} of {layout.topic} partition {place.partition} are gone "
        "(retention, or the topic was made anew)"
    )
    if fail_on_data_loss:
        raise OffsetOutOfRangeError(
            f"{text}; set failOnDataLoss to false to go on without them",
            topic=layout.topic,
            partition=place.partition,
            offset=offset,
            log_start_offset=place.log_start_offset,
        )
    _logger.warning("%s; reading on from what there is", text)
    return place.log_start_offset


def beyond(layout: TopicLayout, place: PartitionLayout, offset: int) -> OffsetOutOfRangeError:
    return OffsetOutOfRangeError(
        f"offset {offset} is beyond the end of {layout.topic} partition {place.partition}, which is {place.end_offset}",
        topic=layout.topic,
        partition=place.partition,
        offset=offset,
        log_end_offset=place.end_offset,
    )


# -- offsets of a stream ------------------------------------------------------------------------------------------

StreamOffsets = dict[str, dict[str, int]]


def limited(start: Mapping[str, Mapping[str, int]], end: StreamOffsets, rows_max: int) -> StreamOffsets:
    """`end` moved back so that at most `rows_max` offsets lie between; every partition gets its share of what waits."""
    waiting = {
        (topic, number): offset - start.get(topic, {}).get(number, offset)
        for topic, partitions in end.items()
        for number, offset in partitions.items()
    }
    total = sum(waiting.values())
    if total <= rows_max:
        return end
    # Rounded up for the first ones, so that a limit smaller than the number of partitions still moves.
    room = rows_max
    result: StreamOffsets = {topic: dict(partitions) for topic, partitions in end.items()}
    for (topic, number), count in sorted(waiting.items(), key=lambda item: -item[1]):
        share = min(math.ceil(rows_max * count / total), room, count)
        room -= share
        result[topic][number] = end[topic][number] - count + share
    return result
