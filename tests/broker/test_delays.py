"""Delayed messages on a broker: durable before the answer, never early, released once, cancelled for good."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from goqueue.broker import BrokerApi, BrokerConfig, Message
from goqueue.broker.delay_store import SNAPSHOT_FILE
from goqueue.delays import ORIGIN_HEADER, DelayState
from goqueue.errors import (
    DelayedFinishedError,
    DelayedNotFoundError,
    DelayInvalidError,
    DelayTooLongError,
    GoQueueError,
    HeadersTooLargeError,
    TopicNotFoundError,
)
from goqueue.host import OsDisk, OsEntropy
from goqueue.record import Record
from goqueue.testing import SimClock

T = TypeVar("T")
HOUR_MS = 3_600_000


def run(work: Coroutine[Any, Any, T]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(30):
            return await work

    return asyncio.run(bounded())


@asynccontextmanager
async def opened(path: Path, clock: SimClock, *, topic: str | None = None, **config: Any) -> AsyncIterator[BrokerApi]:
    broker = await BrokerApi.open(
        disk=OsDisk(), path=str(path), clock=clock, entropy=OsEntropy(), config=BrokerConfig(**config)
    )
    try:
        if topic is not None:
            await broker.create_topic(topic, partition_count=1)
        yield broker
    finally:
        await broker.close()


def pass_time(broker: BrokerApi, clock: SimClock, ms: int) -> None:
    clock.advance_ns(ms * 1_000_000)
    for _ in range(50):
        broker.delays.release_due()


async def publish(broker: BrokerApi, value: bytes, **options: Any) -> int:
    (result,) = await broker.publish("t", [Message(value=value, **options)])
    if result.error is not None:
        raise result.error
    assert result.offset is not None
    return result.offset


async def seen(broker: BrokerApi) -> list[Record]:
    return (await broker.read("t", 0, offset=0, limit=1000)).records


async def values(broker: BrokerApi) -> list[bytes | None]:
    return [record.value for record in await seen(broker)]


def test_a_delayed_message_is_seen_when_due_and_not_before(tmp_path: Path) -> None:
    async def main() -> None:
        clock = SimClock()
        async with opened(tmp_path, clock, topic="t") as broker:
            offset = await publish(broker, b"later", key=b"k", headers=[("h", b"1")], priority=1, delay_ms=1500)
            await publish(broker, b"now")
            assert broker.delays.look_up("t", 0, offset).state is DelayState.PENDING
            pass_time(broker, clock, 1499)
            assert await values(broker) == [b"now"]
            pass_time(broker, clock, 1)
            assert await values(broker) == [b"now", b"later"]
            copy = (await seen(broker))[-1]
            assert (copy.key, copy.priority) == (b"k", 1)
            assert copy.headers == (("h", b"1"), (ORIGIN_HEADER, str(offset).encode()))
            found = broker.delays.look_up("t", 0, offset)
            assert (found.state, found.released_offset) == (DelayState.RELEASED, copy.offset)

    run(main())


def test_a_reader_far_ahead_still_gets_what_is_released_later(tmp_path: Path) -> None:
    async def main() -> None:
        clock = SimClock()
        async with opened(tmp_path, clock, topic="t") as broker:
            await publish(broker, b"late", delay_ms=1000)
            for number in range(20):
                await publish(broker, b"%d" % number)
            ahead = (await broker.read("t", 0, offset=0, limit=100)).next_offset
            waiting = asyncio.create_task(broker.read("t", 0, offset=ahead, wait_ms=20_000))
            await asyncio.sleep(0)
            pass_time(broker, clock, 1000)
            assert [record.value for record in (await waiting).records] == [b"late"]

    run(main())


def test_zero_and_the_past_are_now(tmp_path: Path) -> None:
    async def main() -> None:
        clock = SimClock()
        async with opened(tmp_path, clock, topic="t") as broker:
            await publish(broker, b"a", delay_ms=0)
            await publish(broker, b"b", deliver_at_ms=5)
            assert await values(broker) == [b"a", b"b"]
            assert broker.delays.pending_count() == 0

    run(main())


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"delay_ms": -1}, DelayInvalidError),
        ({"deliver_at_ms": -1}, DelayInvalidError),
        ({"delay_ms": True}, DelayInvalidError),
        ({"delay_ms": 1.5}, DelayInvalidError),
        ({"delay_ms": 1, "deliver_at_ms": 1}, DelayInvalidError),
        ({"delay_ms": 10_001}, DelayTooLongError),
        ({"deliver_at_ms": 10**30}, DelayTooLongError),
        ({"delay_ms": 10, "headers": [("h", b"x" * 65_500)]}, HeadersTooLargeError),
    ],
)
def test_a_bad_delay_is_refused_and_changes_nothing(
    tmp_path: Path, options: dict[str, Any], error: type[GoQueueError]
) -> None:
    async def main() -> None:
        clock = SimClock()
        async with opened(tmp_path, clock, topic="t", delay_max_ms=10_000) as broker:
            with pytest.raises(error):
                await publish(broker, b"x", **options)
            good = await broker.publish("t", [Message(value=b"x", **options), Message(value=b"good", delay_ms=10_000)])
            assert isinstance(good[0].error, error)
            assert good[1].error is None
            assert broker.delays.pending_count() == 1

    run(main())


def test_the_largest_headers_that_are_taken_are_also_released(tmp_path: Path) -> None:
    async def main() -> None:
        clock = SimClock()
        async with opened(tmp_path, clock, topic="t") as broker:
            # The due header takes 45 bytes, this one 4 and its name and value, the count 2.
            offset = await publish(broker, b"x", delay_ms=10, headers=[("h", b"x" * (65_535 - 2 - 45 - 5))])
            pass_time(broker, clock, 10)
            assert broker.delays.look_up("t", 0, offset).state is DelayState.RELEASED

    run(main())


def test_cancel_answers_the_truth_and_lasts(tmp_path: Path) -> None:
    async def main() -> None:
        clock = SimClock()
        async with opened(tmp_path, clock, topic="t") as broker:
            kept = await publish(broker, b"kept", delay_ms=1000)
            gone = await publish(broker, b"gone", delay_ms=1000)
            for _ in range(2):
                assert (await broker.delays.cancel("t", 0, gone)).state is DelayState.CANCELLED
            pass_time(broker, clock, 1000)
            assert (await broker.delays.cancel("t", 0, kept)).state is DelayState.RELEASED
            with pytest.raises(DelayedFinishedError):
                await broker.delays.reschedule("t", 0, gone, delay_ms=1)
        async with opened(tmp_path, clock) as broker:
            pass_time(broker, clock, HOUR_MS)
            assert await values(broker) == [b"kept"]
            assert broker.delays.look_up("t", 0, gone).state is DelayState.CANCELLED
            with pytest.raises(DelayedNotFoundError):
                await broker.delays.cancel("t", 0, 99)
            with pytest.raises(TopicNotFoundError):
                await broker.delays.cancel("nope", 0, 0)

    run(main())


def test_a_rescheduled_message_comes_at_its_new_time_only(tmp_path: Path) -> None:
    async def main() -> None:
        clock = SimClock()
        async with opened(tmp_path, clock, topic="t") as broker:
            later = await publish(broker, b"later", delay_ms=1000)
            sooner = await publish(broker, b"sooner", delay_ms=HOUR_MS)
            await broker.delays.reschedule("t", 0, later, delay_ms=5000)
            await broker.delays.reschedule("t", 0, sooner, delay_ms=500)
            pass_time(broker, clock, 4999)
            assert await values(broker) == [b"sooner"]
        async with opened(tmp_path, clock) as broker:
            pass_time(broker, clock, 1)
            assert await values(broker) == [b"sooner", b"later"]

    run(main())


@pytest.mark.parametrize("snapshot", ["kept", "missing", "torn", "of another log"])
def test_a_restart_finds_everything_pending_with_the_right_time(tmp_path: Path, snapshot: str) -> None:
    async def main() -> None:
        clock = SimClock()
        async with opened(tmp_path, clock, topic="t") as broker:
            for number in range(100):
                await publish(broker, b"%d" % number, delay_ms=1000 + number)
            for number in range(0, 100, 2):
                await broker.delays.cancel("t", 0, number)
            directory = Path(broker.topics.partition("t", 0).log.directory)
        file = directory / SNAPSHOT_FILE
        if snapshot == "missing":
            file.unlink()
        elif snapshot == "torn":
            file.write_bytes(file.read_bytes()[:-9])
        elif snapshot == "of another log":
            async with opened(tmp_path / "other", clock, topic="t") as other:
                await publish(other, b"x", delay_ms=77)
                foreign = Path(other.topics.partition("t", 0).log.directory) / SNAPSHOT_FILE
            file.write_bytes(foreign.read_bytes())
        async with opened(tmp_path, clock) as broker:
            assert broker.delays.pending_count() == 50
            pass_time(broker, clock, 1051)
            assert await values(broker) == [b"%d" % number for number in range(1, 52, 2)]
            pass_time(broker, clock, 1000)
            assert await values(broker) == [b"%d" % number for number in range(1, 100, 2)]

    run(main())


def test_what_fell_due_while_the_broker_was_away_comes_in_order_and_once(tmp_path: Path) -> None:
    async def main() -> None:
        clock = SimClock()
        async with opened(tmp_path, clock, topic="t") as broker:
            for number in range(3000):
                await broker.publish("t", [Message(value=b"%d" % number, delay_ms=1 + number % 7)], acks=1)  # type: ignore[arg-type]
        clock.advance_ns(10**9)
        async with opened(tmp_path, clock) as broker:
            pass_time(broker, clock, 1)
            got = [int(value or b"") for value in await values_all(broker)]
            assert got == sorted(range(3000), key=lambda number: (number % 7, number))

    run(main())


async def values_all(broker: BrokerApi) -> list[bytes | None]:
    found: list[bytes | None] = []
    offset = 0
    while True:
        page = await broker.read("t", 0, offset=offset, limit=1000)
        if not page.records:
            return found
        found += [record.value for record in page.records]
        offset = page.next_offset


def test_retention_keeps_pending_messages_and_compaction_does_not_count_them(tmp_path: Path) -> None:
    async def main() -> None:
        clock = SimClock()
        async with opened(tmp_path, clock) as broker:
            settings = {"retention_ms": 60_000, "segment_bytes": 1 << 20, "segment_ms": 60_000}
            await broker.create_topic("t", partition_count=1, settings=settings)
            await broker.create_topic("c", partition_count=1, settings={"cleanup_policy": "compact"})
            await publish(broker, b"pending", delay_ms=HOUR_MS)
            place, compacted = broker.topics.partition("t", 0), broker.topics.partition("c", 0)
            await broker.publish("c", [Message(value=b"old", key=b"k")])
            (delayed,) = await broker.publish("c", [Message(value=b"new", key=b"k", delay_ms=HOUR_MS)])
            compacted.log.roll()
            clock.advance_ns(600_000_000_000)
            await broker.maintenance.tend(place)
            await broker.maintenance.compact(compacted)
            assert place.log.log_start_offset == 0
            page = await broker.read("c", 0, offset=0)
            assert [record.value for record in page.records] == [b"old"]
            pass_time(broker, clock, HOUR_MS)
            assert await values(broker) == [b"pending"]
            page = await broker.read("c", 0, offset=0)
            assert [record.value for record in page.records] == [b"old", b"new"]
            assert delayed.offset is not None
            clock.advance_ns(600_000_000_000)
            await broker.maintenance.tend(place)
            clock.advance_ns(600_000_000_000)
            await broker.maintenance.tend(place)
            assert place.log.log_start_offset > 0, "released ones do not hold retention up"

    run(main())


def test_a_topic_that_is_made_again_has_no_delays_of_the_old_one(tmp_path: Path) -> None:
    async def main() -> None:
        clock = SimClock()
        async with opened(tmp_path, clock, topic="t") as broker:
            await publish(broker, b"old", delay_ms=100)
            await broker.delete_topic("t")
            assert broker.delays.pending_count() == 0
            await broker.create_topic("t", partition_count=1)
            pass_time(broker, clock, 1000)
            assert await values(broker) == []
            await publish(broker, b"new", delay_ms=100)
            pass_time(broker, clock, 100)
            assert await values(broker) == [b"new"]

    run(main())


def test_a_message_larger_than_a_limit_that_was_lowered_later_is_still_released(tmp_path: Path) -> None:
    async def main() -> None:
        clock = SimClock()
        async with opened(tmp_path, clock, topic="t") as broker:
            await publish(broker, b"x" * 5000, delay_ms=100)
            await broker.alter_topic("t", {"max_message_bytes": 1000})
            pass_time(broker, clock, 100)
            assert await values(broker) == [b"x" * 5000]

    run(main())


def test_the_list_is_by_time_and_paged(tmp_path: Path) -> None:
    async def main() -> None:
        clock = SimClock()
        async with opened(tmp_path, clock) as broker:
            await broker.create_topic("t", partition_count=2)
            for number in range(10):
                await broker.publish("t", [Message(value=b"x", delay_ms=1000 - number, partition=number % 2)])
            pages = [broker.delays.pending("t", limit=4, skip=skip) for skip in (0, 4, 8, 12)]
            times = [one.due_ms for page in pages for _, one in page if one.due_ms is not None]
            assert len(times) == 10
            assert times == sorted(times)
            with pytest.raises(GoQueueError, match="limit"):
                broker.delays.pending("t", limit=1001)

    run(main())
