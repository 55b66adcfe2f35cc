"""Planning without Spark or a broker: how ranges are cut and streams are limited."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.errors import OffsetOutOfRangeError
from goqueue.storage import SegmentSpan
from goqueue_spark.layout import PartitionLayout, TopicLayout
from goqueue_spark.options import SourceOptions, read_options
from goqueue_spark.plan import StreamOffsets, Stretch, cut, limited, present_offset
from goqueue_spark.pushdown import NO_BOUNDS


def layout(*sizes: int, start: int = 0) -> TopicLayout:
    places = tuple(
        PartitionLayout(
            partition=number,
            log_start_offset=start,
            end_offset=size,
            directory=f"/data/logs/t/{number}",
            sealed=(SegmentSpan(0, size // 2),),
        )
        for number, size in enumerate(sizes)
    )
    return TopicLayout(topic="t", partitions=places, directory="/data", directory_id="id")


def options(**given: str) -> SourceOptions:
    return read_options({"subscribe": "t", **given}, streaming=False)


@given(
    sizes=st.lists(st.integers(0, 5_000), min_size=1, max_size=6),
    rows=st.integers(1, 2_000),
    pieces=st.integers(1, 12),
)
def test_pieces_cover_every_offset_once_and_none_is_too_large(sizes: list[int], rows: int, pieces: int) -> None:
    found = layout(*sizes)
    stretches = [Stretch(found, place, 0, place.end_offset) for place in found.partitions]
    ranges = cut(stretches, options(rowsPerTask=str(rows), minPartitions=str(pieces)), NO_BOUNDS)
    for number, size in enumerate(sizes):
        mine = [item for item in ranges if item.partition == number]
        ends = [item.end for item in mine]
        assert [item.start for item in mine] == ([0, *ends[:-1]] if size else [])
        assert not size or ends[-1] == size
    assert all(0 < item.end - item.start <= rows for item in ranges)
    assert len(ranges) >= min(pieces, sum(sizes))


def test_a_piece_knows_only_the_segments_it_touches() -> None:
    found = layout(1000)
    ranges = cut([Stretch(found, found.partitions[0], 0, 1000)], options(rowsPerTask="500"), NO_BOUNDS)
    assert [len(item.sealed) for item in ranges] == [1, 0]


offsets = st.dictionaries(st.sampled_from(["0", "1", "2"]), st.integers(0, 500), min_size=1)


@given(waiting=offsets, rows=st.integers(1, 300))
def test_a_limited_stream_moves_on_takes_at_most_its_limit_and_never_goes_back(
    waiting: dict[str, int], rows: int
) -> None:
    start: StreamOffsets = {"t": dict.fromkeys(waiting, 10)}
    end: StreamOffsets = {"t": {number: 10 + count for number, count in waiting.items()}}
    found = limited(start, end, rows)
    taken = {number: found["t"][number] - 10 for number in waiting}
    assert sum(taken.values()) == min(rows, sum(waiting.values()))
    assert all(0 <= taken[number] <= waiting[number] for number in waiting)


def test_what_is_gone_is_an_error_unless_the_query_accepts_it() -> None:
    found = layout(100, start=50)
    with pytest.raises(OffsetOutOfRangeError, match="failOnDataLoss"):
        present_offset(found, found.partitions[0], 10, True)
    assert present_offset(found, found.partitions[0], 10, False) == 50
    assert present_offset(found, found.partitions[0], 60, True) == 60
