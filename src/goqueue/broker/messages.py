"""What publishers hand in and get back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from goqueue.errors import GoQueueError


class Acks(IntEnum):
    """When a publish is answered: at once, when written, when durable."""

    NONE = 0
    LEADER = 1
    ALL = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str | bytes, str | bytes]] = ()
    priority: int = 2
    # None lets the broker choose: by key, or in turn.
    partition: int | None = None
    # When it becomes visible: after so long, or at a time. At most one of them; neither, 0 or the past is now.
    delay_ms: int | None = None
    deliver_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Published:
    """Where one message went, or why it did not; exactly one of offset and error is set."""

    partition: int | None = None
    offset: int | None = None
    timestamp_ns: int | None = None
    # When a delayed message becomes visible, at another offset; None for one that is visible now.
    deliver_at_ms: int | None = None
    error: GoQueueError | None = None
