"""The Python client end to end: broker on one core, client on the other, 100-byte values."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator

from bench.broker import run, running_broker
from bench.measurement import Latency, Measurement, Target
from bench.registry import case
from bench.workspace import Workspace
from goqueue.client import Client

VALUE = b"x" * 100


@case("send one by one, send_many, consume as objects and as Arrow", durability="acks=leader, fdatasync within 1 s")
def throughput(workspace: Workspace) -> Iterator[Measurement]:
    with running_broker(workspace) as broker:
        figures = run(_throughput(broker.wire, workspace))
    targets = {"send": 1.0, "send_many": 4.0, "consume objects": 2.0, "consume Arrow": 10.0}
    for name, target in targets.items():
        value = statistics.median(figures[name])
        yield Measurement(name=name, value=value, unit="M msg/s", target=Target(at_least=target))


async def _throughput(address: str, workspace: Workspace) -> dict[str, list[float]]:
    count = workspace.sized(1_000_000, 10_000)
    figures: dict[str, list[float]] = {}

    async def rate(name: str, work: Callable[[], Awaitable[int]]) -> None:
        workspace.progress(f"client: {name}")
        start = time.perf_counter()
        done = await work()
        figures.setdefault(name, []).append(done / (time.perf_counter() - start) / 1e6)

    async with Client(address) as client:
        await client.create_topic("t", partitions=1)
        producer = client.producer(acks="leader")

        async def send() -> int:
            for _ in range(count):
                await producer.send("t", VALUE)
            await producer.flush()
            return count

        async def send_many() -> int:
            values = [VALUE] * 10_000
            await asyncio.gather(*(producer.send_many("t", values) for _ in range(2 * count // 10_000)))
            return 2 * count

        async def objects() -> int:
            return sum([len(batch) async for batch in client.reader("t", follow=False).batches()])

        async def arrow() -> int:
            return sum([batch.num_rows async for batch in client.reader("t", follow=False).arrow()])

        for _ in range(workspace.sized(3, 1)):
            await rate("send", send)
            await rate("send_many", send_many)
            await rate("consume objects", objects)
            await rate("consume Arrow", arrow)
    return figures


@case("publish latency, open loop at 100,000 msg/s, acks=leader", durability="page cache; fdatasync within 1 s")
def latency_leader(workspace: Workspace) -> Iterator[Measurement]:
    yield from _latency(workspace, "leader", 2_000)


@case("publish latency, open loop at 100,000 msg/s, acks=all", durability="fdatasync before the answer")
def latency_all(workspace: Workspace) -> Iterator[Measurement]:
    yield from _latency(workspace, "all", 5_000)


def _latency(workspace: Workspace, acks: str, p99_us: float) -> Iterator[Measurement]:
    with running_broker(workspace) as broker:
        workspace.progress(f"client: latency, acks={acks}")
        samples = run(_open_loop(broker.wire, acks, workspace.sized(5.0, 0.3)))
    latency = Latency.of(samples)
    target = Target(at_most=p99_us)
    yield Measurement(name="p99 of publish", value=latency.p99_us, unit="us", latency=latency, target=target)


async def _open_loop(address: str, acks: str, seconds: float) -> list[int]:
    """A hundred messages every millisecond, whatever the answers do; lateness of the loop counts as latency."""
    samples: list[int] = []
    async with Client(address) as client:
        await client.create_topic("t", partitions=1)
        producer = client.producer(acks=acks, linger_ms=1)
        await producer.send_and_wait("t", VALUE)
        loop = asyncio.get_running_loop()
        start = time.perf_counter_ns()
        for tick in range(int(seconds * 1_000)):
            due = start + tick * 1_000_000
            while (wait := due - time.perf_counter_ns()) > 0:
                await asyncio.sleep(wait / 1e9)
            future = None
            for _ in range(100):
                future = await producer.send("t", VALUE)
            assert future is not None
            future.add_done_callback(lambda _, due=due: samples.append(time.perf_counter_ns() - due))
        await producer.flush()
        await asyncio.sleep(0)
        assert loop.is_running()
    return samples
