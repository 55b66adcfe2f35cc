"""Retention: old segments go, whole ones, oldest first, never the active one and never one that somebody still
needs."""

from __future__ import annotations

from goqueue.storage.log import Log


def apply_retention(log: Log, *, now_ns: int, pinned_offset: int | None = None) -> int:
    """Remove what the log's settings no longer keep; returns the segments removed.

    `pinned_offset` is the lowest offset that a pending delay or a running job may still read.
    """
    _roll_expired(log, now_ns)
    offset = max(_expired_by_time(log, now_ns), _expired_by_size(log))
    if pinned_offset is not None:
        offset = min(offset, pinned_offset)
    return log.delete_before(offset)


def _roll_expired(log: Log, now_ns: int) -> None:
    """An active segment that is old as a whole is closed, or a quiet topic would keep its last records for ever."""
    active = log.segments[-1]
    limit_ns = log.config.retention_ms * 1_000_000
    if limit_ns and active.size_bytes and now_ns - active.max_timestamp_ns > limit_ns:
        log.roll()


def _expired_by_time(log: Log, now_ns: int) -> int:
    limit_ns = log.config.retention_ms * 1_000_000
    offset = log.log_start_offset
    if not limit_ns:
        return offset
    for segment in log.sealed_segments:
        if now_ns - segment.max_timestamp_ns <= limit_ns:
            break
        offset = segment.next_offset
    return offset


def _expired_by_size(log: Log) -> int:
    excess = log.size_bytes - log.config.retention_bytes if log.config.retention_bytes else 0
    offset = log.log_start_offset
    for segment in log.sealed_segments:
        # A segment goes only when what remains without it is still as much as the settings promise to keep.
        excess -= segment.size_bytes
        if excess < 0:
            break
        offset = segment.next_offset
    return offset
