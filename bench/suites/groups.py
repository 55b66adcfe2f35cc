"""Consumer groups: assignors, how long a rebalance takes and whom it disturbs, offset commits."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator

from bench.broker import run, running_broker
from bench.measurement import Latency, Measurement, Target
from bench.registry import case
from bench.workspace import Workspace
from goqueue.client import Client, Consumer
from goqueue.groups import ASSIGNORS, AssignorName


@case("assignors: 1,000 members, 10,000 partitions of 10 topics; sticky after one member left")
def assignors(workspace: Workspace) -> Iterator[Measurement]:
    members, partitions = workspace.sized(1_000, 20), workspace.sized(1_000, 20)
    topics = {f"t{n}": partitions for n in range(10)}
    subscriptions = {f"member-{n}": tuple(topics) for n in range(members)}
    owned = ASSIGNORS[AssignorName.STICKY](subscriptions, topics, {})
    rest = {member: wanted for member, wanted in subscriptions.items() if member != "member-7"}
    for name in AssignorName:
        times = []
        for _ in range(3):
            start = time.perf_counter()
            ASSIGNORS[name](rest, topics, owned)
            times.append(time.perf_counter() - start)
        yield Measurement(
            name=str(name), value=statistics.median(times) * 1000, unit="ms", target=Target(at_most=1_000)
        )


@case(
    "rebalance: a member joins a group of 100 with 1,000 partitions", durability="every step durable before its answer"
)
def rebalance(workspace: Workspace) -> Iterator[Measurement]:
    with running_broker(workspace) as broker:
        joins, gaps = run(_rebalance(broker.wire, workspace))
    latency = Latency.of(joins)
    yield Measurement(
        name="from join to the first message, p99",
        value=latency.p99_us / 1000,
        unit="ms",
        latency=latency,
        target=Target(at_most=1_000),
    )
    yield Measurement(name="longest pause of a partition that stays", value=gaps, unit="ms", target=Target(at_most=100))


async def _rebalance(address: str, workspace: Workspace) -> tuple[list[int], float]:
    """Members join and leave; every partition has messages waiting, and one partition gets a message all the time."""
    members, partitions = workspace.sized(100, 5), workspace.sized(1_000, 10)
    samples: list[int] = []
    async with Client(address) as client:
        await client.create_topic("t", partitions=partitions)
        await asyncio.gather(*(client.send("t", b"x", partition=n) for n in range(partitions)))
        await client.create_topic("steady", partitions=1)
        readers: list[Consumer] = []
        tasks: list[asyncio.Task[None]] = []
        for number in range(members):
            workspace.progress(f"groups: member {number}")
            consumer = client.consumer("g", ["t"], auto_commit=False)
            await consumer.start()
            readers.append(consumer)
            tasks.append(asyncio.create_task(_drain(consumer)))
        # A member of the same group with a topic of its own: every rebalance concerns it, none takes from it.
        gap = _Gap()
        watcher = client.consumer("g", ["steady"])
        await watcher.start()
        members += 1
        await _settled(client, "g", members)
        tasks.append(asyncio.create_task(gap.watch(watcher)))
        feeding = asyncio.create_task(_feed(client))
        for number in range(workspace.sized(20, 2)):
            workspace.progress(f"groups: rebalance {number}")
            start = time.perf_counter_ns()
            late = client.consumer("g", ["t"], auto_commit=False)
            await anext(late)
            samples.append(time.perf_counter_ns() - start)
            await late.close()
            await _settled(client, "g", members)
        feeding.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(feeding, *tasks, return_exceptions=True)
    return samples, gap.longest_ms


async def _drain(consumer: Consumer) -> None:
    while await consumer.batch():
        pass


async def _feed(client: Client) -> None:
    while True:
        await client.send("steady", b"x", partition=0)
        await asyncio.sleep(0.005)


class _Gap:
    """The longest time between two messages of a partition that stays where it is."""

    def __init__(self) -> None:
        self.longest_ms = 0.0

    async def watch(self, consumer: Consumer) -> None:
        last = None
        async for _ in consumer:
            now = time.perf_counter()
            if last is not None:
                self.longest_ms = max(self.longest_ms, (now - last) * 1000)
            last = now


async def _settled(client: Client, group: str, members: int) -> None:
    while True:
        found = await client.describe_group(group)
        if found["state"] == "Stable" and len(found["members"]) == members:
            return
        await asyncio.sleep(0.01)


@case(
    "offset commits over the wire, 100 partitions per call, 16 calls under way", durability="durable before the answer"
)
def commits(workspace: Workspace) -> Iterator[Measurement]:
    with running_broker(workspace) as broker:
        rate = run(_commits(broker.wire, workspace.sized(2_000, 20)))
    yield Measurement(name="offsets committed", value=rate / 1000, unit="k/s", target=Target(at_least=50))


async def _commits(address: str, calls: int) -> float:
    async with Client(address) as client:
        await client.create_topic("t", partitions=100)
        offsets = {("t", n): 0 for n in range(100)}
        await client.commit_offsets("g", offsets)
        room = asyncio.Semaphore(16)

        async def one() -> None:
            async with room:
                await client.commit_offsets("g", offsets)

        start = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(calls)))
        return calls * 100 / (time.perf_counter() - start)
