"""A consumer in the simulation: follows the protocol as the real client does, or misbehaves in a named way."""

from __future__ import annotations

from dataclasses import dataclass, field

from goqueue.broker import MemberView
from goqueue.errors import ConnectionLostError, FencedError, StaleGenerationError, UnknownMemberError
from goqueue.groups import Place, Protocol, flatten
from goqueue.testing.simulation.group_world import GroupWorld

GROUP = "g"


@dataclass(slots=True)
class History:
    """What happened, for the checks."""

    # Commits that were answered, highest first.
    acknowledged: dict[Place, int] = field(default_factory=dict)
    # Where the last owner stopped when it gave a partition up in order.
    handed_over: dict[Place, int] = field(default_factory=dict)
    generation_told: int = 0
    refused: int = 0
    consumed: int = 0


class SimMember:
    def __init__(self, world: GroupWorld, history: History, number: int, topics: tuple[str, ...]) -> None:
        self._world = world
        self._history = history
        self.client_id = f"c{number}"
        self._topics = topics
        self.member_id: str | None = None
        self.generation = 0
        # What it believes it owns, and its next offset in each.
        self.positions: dict[Place, int] = {}
        self.asked: set[Place] = set()

    async def join(self, protocol: Protocol) -> None:
        view = await self._world.coordinator.join(
            GROUP, client_id=self.client_id, topics=self._topics, member_id=self.member_id, protocol=protocol
        )
        self.member_id = view.member_id
        self._follow(view)

    async def beat(self, protocol: Protocol, *, revoke: bool = True) -> None:
        """A heartbeat, with what follows from its answer; `revoke` False is a member too busy to give up anything."""
        assert self.member_id is not None
        try:
            view = await self._world.coordinator.heartbeat(GROUP, self.member_id, self.generation)
            self._follow(view)
            if revoke and self.asked:
                await self.give_up()
        except StaleGenerationError:
            self.positions.clear()  # eager: what it had belongs to the generation that is over
            await self.join(protocol)
        except UnknownMemberError:
            self.forget()
            await self.join(protocol)

    async def give_up(self) -> None:
        asked = sorted(self.asked & set(self.positions))
        await self.commit(asked)
        stopped = {place: self.positions.pop(place) for place in asked}
        assert self.member_id is not None
        self._history.handed_over.update(stopped)
        view = await self._world.coordinator.revoke(GROUP, self.member_id, self.generation, sorted(self.asked))
        self._follow(view)

    def _follow(self, view: MemberView) -> None:
        assert view.generation >= self.generation, "a member never hears of an older generation"
        self.generation = view.generation
        self._history.generation_told = max(self._history.generation_told, view.generation)
        mine, self.asked = set(flatten(view.assignment)), set(flatten(view.to_revoke))
        for place in set(self.positions) - mine - self.asked:
            del self.positions[place]
        for place in mine - set(self.positions):
            committed = self._world.offsets.committed(GROUP, *place)
            start = 0 if committed is None else committed.offset
            handed_over = self._history.handed_over.pop(place, None)
            assert handed_over is None or start >= handed_over, f"{place} is read again after an orderly handover"
            self.positions[place] = start

    def consume(self, place: Place, count: int) -> None:
        if place in self.positions and place not in self.asked and place[0] in self._world.topics.catalog:
            numbers = self._world.topics.partitions_of(place[0])
            if place[1] < len(numbers):
                before = self.positions[place]
                self.positions[place] = max(before, min(before + count, numbers[place[1]].high_watermark))
                self._history.consumed += self.positions[place] - before

    async def commit(self, places: list[Place]) -> None:
        wanted: dict[str, dict[int, int]] = {}
        for topic, number in places:
            wanted.setdefault(topic, {})[number] = self.positions[topic, number]
        offsets = {place: self.positions[place] for place in places}
        assert self.member_id is not None
        await self._world.offsets.commit(GROUP, self.member_id, self.generation, wanted)
        for place, offset in offsets.items():
            assert offset >= self._history.acknowledged.get(place, 0), f"the offset of {place} went back"
            self._history.acknowledged[place] = offset

    async def try_as_zombie(self) -> None:
        """Back from the dead, with the identity of its former life."""
        if self.member_id is None or not self.positions:
            return
        known = self._world.coordinator.log.machine(GROUP).groups.get(GROUP)
        alive = known is not None and any(member.id == self.member_id for member in known.members)
        try:
            await self.commit(sorted(self.positions))
        except FencedError:
            self._history.refused += 1
        except ConnectionLostError:
            pass
        else:
            assert alive, "a member that was removed has committed"

    def forget(self) -> None:
        self.member_id = None
        self.generation = 0
        self.positions.clear()
        self.asked.clear()
