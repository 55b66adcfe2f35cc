"""Consumers of a group against a real broker: shares, handover, offsets, fencing, restarts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import goqueue
from goqueue.client import Client, Consumer
from goqueue.errors import ConfigurationError, GoQueueError, PartitionNotAssignedError, TopicNotFoundError
from goqueue.server import Server
from tests.client.brokers import address_of, broker, wait_until


@asynccontextmanager
async def clients(path: Path, partitions: int = 4) -> AsyncIterator[tuple[Server, Client]]:
    async with broker(path) as server, Client(address_of(server)) as client:
        await client.create_topic("t", partitions=partitions)
        yield server, client


async def publish(client: Client, count: int, partitions: int = 4) -> None:
    await asyncio.gather(*(client.send("t", b"%d" % n, partition=n % partitions) for n in range(count)))


async def take(consumer: Consumer, count: int) -> list[bytes | None]:
    async with asyncio.timeout(10):
        return [(await anext(consumer)).value for _ in range(count)]


async def collect(consumer: Consumer, into: list[tuple[int, int]]) -> None:
    async for message in consumer:
        place = message.partition, message.offset
        into.append(place)


def test_a_group_goes_on_where_it_was(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with clients(tmp_path) as (_, client):
            await publish(client, 20)
            async with client.consumer("g", ["t"]) as consumer:
                first = await take(consumer, 12)
                await consumer.commit()
            async with client.consumer("g", ["t"]) as consumer:
                second = await take(consumer, 8)
            assert sorted(first + second) == sorted(b"%d" % n for n in range(20))

    asyncio.run(scenario())


def test_a_message_in_hand_is_not_committed_by_itself(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with clients(tmp_path, 1) as (_, client):
            await publish(client, 3, 1)
            async with client.consumer("g", ["t"]) as consumer:
                await take(consumer, 2)
            offsets = await client.group_offsets("g")
            assert offsets["t"]["0"]["offset"] == 1
            assert offsets["t"]["0"]["lag"] == 2

    asyncio.run(scenario())


def test_auto_commit_happens_while_the_consumer_lives(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with clients(tmp_path, 1) as (server, client):
            await publish(client, 3, 1)
            async with client.consumer("g", ["t"], auto_commit_interval_ms=20) as consumer:
                await take(consumer, 3)
                waiting = asyncio.ensure_future(anext(consumer))
                offsets = server.broker.group_offsets

                def committed() -> bool:
                    found = offsets.committed("g", "t", 0)
                    return found is not None and found.offset == 3

                await wait_until(committed)
                waiting.cancel()

    asyncio.run(scenario())


def test_a_joining_member_gets_its_share_and_the_others_read_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        events: list[tuple[str, Any]] = []
        async with clients(tmp_path) as (_, client):
            await publish(client, 8)
            first = client.consumer(
                "g",
                ["t"],
                on_assigned=lambda places: events.append(("assigned", places)),
                on_revoked=lambda places: events.append(("revoked", places)),
            )
            seen: list[tuple[int, int]] = []
            reading = asyncio.create_task(collect(first, seen))
            await wait_until(lambda: len(seen) == 8)
            second = client.consumer("g", ["t"])
            other: list[tuple[int, int]] = []
            reading_too = asyncio.create_task(collect(second, other))
            await wait_until(lambda: len(second.assignment()) == 2 and len(first.assignment()) == 2)
            assert set(first.assignment()) | set(second.assignment()) == {("t", n) for n in range(4)}
            assert [kind for kind, _ in events] == ["assigned", "revoked"]
            await publish(client, 8)
            await wait_until(lambda: len(seen) + len(other) == 16)
            assert not set(seen) & set(other), "a clean handover repeats nothing"
            await second.close()
            await wait_until(lambda: len(first.assignment()) == 4)
            reading.cancel()
            await asyncio.gather(reading, reading_too, return_exceptions=True)

    asyncio.run(scenario())


def test_a_message_in_hand_is_finished_before_its_partition_moves(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with clients(tmp_path, 2) as (_, client):
            await publish(client, 2, 2)
            first = client.consumer("g", ["t"])
            await first.start()
            held = await anext(first)
            other = await anext(first)
            second = client.consumer("g", ["t"])
            await second.start()
            in_hand = ("t", other.partition)
            if in_hand in first.assignment():
                # The one that stays is in hand; the other one may go at once.
                await wait_until(lambda: second.assignment() == [("t", held.partition)])
            else:
                await asyncio.sleep(0.05)
                assert second.assignment() == [], "the message is still being worked on"
                waiting = asyncio.ensure_future(anext(first))
                await wait_until(lambda: second.assignment() == [in_hand])
                waiting.cancel()
            await first.close()

    asyncio.run(scenario())


def test_pause_resume_seek_and_position(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with clients(tmp_path, 2) as (_, client):
            await publish(client, 8, 2)
            async with client.consumer("g", ["t"]) as consumer:
                consumer.pause("t", 1)
                batch = await consumer.batch(5_000)
                assert {message.partition for message in batch} == {0}
                assert consumer.position("t", 0) == 4
                assert await consumer.batch(50) == []
                consumer.seek("t", 0, 2)
                assert [message.offset for message in await consumer.batch(5_000)] == [2, 3]
                consumer.resume("t", 1)
                assert {message.partition for message in await consumer.batch(5_000)} == {1}
                with pytest.raises(PartitionNotAssignedError):
                    consumer.position("t", 7)
                with pytest.raises(GoQueueError):
                    consumer.seek("t", 0, -1)

    asyncio.run(scenario())


def test_a_member_that_was_expired_loses_its_partitions_and_comes_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        lost: list[Any] = []
        async with clients(tmp_path) as (server, client):
            consumer = client.consumer("g", ["t"], on_lost=lost.extend)
            await consumer.start()
            before = consumer.member_id
            groups = server.broker.groups
            await groups.leave("g", str(before))
            await wait_until(lambda: consumer.member_id != before and len(consumer.assignment()) == 4)
            assert sorted(lost) == [("t", n) for n in range(4)]
            await publish(client, 4)
            assert len(await take(consumer, 4)) == 4
            await consumer.close()

    asyncio.run(scenario())


def test_eager_groups_converge_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with clients(tmp_path) as (_, client):
            members = [client.consumer("g", ["t"], protocol="eager", assignor="range") for _ in range(2)]
            for member in members:
                await member.start()
            await wait_until(lambda: [len(member.assignment()) for member in members] == [2, 2])

    asyncio.run(scenario())


def test_a_restarted_broker_finds_its_members_again(tmp_path: Path, unused_port: int) -> None:
    async def scenario() -> None:
        seen: list[tuple[int, int]] = []
        changes: list[Any] = []
        client = Client(f"127.0.0.1:{unused_port}")
        async with broker(tmp_path, port=unused_port):
            await client.create_topic("t", partitions=4)
            await publish(client, 8)
            consumer = client.consumer("g", ["t"], on_lost=changes.append, on_revoked=changes.append)
            reading = asyncio.create_task(collect(consumer, seen))
            await wait_until(lambda: len(seen) == 8)
            member = consumer.member_id
        async with broker(tmp_path, port=unused_port) as server:
            await publish(client, 8)
            await wait_until(lambda: len(seen) == 16)
            assert consumer.member_id == member
            assert changes == []
            state = server.broker.groups.group("g").state
            assert state is not None
            assert state.generation == 1
            reading.cancel()
            await client.close()

    asyncio.run(scenario())


def test_a_new_partition_owner_of_an_expired_offset_starts_at_the_oldest_message(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with clients(tmp_path, 1) as (_, client):
            await publish(client, 4, 1)
            async with client.consumer("latest", ["t"], start="latest") as consumer:
                waiting = asyncio.ensure_future(anext(consumer))
                await client.send("t", b"new", partition=0)
                assert (await waiting).value == b"new"

    asyncio.run(scenario())


def test_mistakes_are_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with clients(tmp_path) as (_, client):
            with pytest.raises(TopicNotFoundError):
                await client.consumer("g", ["nothing"]).start()
            with pytest.raises(ConfigurationError):
                client.consumer("g", ["t"], start="middle")

    asyncio.run(scenario())


def test_groups_from_outside(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with clients(tmp_path, 2) as (_, client):
            await publish(client, 10, 2)
            await client.commit_offsets("job", {("t", 0): (3, "batch 7"), ("t", 1): 5})
            offsets = (await client.group_offsets("job"))["t"]
            assert [offsets[n]["lag"] for n in "01"] == [2, 0]
            assert offsets["0"]["metadata"] == "batch 7"
            assert await client.reset_offsets("job", "t", "earliest", dry_run=True) == {0: 0, 1: 0}
            assert (await client.group_offsets("job"))["t"]["0"]["offset"] == 3
            assert await client.reset_offsets("job", "t", 1, partitions=[1]) == {1: 1}
            assert (await client.group_offsets("job"))["t"]["1"]["offset"] == 1
            assert [group["id"] for group in await client.list_groups()] == ["job"]
            assert (await client.describe_group("job"))["state"] == "Empty"
            assert (await client.rebalance_stats("job"))["rebalances"] == 0
            await client.delete_group("job")
            assert await client.list_groups() == []

    asyncio.run(scenario())


def test_the_blocking_consumer_of_an_embedded_broker(tmp_path: Path) -> None:
    with goqueue.open(str(tmp_path)) as queue:
        queue.create_topic("t", partitions=1)
        for n in range(4):
            queue.send("t", b"%d" % n)
        with queue.consumer("g", ["t"]) as consumer:
            values = []
            for message in consumer:
                values.append(message.value)
                if len(values) == 4:
                    break
            consumer.commit()
            assert consumer.assignment() == [("t", 0)]
            assert consumer.position("t", 0) == 4
            assert consumer.batch(10) == []
        assert values == [b"0", b"1", b"2", b"3"]
        assert queue.group_offsets("g")["t"]["0"]["lag"] == 0
