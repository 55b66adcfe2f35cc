"""What a partition keeps about its delays beside the log: a mark that there are any, and a snapshot of them.

The mark is an empty file whose name is durable before the first delayed record is appended: a partition without one is
never read for delays. The snapshot is a shortcut. When it is missing, torn, ahead of the log or made from another log,
the log is read from its start instead; the log alone is the truth.
"""

from __future__ import annotations

import contextlib
import logging
from array import array

from goqueue.delays import DUE_HEADER, DelayIndex, DelayRecord, DelaySnapshot, control_batch, read_control
from goqueue.errors import DataDamagedError, GoQueueError
from goqueue.host import Disk
from goqueue.record import ControlKind, collect_delayed, crc32c, last_offset
from goqueue.storage import Log
from goqueue.storage.segment import write_all

MARK_FILE = "delays"
SNAPSHOT_FILE = "delays.snapshot"
_UNFINISHED_FILE = "delays.snapshot.new"
_READ_BYTES = 1 << 20
_DUE_NAME = DUE_HEADER.encode()

_logger = logging.getLogger(__name__)


def has_delays(log: Log) -> bool:
    return log.disk.exists(f"{log.directory}/{MARK_FILE}")


def mark(log: Log) -> None:
    """From now on the log may hold delayed records; durable when this returns."""
    with contextlib.suppress(FileExistsError):
        log.disk.create(f"{log.directory}/{MARK_FILE}").close()
    log.disk.sync_directory(log.directory)


def recover(log: Log, *, now_ns: int) -> DelayIndex:
    """The delays as the log has them. A release that a crash tore is completed by a record that says so, before
    anybody else can append."""
    index, offset = _start(log, now_ns // 1_000_000)
    while offset < log.log_end_offset:
        try:
            data = log.read(offset, _READ_BYTES)
        except DataDamagedError as error:
            _logger.error("delays in damaged data are not known", extra={"directory": log.directory})
            offset = int(str(error.context["to_offset"]))
            continue
        replay(index, data, offset)
        offset = last_offset(data) + 1
    torn = index.torn_release(log.log_end_offset)
    if torn:
        record = DelayRecord(ControlKind.RESCHEDULED, torn)
        facts = log.append(control_batch(record), now_ns=now_ns)
        log.sync()
        index.replay_control(facts.base_offset, record)
    return index


def replay(index: DelayIndex, data: bytes, min_offset: int) -> None:
    """Delayed records first: a control record is only ever about what is in front of it."""
    pairs, controls = collect_delayed(data, _DUE_NAME, min_offset)
    numbers = array("q", pairs)
    for offset, due_ms in zip(numbers[::2], numbers[1::2], strict=True):
        index.replay_delayed(offset, due_ms)
    for control in controls:
        record = read_control(control)
        if record is not None:
            index.replay_control(control.offset, record)


def _start(log: Log, now_ms: int) -> tuple[DelayIndex, int]:
    """The state to begin with, and the first offset that is not in it."""
    snapshot = _read_snapshot(log)
    if snapshot is None:
        return DelayIndex(now_ms), log.log_start_offset
    return DelayIndex.restored(snapshot, now_ms), max(snapshot.next_offset, log.log_start_offset)


def _read_snapshot(log: Log) -> DelaySnapshot | None:
    path = f"{log.directory}/{SNAPSHOT_FILE}"
    try:
        if not log.disk.exists(path):
            return None
        file = log.disk.open(path)
        snapshot = DelaySnapshot.unpack(file.pread(file.size(), 0))
        file.close()
    except OSError:
        return None
    if snapshot is None or snapshot.next_offset > log.log_end_offset:
        return None
    return snapshot if _witness(log, snapshot.last_offset) == snapshot.witness else None


def _witness(log: Log, offset: int) -> int | None:
    """Checksum of the record at an offset; 0 for no record, None when it cannot be read any more."""
    if offset < 0:
        return 0
    try:
        return crc32c(log.read(offset, 1))
    except GoQueueError:
        return None


def take_snapshot(log: Log, index: DelayIndex) -> DelaySnapshot | None:
    """The state at the log's present end; nothing may be staged. It may be stored once that much is durable."""
    witness = _witness(log, index.last_offset)
    return None if witness is None else index.snapshot(next_offset=log.log_end_offset, witness=witness)


def store_snapshot(disk: Disk, directory: str, snapshot: DelaySnapshot) -> None:
    """Replace the stored snapshot; whatever happens, the old one, the new one or none can be read."""
    path = f"{directory}/{_UNFINISHED_FILE}"
    if disk.exists(path):
        disk.remove(path)
    file = disk.create(path)
    try:
        write_all(file, bytearray(snapshot.pack()))
        file.sync()
    finally:
        file.close()
    disk.rename(path, f"{directory}/{SNAPSHOT_FILE}")
    disk.sync_directory(directory)
