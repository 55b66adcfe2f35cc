"""Calls about delayed messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec

from goqueue.broker import Acks, BrokerApi, Message, Published
from goqueue.delays import DelayState
from goqueue.errors import InvalidRequestError
from goqueue.frontends.shapes import delay_statistics, delayed_fields

AcksName = Literal["none", "leader", "all"]


class DelayedMessage(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One message of `delay.publish`; exactly one of `delay_ms` and `deliver_at_ms` counts."""

    value: bytes | None
    key: bytes | None = None
    headers: list[tuple[bytes, bytes]] = []
    priority: int = 2
    partition: int | None = None
    delay_ms: int | None = None
    deliver_at_ms: int | None = None


def delay_calls(broker: BrokerApi) -> dict[str, Callable[..., Awaitable[object]]]:
    async def publish(topic: str, messages: list[dict[str, Any]], acks: AcksName = "all") -> list[dict[str, object]]:
        taken = [_message(fields) for fields in messages]
        return [_result(one) for one in await broker.publish(topic, taken, Acks[acks.upper()])]

    async def pending(topic: str, limit: int = 100, skip: int = 0) -> dict[str, object]:
        found = broker.delays.pending(topic, limit=limit, skip=skip)
        messages = [delayed_fields(broker, partition, delayed) for partition, delayed in found]
        return {"messages": messages, "total": broker.delays.pending_count(topic)}

    async def look_up(topic: str, partition: int, offset: int) -> dict[str, object]:
        return delayed_fields(broker, partition, broker.delays.look_up(topic, partition, offset))

    async def cancel(topic: str, partition: int, offset: int) -> dict[str, object]:
        state = await broker.delays.cancel(topic, partition, offset)
        return {**delayed_fields(broker, partition, state), "cancelled": state.state is DelayState.CANCELLED}

    async def reschedule(
        topic: str, partition: int, offset: int, delay_ms: int | None = None, deliver_at_ms: int | None = None
    ) -> dict[str, object]:
        state = await broker.delays.reschedule(topic, partition, offset, delay_ms=delay_ms, deliver_at_ms=deliver_at_ms)
        return delayed_fields(broker, partition, state)

    async def stats() -> dict[str, object]:
        return delay_statistics(broker)

    return {
        "delay.publish": publish,
        "delay.list": pending,
        "delay.get": look_up,
        "delay.cancel": cancel,
        "delay.reschedule": reschedule,
        "delay.stats": stats,
    }


def _message(fields: dict[str, Any]) -> Message:
    try:
        given = msgspec.convert(fields, DelayedMessage)
    except msgspec.ValidationError as error:
        raise InvalidRequestError(f"delay.publish: a message is wrong: {error}") from None
    return Message(**msgspec.structs.asdict(given))


def _result(published: Published) -> dict[str, object]:
    if published.error is not None:
        return {"error": published.error.as_dict()}
    return {
        "partition": published.partition,
        "offset": published.offset,
        "timestamp_ns": published.timestamp_ns,
        "deliver_at": published.deliver_at_ms,
    }
