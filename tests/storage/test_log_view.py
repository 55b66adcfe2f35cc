"""A log seen by somebody who does not own it: the same records, nothing written, damage named."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.errors import DataDamagedError, OffsetOutOfRangeError
from goqueue.record import Record, decode, decode_columns
from goqueue.storage import Log, LogConfig, LogView, install_compaction, plan_compaction
from goqueue.testing import SimDisk
from tests.storage.logs import DIRECTORY, SMALL, START_NS, append, make_disk, open_log


def offsets_of(view: LogView, start: int, end: int, block_bytes: int = 300) -> list[int]:
    """Every offset from `start` up to `end`, block by block."""
    found: list[int] = []
    for span in view.spans:
        low, high = max(start, span.base_offset), min(end, span.end_offset)
        if low >= high:
            continue

        def decoder(block: memoryview, low: int = low, high: int = high) -> tuple[object, int, int]:
            columns = decode_columns(block, 0, low, high, 1, True)
            records = decode(block[: columns.consumed], 0, low, high) if columns.consumed else []
            return records, columns.consumed, columns.next_offset

        for records in view.decode(span, low, high, block_bytes, decoder):
            assert isinstance(records, list)
            found += [record.offset for record in records if isinstance(record, Record)]
    return found


def written(disk: SimDisk, count: int, config: LogConfig = SMALL) -> Log:
    chance = random.Random(count)
    log = open_log(disk, config)
    for n in range(count):
        append(log, chance.randbytes(chance.randrange(400)), key=b"k%d" % (n % 5), timestamp_ns=START_NS + n)
    return log


@given(count=st.integers(0, 120), start=st.integers(0, 130), length=st.integers(0, 130), block=st.integers(34, 5000))
def test_every_range_holds_what_the_owner_reads(count: int, start: int, length: int, block: int) -> None:
    disk = make_disk()
    log = written(disk, count)
    log.sync()
    view = LogView(disk, DIRECTORY)
    assert view.log_end_offset == count
    assert offsets_of(view, start, start + length, block) == list(range(start, min(start + length, count)))
    log.close()


def test_gaps_of_compaction_are_passed_over_also_at_the_end_of_a_range() -> None:
    disk = make_disk()
    log = written(disk, 100, LogConfig(segment_bytes=4096, retention_ms=0, compact=True))
    plan = plan_compaction(log, now_ns=START_NS, end_offset=100, everything=True)
    assert plan is not None
    install_compaction(log, plan.run())
    view = LogView(disk, DIRECTORY)
    kept = [r.offset for span in (log.read(0, 1 << 20),) for r in decode(span)]
    everything = offsets_of(view, 0, 100)
    assert len(everything) < 100
    assert everything[: len(kept)] == kept
    for end in range(100):
        assert offsets_of(view, 0, end) == [offset for offset in everything if offset < end]
    log.close()


def test_a_torn_tail_is_not_read() -> None:
    disk = make_disk()
    log = written(disk, 10)
    log.close()
    path = f"{DIRECTORY}/{0:020d}.log"
    file = disk.open(path, writable=True)
    file.truncate(disk.size(path) - 5)
    view = LogView(disk, DIRECTORY)
    assert view.log_end_offset == 9
    assert offsets_of(view, 0, 100) == list(range(9))
    assert view.offset_at_time(START_NS + 8) == 8
    assert view.offset_at_time(START_NS + 9) is None


def test_a_sealed_segment_that_is_too_short_is_damage() -> None:
    disk = make_disk()
    log = written(disk, 60)
    assert len(log.segments) > 2
    first_end = log.segments[1].base_offset
    log.close()
    path = f"{DIRECTORY}/{0:020d}.log"
    file = disk.open(path, writable=True)
    file.truncate(disk.size(path) - 5)
    view = LogView(disk, DIRECTORY)
    with pytest.raises(DataDamagedError) as caught:
        offsets_of(view, 0, 60)
    assert caught.value.context["file"] == path
    assert caught.value.context["to_offset"] == first_end
    assert offsets_of(view, first_end, 60) == list(range(first_end, 60))


def test_what_is_below_the_start_is_refused() -> None:
    disk = make_disk()
    log = written(disk, 60)
    base = log.segments[1].base_offset
    log.delete_before(base)
    view = LogView(disk, DIRECTORY)
    assert view.log_start_offset == base
    with pytest.raises(OffsetOutOfRangeError):
        list(view.decode(view.spans[0], base - 1, base, 100, lambda block: (None, 0, 0)))
    log.close()
