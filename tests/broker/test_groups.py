"""The coordinator of groups in a broker: time, restarts, abandoned groups, limits, metrics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from goqueue.broker import BrokerApi, BrokerConfig, MemberView
from goqueue.errors import (
    ConfigurationError,
    GroupNotFoundError,
    InvalidNameError,
    LimitExceededError,
    StaleGenerationError,
    UnknownMemberError,
)
from goqueue.frontends.metrics import Metrics
from goqueue.groups import MemberPhase, Mode
from goqueue.host import OsDisk, OsEntropy
from goqueue.model import partition_for_key
from goqueue.record import BatchBuilder
from goqueue.testing import SimClock


@asynccontextmanager
async def opened(path: Path, clock: SimClock | None = None, **options: Any) -> AsyncIterator[BrokerApi]:
    broker = await BrokerApi.open(
        disk=OsDisk(),
        path=str(path),
        clock=clock or SimClock(),
        entropy=OsEntropy(),
        config=BrokerConfig(**options),
    )
    try:
        if "t" not in broker.topics.catalog:
            await broker.create_topic("t", partition_count=4)
        yield broker
    finally:
        await broker.close()


async def join(broker: BrokerApi, group: str = "g", **options: Any) -> MemberView:
    return await broker.groups.join(group, client_id="c", topics=["t"], **options)


def test_a_broker_without_groups_has_no_topic_for_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as broker:
            assert "__consumer_offsets" not in broker.topics.catalog
            with pytest.raises(GroupNotFoundError):
                broker.groups.group("g")
            with pytest.raises(UnknownMemberError):
                await broker.groups.leave("g", "m")
            await join(broker)
            assert broker.topics.catalog.get("__consumer_offsets").partition_count == 8

    asyncio.run(scenario())


def test_a_group_lives_in_the_partition_that_its_name_hashes_to(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as broker:
            for name in ("a", "b", "orders"):
                await join(broker, name)
                index = partition_for_key(name.encode(), 8)
                assert name in broker.groups.log.machines[index].groups

    asyncio.run(scenario())


def test_a_silent_member_is_expired_by_the_clock_and_a_heartbeat_keeps_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = SimClock()
        async with opened(tmp_path, clock) as broker:
            silent, alive = await join(broker), await join(broker)
            clock.advance_ns(20_000_000_000)
            await broker.groups.heartbeat("g", alive.member_id, alive.generation)
            clock.advance_ns(15_000_000_000)
            broker.groups.tick()
            assert [member.id for member in broker.groups.group("g").members] == [alive.member_id]
            with pytest.raises(UnknownMemberError):
                await broker.groups.heartbeat("g", silent.member_id, alive.generation)

    asyncio.run(scenario())


def test_partitions_that_are_not_given_up_are_taken_at_the_deadline(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = SimClock()
        async with opened(tmp_path, clock, group_rebalance_timeout_ms=5_000) as broker:
            slow, new = await join(broker), await join(broker)
            clock.advance_ns(4_000_000_000)
            broker.groups.tick()
            assert (await broker.groups.heartbeat("g", new.member_id, 2)).phase is MemberPhase.PENDING_ASSIGN
            clock.advance_ns(1_000_000_000)
            broker.groups.tick()
            view = await broker.groups.heartbeat("g", new.member_id, 2)
            assert view.assignment == {"t": (2, 3)}
            with pytest.raises(StaleGenerationError):
                broker.groups.fenced("g", slow.member_id, 2)
            assert broker.groups.rebalance_stats("g")["forced_revocations"] == 1

    asyncio.run(scenario())


def test_a_waiting_heartbeat_is_answered_when_something_changes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as broker:
            member = await join(broker)
            waiting = asyncio.create_task(
                broker.groups.heartbeat("g", member.member_id, 1, wait_ms=10_000, version=member.version)
            )
            await asyncio.sleep(0)
            assert not waiting.done()
            await join(broker)
            async with asyncio.timeout(1):
                view = await waiting
            assert view.to_revoke == {"t": (2, 3)}
            again = await broker.groups.heartbeat("g", member.member_id, 2, wait_ms=10_000, version=0)
            assert again.version == view.version, "a member with another view is not kept waiting"

    asyncio.run(scenario())


def test_a_restart_keeps_members_and_begins_their_sessions_anew(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = SimClock()
        async with opened(tmp_path, clock) as broker:
            member = await join(broker, mode=Mode.SHARED)
        clock.advance_ns(3_600_000_000_000)
        async with opened(tmp_path, clock) as broker:
            view = await broker.groups.heartbeat("g", member.member_id, member.generation)
            assert (view.assignment, view.mode) == (member.assignment, Mode.SHARED)
            clock.advance_ns(31_000_000_000)
            broker.groups.tick()
            assert broker.groups.group("g").members == ()

    asyncio.run(scenario())


def test_a_topic_deleted_while_the_groups_slept_is_noticed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as broker:
            await broker.create_topic("u", partition_count=2)
            member = await broker.groups.join("g", client_id="c", topics=["t", "u"])
            await broker.group_offsets.commit("g", member.member_id, 1, {"u": {0: 0}})
            broker.topics.listeners.clear()
            await broker.delete_topic("u")
        async with opened(tmp_path) as broker:
            view = await broker.groups.heartbeat("g", member.member_id, 1)
            assert (view.assignment, view.generation) == ({"t": (0, 1, 2, 3)}, 2)
            assert broker.groups.group("g").offsets == {}

    asyncio.run(scenario())


def test_abandoned_groups_are_forgotten(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = SimClock()
        async with opened(tmp_path, clock) as broker:
            await broker.group_offsets.commit("job", None, 0, {"t": {0: 0}})
            clock.advance_ns(7 * 86_400_000_000_000 - 1_000_000)
            broker.groups.tick()
            assert broker.groups.group("job").offsets
            clock.advance_ns(120_000_000_000)
            broker.groups.tick()
            with pytest.raises(GroupNotFoundError):
                broker.groups.group("job")

    asyncio.run(scenario())


def test_limits_have_names(tmp_path: Path) -> None:
    async def scenario() -> None:
        limits = {"group_members_max": 1, "group_topics_max": 1, "commit_partitions_max": 1, "groups_max": 1}
        async with opened(tmp_path, **limits, group_offsets_partitions=1) as broker:
            await join(broker)
            for attempt, limit in (
                (join(broker), "group_members"),
                (join(broker, "other"), "groups"),
                (broker.groups.join("g", client_id="c", topics=["t", "t2"]), "group_topics"),
                (broker.group_offsets.commit("x", None, 0, {"t": {0: 0, 1: 0}}), "commit_partitions"),
            ):
                with pytest.raises(LimitExceededError) as refused:
                    await attempt
                assert refused.value.context["limit"] == limit

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["", "a/b", "..", "__g", "x" * 250])
def test_names_of_groups_are_checked(tmp_path: Path, name: str) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as broker:
            with pytest.raises(InvalidNameError):
                await join(broker, name)

    asyncio.run(scenario())


def test_the_bounds_of_session_timeouts_must_make_sense() -> None:
    with pytest.raises(ConfigurationError, match="group_session_timeout_ms"):
        BrokerConfig(group_session_timeout_ms=5, group_session_timeout_min_ms=10)


def test_metrics_tell_of_groups(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as broker:
            member = await join(broker)
            await broker.publish_batch("t", 0, _batch(3))
            await broker.group_offsets.commit("g", member.member_id, 1, {"t": {0: 1}})
            await broker.group_poll.poll("g", member.member_id, 1, limit=10)
            text = Metrics(broker).render().decode()
        for line in (
            'goqueue_consumer_groups{state="Stable"} 1.0',
            'goqueue_consumer_group_members{group="g"} 1.0',
            'goqueue_consumer_group_generation{group="g"} 1.0',
            'goqueue_consumer_lag{group="g",topic="t"} 2.0',
            "goqueue_consumer_rebalances_total 1.0",
            "goqueue_consumer_commits_total 1.0",
            "goqueue_consumer_polls_total 1.0",
        ):
            assert line in text

    asyncio.run(scenario())


def _batch(count: int) -> bytearray:
    builder = BatchBuilder()
    builder.extend([b"x"] * count)
    return builder.take()
