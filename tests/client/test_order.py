"""Order inside a partition, whatever is refused in between."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

from goqueue.client import Client, SendResult
from goqueue.errors import NotReadyError
from goqueue.protocol import wire
from goqueue.protocol.wire import Api
from goqueue.record import BatchBuilder
from tests.client.brokers import address_of, broker, wait_until

MESSAGES = 300


def refusing_some(check: Callable[[], None]) -> Callable[[], None]:
    """Every seventh batch is refused with an error that passes, a dozen times."""
    calls = 0

    def flaky() -> None:
        nonlocal calls
        calls += 1
        if calls % 7 == 0 and calls < 84:
            raise NotReadyError("not now")
        check()

    return flaky


def test_a_batch_that_is_sent_again_keeps_its_place_among_those_behind_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with broker(tmp_path) as server, Client(address_of(server)) as client:
            await client.create_topic("t", partitions=1)
            producers = [client.producer(batch_records=1, acks=acks) for acks in ("all", "leader")]
            api = server.broker
            api.check_writable = refusing_some(api.check_writable)  # type: ignore[method-assign]

            async def produce(number: int) -> list[SendResult]:
                sent = [await producers[number].send("t", b"%d:%d" % (number, n)) for n in range(MESSAGES)]
                return list(await asyncio.gather(*sent))

            results = await asyncio.gather(produce(0), produce(1))
            stored = [message.value async for message in client.reader("t", follow=False)]
        for number, answers in enumerate(results):
            offsets = [answer.offset for answer in answers]
            assert offsets == sorted(offsets)
            assert [stored[offset] for offset in offsets] == [b"%d:%d" % (number, n) for n in range(MESSAGES)]
        assert len(stored) == 2 * MESSAGES

    asyncio.run(run())


def test_a_broken_run_takes_nothing_until_a_new_one_begins_and_other_runs_go_on(tmp_path: Path) -> None:
    async def run() -> None:
        async with broker(tmp_path) as server, Client(address_of(server)) as client:
            await client.create_topic("t", partitions=1)
            api, works = server.broker, server.broker.check_writable
            reader, writer = await asyncio.open_connection(*server.wire_address)

            async def produce(run: int) -> str:
                builder = BatchBuilder()
                builder.add(b"x")
                head = bytes((1, run)) + wire.route("t", 0)
                writer.write(wire.frame(Api.PRODUCE, 7, head + bytes(builder.take())))
                length, _, status, _ = wire.HEADER.unpack(await reader.readexactly(wire.HEADER.size))
                body = await reader.readexactly(length - wire.LENGTH_MIN)
                return wire.read_error(body).code if status else "stored"

            writer.write(wire.hello("test"))
            await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            assert await produce(wire.RUN_BEGINS | 5) == "stored"
            api.check_writable = refusing_once(works)  # type: ignore[method-assign]
            assert await produce(5) == "NOT_READY"
            assert await produce(5) == "RUN_BROKEN"
            assert await produce(wire.RUN_BEGINS | 6) == "stored"
            assert await produce(0) == "stored"
            assert await produce(5) == "RUN_BROKEN"
            assert await produce(wire.RUN_BEGINS | 5) == "stored"
            assert await produce(5) == "stored"
            writer.close()

    asyncio.run(run())


def refusing_once(check: Callable[[], None]) -> Callable[[], None]:
    refused = False

    def flaky() -> None:
        nonlocal refused
        if not refused:
            refused = True
            raise NotReadyError("not now")
        check()

    return flaky


def test_a_connection_that_leaves_too_many_runs_broken_is_closed(tmp_path: Path) -> None:
    async def run() -> None:
        async with broker(tmp_path) as server:

            def refuse() -> None:
                raise NotReadyError("not now")

            server.broker.check_writable = refuse  # type: ignore[method-assign]
            reader, writer = await asyncio.open_connection(*server.wire_address)
            writer.write(wire.hello("test"))
            for number in range(5_000):
                writer.write(wire.frame(Api.PRODUCE, 7, bytes((1, 1)) + wire.route("t", number) + b"x"))
            # Closed with requests of ours unread, which a socket may show as a reset.
            async with asyncio.timeout(10):
                with contextlib.suppress(ConnectionResetError):
                    while await reader.read(1 << 20):
                        pass
            writer.close()
            await wait_until(lambda: not server._wire.connections)  # type: ignore[union-attr]

    asyncio.run(run())
