"""Delayed messages from the client's side: how times are given, and what a delayed send asks of the broker.

A delay is counted by the broker's clock, from the moment the message arrives there. Unlike a batch, a delayed send is
not repeated after a lost connection: the caller is told, and may look at the list of what is pending.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from goqueue.client.link import Link
from goqueue.errors import DelayInvalidError
from goqueue.protocol.wire import error_of

# Seconds, or a span of time.
Delay = float | timedelta
# Seconds since 1970, or a time with its zone.
Moment = float | datetime


def delay_fields(delay: Delay | None, deliver_at: Moment | None) -> dict[str, int]:
    """The arguments of a call, in whole milliseconds rounded up: never early."""
    if delay is not None and deliver_at is not None:
        raise DelayInvalidError("give delay or deliver_at, not both")
    if delay is not None:
        return {"delay_ms": _milliseconds(delay.total_seconds() if isinstance(delay, timedelta) else delay)}
    if deliver_at is None:
        return {}
    if isinstance(deliver_at, datetime):
        if deliver_at.tzinfo is None:
            raise DelayInvalidError("deliver_at needs a time zone, such as datetime.now(UTC)")
        deliver_at = deliver_at.timestamp()
    return {"deliver_at_ms": _milliseconds(deliver_at)}


def _milliseconds(seconds: float) -> int:
    if not math.isfinite(seconds) or abs(seconds) > 1e15:
        raise DelayInvalidError(f"{seconds} seconds are not a delay")
    # To the microsecond first, so that 0.1 s are 100 ms and not 101.
    return math.ceil(round(seconds * 1_000_000) / 1000)


async def send_delayed(
    link: Link,
    topic: str,
    value: bytes | None,
    key: bytes | None,
    headers: Iterable[tuple[str | bytes, str | bytes]] | None,
    priority: int,
    partition: int | None,
    acks: str,
    times: dict[str, int],
) -> dict[str, Any]:
    """Publish one message with a delay; returns where the broker put it."""
    pairs = [[_bytes(name), _bytes(text)] for name, text in headers or ()]
    fields = {"value": value, "key": key, "headers": pairs, "priority": priority, "partition": partition, **times}
    connection = await link.connection()
    answer: Any = await connection.call("delay.publish", topic=topic, messages=[fields], acks=acks)
    result: dict[str, Any] = answer[0]
    if "error" in result:
        raise error_of(result["error"])
    return result


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else bytes(text)
