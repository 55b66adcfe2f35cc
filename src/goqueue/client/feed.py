"""One partition of a consumer: fetched ahead into a small buffer, handed out in log order.

A feed knows three places: what was fetched, what was handed out, and what the application has finished with. It does
not know groups.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal, cast

from goqueue.client.link import Backoff, Link
from goqueue.errors import GoQueueError, OffsetOutOfRangeError
from goqueue.protocol import wire
from goqueue.protocol.wire import Api, Isolation
from goqueue.record import INVISIBLE_FLAGS, Record, decode, last_offset

Place = tuple[str, int]
Reset = Literal["earliest", "latest"]
_WAIT_MS = 5_000
# With more partitions than may wait at once, each waits for less long.
_WAIT_SHORT_MS = 100


class Feed:
    def __init__(
        self,
        place: Place,
        offset: int,
        *,
        link: Link,
        slots: asyncio.Semaphore,
        bytes_max: int,
        reset: Reset,
        arrived: Callable[[], None],
        failed: Callable[[GoQueueError], None],
    ) -> None:
        self.place = place
        self._link = link
        self._slots = slots
        self._bytes_max = bytes_max
        self._reset = reset
        self._arrived = arrived
        self._failed = failed
        self._records: list[Record] = []
        self._at = 0
        self._fetched = offset
        # The next offset to be handed out, and the one up to which the application is done.
        self.position = offset
        self.finished = offset
        self.committed = offset
        self.paused = False
        self._hungry = asyncio.Event()
        self._hungry.set()
        self._task = asyncio.create_task(self._fetch_ahead())

    @property
    def ready(self) -> bool:
        return self._at < len(self._records) and not self.paused

    @property
    def in_hand(self) -> bool:
        """The application has something of this partition that it has not come back from."""
        return self.finished < self.position

    def take(self, limit: int | None = None) -> list[Record]:
        """Hand out what is buffered, up to `limit`."""
        end = len(self._records) if limit is None else self._at + limit
        taken = self._records[self._at : end]
        self._at += len(taken)
        self.position = taken[-1].offset + 1
        if self._at >= len(self._records):
            self._records, self._at = [], 0
            self.position = self._fetched
            self._hungry.set()
        return taken

    def finish(self) -> None:
        """The application is done with everything handed out."""
        self.finished = self.position

    def seek(self, offset: int) -> None:
        self._task.cancel()
        self._records, self._at = [], 0
        self._fetched = self.position = self.finished = offset
        self._hungry.set()
        self._task = asyncio.create_task(self._fetch_ahead())

    def stop(self) -> None:
        """Hand out nothing more."""
        self._task.cancel()
        self._records, self._at = [], 0

    # -- fetching -----------------------------------------------------------------------------------------------

    async def _fetch_ahead(self) -> None:
        try:
            while True:
                await self._hungry.wait()
                async with self._slots:
                    data = await self._fetch(_WAIT_SHORT_MS if self._slots.locked() else _WAIT_MS)
                if not data:
                    continue
                topic, partition = self.place
                found = decode(data, INVISIBLE_FLAGS, self._fetched, topic=topic, partition=partition)
                self._fetched = last_offset(data) + 1
                if found:
                    self._records, self._at = found, 0
                    self._hungry.clear()
                    self._arrived()
                else:
                    # Nothing to show; not a reason to take what is in hand for finished.
                    if not self.in_hand:
                        self.finished = self._fetched
                    self.position = self._fetched
        except GoQueueError as error:
            self._failed(error)

    async def _fetch(self, wait_ms: int) -> memoryview:
        async for _ in Backoff().waits():
            body = wire.fetch_body(
                wire.route(*self.place),
                offset=self._fetched,
                bytes_max=self._bytes_max,
                wait_ms=wait_ms,
                isolation=Isolation.READ_COMMITTED,
            )
            try:
                connection = await self._link.connection()
                return memoryview(await connection.request(Api.FETCH, body))[wire.FETCH_REPLY_BODY.size :]
            except OffsetOutOfRangeError:
                await self._find_offset()
            except GoQueueError as error:
                if not error.retriable:
                    raise
        raise AssertionError("the backoff never ends")

    async def _find_offset(self) -> None:
        """Retention has removed what was to be read next: go on where the policy says."""
        connection = await self._link.connection()
        info = cast(dict[str, dict[str, dict[str, int]]], await connection.call("topic.describe", name=self.place[0]))
        bounds = info["partition_offsets"][str(self.place[1])]
        self._fetched = self.position = self.finished = bounds[self._reset]
