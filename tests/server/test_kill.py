"""kill -9 under load, again and again: nothing that was acknowledged with acks=all is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

from goqueue.client import Client, SendResult
from tests.server.process import BrokerProcess

ROUNDS = 4
PARTITIONS = 3
ACKNOWLEDGED_BEFORE_KILL = 3_000


async def publish_until_killed(broker: BrokerProcess, round_number: int) -> dict[tuple[int, int], bytes]:
    """Send without pause; kill the broker in the middle. Returns what was acknowledged."""
    client = Client(broker.wire)
    producer = client.producer(linger_ms=1, delivery_timeout_ms=500, buffer_bytes_max=1 << 20)
    acknowledged: dict[tuple[int, int], bytes] = {}

    def note(future: asyncio.Future[SendResult], value: bytes) -> None:
        if future.exception() is None:
            result = future.result()
            assert (result.partition, result.offset) not in acknowledged
            acknowledged[result.partition, result.offset] = value

    number = 0
    killed_at = None
    while killed_at is None or number < killed_at + 500:
        value = b"round %d message %d" % (round_number, number)
        future = await producer.send("t", value)
        future.add_done_callback(lambda done, value=value: note(done, value))
        number += 1
        if killed_at is None and len(acknowledged) >= ACKNOWLEDGED_BEFORE_KILL:
            broker.kill()
            killed_at = number
    await client.close()
    return acknowledged


async def read_all(broker: BrokerProcess) -> dict[tuple[int, int], bytes]:
    async with Client(broker.wire) as client:
        read = {}
        reader = client.reader("t", follow=False)
        async for message in reader:
            assert message.value is not None
            read[message.partition, message.offset] = message.value
        for partition in range(PARTITIONS):
            offsets = sorted(offset for number, offset in read if number == partition)
            assert offsets == list(range(len(offsets))), "offsets are contiguous"
        return read


def test_kill_9_under_load_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    expected: dict[tuple[int, int], bytes] = {}
    for round_number in range(ROUNDS):
        with BrokerProcess(tmp_path / "data") as broker:

            async def one_round(broker: BrokerProcess = broker, number: int = round_number) -> None:
                if number == 0:
                    async with Client(broker.wire) as client:
                        await client.create_topic("t", partitions=PARTITIONS, config={"segment_bytes": 256 << 10})
                stored = await read_all(broker)
                assert expected.items() <= stored.items()
                expected.update(await publish_until_killed(broker, number))

            asyncio.run(one_round())
    assert len(expected) >= ROUNDS * ACKNOWLEDGED_BEFORE_KILL
    with BrokerProcess(tmp_path / "data") as broker:
        stored = asyncio.run(read_all(broker))
        assert expected.items() <= stored.items()
