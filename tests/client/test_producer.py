"""The producer against a scripted broker: when batches leave, what is retried, what a full buffer means."""

from __future__ import annotations

import asyncio

import pytest

from goqueue.client import Client
from goqueue.errors import (
    BufferFullError,
    ClientClosedError,
    ConfigurationError,
    DataDamagedError,
    GoQueueError,
    InvalidRequestError,
    NotReadyError,
    ValueTooLargeError,
)
from tests.client.brokers import ScriptedBroker, wait_until

NEVER_MS = 3_600_000


def test_a_batch_leaves_when_it_has_its_count_of_records() -> None:
    async def run() -> None:
        async with ScriptedBroker() as broker, Client(broker.address) as client:
            producer = client.producer(batch_records=10, linger_ms=NEVER_MS)
            futures = [await producer.send("t", b"%d" % n) for n in range(25)]
            await asyncio.gather(*futures[:20])
            assert [len(records) for _, records in broker.batches] == [10, 10]
            assert not futures[20].done()
            await producer.flush()
            assert [futures[n].result().offset for n in range(25)] == list(range(25))

    asyncio.run(run())


def test_a_batch_leaves_when_it_has_its_bytes() -> None:
    async def run() -> None:
        async with ScriptedBroker() as broker, Client(broker.address) as client:
            producer = client.producer(batch_bytes=1000, linger_ms=NEVER_MS)
            futures = [await producer.send("t", bytes(400)) for _ in range(6)]
            await asyncio.gather(*futures)
            assert [len(records) for _, records in broker.batches] == [3, 3]

    asyncio.run(run())


@pytest.mark.parametrize("linger_ms", [0, 20])
def test_a_batch_leaves_after_the_linger_time(linger_ms: int) -> None:
    async def run() -> None:
        async with ScriptedBroker() as broker, Client(broker.address) as client:
            producer = client.producer(linger_ms=linger_ms)
            await producer.send_and_wait("t", b"warm")
            began = asyncio.get_running_loop().time()
            await asyncio.gather(*[await producer.send("t", b"x") for _ in range(3)])
            waited_ms = (asyncio.get_running_loop().time() - began) * 1000
            assert waited_ms >= linger_ms * 0.9
            # All three were accepted in one turn of the loop, so they left together.
            assert [len(records) for _, records in broker.batches] == [1, 3]

    asyncio.run(run())


def test_messages_without_a_key_stay_together_and_then_move_to_the_next_partition() -> None:
    async def run() -> None:
        async with ScriptedBroker(partitions=3) as broker, Client(broker.address) as client:
            async with client.producer(batch_records=5, linger_ms=NEVER_MS) as producer:
                for n in range(15):
                    await producer.send("t", b"%d" % n)
            assert sorted((partition, len(records)) for partition, records in broker.batches) == [
                (0, 5),
                (1, 5),
                (2, 5),
            ]

    asyncio.run(run())


def test_a_key_decides_the_partition_and_a_number_overrules_it() -> None:
    async def run() -> None:
        async with ScriptedBroker(partitions=8) as broker, Client(broker.address) as client:
            producer = client.producer(linger_ms=0)
            by_key = {(await producer.send_and_wait("t", b"x", b"one key")).partition for _ in range(5)}
            assert len(by_key) == 1
            assert (await producer.send_and_wait("t", b"x", b"one key", partition=3)).partition == 3
            with pytest.raises(InvalidRequestError, match="partitions 0 to 7"):
                await producer.send("t", b"x", partition=8)

    asyncio.run(run())


def test_a_message_that_cannot_be_encoded_costs_only_itself() -> None:
    async def run() -> None:
        async with ScriptedBroker() as broker, Client(broker.address) as client:
            producer = client.producer(linger_ms=NEVER_MS)
            good = [await producer.send("t", b"a")]
            with pytest.raises(ValueTooLargeError):
                await producer.send("t", bytes((16 << 20) + 1))
            good.append(await producer.send("t", b"b"))
            await producer.flush()
            assert [future.result().offset for future in good] == [0, 1]

    asyncio.run(run())


def test_an_error_that_will_not_pass_reaches_every_message_of_its_batch_and_no_other() -> None:
    async def run() -> None:
        async with ScriptedBroker() as broker, Client(broker.address) as client:

            async def refuse_the_second() -> bool:
                if len(broker.batches) == 2:
                    raise DataDamagedError("broken", file="x")
                return True

            broker.on_produce = refuse_the_second
            producer = client.producer(batch_records=2, linger_ms=NEVER_MS)
            futures = [await producer.send("t", b"%d" % n) for n in range(6)]
            await producer.flush()
            outcomes = await asyncio.gather(*futures, return_exceptions=True)
            assert [isinstance(outcome, DataDamagedError) for outcome in outcomes] == [
                False,
                False,
                True,
                True,
                False,
                False,
            ]
            assert len(broker.batches) == 3

    asyncio.run(run())


def test_an_error_that_may_pass_is_tried_again_in_order() -> None:
    async def run() -> None:
        async with ScriptedBroker() as broker, Client(broker.address) as client:

            async def not_ready_at_first() -> bool:
                if len(broker.batches) <= 3:
                    raise NotReadyError("starting")
                return True

            broker.on_produce = not_ready_at_first
            producer = client.producer(batch_records=1)
            futures = [await producer.send("t", b"%d" % n) for n in range(3)]
            results = await asyncio.gather(*futures)
            assert [result.offset for result in results] == [0, 1, 2]
            assert broker.values()[3:] == [b"0", b"1", b"2"]

    asyncio.run(run())


def test_batches_without_an_answer_are_sent_again_after_a_lost_connection() -> None:
    async def run() -> None:
        async with ScriptedBroker() as broker, Client(broker.address) as client:

            async def hang_up_once() -> bool:
                if len(broker.batches) == 2:
                    raise ConnectionError
                return True

            broker.on_produce = hang_up_once
            producer = client.producer(batch_records=1)
            futures = [await producer.send("t", b"%d" % n) for n in range(4)]
            await asyncio.gather(*futures)
            assert broker.connections == 2
            assert broker.values() == [b"0", b"1", b"1", b"2", b"3"]

    asyncio.run(run())


def test_a_silent_broker_fails_a_message_after_the_delivery_timeout() -> None:
    async def run() -> None:
        async with ScriptedBroker() as broker, Client(broker.address) as client:

            async def silent() -> bool:
                return False

            broker.on_produce = silent
            producer = client.producer(linger_ms=0, delivery_timeout_ms=100)
            with pytest.raises(GoQueueError) as caught:
                await producer.send_and_wait("t", b"x")
            assert caught.value.code == "REQUEST_TIMEOUT"

    asyncio.run(run())


def test_a_full_buffer_makes_send_wait_and_send_nowait_refuse() -> None:
    async def run() -> None:
        async with ScriptedBroker() as broker, Client(broker.address) as client:
            gate = asyncio.Event()

            async def when_open() -> bool:
                await gate.wait()
                return True

            broker.on_produce = when_open
            producer = client.producer(linger_ms=0, buffer_bytes_max=1000)
            first = await producer.send("t", bytes(1000))
            with pytest.raises(BufferFullError):
                producer.send_nowait("t", b"x")
            waiting = asyncio.create_task(producer.send("t", b"x"))
            await wait_until(lambda: bool(broker.batches))
            assert not waiting.done()
            gate.set()
            await (await waiting)
            assert first.done()
            await producer.send_nowait("t", b"y")
            assert broker.values()[1:] == [b"x", b"y"]

    asyncio.run(run())


def test_senders_that_wait_for_a_topic_or_for_room_do_not_overtake_each_other() -> None:
    async def run() -> None:
        async with ScriptedBroker() as broker, Client(broker.address) as client:
            producer = client.producer(linger_ms=0, buffer_bytes_max=200)
            await asyncio.gather(*(producer.send_and_wait("t", b"%d" % n) for n in range(300)))
            assert broker.values() == [b"%d" % n for n in range(300)]

    asyncio.run(run())


def test_send_nowait_needs_a_topic_that_was_used_before() -> None:
    async def run() -> None:
        async with ScriptedBroker() as broker, Client(broker.address) as client:
            with pytest.raises(InvalidRequestError, match="not known yet"):
                client.producer().send_nowait("t", b"x")

    asyncio.run(run())


def test_close_delivers_what_was_accepted_and_refuses_more() -> None:
    async def run() -> None:
        async with ScriptedBroker() as broker, Client(broker.address) as client:
            producer = client.producer(linger_ms=NEVER_MS)
            futures = [await producer.send("t", b"%d" % n) for n in range(250)]
            await producer.close()
            assert all(future.done() for future in futures)
            assert len(broker.values()) == 250
            with pytest.raises(ClientClosedError):
                await producer.send("t", b"x")

    asyncio.run(run())


def test_send_many_splits_by_count_and_by_bytes() -> None:
    async def run() -> None:
        async with ScriptedBroker() as broker, Client(broker.address) as client:
            producer = client.producer(batch_records=10, batch_bytes=1000)
            values = [b"%d" % n for n in range(250)]
            runs = await producer.send_many("t", values)
            assert [run.count for run in runs] == [100, 100, 50]
            assert [run.base_offset for run in runs] == [0, 100, 200]
            assert broker.values() == values
            runs = await producer.send_many("t", [bytes(4000), bytes(4000), bytes(4000), bytes(20_000), b"x"])
            assert [run.count for run in runs] == [2, 1, 1, 1]

    asyncio.run(run())


def test_a_wrong_configuration_names_every_problem() -> None:
    async def run() -> None:
        async with ScriptedBroker() as broker, Client(broker.address) as client:
            with pytest.raises(ConfigurationError) as caught:
                client.producer(acks="most", batch_records=0, linger_ms=-1)
            assert len(caught.value.context["problems"]) == 3  # type: ignore[arg-type]

    asyncio.run(run())
