"""The producer: messages gather per partition and leave as batches.

A batch leaves at `batch_records`, `batch_bytes` or after `linger_ms`, whichever comes first. Batches of a partition are
sent in order; after a lost connection those without an answer are sent again, in order, so a message may arrive twice
but not out of turn. Memory is bounded: `send` waits for room, `send_nowait` refuses.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from goqueue.client.connection import Connection
from goqueue.client.delays import Delay, Moment, delay_fields, send_delayed
from goqueue.client.link import Backoff, Link
from goqueue.errors import (
    BatchTooLargeError,
    BufferFullError,
    ClientClosedError,
    ConfigurationError,
    GoQueueError,
    InvalidRequestError,
    RequestTimeoutError,
)
from goqueue.model import partition_for_key
from goqueue.protocol import wire
from goqueue.protocol.wire import Api
from goqueue.record import BatchBuilder

# What a produce request holds besides topic, partition and batch.
_FRAME_OVERHEAD_BYTES = wire.HEADER.size + 2
ACKS = {"none": 0, "leader": 1, "all": 2}
_BATCHES_PER_TURN = 8
# Delayed messages travel as calls, of which a broker lets a connection have only so many under way.
_DELAYED_IN_FLIGHT_MAX = 64
Headers = Iterable[tuple[str | bytes, str | bytes]]


class SendResult(msgspec.Struct, frozen=True, gc=False):
    """Where a message is. With acks none nobody knows: offset and timestamp are -1."""

    partition: int
    offset: int
    timestamp_ns: int
    # When a delayed message becomes visible, at another offset; None for one that is visible now.
    deliver_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SendManyResult:
    """A run of messages with consecutive offsets in one partition."""

    partition: int
    base_offset: int
    count: int
    timestamp_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    acks: str = "all"
    batch_records: int = 100
    batch_bytes: int = 64 << 10
    # How long a batch waits for company; 0 sends at the end of this turn of the event loop.
    linger_ms: float = 5
    # Messages accepted and not yet answered, in bytes.
    buffer_bytes_max: int = 32 << 20
    # Batches of one partition on their way.
    in_flight_max: int = 64
    # A message that could not be delivered within this time fails.
    delivery_timeout_ms: int = 120_000

    def __post_init__(self) -> None:
        problems = []
        if self.acks not in ACKS:
            problems.append(f"acks must be none, leader or all, not {self.acks!r}")
        counts = ("batch_records", "batch_bytes", "buffer_bytes_max", "in_flight_max", "delivery_timeout_ms")
        problems += [f"{name} must be at least 1" for name in counts if getattr(self, name) < 1]
        if self.linger_ms < 0:
            problems.append("linger_ms must not be negative")
        if problems:
            raise ConfigurationError("; ".join(problems), problems=problems)


class _Batch:
    __slots__ = ("builder", "data", "deadline", "futures", "shared", "timer")

    def __init__(self) -> None:
        self.builder = BatchBuilder()
        self.data: bytearray | None = None
        self.futures: list[asyncio.Future[SendResult]] = []
        self.shared: asyncio.Future[SendManyResult] | None = None
        self.timer: asyncio.Handle | None = None
        self.deadline = 0.0

    def resolve(self, partition: int, base_offset: int, timestamp_ns: int, count: int) -> None:
        if self.shared is not None and not self.shared.done():
            self.shared.set_result(SendManyResult(partition, base_offset, count, timestamp_ns))
        offset, step = (base_offset, 1) if base_offset >= 0 else (-1, 0)
        for future in self.futures:
            if not future.done():
                future.set_result(SendResult(partition, offset, timestamp_ns))
            offset += step

    def fail(self, error: GoQueueError) -> None:
        if self.shared is not None and not self.shared.done():
            self.shared.set_exception(error)
        for future in self.futures:
            if not future.done():
                future.set_exception(error)


class _Lane:
    """One partition: the batch that is filling, those waiting to leave, and the task that sends them."""

    def __init__(self, topic: str, partition: int) -> None:
        self.partition = partition
        self.route = wire.route(topic, partition)
        self.filling: _Batch | None = None
        self.waiting: deque[_Batch] = deque()
        self.task: asyncio.Task[None] | None = None


class _Topic:
    def __init__(self, name: str, partition_count: int) -> None:
        self.name = name
        self.lanes = [_Lane(name, number) for number in range(partition_count)]
        self.turn = 0

    def lane(self, key: bytes | None, partition: int | None) -> _Lane:
        """By explicit number, by key, or sticky: one partition until its batch leaves, then the next."""
        if partition is not None:
            if not 0 <= partition < len(self.lanes):
                raise InvalidRequestError(f"topic {self.name!r} has partitions 0 to {len(self.lanes) - 1}")
            return self.lanes[partition]
        if key is not None:
            return self.lanes[partition_for_key(key, len(self.lanes))]
        return self.lanes[self.turn]

    def advance(self, lane: _Lane) -> None:
        if lane is self.lanes[self.turn]:
            self.turn = (self.turn + 1) % len(self.lanes)


class Producer:
    def __init__(self, link: Link, config: ProducerConfig) -> None:
        self._link = link
        self._config = config
        self._acks = ACKS[config.acks]
        self._loop = asyncio.get_running_loop()
        # Looked up once: these are read for every message.
        self._create_future = self._loop.create_future
        self._batch_records, self._batch_bytes = config.batch_records, config.batch_bytes
        self._topics: dict[str, _Topic] = {}
        # Senders that must wait, for a topic to be known or for room, wait in line, so that none overtakes another.
        self._line = asyncio.Lock()
        self._in_line = 0
        self._buffered_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._delayed_room = asyncio.Semaphore(_DELAYED_IN_FLIGHT_MAX)
        # Batches completed since `send` last let the event loop run.
        self._unsent_batches = 0
        # Delayed sends that are not answered yet.
        self._delayed: set[asyncio.Task[SendResult]] = set()
        self._closed = False

    async def __aenter__(self) -> Producer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- sending ------------------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers | None = None,
        priority: int = 2,
        partition: int | None = None,
        delay: Delay | None = None,
        deliver_at: Moment | None = None,
    ) -> asyncio.Future[SendResult]:
        """Accept a message, waiting for room if need be; the future that is returned is its result.

        With `delay` (seconds) or `deliver_at` (a time) it goes alone and at once, and becomes visible then."""
        if delay is not None or deliver_at is not None:
            times = delay_fields(delay, deliver_at)
            return self._send_delayed(topic, value, key, headers, priority, partition, times)
        state = self._topics.get(topic)
        if (
            state is None
            or self._in_line
            or self._unsent_batches >= _BATCHES_PER_TURN
            or self._buffered_bytes >= self._config.buffer_bytes_max
        ):
            state = await self._wait_in_line(topic)
        return self._add(state, value, key, headers, priority, partition)

    async def send_and_wait(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers | None = None,
        priority: int = 2,
        partition: int | None = None,
        delay: Delay | None = None,
        deliver_at: Moment | None = None,
    ) -> SendResult:
        """Send a message and return where it is, or raise why it is not."""
        return await (await self.send(topic, value, key, headers, priority, partition, delay, deliver_at))

    def _send_delayed(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers | None,
        priority: int,
        partition: int | None,
        times: dict[str, int],
    ) -> asyncio.Future[SendResult]:
        if self._closed:
            raise ClientClosedError("the producer is closed")

        async def send() -> SendResult:
            acks = self._config.acks
            async with self._delayed_room:
                answer = await send_delayed(self._link, topic, value, key, headers, priority, partition, acks, times)
            return SendResult(answer["partition"], answer["offset"], answer["timestamp_ns"], answer["deliver_at"])

        task = self._loop.create_task(send())
        self._delayed.add(task)
        task.add_done_callback(self._delayed.discard)
        return task

    def send_nowait(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers | None = None,
        priority: int = 2,
        partition: int | None = None,
    ) -> asyncio.Future[SendResult]:
        """Like `send` without waiting: `BufferFullError` when there is no room. The topic must have been used
        before."""
        state = self._topics.get(topic)
        if state is None:
            raise InvalidRequestError(f"topic {topic!r} is not known yet: await send() to it once first")
        if self._buffered_bytes >= self._config.buffer_bytes_max:
            raise BufferFullError(f"{self._buffered_bytes} bytes wait for the broker; the limit is reached")
        return self._add(state, value, key, headers, priority, partition)

    def _add(
        self,
        topic: _Topic,
        value: bytes | None,
        key: bytes | None,
        headers: Headers | None,
        priority: int,
        partition: int | None,
    ) -> asyncio.Future[SendResult]:
        if self._closed:
            raise ClientClosedError("the producer is closed")
        lane = topic.lanes[topic.turn] if key is None and partition is None else topic.lane(key, partition)
        batch = lane.filling
        if batch is None:
            batch = self._begin(topic, lane)
        builder = batch.builder
        self._buffered_bytes += builder.add(value, key, headers, priority)
        future: asyncio.Future[SendResult] = self._create_future()
        batch.futures.append(future)
        if builder.count >= self._batch_records or builder.size_bytes >= self._batch_bytes:
            self._leave(topic, lane)
        return future

    async def send_many(
        self, topic: str, values: Sequence[bytes], *, partition: int | None = None
    ) -> list[SendManyResult]:
        """Send keyless messages in as few batches as they fit and wait for all; one result per batch, in order.

        A batch here holds up to ten times `batch_records` and `batch_bytes`; all values of a batch share a partition.
        """
        results = []
        for part in self._parts(values):
            state = self._topics.get(topic)
            if state is None or self._in_line or self._buffered_bytes >= self._config.buffer_bytes_max:
                state = await self._wait_in_line(topic)
            results.append(self._add_many(state, part, partition))
        return list(await asyncio.gather(*results))

    def _parts(self, values: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
        """Runs of values that fit into a batch; a value that is larger than all of it goes alone."""
        records_max, bytes_max = self._config.batch_records * 10, self._config.batch_bytes * 10
        for start in range(0, len(values), records_max):
            part = values[start : start + records_max]
            if sum(map(len, part)) <= bytes_max:
                yield part
                continue
            first, size = 0, 0
            for number, value in enumerate(part):
                if number > first and size + len(value) > bytes_max:
                    yield part[first:number]
                    first, size = number, 0
                size += len(value)
            yield part[first:]

    def _add_many(
        self, topic: _Topic, values: Sequence[bytes], partition: int | None
    ) -> asyncio.Future[SendManyResult]:
        if self._closed:
            raise ClientClosedError("the producer is closed")
        lane = topic.lane(None, partition)
        if lane.filling is not None:
            self._leave(topic, lane)
            lane = topic.lane(None, partition)
        batch = _Batch()
        batch.builder.extend(values)
        batch.deadline = self._loop.time() + self._config.delivery_timeout_ms / 1000
        batch.shared = self._loop.create_future()
        self._buffered_bytes += batch.builder.size_bytes
        lane.filling = batch
        self._leave(topic, lane)
        return batch.shared

    async def flush(self) -> None:
        """Send everything now and return when all of it is answered."""
        for topic in self._topics.values():
            for lane in topic.lanes:
                if lane.filling is not None:
                    self._leave(topic, lane)
        while tasks := [lane.task for topic in self._topics.values() for lane in topic.lanes if lane.task]:
            await asyncio.wait(tasks)
        if self._delayed:
            await asyncio.wait(set(self._delayed))

    async def close(self) -> None:
        """Flush and end. Nothing that was accepted is dropped; what could not be delivered has failed by then."""
        self._closed = True
        await self.flush()

    # -- batches ------------------------------------------------------------------------------------------------

    async def _wait_in_line(self, topic: str) -> _Topic:
        """Return when it is this sender's turn, its topic is known and there is room."""
        self._in_line += 1
        try:
            async with self._line:
                state = self._topics.get(topic) or await self._load(topic)
                if self._unsent_batches >= _BATCHES_PER_TURN:
                    # A loop that only sends would otherwise keep the event loop from sending anything.
                    self._unsent_batches = 0
                    await asyncio.sleep(0)
                while self._buffered_bytes >= self._config.buffer_bytes_max:
                    self._room.clear()
                    await self._room.wait()
                return state
        finally:
            self._in_line -= 1

    async def _load(self, topic: str) -> _Topic:
        """Learn how many partitions a topic has."""
        connection = await self._link.connection()
        info = await connection.call("topic.describe", name=topic)
        assert isinstance(info, dict)
        state = self._topics[topic] = _Topic(topic, info["partitions"])
        return state

    def _begin(self, topic: _Topic, lane: _Lane) -> _Batch:
        batch = lane.filling = _Batch()
        batch.deadline = self._loop.time() + self._config.delivery_timeout_ms / 1000
        if self._config.linger_ms:
            batch.timer = self._loop.call_later(self._config.linger_ms / 1000, self._leave, topic, lane, batch)
        else:
            batch.timer = self._loop.call_soon(self._leave, topic, lane, batch)
        return batch

    def _leave(self, topic: _Topic, lane: _Lane, only: _Batch | None = None) -> None:
        """The filling batch is complete: hand it to the partition's sender."""
        batch = lane.filling
        if batch is None or (only is not None and batch is not only):
            return
        lane.filling = None
        topic.advance(lane)
        if batch.timer is not None:
            batch.timer.cancel()
        if not batch.builder.count:
            return
        batch.data = batch.builder.take()
        lane.waiting.append(batch)
        self._unsent_batches += 1
        if lane.task is None:
            lane.task = self._loop.create_task(self._send_all(lane))

    def _release(self, batch: _Batch) -> None:
        assert batch.data is not None
        self._buffered_bytes -= len(batch.data)
        if self._buffered_bytes < self._config.buffer_bytes_max:
            self._room.set()

    # -- the sender of a partition ------------------------------------------------------------------------------

    async def _send_all(self, lane: _Lane) -> None:
        """Pipeline the waiting batches; after trouble, take up again from the first that was not answered."""
        in_flight: deque[tuple[_Batch, asyncio.Future[bytes]]] = deque()
        try:
            async for _ in Backoff().waits():
                try:
                    await self._pipeline(lane, in_flight)
                    return
                except GoQueueError as error:
                    # Let every answer come in (a lost connection ends them all): what is sent again is known to have
                    # failed.
                    await asyncio.gather(*(answer for _, answer in in_flight), return_exceptions=True)
                    self._recover(lane, in_flight, error)
                    if not lane.waiting:
                        return
        finally:
            lane.task = None
            if lane.waiting:
                lane.task = self._loop.create_task(self._send_all(lane))

    async def _pipeline(self, lane: _Lane, in_flight: deque[tuple[_Batch, asyncio.Future[bytes]]]) -> None:
        connection = await self._link.connection()
        # The broker takes nothing of a run behind a batch that it has refused: what is sent again keeps its place.
        run = connection.begin_run(lane.route) if self._acks else 0
        try:
            await self._pipeline_run(lane, in_flight, connection, run)
        finally:
            connection.end_run(lane.route, run)

    async def _pipeline_run(
        self,
        lane: _Lane,
        in_flight: deque[tuple[_Batch, asyncio.Future[bytes]]],
        connection: Connection,
        run: int,
    ) -> None:
        head, later = bytes((self._acks, run | wire.RUN_BEGINS if run else 0)), bytes((self._acks, run))
        in_flight_max = self._config.in_flight_max if run else 1
        while lane.waiting or in_flight:
            while lane.waiting and len(in_flight) < in_flight_max:
                batch = lane.waiting[0]
                assert batch.data is not None
                if len(batch.data) + len(lane.route) + _FRAME_OVERHEAD_BYTES > connection.frame_bytes_max:
                    lane.waiting.popleft()
                    self._release(batch)
                    batch.fail(_too_large(len(batch.data), connection.frame_bytes_max))
                elif self._acks == 0:
                    # Taken out only when it has left: a lost connection must find it in its place.
                    connection.tell(Api.PRODUCE, head, lane.route, batch.data)
                    lane.waiting.popleft()
                    self._release(batch)
                    batch.resolve(lane.partition, -1, -1, len(batch.futures))
                else:
                    lane.waiting.popleft()
                    in_flight.append((batch, connection.request(Api.PRODUCE, head, lane.route, batch.data)))
                    head = later
            if in_flight:
                await self._take_answer(lane, connection, in_flight)
            else:
                await connection.wait_room()

    async def _take_answer(
        self, lane: _Lane, connection: Connection, in_flight: deque[tuple[_Batch, asyncio.Future[bytes]]]
    ) -> None:
        batch, answer = in_flight[0]
        # A broker that is connected and silent must not hold a message for ever.
        silence = RequestTimeoutError("the broker did not answer within the delivery timeout")
        timer = self._loop.call_at(batch.deadline, connection.abort, silence)
        try:
            base_offset, timestamp_ns, count = wire.PRODUCE_REPLY_BODY.unpack(await answer)
        except GoQueueError as error:
            if error.retriable and self._loop.time() < batch.deadline:
                raise
            in_flight.popleft()
            self._release(batch)
            batch.fail(error)
            return
        finally:
            timer.cancel()
        in_flight.popleft()
        self._release(batch)
        batch.resolve(lane.partition, base_offset, timestamp_ns, count)

    def _recover(
        self, lane: _Lane, in_flight: deque[tuple[_Batch, asyncio.Future[bytes]]], error: GoQueueError
    ) -> None:
        """Put unanswered batches back in front, in order; give up those that are out of time."""
        while in_flight:
            batch, answer = in_flight.pop()
            if answer.exception() is None:
                base_offset, timestamp_ns, count = wire.PRODUCE_REPLY_BODY.unpack(answer.result())
                self._release(batch)
                batch.resolve(lane.partition, base_offset, timestamp_ns, count)
            else:
                lane.waiting.appendleft(batch)
        now = self._loop.time()
        while lane.waiting and (now >= lane.waiting[0].deadline or not error.retriable):
            batch = lane.waiting.popleft()
            self._release(batch)
            batch.fail(error)


def _too_large(size: int, maximum: int) -> BatchTooLargeError:
    return BatchTooLargeError(
        f"a batch of {size} bytes does not fit into a frame of {maximum}; send fewer or smaller messages at once",
        size=size,
        maximum=maximum,
    )
