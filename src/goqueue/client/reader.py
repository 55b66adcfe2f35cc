"""Reading a topic in log order: as messages, as lists of them, or as Arrow batches.

Each partition is read by a task of its own that stays one fetch ahead; order is kept within a partition. Reading
changes nothing at the broker. A message keeps the block it came in alive: copy the value if you keep few messages for
long.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, cast

from goqueue.client.link import Backoff, Link
from goqueue.errors import GoQueueError, InvalidRequestError
from goqueue.protocol import wire
from goqueue.protocol.wire import Api, Isolation
from goqueue.record import INVISIBLE_FLAGS, Record, decode, last_offset

if TYPE_CHECKING:
    import pyarrow as pa

# Where to begin: a word, an offset, or a time.
Start = Literal["earliest", "latest"] | int | datetime

_AHEAD = 2
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WAIT_MS = 5_000


class Reader:
    """Made by `Client.reader`; iterate it once."""

    def __init__(
        self,
        link: Link,
        topic: str,
        *,
        partitions: Sequence[int] | None,
        start: Start,
        follow: bool,
        bytes_max: int,
        isolation: Isolation,
    ) -> None:
        self._link = link
        self._topic = topic
        self._partitions = partitions
        self._start = start
        self._follow = follow
        self._bytes_max = bytes_max
        self._isolation = isolation
        self._tasks: list[asyncio.Task[None]] = []
        # The next offset to be handed out, by partition.
        self.positions: dict[int, int] = {}

    def __aiter__(self) -> AsyncIterator[Record]:
        return self._messages()

    async def _messages(self) -> AsyncIterator[Record]:
        async for batch in self.batches():
            for message in batch:
                yield message

    async def batches(self) -> AsyncIterator[list[Record]]:
        """Messages in lists as they arrive; every list comes from one partition."""

        def objects(data: memoryview, partition: int, offset: int) -> list[Record]:
            return decode(data, INVISIBLE_FLAGS, offset, topic=self._topic, partition=partition)

        async for batch in self._chunks(objects):
            if batch:
                yield batch

    async def arrow(self) -> AsyncIterator[pa.RecordBatch]:
        """Arrow record batches as they arrive; needs the `arrow` extra. Every batch comes from one partition."""
        from goqueue.record.arrow import decode_arrow

        def columns(data: memoryview, partition: int, offset: int) -> pa.RecordBatch:
            return decode_arrow(data, skip_flags=INVISIBLE_FLAGS, min_offset=offset)

        async for batch in self._chunks(columns):
            if batch.num_rows:
                yield batch

    async def close(self) -> None:
        """Stop reading ahead."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _chunks(self, decoder: Callable[[memoryview, int, int], Any]) -> AsyncIterator[Any]:
        """Decoded chunks of all partitions, in arrival order, until each has reached its end or for ever."""
        offsets = await self._begin()
        queue: asyncio.Queue[object] = asyncio.Queue(_AHEAD * max(len(offsets), 1))
        self._tasks = [
            asyncio.create_task(self._follow_partition(number, start, end, decoder, queue))
            for number, (start, end) in offsets.items()
        ]
        running = len(self._tasks)
        try:
            while running:
                item = await queue.get()
                if item is None:
                    running -= 1
                elif isinstance(item, GoQueueError):
                    raise item
                else:
                    number, next_offset, chunk = cast(tuple[int, int, Any], item)
                    yield chunk
                    self.positions[number] = next_offset
        finally:
            await self.close()

    async def _follow_partition(
        self,
        number: int,
        offset: int,
        end: int | None,
        decoder: Callable[[memoryview, int, int], Any],
        queue: asyncio.Queue[object],
    ) -> None:
        wait_ms = 0 if end is not None else _WAIT_MS
        following = asyncio.create_task(self._fetch(number, offset, wait_ms))
        try:
            while end is None or offset < end:
                data = await following
                if not data and end is not None:
                    break
                start, offset = offset, last_offset(data) + 1 if data else offset
                # The next block is on its way while this one is decoded and handed over.
                if end is None or offset < end:
                    following = asyncio.create_task(self._fetch(number, offset, wait_ms))
                if data:
                    await queue.put((number, offset, decoder(data, number, start)))
            await queue.put(None)
        except GoQueueError as error:
            await queue.put(error)
        finally:
            following.cancel()

    async def _fetch(self, number: int, offset: int, wait_ms: int) -> memoryview:
        """One block of records, tried again as long as the trouble may pass."""
        body = wire.fetch_body(
            wire.route(self._topic, number),
            offset=offset,
            bytes_max=self._bytes_max,
            wait_ms=wait_ms,
            isolation=self._isolation,
        )
        async for _ in Backoff().waits():
            try:
                connection = await self._link.connection()
                return memoryview(await connection.request(Api.FETCH, body))[wire.FETCH_REPLY_BODY.size :]
            except GoQueueError as error:
                if not error.retriable:
                    raise
        raise AssertionError("the backoff never ends")

    async def _begin(self) -> dict[int, tuple[int, int | None]]:
        """(first offset, end or None) of every partition to read."""
        connection = await self._link.connection()
        info = await connection.call("topic.describe", name=self._topic)
        assert isinstance(info, dict)
        bounds = {int(number): offsets for number, offsets in info["partition_offsets"].items()}
        wanted = list(bounds) if self._partitions is None else list(self._partitions)
        if unknown := [number for number in wanted if number not in bounds]:
            raise InvalidRequestError(f"topic {self._topic!r} has no partition {unknown[0]}; it has {len(bounds)}")
        result = {}
        for number in wanted:
            end = None if self._follow else bounds[number]["latest"]
            result[number] = (await self._first_offset(number, bounds[number]), end)
        self.positions = {number: start for number, (start, _) in result.items()}
        return result

    async def _first_offset(self, number: int, bounds: dict[str, int]) -> int:
        if isinstance(self._start, bool) or not isinstance(self._start, int | datetime | str):
            raise InvalidRequestError(f"cannot start at {self._start!r}: use earliest, latest, an offset or a time")
        if isinstance(self._start, int):
            return self._start
        if isinstance(self._start, datetime):
            connection = await self._link.connection()
            # In whole numbers: a float of seconds does not hold microseconds.
            nanoseconds = (self._start.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1) * 1_000
            found = await connection.call(
                "offset.at_time", topic=self._topic, partition=number, timestamp_ns=nanoseconds
            )
            return int(found) if isinstance(found, int) else bounds["latest"]
        if self._start not in ("earliest", "latest"):
            raise InvalidRequestError(f"cannot start at {self._start!r}: use earliest, latest, an offset or a time")
        return bounds[self._start]
