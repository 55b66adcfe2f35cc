"""The methods behind CALL frames: metadata and administration, one function each."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from goqueue import __version__
from goqueue.broker import BrokerApi
from goqueue.errors import InvalidRequestError
from goqueue.metadata import TopicInfo

Method = Callable[..., Awaitable[object]]


class Calls:
    def __init__(self, broker: BrokerApi) -> None:
        self._broker = broker
        self._methods: dict[str, Method] = {
            "topic.create": self._create,
            "topic.alter": self._alter,
            "topic.delete": self._delete,
            "topic.describe": self._describe,
            "topic.list": self._list,
            "offset.at_time": self._offset_at_time,
            "status": self._status,
        }

    async def run(self, request: object) -> object:
        """Carry out `[method, arguments]`; anything else is refused with what is known."""
        if not isinstance(request, list) or len(request) != 2 or not isinstance(request[1], dict):
            raise InvalidRequestError("a call is [method, {argument: value}]")
        name, arguments = request
        method = self._methods.get(name) if isinstance(name, str) else None
        if method is None:
            raise InvalidRequestError(f"unknown method {name!r}; known: {', '.join(sorted(self._methods))}")
        try:
            inspect.signature(method).bind(**arguments)
        except TypeError as error:
            raise InvalidRequestError(f"{name}: {error}") from None
        hints = typing.get_type_hints(method)
        for argument, value in arguments.items():
            try:
                msgspec.convert(value, hints[argument])
            except msgspec.ValidationError as error:
                raise InvalidRequestError(f"{name}: {argument}: {error}") from None
        return await method(**arguments)

    async def _create(
        self, name: str, partitions: int = 3, settings: dict[str, object] | None = None
    ) -> dict[str, object]:
        info = await self._broker.create_topic(name, partition_count=partitions, settings=settings)
        return topic_fields(info)

    async def _alter(self, name: str, settings: dict[str, object]) -> dict[str, object]:
        return topic_fields(await self._broker.alter_topic(name, settings))

    async def _delete(self, name: str) -> None:
        await self._broker.delete_topic(name)

    async def _describe(self, name: str) -> dict[str, object]:
        info = self._broker.topics.catalog.get(name)
        return {**topic_fields(info), **partition_fields(self._broker, name)}

    async def _list(self) -> list[dict[str, object]]:
        return [topic_fields(info) for info in self._broker.topics.catalog.topics()]

    async def _offset_at_time(self, topic: str, partition: int, timestamp_ns: int) -> int | None:
        return self._broker.topics.partition(topic, partition).log.offset_at_time(timestamp_ns)

    async def _status(self) -> dict[str, Any]:
        health = self._broker.health()
        topics = self._broker.topics.catalog.topics()
        return {
            "ready": health.ready,
            "phase": str(health.phase),
            "version": __version__,
            "uptime_s": int(self._broker.uptime_s),
            "topics": len(topics),
            "partitions": sum(info.partition_count for info in topics),
            "checks": health.checks,
        }


def topic_fields(info: TopicInfo) -> dict[str, object]:
    """A topic as every face shows it."""
    return {
        "name": info.name,
        "partitions": info.partition_count,
        "topic_id": info.topic_id,
        "created_ms": info.created_ms,
        "config": info.settings.as_dict(),
    }


def partition_fields(broker: BrokerApi, topic: str) -> dict[str, object]:
    """Sizes and offsets of a topic's partitions, keyed by partition as text."""
    logs = [partition.log for partition in broker.topics.partitions_of(topic)]
    return {
        "total_messages": sum(log.log_end_offset - log.log_start_offset for log in logs),
        "total_size_bytes": sum(log.size_bytes for log in logs),
        "partition_offsets": {
            str(number): {"earliest": log.log_start_offset, "latest": log.log_end_offset}
            for number, log in enumerate(logs)
        },
    }
