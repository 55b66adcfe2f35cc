"""Groups of real processes: consumers are killed and replaced under load, the broker is killed and comes back."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

from goqueue.client import Client, Consumer
from tests.client.brokers import wait_until
from tests.server.process import BrokerProcess, environment

CONSUMERS = 10
KILLED = 4
PARTITIONS = 20
SCRIPT = Path(__file__).with_name("group_consumer.py")


class ConsumerProcess:
    def __init__(self, address: str, path: Path) -> None:
        self.path = path
        command = [sys.executable, str(SCRIPT), address, "g", "t", str(path)]
        self.process = subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL)

    def processed(self) -> set[tuple[int, int]]:
        lines = self.path.read_bytes().splitlines() if self.path.exists() else []
        pairs = (line.split() for line in lines)
        return {(int(pair[0]), int(pair[1])) for pair in pairs if len(pair) == 2}

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def test_consumers_are_killed_and_replaced_under_load_and_every_message_is_processed(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        consumers: list[ConsumerProcess] = []

        def start(number: int) -> None:
            consumers.append(ConsumerProcess(broker.wire, tmp_path / f"consumer-{number}"))

        async def scenario() -> None:
            async with Client(broker.wire) as client:
                await client.create_topic("t", partitions=PARTITIONS)
                for number in range(CONSUMERS):
                    start(number)
                await members(client, CONSUMERS)
                sent: set[tuple[int, int]] = set()
                done = asyncio.Event()

                async def load() -> None:
                    number = 0
                    while not done.is_set():
                        results = await asyncio.gather(
                            *(client.send("t", b"x", partition=(number + n) % PARTITIONS) for n in range(20))
                        )
                        sent.update((result.partition, result.offset) for result in results)
                        number += 20
                        await asyncio.sleep(0.01)

                loading = asyncio.create_task(load())
                for victim in range(KILLED):
                    consumers[victim].kill()
                    start(CONSUMERS + victim)
                await members(client, CONSUMERS, expired=KILLED)
                done.set()
                await loading
                await wait_until(lambda: sent <= processed(consumers), deadline_s=30)
                assert len(sent) > 100

        try:
            asyncio.run(scenario())
        finally:
            for consumer in consumers:
                consumer.kill()


async def members(client: Client, count: int, *, expired: int = 0) -> None:
    """Wait until the group has so many members, has noticed that so many are dead, and is at rest."""
    deadline = time.monotonic() + 60
    while True:
        groups = await client.list_groups()
        dead = (await client.rebalance_stats("g"))["expired_members"] if groups else 0
        if groups and (groups[0]["members"], groups[0]["state"]) == (count, "Stable") and dead >= expired:
            return
        assert time.monotonic() < deadline, groups
        await asyncio.sleep(0.05)


def processed(consumers: list[ConsumerProcess]) -> set[tuple[int, int]]:
    return set().union(*(consumer.processed() for consumer in consumers))


def test_groups_go_on_when_the_broker_is_killed_and_started_again(tmp_path: Path, unused_tcp_port: int) -> None:
    async def read(consumer: Consumer, into: list[tuple[int, int]]) -> None:
        async for message in consumer:
            place = message.partition, message.offset
            into.append(place)

    address = f"127.0.0.1:{unused_tcp_port}"

    async def scenario() -> None:
        client = Client(address)
        changes: list[object] = []
        seen: list[list[tuple[int, int]]] = [[], []]
        with BrokerProcess(tmp_path / "data", wire=address):
            await client.create_topic("t", partitions=4)
            options = {"on_lost": changes.append, "auto_commit_interval_ms": 20}
            consumers = [client.consumer("g", ["t"], **options) for _ in range(2)]
            reading = [asyncio.create_task(read(c, into)) for c, into in zip(consumers, seen, strict=True)]
            await wait_until(lambda: [len(consumer.assignment()) for consumer in consumers] == [2, 2])
            await asyncio.gather(*(client.send("t", b"%d" % n, partition=n % 4) for n in range(40)))
            await wait_until(lambda: sum(map(len, seen)) == 40)
            deadline = time.monotonic() + 10
            while sum(p["lag"] for p in (await client.group_offsets("g"))["t"].values()) > 2:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)
            before = [(consumer.member_id, consumer.assignment()) for consumer in consumers]
            generation = consumers[0].generation
        # Leaving the block has killed it.
        with BrokerProcess(tmp_path / "data", wire=address):
            await asyncio.gather(*(client.send("t", b"%d" % n, partition=n % 4) for n in range(40)))
            await wait_until(lambda: sum(map(len, seen)) == 80)
            assert [(consumer.member_id, consumer.assignment()) for consumer in consumers] == before
            assert (await client.describe_group("g"))["generation"] == generation
            assert changes == []
            assert len({place for some in seen for place in some}) == 80, "nothing was delivered twice"
            for task in reading:
                task.cancel()
            await client.close()

    asyncio.run(scenario())
