"""The reader: where it starts, where it ends, what it remembers."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from goqueue.client import Client
from goqueue.errors import ConfigurationError, InvalidRequestError, OffsetOutOfRangeError, TopicNotFoundError
from tests.client.brokers import address_of, broker


async def fill(client: Client, count: int = 10, partitions: int = 1) -> None:
    await client.create_topic("t", partitions=partitions)
    async with client.producer() as producer:
        for n in range(count):
            await producer.send("t", b"%d" % n, partition=n % partitions)


def test_a_reader_starts_where_it_is_told(tmp_path: Path) -> None:
    async def run() -> None:
        async with broker(tmp_path) as server, Client(address_of(server)) as client:
            await fill(client)

            async def read(start: object) -> list[int]:
                return [m.offset async for m in client.reader("t", start=start, follow=False)]  # type: ignore[arg-type]

            assert await read("earliest") == list(range(10))
            assert await read("latest") == []
            assert await read(7) == [7, 8, 9]
            assert await read(10) == []
            assert await read(datetime.now(UTC) - timedelta(hours=1)) == list(range(10))
            assert await read(datetime.now(UTC) + timedelta(hours=1)) == []

    asyncio.run(run())


def test_a_time_between_messages_starts_at_the_later_one(tmp_path: Path) -> None:
    async def run() -> None:
        async with broker(tmp_path) as server, Client(address_of(server)) as client:
            await client.create_topic("t", partitions=1)
            await client.send("t", b"before")
            second = await client.send("t", b"after")
            start = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=second.timestamp_ns // 1000)
            values = [m.value async for m in client.reader("t", start=start, follow=False)]
            assert values[-1] == b"after"
            assert len(values) in (1, 2)  # a datetime has microseconds, a timestamp nanoseconds

    asyncio.run(run())


@pytest.mark.parametrize("start", ["newest", 1.5, True, None])
def test_a_start_that_means_nothing_is_refused(tmp_path: Path, start: object) -> None:
    async def run() -> None:
        async with broker(tmp_path) as server, Client(address_of(server)) as client:
            await fill(client, 1)
            with pytest.raises(InvalidRequestError, match="cannot start at"):
                _ = [m async for m in client.reader("t", start=start, follow=False)]  # type: ignore[arg-type]

    asyncio.run(run())


def test_an_offset_beyond_the_end_is_an_error_when_following(tmp_path: Path) -> None:
    async def run() -> None:
        async with broker(tmp_path) as server, Client(address_of(server)) as client:
            await fill(client, 1)
            with pytest.raises(OffsetOutOfRangeError):
                await anext(aiter(client.reader("t", start=100)))

    asyncio.run(run())


def test_following_delivers_messages_as_they_come(tmp_path: Path) -> None:
    async def run() -> None:
        async with broker(tmp_path) as server, Client(address_of(server)) as client:
            await fill(client, 2)
            reader = client.reader("t", start="latest", follow=True)
            messages = aiter(reader)
            for n in range(3):
                coming = asyncio.ensure_future(anext(messages))
                result = await client.send("t", b"new %d" % n)
                if n == 0 and not coming.done():
                    # The reader may have asked where the topic ends after the message was there.
                    second = await client.send("t", b"again")
                    assert (await coming).offset in (result.offset, second.offset)
                    continue
                async with asyncio.timeout(5):
                    message = await coming
                while message.offset < result.offset:
                    message = await anext(messages)
                assert message.value == b"new %d" % n
            await reader.close()
            await messages.aclose()  # type: ignore[attr-defined]

    asyncio.run(run())


def test_only_the_partitions_asked_for_are_read_and_positions_tell_how_far(tmp_path: Path) -> None:
    async def run() -> None:
        async with broker(tmp_path) as server, Client(address_of(server)) as client:
            await fill(client, 30, partitions=3)
            reader = client.reader("t", partitions=[0, 2], follow=False)
            seen = [(m.partition, m.offset) async for m in reader]
            assert sorted(seen) == [(p, o) for p in (0, 2) for o in range(10)]
            assert reader.positions == {0: 10, 2: 10}
            with pytest.raises(InvalidRequestError, match="no partition 3"):
                _ = [m async for m in client.reader("t", partitions=[3], follow=False)]

    asyncio.run(run())


def test_order_holds_within_a_partition_over_many_fetches(tmp_path: Path) -> None:
    async def run() -> None:
        async with broker(tmp_path) as server, Client(address_of(server)) as client:
            await client.create_topic("t", partitions=2)
            async with client.producer() as producer:
                for n in range(4000):
                    await producer.send("t", b"%06d" % n + bytes(1000), partition=n % 2)
            seen: dict[int, list[bytes | None]] = {0: [], 1: []}
            async for batch in client.reader("t", follow=False).batches():
                assert len({m.partition for m in batch}) == 1
                seen[batch[0].partition] += [m.value for m in batch]
            assert [int(v[:6]) for v in seen[0] if v] == list(range(0, 4000, 2))
            assert [int(v[:6]) for v in seen[1] if v] == list(range(1, 4000, 2))

    asyncio.run(run())


def test_a_reader_goes_on_after_the_broker_restarts(tmp_path: Path) -> None:
    async def run() -> None:
        async with broker(tmp_path) as server:
            address = address_of(server)
            client = Client(address)
            await fill(client, 5)
            messages = aiter(client.reader("t", start="earliest", follow=True))
            assert [(await anext(messages)).offset for _ in range(5)] == list(range(5))
        async with broker(tmp_path, port=int(address.rpartition(":")[2])):
            await client.send("t", b"after the restart")
            async with asyncio.timeout(10):
                assert (await anext(messages)).value == b"after the restart"
            await messages.aclose()  # type: ignore[attr-defined]
            await client.close()

    asyncio.run(run())


def test_a_missing_topic_and_a_wrong_isolation_are_refused(tmp_path: Path) -> None:
    async def run() -> None:
        async with broker(tmp_path) as server, Client(address_of(server)) as client:
            with pytest.raises(TopicNotFoundError):
                _ = [m async for m in client.reader("nowhere", follow=False)]
            with pytest.raises(ConfigurationError, match="isolation"):
                client.reader("t", isolation="serializable")

    asyncio.run(run())
