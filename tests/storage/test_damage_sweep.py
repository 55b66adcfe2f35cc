"""Damage in every place: whatever bit flips and wherever a file ends, a reader gets the truth or a clear error.

Every byte of every file of a small data directory is damaged on its own, every file is cut to every shorter length and
removed. After each the directory must open, every offset must give its record or a `DataDamagedError` that contains it,
nothing may be missing silently, and the log must take new records.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import pytest

from goqueue.errors import DataDamagedError
from goqueue.model import TopicPartition
from goqueue.record import BatchBuilder, decode
from goqueue.storage import DataDirectory, Log, LogConfig, install_compaction, plan_compaction
from goqueue.storage.segment import LOG_SUFFIX
from goqueue.testing import DiskSnapshot, SimDisk, SimEntropy
from tests.storage.logs import START_NS, batch

ROOT = "/data"
PARTITION = TopicPartition("orders", 0)
LOG_DIRECTORY = f"{ROOT}/logs/orders/0"
CONFIG = LogConfig(segment_bytes=4096, retention_ms=0, compact=True, tombstone_retention_ms=0)
SEGMENT_RECORDS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """A data directory as it was left, and what its log held."""

    disk: SimDisk
    snapshot: DiskSnapshot
    files: dict[str, int]
    # What a read at each offset gives: the bytes of the first record at or above it.
    records: dict[int, bytes]
    # Byte range of each log file's records: file -> [(position, end, offset)].
    places: dict[str, list[tuple[int, int, int]]]
    # The answer of a lookup for each timestamp.
    times: dict[int, int]
    log_start_offset: int
    log_end_offset: int


def write_segment(log: Log, *, keys: int, count: int = SEGMENT_RECORDS, value_bytes: int = 6) -> None:
    """Records with few keys, so that there is something to compact, and timestamps in no order."""
    builder = BatchBuilder()
    rng = random.Random(log.log_end_offset)
    for number in range(count):
        key = f"k{number % keys}".encode() if keys else None
        builder.add(rng.randbytes(value_bytes), key, timestamp_ns=START_NS + rng.randrange(1000))
    log.append(builder.take(), now_ns=START_NS)


def build(*, clean: bool, value_bytes: int = 6) -> Original:
    """Four segments: one compacted, two plain, one active; the first of all has gone by retention."""
    disk = SimDisk(random.Random(1))
    directory = DataDirectory.open(disk, ROOT, SimEntropy(1))
    log = directory.open_log(PARTITION, CONFIG)
    for keys in (5, 5, 4, 0, 0):
        write_segment(log, keys=keys, value_bytes=value_bytes)
        log.roll()
    write_segment(log, keys=0, value_bytes=value_bytes)
    log.sync()
    log.delete_before(SEGMENT_RECORDS)
    plan = plan_compaction(log, now_ns=START_NS, end_offset=3 * SEGMENT_RECORDS)
    assert plan is not None
    assert install_compaction(log, plan.run()) >= 1
    log.sync()
    if clean:
        directory.close()
    else:
        for segment in log.segments:
            segment.offset_index.flush()
            segment.time_index.flush()
        disk.kill()
    return describe(disk)


def describe(disk: SimDisk) -> Original:
    snapshot = disk.snapshot()
    paths = [
        f"{ROOT}/LOCK",
        f"{ROOT}/directory.meta",
        *(f"{LOG_DIRECTORY}/{name}" for name in disk.list(LOG_DIRECTORY)),
    ]
    files = {path: disk.size(path) for path in paths}
    log = open_directory(disk).open_log(PARTITION, CONFIG)
    stored, places = [], {}
    for segment in log.segments:
        position = 0
        places[segment.path] = place = []
        for record in decode(disk.map(segment.path)):
            place.append((position, position + record.size_bytes, record.offset))
            position += record.size_bytes
            stored.append(record)
    start, end = log.log_start_offset, log.log_end_offset
    records = {offset: next(r.raw() for r in stored if r.offset >= offset) for offset in range(start, end)}
    stamps = sorted({record.timestamp_ns for record in stored})
    times = {stamp: next(r.offset for r in stored if r.timestamp_ns >= stamp) for stamp in stamps}
    disk.restore(snapshot)
    return Original(
        disk=disk,
        snapshot=snapshot,
        files=files,
        records=records,
        places=places,
        times=times,
        log_start_offset=start,
        log_end_offset=end,
    )


@cache
def original(*, clean: bool, value_bytes: int = 6) -> Original:
    return build(clean=clean, value_bytes=value_bytes)


def open_directory(disk: SimDisk) -> DataDirectory:
    return DataDirectory.open(disk, ROOT, SimEntropy(2))


# -- what must hold after any damage --------------------------------------------------------------------------------


def check_everything(original: Original, path: str, allowed: set[int]) -> None:
    """Open what is on the disk after damage to `path` and look at all of it; only offsets in `allowed` may be reported
    as damaged."""
    directory = open_directory(original.disk)
    log = directory.open_log(PARTITION, CONFIG)
    check_reads(original, log, allowed)
    check_times(original, log)
    check_appends(log)
    directory.close()
    if not path.startswith(LOG_DIRECTORY):
        return
    # Once more: damage must not be forgotten, and what recovery did must hold.
    directory = open_directory(original.disk)
    log = directory.open_log(PARTITION, CONFIG)
    check_times(original, log)
    check_reads(original, log, allowed)
    directory.close()


def check_reads(original: Original, log: Log, allowed: set[int]) -> None:
    assert log.log_start_offset <= original.log_start_offset
    assert log.log_end_offset >= original.log_end_offset
    for offset, raw in original.records.items():
        found = read_or_error(log, offset)
        if isinstance(found, DataDamagedError):
            check_error(found, offset, allowed)
        else:
            assert found == raw


def read_or_error(log: Log, offset: int) -> bytes | DataDamagedError:
    try:
        return log.read(offset, 1)
    except DataDamagedError as error:
        return error


def check_error(error: DataDamagedError, offset: int, allowed: set[int]) -> None:
    assert offset in allowed, f"{offset} was not touched: {error}"
    first, last = error.context["from_offset"], error.context["to_offset"]
    assert isinstance(first, int)
    assert isinstance(last, int)
    assert first <= offset < last
    assert str(error.context["file"]).startswith(LOG_DIRECTORY)
    assert str(error.context["file"]) in error.message


def check_times(original: Original, log: Log) -> None:
    for stamp, offset in original.times.items():
        found = lookup_or_error(log, stamp)
        if isinstance(found, DataDamagedError):
            # Only where a record that cannot be read lies before the answer or is the answer.
            assert int(str(found.context["from_offset"])) <= offset
        else:
            assert found == offset


def lookup_or_error(log: Log, timestamp_ns: int) -> int | DataDamagedError | None:
    try:
        return log.offset_at_time(timestamp_ns)
    except DataDamagedError as error:
        return error


def check_appends(log: Log) -> None:
    offset = log.append(batch(b"new"), now_ns=START_NS).base_offset
    log.sync()
    assert [record.value for record in decode(log.read(offset, 1))] == [b"new"]


def offsets_of(original: Original, path: str, start: int, end: int) -> set[int]:
    """Offsets that may be lost with the bytes in [start, end) of a file: those between the readable records around
    them. Where compaction has removed neighbours nobody can tell which of them was hit."""
    lost: set[int] = set()
    if path not in original.places:
        return lost
    place = original.places[path]
    offsets = [offset for _, _, offset in place]
    befores = [int(path.rsplit("/", 1)[1][:20]) - 1, *offsets]
    afters = [*offsets[1:], offsets[-1] + 1]
    for (position, behind, _), before, after in zip(place, befores, afters, strict=False):
        if position < end and behind > start:
            lost.update(range(before + 1, after))
    return lost


# -- the sweeps -----------------------------------------------------------------------------------------------------

CLEAN = pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
PARTS = 4


def flips(original: Original, part: int) -> Iterator[tuple[str, int]]:
    for path, size in original.files.items():
        for byte in range(part, size, PARTS):
            yield path, byte


@CLEAN
@pytest.mark.parametrize("part", range(PARTS))
def test_a_flipped_bit_anywhere_costs_at_most_the_record_it_is_in(clean: bool, part: int) -> None:
    before = original(clean=clean)
    for path, byte in flips(before, part):
        before.disk.restore(before.snapshot)
        before.disk.flip_bit(path, byte, byte % 8)
        check_everything(before, path, offsets_of(before, path, byte, byte + 1))


@CLEAN
@pytest.mark.parametrize("part", range(PARTS))
def test_a_file_cut_anywhere_costs_at_most_the_records_behind_the_cut(clean: bool, part: int) -> None:
    before = original(clean=clean)
    for path, length in flips(before, part):
        before.disk.restore(before.snapshot)
        before.disk.open(path, writable=True).truncate(length)
        check_everything(before, path, offsets_of(before, path, length, before.files[path]))


@CLEAN
def test_a_removed_file_costs_at_most_its_own_records(clean: bool) -> None:
    before = original(clean=clean)
    for path, size in before.files.items():
        before.disk.restore(before.snapshot)
        before.disk.remove(path)
        check_everything(before, path, offsets_of(before, path, 0, size))


@CLEAN
def test_a_removed_log_file_is_named_even_after_a_restart(clean: bool) -> None:
    before = original(clean=clean)
    for path, place in before.places.items():
        before.disk.restore(before.snapshot)
        before.disk.remove(path)
        for _ in range(2):
            directory = open_directory(before.disk)
            log = directory.open_log(PARTITION, CONFIG)
            with pytest.raises(DataDamagedError) as caught:
                log.read(place[0][2], 1)
            assert caught.value.context["file"] == path
            directory.close()


@CLEAN
def test_both_indexes_of_a_segment_may_go(clean: bool) -> None:
    before = original(clean=clean)
    for path in before.places:
        before.disk.restore(before.snapshot)
        before.disk.remove(path.removesuffix(LOG_SUFFIX) + ".index")
        before.disk.remove(path.removesuffix(LOG_SUFFIX) + ".timeindex")
        check_everything(before, path, set())


@CLEAN
def test_the_damage_of_large_records_is_as_narrow(clean: bool) -> None:
    """Records above the size of an index interval and of any buffer on the way; bytes chosen by chance."""
    before = original(clean=clean, value_bytes=70_000)
    rng = random.Random(5)
    for path in before.places:
        for _ in range(3):
            before.disk.restore(before.snapshot)
            byte = rng.randrange(before.files[path])
            before.disk.flip_bit(path, byte, rng.randrange(8))
            check_everything(before, path, offsets_of(before, path, byte, byte + 1))


@CLEAN
def test_segments_with_many_index_entries_are_as_safe(clean: bool) -> None:
    before = original(clean=clean, value_bytes=1500)
    rng = random.Random(6)
    for path, size in before.files.items():
        for _ in range(20 if size > 100 else size):
            before.disk.restore(before.snapshot)
            byte = rng.randrange(size)
            if rng.random() < 0.5:
                before.disk.flip_bit(path, byte, rng.randrange(8))
                check_everything(before, path, offsets_of(before, path, byte, byte + 1))
            else:
                before.disk.open(path, writable=True).truncate(byte)
                check_everything(before, path, offsets_of(before, path, byte, size))
