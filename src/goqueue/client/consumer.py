"""Consuming as a member of a group.

async with client.consumer("billing", ["orders"]) as consumer:
    async for message in consumer:
        ...

The member's heartbeat waits at the broker, so that changes of the group arrive at once. Partitions that stay are read
on during a rebalance. A partition that moves is given up when the application has finished the message it has in hand
and its offset is committed; then `on_revoked` is called. `on_lost` is called instead when a partition was taken away
from a member that was not heard of in time: what it did since its last commit, another member may do again.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from goqueue.client.feed import Feed, Place, Reset
from goqueue.client.link import Backoff, Link
from goqueue.errors import (
    ClientClosedError,
    ConfigurationError,
    FencedError,
    GoQueueError,
    InvalidRequestError,
    PartitionNotAssignedError,
    StaleGenerationError,
    UnknownMemberError,
)
from goqueue.record import Record

# Told which partitions came or went.
Callback = Callable[[list[Place]], Awaitable[None] | None]
# Fetches that wait at the broker at once; it allows 256 per connection.
_WAITING_FETCHES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    protocol: str | None = None
    assignor: str | None = None
    session_timeout_ms: int | None = None
    rebalance_timeout_ms: int | None = None
    # Where to begin in a partition of which the group has committed nothing.
    start: Reset = "earliest"
    # Commit what the application has finished, this often and when partitions move.
    auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    fetch_bytes_max: int = 1 << 20
    on_assigned: Callback | None = None
    on_revoked: Callback | None = None
    on_lost: Callback | None = None

    def __post_init__(self) -> None:
        if self.start not in ("earliest", "latest"):
            raise ConfigurationError(f"start must be earliest or latest, not {self.start!r}")
        if self.auto_commit_interval_ms < 1 or self.fetch_bytes_max < 1:
            raise ConfigurationError("auto_commit_interval_ms and fetch_bytes_max must be at least 1")


class Consumer:
    """Made by `Client.consumer`; iterate it in one task."""

    def __init__(
        self, control: Link, fetching: Link, group: str, topics: Sequence[str], client_id: str, config: ConsumerConfig
    ) -> None:
        self._control = control
        self._fetching = fetching
        self.group = group
        self._topics = [topics] if isinstance(topics, str) else list(topics)
        self._client_id = client_id
        self._config = config
        self.member_id: str | None = None
        self.generation = 0
        self._version: int | None = None
        self._interval_ms = 3_000
        self._feeds: dict[Place, Feed] = {}
        # Being given up: nothing more is handed out of these.
        self._leaving: dict[Place, Feed] = {}
        self._slots = asyncio.Semaphore(_WAITING_FETCHES)
        self._arrived = asyncio.Event()
        self._came_back = asyncio.Event()
        self._turn = 0
        self._batch: Feed | None = None
        self._failure: GoQueueError | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._started = self._closed = False

    # -- life ---------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Consumer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Join the group; iterating does it as well."""
        if self._closed:
            raise ClientClosedError("the consumer is closed")
        if self._started:
            return
        self._started = True
        try:
            await self._follow(await self._join())
        except BaseException:
            self._started = False
            raise
        self._run(self._live())
        if self._config.auto_commit:
            self._run(self._commit_regularly())

    async def close(self) -> None:
        """Commit what is finished, leave the group, end."""
        if self._closed:
            return
        self._closed = True
        self._arrived.set()
        self._came_back.set()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._started and self._control.open is not None:
            with contextlib.suppress(GoQueueError):
                if self._config.auto_commit:
                    await self._commit_finished({**self._leaving, **self._feeds})
            for feed in (*self._feeds.values(), *self._leaving.values()):
                feed.stop()
            with contextlib.suppress(GoQueueError):
                await self._call("group.leave", member_id=self.member_id)
        await self._control.close()
        await self._fetching.close()

    # -- messages -----------------------------------------------------------------------------------------------

    def __aiter__(self) -> Consumer:
        return self

    async def __anext__(self) -> Record:
        feed = await self._next_feed()
        return feed.take(1)[0]

    async def batch(self, timeout_ms: int | None = None) -> list[Record]:
        """The next messages, all of one partition; none when the time is over or the consumer is closed.

        Asking for the next batch says that the one before is finished."""
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                feed = await self._next_feed()
        except (TimeoutError, StopAsyncIteration):
            return []
        return feed.take()

    async def _next_feed(self) -> Feed:
        """The next partition with something to hand out; everything handed out before is finished."""
        if not self._started:
            await self.start()
        if self._batch is not None:
            self._batch.finish()
            self._batch = None
        self._came_back.set()
        while True:
            if self._failure is not None:
                raise self._failure
            if self._closed:
                raise StopAsyncIteration
            ready = [feed for feed in self._feeds.values() if feed.ready]
            if ready:
                self._turn += 1
                self._batch = ready[self._turn % len(ready)]
                self._came_back.clear()
                return self._batch
            self._arrived.clear()
            await self._arrived.wait()

    def assignment(self) -> list[Place]:
        return sorted(self._feeds)

    def position(self, topic: str, partition: int) -> int:
        """The next offset to be handed out."""
        return self._feed(topic, partition).position

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Go on from `offset`."""
        if offset < 0:
            raise InvalidRequestError(f"cannot seek to offset {offset}")
        self._feed(topic, partition).seek(offset)

    def pause(self, topic: str, partition: int) -> None:
        """Hand out nothing of this partition until `resume`; it stays assigned."""
        self._feed(topic, partition).paused = True

    def resume(self, topic: str, partition: int) -> None:
        self._feed(topic, partition).paused = False
        self._arrived.set()

    def _feed(self, topic: str, partition: int) -> Feed:
        feed = self._feeds.get((topic, partition))
        if feed is None:
            raise PartitionNotAssignedError(
                f"{topic}-{partition} is not assigned to this consumer", topic=topic, partition=partition
            )
        return feed

    # -- offsets ------------------------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[Place, int | tuple[int, str]] | None = None) -> None:
        """Commit durably: given offsets, or everything handed out so far, the message in hand included."""
        if offsets is not None:
            await self._commit(offsets)
            return
        feeds = {**self._leaving, **self._feeds}
        for feed in feeds.values():
            feed.finish()
        await self._commit_finished(feeds)

    async def _commit_finished(self, feeds: Mapping[Place, Feed]) -> None:
        wanted = {place: feed.finished for place, feed in feeds.items() if feed.finished != feed.committed}
        await self._commit(wanted)
        for place, offset in wanted.items():
            feeds[place].committed = offset

    async def _commit(self, offsets: Mapping[Place, int | tuple[int, str]]) -> None:
        by_topic: dict[str, dict[int, object]] = {}
        for (topic, partition), offset in offsets.items():
            by_topic.setdefault(topic, {})[partition] = offset
        while by_topic:
            generation = self.generation
            try:
                await self._call("group.commit", member_id=self.member_id, generation=generation, offsets=by_topic)
                return
            except StaleGenerationError:
                # The group has moved on and this member perhaps has not noticed; its partitions may still be its own.
                if self.generation == generation:
                    await self._catch_up()

    async def _catch_up(self) -> None:
        try:
            view = await self._call("group.heartbeat", member_id=self.member_id, generation=self.generation)
        except StaleGenerationError:
            view = await self._rejoin()
        self.generation = int(view["generation"])

    async def _commit_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._config.auto_commit_interval_ms / 1000)
            # What is refused here was taken from this member; the heartbeat finds out as well and tells it.
            with contextlib.suppress(GoQueueError):
                await self._commit_finished(self._feeds)

    # -- membership ---------------------------------------------------------------------------------------------

    async def _join(self) -> dict[str, Any]:
        view: dict[str, Any] = await self._call(
            "group.join",
            client_id=self._client_id,
            topics=self._topics,
            protocol=self._config.protocol,
            assignor=self._config.assignor,
            session_timeout_ms=self._config.session_timeout_ms,
            rebalance_timeout_ms=self._config.rebalance_timeout_ms,
        )
        self.member_id = str(view["member_id"])
        return view

    async def _rejoin(self) -> dict[str, Any]:
        wanted = {"client_id": self._client_id, "topics": self._topics, "member_id": self.member_id}
        view: dict[str, Any] = await self._call("group.join", **wanted)
        return view

    async def _live(self) -> None:
        """Heartbeats without end; each waits at the broker for news."""
        async for _ in Backoff(longest_ms=500).waits():
            try:
                while True:
                    await self._follow(await self._beat())
            except GoQueueError as error:
                if not error.retriable:
                    self._fail(error)
                    return
            # Whatever was not done of the last view has to be told again.
            self._version = None

    async def _beat(self) -> dict[str, Any]:
        try:
            view: dict[str, Any] = await self._call(
                "group.heartbeat",
                member_id=self.member_id,
                generation=self.generation,
                wait_ms=self._interval_ms,
                version=self._version,
            )
        except StaleGenerationError:
            return await self._rejoin()
        except UnknownMemberError:
            await self._lose([*self._feeds, *self._leaving])
            return await self._join()
        return view

    async def _follow(self, view: dict[str, Any]) -> None:
        """Do what the broker says: give up, take over, go on."""
        self.generation = int(view["generation"])
        self._version = int(view["version"])
        self._interval_ms = int(view["heartbeat_interval_ms"])
        mine = {(topic, number) for topic, numbers in view["assignment"].items() for number in numbers}
        revoked = {(place["topic"], place["partition"]) for place in view["partitions_to_revoke"]}
        await self._lose([place for place in (*self._feeds, *self._leaving) if place not in mine | revoked])
        for place in [place for place in self._leaving if place in mine]:
            # It was asked for, and then the group changed again: it stays.
            self._feeds[place] = self._leaving.pop(place)
            self._feeds[place].seek(self._feeds[place].finished)
        if leaving := [place for place in self._feeds if place in revoked]:
            for place in leaving:
                self._leaving[place] = self._feeds.pop(place)
                self._leaving[place].paused = True
            self._run(self._give_up(leaving))
        if unknown := sorted(revoked - set(leaving) - set(self._leaving)):
            # Of an earlier life of this member: there is nothing to finish.
            await self._revoke(unknown)
        if new := sorted(mine - set(self._feeds)):
            await self._take_over(new)

    async def _take_over(self, places: list[Place]) -> None:
        found = await self._call("group.offsets", topics=sorted({topic for topic, _ in places}))
        for topic, number in places:
            bounds = found[topic][str(number)]
            offset = bounds["offset"]
            if offset is None:
                offset = bounds["log_start_offset" if self._config.start == "earliest" else "log_end_offset"]
            self._feeds[topic, number] = Feed(
                (topic, number),
                offset,
                link=self._fetching,
                slots=self._slots,
                bytes_max=self._config.fetch_bytes_max,
                reset=self._config.start,
                arrived=self._arrived.set,
                failed=self._fail,
            )
        await _tell(self._config.on_assigned, places)

    async def _give_up(self, places: list[Place]) -> None:
        """Finish, commit, tell, and only then let the next member have them."""
        feeds = {place: self._leaving[place] for place in places}
        while any(feed.in_hand and self._batch is feed for feed in feeds.values()):
            self._came_back.clear()
            await self._came_back.wait()
        for feed in feeds.values():
            feed.stop()
        still = {place: feed for place, feed in feeds.items() if self._leaving.get(place) is feed}
        with contextlib.suppress(FencedError):
            if self._config.auto_commit:
                await self._commit_finished(still)
            await _tell(self._config.on_revoked, sorted(still))
            await self._revoke(sorted(still))
        for place, feed in still.items():
            if self._leaving.get(place) is feed:
                del self._leaving[place]

    async def _revoke(self, places: Iterable[Place]) -> None:
        partitions: dict[str, list[int]] = {}
        for topic, number in places:
            partitions.setdefault(topic, []).append(number)
        if partitions:
            await self._call(
                "group.revoke", member_id=self.member_id, generation=self.generation, partitions=partitions
            )

    async def _lose(self, places: Iterable[Place]) -> None:
        lost = sorted(set(places))
        for place in lost:
            for feeds in (self._feeds, self._leaving):
                if (feed := feeds.pop(place, None)) is not None:
                    feed.stop()
        if lost:
            await _tell(self._config.on_lost, lost)

    # -- the rest -----------------------------------------------------------------------------------------------

    async def _call(self, method: str, **arguments: object) -> Any:
        given = {name: value for name, value in arguments.items() if value is not None}
        connection = await self._control.connection()
        return await connection.call(method, group=self.group, **given)

    def _run(self, work: Any) -> None:
        task = asyncio.create_task(self._guard(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guard(self, work: Awaitable[None]) -> None:
        try:
            await work
        except GoQueueError as error:
            if not error.retriable:
                self._fail(error)

    def _fail(self, error: GoQueueError) -> None:
        """The one who iterates is told."""
        self._failure = error
        self._arrived.set()


async def _tell(callback: Callback | None, places: list[Place]) -> None:
    if callback is not None and places:
        result = callback(places)
        if inspect.isawaitable(result):
            await result
