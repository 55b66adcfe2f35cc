"""Calls about topics and the broker as a whole."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from goqueue import __version__
from goqueue.broker import BrokerApi
from goqueue.frontends.shapes import size_fields, topic_fields


def topic_calls(broker: BrokerApi) -> dict[str, Callable[..., Awaitable[object]]]:
    catalog = broker.topics.catalog

    async def create(name: str, partitions: int = 3, settings: dict[str, object] | None = None) -> dict[str, object]:
        return topic_fields(await broker.create_topic(name, partition_count=partitions, settings=settings))

    async def alter(name: str, settings: dict[str, object]) -> dict[str, object]:
        return topic_fields(await broker.alter_topic(name, settings))

    async def delete(name: str) -> None:
        await broker.delete_topic(name)

    async def describe(name: str) -> dict[str, object]:
        return {**topic_fields(catalog.get(name)), **size_fields(broker, name)}

    async def list_all() -> list[dict[str, object]]:
        return [topic_fields(info) for info in catalog.topics()]

    async def offset_at_time(topic: str, partition: int, timestamp_ns: int) -> int | None:
        return broker.topics.partition(topic, partition).log.offset_at_time(timestamp_ns)

    async def status() -> dict[str, Any]:
        health = broker.health()
        topics = catalog.topics()
        return {
            "ready": health.ready,
            "phase": str(health.phase),
            "version": __version__,
            "uptime_s": int(broker.uptime_s),
            "topics": len(topics),
            "partitions": sum(info.partition_count for info in topics),
            "checks": health.checks,
        }

    return {
        "topic.create": create,
        "topic.alter": alter,
        "topic.delete": delete,
        "topic.describe": describe,
        "topic.list": list_all,
        "offset.at_time": offset_at_time,
        "status": status,
    }
