"""What the storage tests share: a simulated disk, logs on it, and readers that look at every offset."""

from __future__ import annotations

import random

from goqueue.record import BatchBuilder, Record, decode
from goqueue.storage import Log, LogConfig
from goqueue.testing import SimDisk

DIRECTORY = "/data/logs/orders/0"
SECOND_NS = 1_000_000_000
HOUR_NS = 3600 * SECOND_NS
START_NS = 1_700_000_000 * SECOND_NS
SMALL = LogConfig(segment_bytes=4096, retention_ms=0)


def make_disk(seed: int = 1) -> SimDisk:
    return SimDisk(random.Random(seed))


def open_log(disk: SimDisk, config: LogConfig = SMALL) -> Log:
    return Log.open(disk, DIRECTORY, config)


def batch(*values: bytes | None, key: bytes | None = None, timestamp_ns: int = 0, flags: int = 0) -> bytearray:
    """A batch of records that have everything but the value in common."""
    builder = BatchBuilder()
    for value in values:
        builder.add(value, key, timestamp_ns=timestamp_ns, flags=flags)
    return builder.take()


def append(log: Log, *values: bytes | None, key: bytes | None = None, timestamp_ns: int = START_NS) -> int:
    """Append one batch; returns the offset after it."""
    return log.append(batch(*values, key=key, timestamp_ns=timestamp_ns), now_ns=timestamp_ns).next_offset


def fill(log: Log, segment_count: int, *, value: bytes = b"v" * 200, timestamp_ns: int = START_NS) -> None:
    """Append one record at a time until the log has that many segments, the last of them with a record in it."""
    while len(log.segments) < segment_count:
        append(log, value, timestamp_ns=timestamp_ns)


def read_all(log: Log, *, bytes_max: int = 1 << 20) -> list[Record]:
    """Every record from the log's start to its end."""
    records: list[Record] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset and (data := log.read(offset, bytes_max)):
        records += decode(data)
        offset = records[-1].offset + 1
    return records


def values_of(log: Log) -> list[bytes | None]:
    return [record.value for record in read_all(log)]


def read_one(log: Log, offset: int) -> Record:
    """The first record at or above `offset`."""
    return decode(log.read(offset, 1))[0]
