"""Appending and reading: every record at its offset, whatever the batches, segments, timestamps and restarts."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.errors import (
    BatchEmptyError,
    ChecksumMismatchError,
    DataDamagedError,
    FlagsForbiddenError,
    LogClosedError,
    OffsetGapError,
    OffsetOutOfRangeError,
    ValueTooLargeError,
    VersionUnsupportedError,
)
from goqueue.record import BatchBuilder, Flag, decode
from goqueue.storage import Log, LogConfig
from goqueue.testing import SimDisk
from tests.storage.logs import (
    SECOND_NS,
    SMALL,
    START_NS,
    append,
    batch,
    fill,
    make_disk,
    open_log,
    read_all,
    read_one,
    values_of,
)


@pytest.fixture
def disk() -> SimDisk:
    return make_disk()


@pytest.fixture
def log(disk: SimDisk) -> Log:
    return open_log(disk)


# -- appending ------------------------------------------------------------------------------------------------------


def test_a_new_log_is_empty(log: Log) -> None:
    assert (log.log_start_offset, log.log_end_offset, log.synced_offset) == (0, 0, 0)
    assert log.read(0, 1000) == b""
    assert log.offset_at_time(0) is None


def test_batches_get_consecutive_offsets_and_the_time_of_their_arrival(log: Log) -> None:
    facts = log.append(batch(b"a", b"b"), now_ns=START_NS)
    assert (facts.base_offset, facts.next_offset) == (0, 2)
    facts = log.append(batch(b"c", timestamp_ns=5), now_ns=START_NS + 1)
    assert (facts.base_offset, facts.next_offset) == (2, 3)
    assert [(r.offset, r.timestamp_ns, r.value) for r in read_all(log)] == [
        (0, START_NS, b"a"),
        (1, START_NS, b"b"),
        (2, 5, b"c"),
    ]


def test_staged_batches_are_written_with_one_call(disk: SimDisk, log: Log) -> None:
    before = disk.statistics().write_count
    for value in (b"a", b"b", b"c"):
        log.stage(batch(value), now_ns=START_NS)
    assert log.log_end_offset == 0
    assert log.read(0, 1000) == b""
    log.write_staged()
    assert disk.statistics().write_count == before + 1
    assert values_of(log) == [b"a", b"b", b"c"]
    assert log.write_staged() == 0


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (bytearray(), BatchEmptyError),
        (batch(b"x" * 101), ValueTooLargeError),
        (batch(b"x", flags=int(Flag.CONTROL)), FlagsForbiddenError),
        (bytearray(b"GQ" + bytes(40)), VersionUnsupportedError),
    ],
    ids=["empty", "large", "flags", "garbage"],
)
def test_a_refused_batch_changes_nothing(disk: SimDisk, bad: bytearray, error: type[Exception]) -> None:
    log = open_log(disk, LogConfig(segment_bytes=4096, value_bytes_max=100))
    log.stage(batch(b"a"), now_ns=START_NS)
    with pytest.raises(error):
        log.stage(bad, now_ns=START_NS, forbidden_flags=int(Flag.CONTROL))
    log.stage(batch(b"b"), now_ns=START_NS)
    log.write_staged()
    with pytest.raises(error):
        log.stage(bad, now_ns=START_NS, forbidden_flags=int(Flag.CONTROL))
    assert values_of(log) == [b"a", b"b"]


@pytest.mark.parametrize("between", ["roll", "truncate"])
def test_a_refused_batch_does_not_bend_what_follows_a_roll_or_a_cut(disk: SimDisk, between: str) -> None:
    log = open_log(disk)
    append(log, b"a", b"b", b"c")
    with pytest.raises(BatchEmptyError):
        log.stage(bytearray(), now_ns=START_NS)
    if between == "roll":
        log.roll()
    else:
        log.truncate(1)
    append(log, b"d")
    expected = [b"a", b"b", b"c", b"d"] if between == "roll" else [b"a", b"d"]
    assert values_of(log) == expected
    assert log.segments[-1].size_bytes == disk.size(log.segments[-1].path)
    log.close()
    assert values_of(open_log(disk)) == expected


def test_a_batch_larger_than_a_segment_gets_one_of_its_own(log: Log) -> None:
    append(log, b"small")
    append(log, *[b"v" * 500] * 20)
    append(log, b"small")
    assert len(log.segments) == 3
    assert len(read_all(log)) == 22


def test_a_closed_log_refuses_everything(log: Log) -> None:
    append(log, b"a")
    log.close()
    log.close()
    for action in (lambda: append(log, b"b"), lambda: log.read(0, 10), log.begin_sync):
        with pytest.raises(LogClosedError):
            action()


# -- replicas -------------------------------------------------------------------------------------------------------


def test_a_replica_takes_batches_at_their_offsets(disk: SimDisk, log: Log) -> None:
    fill(log, 3)
    replica = Log.open(disk, "/data/replica", SMALL)
    offset = 0
    while offset < log.log_end_offset:
        offset = replica.append_replica(log.read(offset, 2000), now_ns=START_NS).next_offset
    assert [r.raw() for r in read_all(replica)] == [r.raw() for r in read_all(log)]


def test_a_replica_refuses_a_gap_and_a_repetition_and_stays_as_it_was(disk: SimDisk, log: Log) -> None:
    for value in (b"a", b"b", b"c"):
        append(log, value)
    replica = Log.open(disk, "/data/replica", SMALL)
    replica.append_replica(log.read(0, 1), now_ns=START_NS)
    for offset in (2, 0):
        with pytest.raises(OffsetGapError):
            replica.append_replica(log.read(offset, 1), now_ns=START_NS)
    with pytest.raises(BatchEmptyError):
        replica.append_replica(b"", now_ns=START_NS)
    broken = bytearray(log.read(1, 1))
    broken[-1] ^= 1
    with pytest.raises(ChecksumMismatchError):
        replica.append_replica(broken, now_ns=START_NS)
    assert values_of(replica) == [b"a"]
    replica.append_replica(log.read(1, 1000), now_ns=START_NS)
    assert values_of(replica) == [b"a", b"b", b"c"]


def test_a_replica_of_a_compacted_log_takes_gaps_forwards_only(disk: SimDisk, log: Log) -> None:
    for value in (b"a", b"b", b"c"):
        append(log, value)
    replica = Log.open(disk, "/data/replica", LogConfig(segment_bytes=4096, compact=True))
    replica.append_replica(log.read(0, 1), now_ns=START_NS)
    replica.append_replica(log.read(2, 1), now_ns=START_NS)
    assert (values_of(replica), replica.log_end_offset) == ([b"a", b"c"], 3)
    with pytest.raises(OffsetGapError):
        replica.append_replica(log.read(1, 1), now_ns=START_NS)
    assert read_one(replica, 1).offset == 2


# -- reading --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [-1, 4, 1000])
def test_an_offset_outside_the_log_is_refused(log: Log, offset: int) -> None:
    append(log, b"a", b"b", b"c")
    with pytest.raises(OffsetOutOfRangeError) as caught:
        log.read(offset, 100)
    assert (caught.value.context["log_start_offset"], caught.value.context["log_end_offset"]) == (0, 3)


def test_a_read_stops_at_the_end_offset_it_is_given(log: Log) -> None:
    fill(log, 3)
    for offset in range(log.log_end_offset):
        for end in (offset, offset + 1, min(offset + 7, log.log_end_offset)):
            records = decode(log.read(offset, 1 << 20, end))
            assert [r.offset for r in records] == list(range(offset, offset + len(records)))
            assert len(records) <= end - offset
            assert bool(records) == (end > offset)


def test_a_located_range_outlives_the_removal_of_its_segment(log: Log) -> None:
    fill(log, 3)
    found = log.locate(0, 1 << 20)
    expected = found.read()
    log.delete_before(log.segments[1].base_offset)
    assert found.read() == expected


def test_damage_that_appears_in_an_open_log_is_reported_and_kept_apart(disk: SimDisk, log: Log) -> None:
    fill(log, 3)
    first = log.segments[0]
    disk.flip_bit(first.path, first.position_of(5) + 50, 3)
    end = log.log_end_offset
    for _ in range(2):
        for offset in range(end):
            if offset == 5:
                with pytest.raises(DataDamagedError, match=r"offsets 5 to 5 cannot be read"):
                    log.read(offset, 1)
            else:
                assert read_one(log, offset).offset == offset
        # A long read ends in front of the damage instead of failing for records that are whole.
        assert [r.offset for r in decode(log.read(2, 1 << 20))] == [2, 3, 4]
    assert [(damage.from_offset, damage.to_offset) for damage in log.statistics().damages] == [(5, 6)]


def test_a_file_that_shrinks_under_an_open_log_is_reported(disk: SimDisk, log: Log) -> None:
    fill(log, 3)
    first = log.segments[0]
    disk.open(first.path, writable=True).truncate(0)
    for offset in range(first.next_offset):
        with pytest.raises(DataDamagedError, match="shorter"):
            log.read(offset, 100)
    assert read_one(log, first.next_offset).offset == first.next_offset


def test_a_time_behind_damage_is_not_guessed(disk: SimDisk, log: Log) -> None:
    for number in range(30):
        append(log, b"v" * 200, timestamp_ns=START_NS + number)
    first = log.segments[0]
    disk.flip_bit(first.path, first.position_of(5) + 50, 3)
    for _ in range(2):
        assert log.offset_at_time(START_NS + 4) == 4
        with pytest.raises(DataDamagedError):
            log.offset_at_time(START_NS + 5)
        log.close()
        log = open_log(disk)


# -- a plain list is the model --------------------------------------------------------------------------------------


@dataclass
class Model:
    """What a log promises: a list of (timestamp, value)."""

    records: list[tuple[int, bytes]]

    def offset_at_time(self, timestamp_ns: int) -> int | None:
        return next((offset for offset, record in enumerate(self.records) if record[0] >= timestamp_ns), None)


RECORDS = st.lists(st.tuples(st.integers(1, 60), st.integers(0, 900)), min_size=1, max_size=8)


@settings(max_examples=150)
@given(
    batches=st.lists(RECORDS, min_size=1, max_size=25),
    segment_bytes=st.integers(4096, 16384),
    staged=st.booleans(),
    reopened=st.booleans(),
    bytes_max=st.sampled_from([1, 500, 5000, 1 << 20]),
)
def test_a_log_agrees_with_a_plain_list(
    batches: list[list[tuple[int, int]]], segment_bytes: int, staged: bool, reopened: bool, bytes_max: int
) -> None:
    disk = make_disk()
    config = LogConfig(segment_bytes=segment_bytes, retention_ms=0)
    log, model = open_log(disk, config), Model([])
    for records in batches:
        builder = BatchBuilder()
        for seconds, length in records:
            value = len(model.records).to_bytes(4, "big") + bytes(length)
            builder.add(value, timestamp_ns=seconds * SECOND_NS)
            model.records.append((seconds * SECOND_NS, value))
        log.stage(builder.take(), now_ns=START_NS)
        if not staged:
            log.write_staged()
    log.write_staged()
    if reopened:
        log.close()
        log = open_log(disk, config)
        assert log.report.scanned_bytes == 0
    assert log.log_end_offset == len(model.records)
    assert [(r.timestamp_ns, r.value) for r in read_all(log, bytes_max=bytes_max)] == model.records
    for offset, record in enumerate(model.records):
        assert (read_one(log, offset).timestamp_ns, read_one(log, offset).value) == record
    for seconds in range(62):
        for timestamp_ns in (seconds * SECOND_NS, seconds * SECOND_NS + 1):
            assert log.offset_at_time(timestamp_ns) == model.offset_at_time(timestamp_ns)


# -- rolling --------------------------------------------------------------------------------------------------------


def test_no_segment_of_single_records_grows_beyond_its_size(log: Log) -> None:
    fill(log, 6)
    assert all(segment.size_bytes <= 4096 for segment in log.segments)
    assert all(segment.size_bytes > 4096 - 234 for segment in log.sealed_segments)
    assert [s.next_offset for s in log.sealed_segments] == [s.base_offset for s in log.segments[1:]]


def test_a_segment_rolls_when_its_first_record_is_old(disk: SimDisk) -> None:
    config = LogConfig(segment_bytes=4096, segment_ms=1000)
    log = open_log(disk, config)
    append(log, b"a", timestamp_ns=START_NS)
    append(log, b"b", timestamp_ns=START_NS + SECOND_NS - 1)
    assert len(log.segments) == 1
    append(log, b"c", timestamp_ns=START_NS + SECOND_NS)
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    log.close()
    log = open_log(disk, config)
    assert not log.roll_if_old(START_NS + 2 * SECOND_NS - 1)
    assert log.roll_if_old(START_NS + 2 * SECOND_NS)
    assert not log.roll_if_old(START_NS + 9 * SECOND_NS), "an empty segment has no age"
    assert values_of(log) == [b"a", b"b", b"c"]


def test_statistics_tell_what_the_log_holds(log: Log) -> None:
    fill(log, 2)
    log.sync()
    append(log, b"x", timestamp_ns=START_NS + 7)
    statistics = log.statistics()
    assert statistics.log_end_offset == log.log_end_offset == statistics.appended_records
    assert statistics.synced_offset == log.log_end_offset - 1
    assert statistics.segment_count == 2
    assert statistics.size_bytes == statistics.appended_bytes == sum(s.size_bytes for s in log.segments)
    assert statistics.max_timestamp_ns == START_NS + 7
    assert (statistics.sync_count, statistics.failure, statistics.damages) == (1, None, ())
