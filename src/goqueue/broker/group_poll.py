"""Polling as a member of a group: messages of the partitions it owns, at once or when there are some.

Positions are the group's, in memory: they begin at the committed offset (or where the reset policy says) and go back to
it when a partition changes hands. `take` picks the messages; everything else is waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from goqueue.broker.group_offsets import GroupOffsets
from goqueue.broker.groups import GroupCoordinator
from goqueue.broker.partition import Partition
from goqueue.broker.topics import Topics
from goqueue.errors import InvalidRequestError, OffsetOutOfRangeError
from goqueue.groups import Member, Place, Protocol, flatten, stale
from goqueue.record import Record

# Visible records of a partition from an offset on, at most so many; and the offset behind them.
ReadNow = Callable[[Partition, int, int], tuple[list[Record], int]]
RESETS = ("earliest", "latest")


@dataclass(frozen=True, slots=True)
class PollResult:
    # By partition, in log order.
    messages: list[tuple[Place, list[Record]]]
    next_offsets: dict[Place, int]


class GroupPoll:
    def __init__(self, coordinator: GroupCoordinator, offsets: GroupOffsets, topics: Topics, read_now: ReadNow) -> None:
        self._coordinator = coordinator
        self._offsets = offsets
        self._topics = topics
        self._read_now = read_now
        # Where the next poll of a group begins to look, so that no partition starves.
        self._turn: dict[str, int] = {}
        self.polls = 0

    async def poll(
        self, name: str, member_id: str, generation: int, *, limit: int, wait_ms: int = 0, reset: str = "earliest"
    ) -> PollResult:
        """What there is for the member, waiting up to `wait_ms` for the first message."""
        if reset not in RESETS:
            raise InvalidRequestError(f"reset={reset[:40]!r} must be one of {', '.join(RESETS)}")
        member = self._coordinator.fenced(name, member_id, generation)
        await self._coordinator.log.settled(name)
        self.polls += 1
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1000
        while True:
            result = self.take(name, member, limit, reset)
            left = deadline - loop.time()
            if result.messages or left <= 0 or self._coordinator.stopping:
                return result
            # In steps shorter than the session: whoever polls lives.
            await self._wait(name, member, min(left, member.session_timeout_ms / 2_000))
            member = self._still_member(name, member_id, generation)

    def take(self, name: str, member: Member, limit: int, reset: str) -> PollResult:
        """Pick up to `limit` messages from the member's partitions and move the group's positions behind them."""
        positions = self._coordinator.positions.setdefault(name, {})
        messages: list[tuple[Place, list[Record]]] = []
        next_offsets: dict[Place, int] = {}
        places = flatten(member.to_read)
        turn = self._turn.get(name, 0) % max(len(places), 1)
        self._turn[name] = turn + 1
        for place in places[turn:] + places[:turn]:
            partition = self._topics.partition(*place)
            start = self._position(name, place, partition, reset)
            records, end = self._read(partition, start, limit) if limit else ([], start)
            positions[place] = next_offsets[place] = end
            if records:
                messages.append((place, records))
                limit -= len(records)
        return PollResult(messages, next_offsets)

    def _read(self, partition: Partition, start: int, limit: int) -> tuple[list[Record], int]:
        try:
            return self._read_now(partition, start, limit)
        except OffsetOutOfRangeError:
            # Retention has passed it by since it was looked up.
            return self._read_now(partition, partition.log.log_start_offset, limit)

    def _position(self, name: str, place: Place, partition: Partition, reset: str) -> int:
        position = self._coordinator.positions[name].get(place)
        if position is None:
            committed = self._offsets.committed(name, *place)
            if committed is not None:
                position = committed.offset
            else:
                position = partition.high_watermark if reset == "latest" else partition.log.log_start_offset
        return min(max(position, partition.log.log_start_offset), partition.high_watermark)

    def _still_member(self, name: str, member_id: str, generation: int) -> Member:
        """After a wait: a cooperative member goes on with what it keeps; an eager one has to join again."""
        state, member = self._coordinator.log.machine(name).member(name, member_id)
        if state.generation != generation and state.protocol is Protocol.EAGER:
            raise stale(name, generation, state)
        self._coordinator.keep_alive(name, member)
        return member

    async def _wait(self, name: str, member: Member, timeout_s: float) -> None:
        """Until there is something new in one of the partitions, or the group changes."""
        key = name, member.id
        watcher = self._coordinator.watch(key)
        partitions = [self._topics.partition(*place) for place in flatten(member.to_read)]
        readers = [(partition, partition.wait_data()) for partition in partitions]
        try:
            futures: list[asyncio.Future[None]] = [watcher, *(reader for _, reader in readers)]
            await asyncio.wait(futures, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._coordinator.stop_watching(key, watcher)
            for partition, reader in readers:
                partition.stop_waiting(reader)
