"""Delayed messages through the Python client and its blocking facade."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from goqueue.client import Client, SyncClient
from goqueue.client.delays import delay_fields
from goqueue.errors import DelayedNotFoundError, DelayInvalidError, DelayTooLongError, InvalidRequestError
from tests.client.brokers import address_of, broker


def test_send_list_cancel_reschedule_and_receive(tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path) as server, Client(address_of(server)) as client:
            await client.create_topic("t", partitions=1)
            far = await client.send("t", b"far", delay=timedelta(hours=1))
            near = await client.send("t", b"near", key=b"k", headers=[("h", "1")], priority=1, delay=3600.5)
            at = await client.send("t", b"at", deliver_at=datetime.now(UTC) + timedelta(hours=2))
            assert far.deliver_at_ms is not None
            assert [one["offset"] for one in await client.delayed("t")] == [far.offset, near.offset, at.offset]
            assert (await client.cancel_delayed("t", 0, far.offset))["cancelled"] is True
            await client.reschedule_delayed("t", 0, near.offset, delay=0.02)
            reader = client.reader("t")
            async with asyncio.timeout(10):
                message = await anext(aiter(reader))
            assert (message.value, message.key, message.priority) == (b"near", b"k", 1)
            assert message.headers == (("h", b"1"), ("goqueue.origin-offset", str(near.offset).encode()))
            await reader.close()
            found = await client.get_delayed("t", 0, near.offset)
            assert (found["state"], found["released_offset"]) == ("released", message.offset)
            assert (await client.delay_statistics())["pending"] == 1
            producer = client.producer()
            future = await producer.send("t", b"p", delay=3600)
            await producer.flush()
            assert future.done()
            assert future.result().deliver_at_ms is not None

    asyncio.run(main())


def test_bad_times_are_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path) as server, Client(address_of(server)) as client:
            await client.create_topic("t", partitions=1)
            with pytest.raises(DelayInvalidError):
                await client.send("t", b"x", delay=-1)
            with pytest.raises(DelayTooLongError):
                await client.send("t", b"x", delay=timedelta(days=8))
            with pytest.raises(DelayInvalidError, match="not both"):
                await client.send("t", b"x", delay=1, deliver_at=1)
            with pytest.raises(DelayInvalidError, match="zone"):
                await client.send("t", b"x", deliver_at=datetime(2030, 1, 1))
            with pytest.raises(DelayedNotFoundError):
                await client.cancel_delayed("t", 0, 0)
            with pytest.raises(InvalidRequestError, match="a message is wrong"):
                await client._call("delay.publish", topic="t", messages=[{"value": 5}])
            assert await client.delayed("t") == []

    asyncio.run(main())


@pytest.mark.parametrize(("seconds", "expected"), [(0.1, 100), (0.0001, 1), (1.0005, 1001), (2, 2000)])
def test_delays_are_rounded_up_to_milliseconds(seconds: float, expected: int) -> None:
    assert delay_fields(seconds, None) == {"delay_ms": expected}


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 1e300])
def test_what_is_no_delay_is_refused(seconds: float) -> None:
    with pytest.raises(DelayInvalidError):
        delay_fields(seconds, None)


def test_the_blocking_client_has_the_same_methods(tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path) as server:
            await asyncio.to_thread(work, address_of(server))

    def work(address: str) -> None:
        with SyncClient(address) as client:
            client.create_topic("t", partitions=1)
            sent = client.send("t", b"x", delay=3600)
            assert client.delayed("t")[0]["offset"] == sent.offset
            assert client.reschedule_delayed("t", 0, sent.offset, delay=7200)["state"] == "pending"
            assert client.cancel_delayed("t", 0, sent.offset)["cancelled"]
            assert client.get_delayed("t", 0, sent.offset)["state"] == "cancelled"
            assert client.delay_statistics()["cancelled"] == 1

    asyncio.run(main())
