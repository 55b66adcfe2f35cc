"""One segment: its records can be found by offset and time, its file ends at a record, its indexes can be lost."""

from __future__ import annotations

import pytest

from goqueue.record import BatchBuilder, IndexCursor, decode, gap_marker, scan, stamp
from goqueue.storage.damage import examine
from goqueue.storage.segment import Segment
from goqueue.storage.sparse_index import IndexDamagedError
from goqueue.testing import SimDisk
from tests.storage.logs import START_NS, make_disk

DIRECTORY = "/data"
BASE = 100


@pytest.fixture
def disk() -> SimDisk:
    disk = make_disk()
    disk.make_directory(DIRECTORY)
    return disk


def write(segment: Segment, *, count: int, value_bytes: int = 500) -> None:
    builder = BatchBuilder()
    for number in range(count):
        builder.add(bytes(value_bytes), timestamp_ns=START_NS + number)
    data, cursor = builder.take(), segment.cursor.copy()
    facts = stamp(data, segment.next_offset, START_NS, cursor)
    segment.write([data], [facts], cursor)


def offset_at(segment: Segment, position: int) -> int:
    return decode(segment.file.pread(10_000, position), limit=1, allow_partial=True)[0].offset


def test_every_offset_is_found_before_and_after_reloading(disk: SimDisk) -> None:
    segment = Segment.create(disk, DIRECTORY, BASE)
    write(segment, count=40)
    write(segment, count=1, value_bytes=9000)
    write(segment, count=20)
    assert segment.offset_index.count > 4
    for _ in range(2):
        assert [offset_at(segment, segment.position_of(BASE + n)) for n in range(61)] == list(range(BASE, BASE + 61))
        assert segment.position_of(BASE + 61) == segment.size_bytes
        assert segment.offset_at_time(START_NS + 39, min_offset=0) == BASE + 39
        segment.seal()
        before = segment
        segment = Segment.load(disk, DIRECTORY, BASE, writable=False)
        assert (segment.next_offset, segment.size_bytes) == (before.next_offset, before.size_bytes)
        assert segment.max_timestamp_ns == before.max_timestamp_ns


def test_an_empty_segment_loads(disk: SimDisk) -> None:
    Segment.create(disk, DIRECTORY, BASE).close()
    segment = Segment.load(disk, DIRECTORY, BASE, writable=True)
    assert (segment.next_offset, segment.size_bytes, segment.max_timestamp_ns) == (BASE, 0, -1)
    assert segment.read_first_timestamp() is None


def test_an_offset_in_front_of_the_first_record_leads_to_it(disk: SimDisk) -> None:
    """Compaction may have removed the records that gave a segment its name."""
    segment = Segment.create(disk, DIRECTORY, BASE)
    marker, cursor = gap_marker(offset=BASE + 50, timestamp_ns=START_NS), segment.cursor.copy()
    facts, error = scan(marker, BASE, cursor, True)
    assert error is None
    segment.write([marker], [facts], cursor)
    for offset in (0, BASE, BASE + 1, BASE + 49, BASE + 50):
        assert segment.position_of(offset) == 0
    assert segment.offset_at_time(START_NS, min_offset=BASE + 1) == BASE + 50


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("entries", [0, 1, 2])
def test_an_index_that_is_behind_its_log_is_not_loaded(disk: SimDisk, suffix: str, entries: int) -> None:
    segment = Segment.create(disk, DIRECTORY, BASE)
    write(segment, count=40)
    segment.close()
    disk.open(f"{DIRECTORY}/{BASE:020d}{suffix}", writable=True).truncate(entries * 16)
    with pytest.raises(IndexDamagedError):
        Segment.load(disk, DIRECTORY, BASE, writable=False)


def test_indexes_that_are_ahead_of_the_log_are_not_loaded(disk: SimDisk) -> None:
    segment = Segment.create(disk, DIRECTORY, BASE)
    write(segment, count=40)
    segment.close()
    disk.open(segment.path, writable=True).truncate(5340)
    with pytest.raises(IndexDamagedError):
        Segment.load(disk, DIRECTORY, BASE, writable=False)


def test_rebuilt_indexes_equal_those_written_on_the_way(disk: SimDisk) -> None:
    segment = Segment.create(disk, DIRECTORY, BASE)
    for count in (1, 7, 30, 2):
        write(segment, count=count)
    segment.close()
    names = [f"{DIRECTORY}/{BASE:020d}{suffix}" for suffix in (".index", ".timeindex")]
    written = [bytes(disk.map(name)) for name in names]
    found = examine(disk.map(segment.path), file=segment.path, base_offset=BASE, end_offset=None)
    Segment.rebuild(disk, DIRECTORY, BASE, found, writable=False)
    assert [bytes(disk.map(name)) for name in names] == written


def test_a_range_holds_whole_records_up_to_the_limit_and_at_least_one(disk: SimDisk) -> None:
    segment = Segment.create(disk, DIRECTORY, BASE)
    write(segment, count=10, value_bytes=466)
    write(segment, count=1, value_bytes=100_000)
    end = segment.size_bytes
    for bytes_max, expected in ((0, 500), (1, 500), (499, 500), (1000, 1000), (1499, 1000)):
        assert segment.whole_range(0, bytes_max, end).length == expected
    assert segment.whole_range(5000, 10, end).length == 100_034
    assert segment.whole_range(0, 1 << 30, end).length == end
    assert segment.whole_range(0, 1 << 30, 1500).length == 1500


def test_a_cut_point_is_behind_the_last_record_below_the_offset(disk: SimDisk) -> None:
    segment = Segment.create(disk, DIRECTORY, BASE)
    write(segment, count=10, value_bytes=466)
    cursor = segment.cursor.copy()
    marker = gap_marker(offset=BASE + 20, timestamp_ns=START_NS)
    facts, _ = scan(marker, BASE + 10, cursor, True)
    segment.write([marker], [facts], cursor)
    assert segment.cut_point(BASE) == (0, BASE)
    assert segment.cut_point(BASE + 3) == (1500, BASE + 3)
    assert segment.cut_point(BASE + 15) == (5000, BASE + 10)


def test_the_first_timestamp_is_read_back_from_the_file(disk: SimDisk) -> None:
    segment = Segment.create(disk, DIRECTORY, BASE)
    write(segment, count=3)
    segment.close()
    loaded = Segment.load(disk, DIRECTORY, BASE, writable=True)
    assert loaded.read_first_timestamp() == START_NS
    assert isinstance(loaded.cursor, IndexCursor)
