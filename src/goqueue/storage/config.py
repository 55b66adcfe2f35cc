"""Settings of a partition's log. A topic's settings become one of these; every number is validated as a whole."""

from __future__ import annotations

from dataclasses import dataclass, fields

from goqueue.errors import ConfigurationError
from goqueue.record import VALUE_BYTES_MAX

SEGMENT_BYTES_MIN = 4 << 10
SEGMENT_BYTES_MAX = 2 << 30
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    # A segment is closed before it would grow beyond this; a single larger batch still gets a segment of its own.
    segment_bytes: int = 64 << 20
    # ... or when its first record is this old, so that retention by time works on quiet topics.
    segment_ms: int = 168 * HOUR_MS
    # Records older than this may go, whole segments at a time; 0 keeps them for ever.
    retention_ms: int = 168 * HOUR_MS
    # The log may hold this much before its oldest segments go; 0 is no limit.
    retention_bytes: int = 0
    # Largest value accepted; a topic may allow less than the format does.
    value_bytes_max: int = VALUE_BYTES_MAX
    # Keep the latest value per key instead of a stretch of time.
    compact: bool = False
    # A deleted key stays visible as a tombstone this long, so that readers can learn of it.
    tombstone_retention_ms: int = 24 * HOUR_MS
    # Keys that one compaction pass holds in memory (about 150 bytes each); more keys take more passes.
    compaction_keys_max: int = 2_000_000

    def __post_init__(self) -> None:
        problems = [problem for name in _RULES if (problem := self._problem(name))]
        if problems:
            raise ConfigurationError("; ".join(problems), problems=problems)

    def _problem(self, name: str) -> str | None:
        low, high = _RULES[name]
        value = getattr(self, name)
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return None
        return f"{name} must be a whole number from {low} to {high}, not {value!r}"


_FOREVER_MS = 1 << 53
_RULES = {
    "segment_bytes": (SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX),
    "segment_ms": (1, _FOREVER_MS),
    "retention_ms": (0, _FOREVER_MS),
    "retention_bytes": (0, 1 << 62),
    "value_bytes_max": (1, VALUE_BYTES_MAX),
    "tombstone_retention_ms": (0, _FOREVER_MS),
    "compaction_keys_max": (1, 1 << 32),
}
assert set(_RULES) | {"compact"} == {field.name for field in fields(LogConfig)}
