"""Retention pins: what is pinned stays, what is not goes, and no pin lives for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from goqueue.broker import BrokerApi, Message
from goqueue.errors import (
    InvalidNameError,
    InvalidRequestError,
    LimitExceededError,
    PartitionNotFoundError,
    TopicInternalError,
    TopicNotFoundError,
)
from goqueue.host import OsDisk, OsEntropy
from goqueue.metadata import RetentionPins
from goqueue.testing import SimClock

SECOND_NS = 1_000_000_000


async def opened(path: Path, clock: SimClock) -> BrokerApi:
    return await BrokerApi.open(disk=OsDisk(), path=str(path), clock=clock, entropy=OsEntropy())


async def fill(api: BrokerApi) -> None:
    await api.create_topic("orders", partition_count=1, settings={"segment_bytes": 4096, "retention_bytes": 4096})
    for _ in range(20):
        await api.publish("orders", [Message(value=b"x" * 300)] * 5)


async def start_after_retention(api: BrokerApi) -> int:
    partition = api.topics.partition("orders", 0)
    await api.maintenance.tend(partition)
    return partition.log.log_start_offset


async def test_retention_keeps_what_is_pinned_and_takes_it_when_the_pin_is_gone(tmp_path: Path) -> None:
    api = await opened(tmp_path, SimClock())
    await fill(api)
    await api.pins.set("job", "orders", {0: 30})
    assert 0 < await start_after_retention(api) <= 30
    assert await api.pins.remove("job")
    assert await start_after_retention(api) > 30
    assert not await api.pins.remove("job")
    await api.close()


async def test_a_pin_survives_a_restart_and_ends_by_itself(tmp_path: Path) -> None:
    clock = SimClock()
    api = await opened(tmp_path, clock)
    await fill(api)
    await api.pins.set("job", "orders", {0: 0}, lifetime_ms=60_000)
    await api.close()
    api = await opened(tmp_path, clock)
    assert await start_after_retention(api) == 0
    clock.advance_ns(61 * SECOND_NS)
    assert await start_after_retention(api) > 0
    await api.pins.sweep()
    assert api.pins.pins() == []
    await api.close()


async def test_a_pin_does_not_hold_a_topic_that_was_made_anew(tmp_path: Path) -> None:
    api = await opened(tmp_path, SimClock())
    await fill(api)
    await api.pins.set("job", "orders", {0: 0})
    await api.delete_topic("orders")
    await fill(api)
    assert await start_after_retention(api) > 0
    await api.close()


async def test_bad_pins_are_refused_and_change_nothing(tmp_path: Path) -> None:
    api = await opened(tmp_path, SimClock())
    await fill(api)
    for error, name, topic, offsets, lifetime_ms in (
        (InvalidNameError, "a/b", "orders", {0: 0}, 1000),
        (TopicNotFoundError, "job", "nothing", {0: 0}, 1000),
        (TopicInternalError, "job", "__pins", {0: 0}, 1000),
        (PartitionNotFoundError, "job", "orders", {5: 0}, 1000),
        (InvalidRequestError, "job", "orders", {0: -1}, 1000),
        (InvalidRequestError, "job", "orders", {0: 0}, 0),
        (InvalidRequestError, "job", "orders", {0: 0}, 1 << 40),
    ):
        with pytest.raises(error):
            await api.pins.set(name, topic, offsets, lifetime_ms)
    assert api.pins.pins() == []
    await api.close()


def test_there_is_a_limit_to_the_number_of_pins() -> None:
    machine = RetentionPins(pins_max=1)
    machine.replay(machine.handle_set("one", topic="t", topic_id="i", offsets={0: 1}, lifetime_ms=1000, now_ms=0))
    with pytest.raises(LimitExceededError):
        machine.handle_set("two", topic="t", topic_id="i", offsets={0: 1}, lifetime_ms=1000, now_ms=0)
    moved = machine.handle_set("one", topic="t", topic_id="i", offsets={0: 2}, lifetime_ms=1000, now_ms=0)
    machine.replay(moved)
    assert machine.lowest("i", 0, now_ms=0) == 2
