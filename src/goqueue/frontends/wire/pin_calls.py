"""Calls about retention pins."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from goqueue.broker import BrokerApi
from goqueue.errors import InvalidRequestError
from goqueue.metadata.pins import LIFETIME_MS_DEFAULT


def pin_calls(broker: BrokerApi) -> dict[str, Callable[..., Awaitable[object]]]:
    async def set_pin(name: str, topic: str, offsets: dict[str, int], lifetime_ms: int = LIFETIME_MS_DEFAULT) -> None:
        if not all(number.isdecimal() for number in offsets):
            raise InvalidRequestError('offsets are given by partition, as in {"0": 42}')
        await broker.pins.set(name, topic, {int(number): offset for number, offset in offsets.items()}, lifetime_ms)

    async def remove(name: str) -> bool:
        return await broker.pins.remove(name)

    async def list_all() -> list[dict[str, object]]:
        return [
            {
                "name": pin.name,
                "topic": pin.topic,
                "offsets": {str(number): offset for number, offset in pin.offsets.items()},
                "expires_ms": pin.expires_ms,
            }
            for pin in broker.pins.pins()
        ]

    return {"pin.set": set_pin, "pin.remove": remove, "pin.list": list_all}
