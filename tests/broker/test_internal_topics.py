"""Topics of the broker's own: hidden from lists, closed to clients, kept over a restart."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from goqueue.broker import BrokerApi, Message
from goqueue.errors import TopicInternalError
from goqueue.host import OsClock, OsDisk, OsEntropy
from goqueue.metadata import CleanupPolicy, TopicSettings

COMPACTED = TopicSettings(cleanup_policy=CleanupPolicy.COMPACT)


@asynccontextmanager
async def broker(path: Path) -> AsyncIterator[BrokerApi]:
    api = await BrokerApi.open(disk=OsDisk(), path=str(path), clock=OsClock(), entropy=OsEntropy())
    try:
        yield api
    finally:
        await api.close()


async def test_records_of_an_internal_topic_are_there_after_a_restart(tmp_path: Path) -> None:
    async with broker(tmp_path) as api:
        logs = await api.topics.open_internal("__things", 4, COMPACTED)
        await logs[3].append([(b"k", b"v")])
    async with broker(tmp_path) as api:
        logs = await api.topics.open_internal("__things", 4, COMPACTED)
        assert [list(log.replay()) for log in logs] == [[], [], [], [(b"k", b"v")]]


async def test_an_internal_topic_keeps_its_partition_count_whatever_is_asked_for_later(tmp_path: Path) -> None:
    async with broker(tmp_path) as api:
        await api.topics.open_internal("__things", 4, COMPACTED)
    async with broker(tmp_path) as api:
        assert len(await api.topics.open_internal("__things", 9, COMPACTED)) == 4


async def test_internal_topics_are_not_listed_and_cannot_be_touched(tmp_path: Path) -> None:
    async with broker(tmp_path) as api:
        await api.topics.open_internal("__things", 1, COMPACTED)
        assert [info.name for info in api.topics.catalog.topics()] == []
        assert "__things" in [info.name for info in api.topics.catalog.topics(internal=True)]
        with pytest.raises(TopicInternalError):
            await api.publish("__things", [Message(value=b"v")])
        with pytest.raises(TopicInternalError):
            await api.delete_topic("__things")
        with pytest.raises(TopicInternalError):
            await api.alter_topic("__things", {"retention_ms": 1})


async def test_maintenance_tends_internal_topics(tmp_path: Path) -> None:
    async with broker(tmp_path) as api:
        logs = await api.topics.open_internal("__things", 1, COMPACTED)
        for n in range(100):
            await logs[0].append([(b"same", b"%d" % n)])
        logs[0].log.roll()
        await api.maintenance.compact(api.topics.partition("__things", 0), everything=True)
        assert list(logs[0].replay()) == [(b"same", b"99")]


async def test_listeners_hear_of_topics_that_come_change_and_go(tmp_path: Path) -> None:
    heard: list[str] = []
    async with broker(tmp_path) as api:
        api.topics.listeners.append(heard.append)
        await api.create_topic("orders")
        await api.alter_topic("orders", {"retention_ms": 1})
        await api.delete_topic("orders")
    assert heard == ["orders"] * 3


async def test_the_catalog_itself_is_compacted(tmp_path: Path) -> None:
    async with broker(tmp_path) as api:
        await api.create_topic("orders")
        for n in range(1, 50):
            await api.alter_topic("orders", {"retention_ms": n})
        metadata = api.topics.partition("__metadata", 0)
        metadata.log.roll()
        await api.maintenance.compact(metadata, everything=True)
        size = metadata.log.size_bytes
    async with broker(tmp_path) as api:
        assert size < 2_000
        assert api.topics.catalog.get("orders").settings.retention_ms == 49
