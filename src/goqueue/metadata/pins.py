"""Retention pins: offsets that somebody may still read, so retention must not remove them. Pure.

A pin has a name, covers partitions of one topic, and ends at a time of its own unless it is set again: a reader that
died must not keep data for ever. It is bound to the topic's id, because a topic made anew has other offsets.
Records: key = name, value = JSON of the pin; a tombstone removes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from goqueue.errors import InvalidRequestError, LimitExceededError
from goqueue.metadata.catalog import MetadataRecord
from goqueue.model import validate_name

PINS_MAX = 10_000
LIFETIME_MS_DEFAULT = 24 * 3_600_000
LIFETIME_MS_MAX = 30 * 24 * 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    name: str
    topic: str
    topic_id: str
    # partition -> the lowest offset that must stay
    offsets: Mapping[int, int]
    expires_ms: int


class RetentionPins:
    def __init__(self, *, pins_max: int = PINS_MAX) -> None:
        self._pins: dict[str, Pin] = {}
        self._pins_max = pins_max

    # -- questions ----------------------------------------------------------------------------------------------

    def pins(self) -> list[Pin]:
        return sorted(self._pins.values(), key=lambda pin: pin.name)

    def lowest(self, topic_id: str, partition: int, *, now_ms: int) -> int | None:
        """The lowest offset that is pinned now, None when retention is free."""
        offsets = [
            pin.offsets[partition]
            for pin in self._pins.values()
            if pin.topic_id == topic_id and partition in pin.offsets and pin.expires_ms > now_ms
        ]
        return min(offsets, default=None)

    def expired(self, *, now_ms: int) -> list[str]:
        return [pin.name for pin in self._pins.values() if pin.expires_ms <= now_ms]

    # -- decisions ----------------------------------------------------------------------------------------------

    def handle_set(
        self, name: str, *, topic: str, topic_id: str, offsets: Mapping[int, int], lifetime_ms: int, now_ms: int
    ) -> MetadataRecord:
        validate_name(name, kind="pin")
        if not 1 <= lifetime_ms <= LIFETIME_MS_MAX:
            raise InvalidRequestError(f"a pin lives from 1 to {LIFETIME_MS_MAX} ms, not {lifetime_ms}", pin=name)
        if any(offset < 0 for offset in offsets.values()):
            raise InvalidRequestError("a pinned offset is not negative", pin=name)
        if name not in self._pins and len(self._pins) >= self._pins_max:
            raise LimitExceededError(f"the broker holds {self._pins_max} pins, its limit", limit="pins")
        value = {
            "topic": topic,
            "topic_id": topic_id,
            "offsets": {str(number): offset for number, offset in offsets.items()},
            "expires_ms": now_ms + lifetime_ms,
        }
        return MetadataRecord(name.encode(), json.dumps(value, sort_keys=True).encode())

    def handle_remove(self, name: str) -> MetadataRecord | None:
        """None when there is no such pin: removing twice is no error."""
        validate_name(name, kind="pin")
        return MetadataRecord(name.encode(), None) if name in self._pins else None

    # -- state --------------------------------------------------------------------------------------------------

    def replay(self, record: MetadataRecord) -> None:
        name = record.key.decode()
        if record.value is None:
            self._pins.pop(name, None)
            return
        fields = json.loads(record.value)
        self._pins[name] = Pin(
            name=name,
            topic=fields["topic"],
            topic_id=fields["topic_id"],
            offsets={int(number): offset for number, offset in fields["offsets"].items()},
            expires_ms=fields["expires_ms"],
        )
