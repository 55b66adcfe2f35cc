"""The producer against a real broker: levels of acknowledgement, and a restart on the same port."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from goqueue.client import Client
from goqueue.errors import BatchTooLargeError, GoQueueError, TopicNotFoundError
from tests.client.brokers import address_of, broker, wait_until


@pytest.mark.parametrize("acks", ["none", "leader", "all"])
def test_every_level_of_acknowledgement_delivers(tmp_path: Path, acks: str) -> None:
    async def run() -> None:
        async with broker(tmp_path) as server:
            async with Client(address_of(server)) as client:
                await client.create_topic("t", partitions=1)
                producer = client.producer(acks=acks)
                futures = [await producer.send("t", b"%d" % n) for n in range(500)]
                await producer.flush()
                offsets = [future.result().offset for future in futures]
                assert offsets == ([-1] * 500 if acks == "none" else list(range(500)))
            # Closing the client lets everything leave, also what nobody waits for.
            log = server.broker.topics.partition("t", 0).log
            await wait_until(lambda: log.log_end_offset == 500)

    asyncio.run(run())


def test_a_topic_that_does_not_exist_is_an_error_of_send(tmp_path: Path) -> None:
    async def run() -> None:
        async with broker(tmp_path) as server, Client(address_of(server)) as client:
            with pytest.raises(TopicNotFoundError):
                await client.producer().send("nowhere", b"x")
            await client.create_topic("nowhere")
            await client.send("nowhere", b"x")

    asyncio.run(run())


def test_a_message_the_broker_refuses_fails_and_the_next_one_passes(tmp_path: Path) -> None:
    async def run() -> None:
        async with broker(tmp_path) as server, Client(address_of(server)) as client:
            await client.create_topic("t", partitions=1, config={"max_message_bytes": 10})
            with pytest.raises(GoQueueError) as caught:
                await client.send("t", bytes(11))
            assert caught.value.code == "VALUE_TOO_LARGE"
            assert (await client.send("t", bytes(10))).offset == 0

    asyncio.run(run())


def test_nothing_is_lost_and_order_is_kept_when_the_broker_restarts_on_its_port(tmp_path: Path) -> None:
    async def run() -> None:
        async with broker(tmp_path) as server:
            address = address_of(server)
            client = Client(address)
            await client.create_topic("t", partitions=1)
            producer = client.producer(batch_records=10, linger_ms=1)
            futures = [await producer.send("t", b"%d" % n) for n in range(100)]
            await asyncio.gather(*futures)
        # Accepted while nobody listens.
        futures += [await producer.send("t", b"%d" % n) for n in range(100, 200)]
        async with broker(tmp_path, port=int(address.rpartition(":")[2])):
            futures += [await producer.send("t", b"%d" % n) for n in range(200, 300)]
            await asyncio.gather(*futures)
            values = [message.value async for message in client.reader("t", follow=False)]
            # A batch may arrive twice, never out of turn: first appearances are in order.
            assert list(dict.fromkeys(values)) == [b"%d" % n for n in range(300)]
            offsets = [future.result().offset for future in futures]
            assert offsets == sorted(offsets)
            assert [values[offset] for offset in offsets] == [b"%d" % n for n in range(300)]
            await client.close()

    asyncio.run(run())


def test_a_stopping_broker_answers_what_it_has_taken(tmp_path: Path) -> None:
    async def run() -> None:
        async with broker(tmp_path) as server:
            client = Client(address_of(server))
            await client.create_topic("t", partitions=1)
            producer = client.producer(batch_records=1, delivery_timeout_ms=500)
            futures = [await producer.send("t", b"%d" % n) for n in range(2000)]
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        acknowledged = [n for n, outcome in enumerate(outcomes) if not isinstance(outcome, BaseException)]
        await client.close()
        async with broker(tmp_path) as server, Client(address_of(server)) as client:
            stored = {message.value async for message in client.reader("t", follow=False)}
        assert {b"%d" % n for n in acknowledged} <= stored

    asyncio.run(run())


def test_a_batch_larger_than_a_frame_is_refused_before_it_ends_the_connection(tmp_path: Path) -> None:
    async def run() -> None:
        async with broker(tmp_path, frame_bytes_max=1 << 20) as server, Client(address_of(server)) as client:
            await client.create_topic("t", partitions=1)
            with pytest.raises(BatchTooLargeError):
                await client.send("t", bytes(2 << 20))
            assert (await client.send("t", b"small")).offset == 0

    asyncio.run(run())
