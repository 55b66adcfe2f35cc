"""Delayed messages and kill -9: each acknowledged one is released once, at its time or later; cancelled ones never."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from goqueue.client import Client
from goqueue.record import Record
from tests.server.process import BrokerProcess

COUNT = 300
SOON_S = 1.0
LATER_S = 6.0


async def publish(broker: BrokerProcess) -> tuple[set[bytes], set[bytes]]:
    """Returns what must be seen and what was cancelled; the broker dies while the first ones are being released."""
    async with Client(broker.wire) as client:
        await client.create_topic("t", partitions=2)
        sent = await asyncio.gather(
            *(
                client.send("t", b"%d due %d" % (n, _due_ms(n)), delay=SOON_S if n % 2 else LATER_S)
                for n in range(COUNT)
            )
        )
        pending = await client.delayed("t", limit=1000)
        later = {(item["partition"], item["offset"]) for item in pending if item["remaining_ms"] > 3000}
        cancelled = set()
        for n, result in enumerate(sent):
            if n % 10 == 0 and (result.partition, result.offset) in later:
                answer = await client.cancel_delayed("t", result.partition, result.offset)
                assert answer["cancelled"]
                cancelled.add(n)
        async with asyncio.timeout(20):
            async for _ in client.reader("t"):
                break
        broker.kill()
    return {b"%d" % n for n in range(COUNT) if n not in cancelled}, {b"%d" % n for n in cancelled}


def _due_ms(n: int) -> int:
    return time.time_ns() // 1_000_000 + int(1000 * (SOON_S if n % 2 else LATER_S))


async def collect(broker: BrokerProcess, wanted: int) -> list[Record]:
    async with Client(broker.wire) as client, asyncio.timeout(60):
        found: list[Record] = []
        async for batch in client.reader("t").batches():
            found += batch
            if len(found) >= wanted:
                break
        assert await client.delayed("t") == []
        return found


def test_delays_survive_kill_9_and_are_released_once(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        expected, cancelled = asyncio.run(publish(broker))
    assert cancelled
    with BrokerProcess(tmp_path / "data") as broker:
        messages = asyncio.run(collect(broker, len(expected)))
    names = [message.value.split()[0] for message in messages if message.value]
    assert sorted(names) == sorted(expected), "each once, none that was cancelled"
    for message in messages:
        assert message.value is not None
        assert message.timestamp_ns // 1_000_000 >= int(message.value.split()[2]), "never early"
