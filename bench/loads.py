"""What the cases write: batches of random values, and logs full of them."""

from __future__ import annotations

import random
from collections.abc import Callable

from goqueue.host import OsDisk
from goqueue.record import BatchBuilder
from goqueue.storage import Log, LogConfig

VALUE_BYTES = 100
# Built logs have a made-up clock: batch n is stamped START_NS + n * STEP_NS.
START_NS = 1_700_000_000_000_000_000
STEP_NS = 1_000_000
_BUILD_BATCH_RECORDS = 500
_SYNC_EVERY_BYTES = 256 << 20


def make_batch(record_count: int, *, value_bytes: int = VALUE_BYTES, seed: int = 0) -> bytearray:
    """A batch as a producer sends it: no offsets, no timestamps. Values differ, so nothing can be cached by content."""
    source = random.Random(seed)
    builder = BatchBuilder()
    builder.extend([source.randbytes(value_bytes) for _ in range(record_count)])
    return builder.take()


def log_config(segment_bytes: int = 64 << 20) -> LogConfig:
    # Records of the made-up clock are years old; only size may roll a segment.
    return LogConfig(segment_bytes=segment_bytes, segment_ms=1 << 50, retention_ms=0)


def build_log(path: str, *, segment_count: int, segment_bytes: int, progress: Callable[[str], None]) -> None:
    """A cleanly closed log whose segments, the active one too, are full of small records."""
    template = make_batch(_BUILD_BATCH_RECORDS)
    batch_count = segment_count * (segment_bytes // len(template))
    log = Log.open(OsDisk(), path, log_config(segment_bytes))
    unsynced = 0
    for number in range(batch_count):
        log.append(bytearray(template), now_ns=START_NS + number * STEP_NS)
        unsynced += len(template)
        if unsynced >= _SYNC_EVERY_BYTES:
            log.sync()
            unsynced = 0
            progress(f"building {path}: segment {len(log.segments)}/{segment_count}")
    assert len(log.segments) == segment_count, "segments are filled to the last whole batch"
    log.close()
