"""Settings of a topic: what an operator may choose, validated as a whole, with every problem named at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum

from goqueue.errors import ConfigurationError

_HOUR_MS = 3_600_000


class CleanupPolicy(StrEnum):
    DELETE = "delete"
    COMPACT = "compact"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    # Records older than this may go; 0 keeps them for ever.
    retention_ms: int = 168 * _HOUR_MS
    # Oldest segments go when a partition holds more; 0 is no limit.
    retention_bytes: int = 0
    # Size and age at which a segment is closed.
    segment_bytes: int = 64 << 20
    segment_ms: int = 168 * _HOUR_MS
    # Keep a stretch of time, or the latest value per key.
    cleanup_policy: CleanupPolicy = CleanupPolicy.DELETE
    # How long a deleted key stays visible as a tombstone in a compacted topic.
    tombstone_retention_ms: int = 24 * _HOUR_MS
    # Largest value of one message.
    max_message_bytes: int = 16 << 20

    @classmethod
    def from_mapping(cls, changes: Mapping[str, object], base: TopicSettings | None = None) -> TopicSettings:
        """`base` (or the defaults) with `changes` applied; every unknown name and bad value is reported together."""
        known = {field.name for field in fields(cls)}
        problems = [
            f"unknown setting {name!r}; known: {', '.join(sorted(known))}" for name in changes if name not in known
        ]
        valid: dict[str, object] = {}
        for name in known & changes.keys():
            value, problem = _checked(name, changes[name])
            if problem:
                problems.append(problem)
            else:
                valid[name] = value
        if problems:
            raise ConfigurationError("; ".join(problems), problems=problems)
        return replace(base or cls(), **valid)  # type: ignore[arg-type]

    def as_dict(self) -> dict[str, object]:
        return {name: str(value) if isinstance(value, CleanupPolicy) else value for name, value in asdict(self).items()}


_RANGES = {
    "retention_ms": (0, 1 << 53),
    "retention_bytes": (0, 1 << 62),
    "segment_bytes": (4 << 10, 2 << 30),
    "segment_ms": (1, 1 << 53),
    "tombstone_retention_ms": (0, 1 << 53),
    "max_message_bytes": (1, 16 << 20),
}


def _checked(name: str, value: object) -> tuple[object, str | None]:
    if name == "cleanup_policy":
        try:
            return CleanupPolicy(str(value)), None
        except ValueError:
            return None, f"cleanup_policy must be one of {', '.join(CleanupPolicy)}, not {value!r}"
    low, high = _RANGES[name]
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        return None, f"{name} must be a whole number from {low} to {high}, not {value!r}"
    return value, None
