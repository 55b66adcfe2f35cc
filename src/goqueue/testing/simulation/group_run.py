"""One seeded run of a consumer group: members come, go, crash, stall and return; the broker dies in between.

After each step the state is checked; now and then everything calms down and the group has to be stable, even and
complete. Time is simulated: an hour of sessions takes milliseconds.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable

from goqueue.broker.config import BrokerConfig
from goqueue.errors import GoQueueError
from goqueue.groups import GroupPhase, GroupState, Protocol, flatten
from goqueue.testing.sim_clock import SimClock, run_simulated
from goqueue.testing.simulation.group_member import GROUP, History, SimMember
from goqueue.testing.simulation.group_world import GroupWorld

STEPS = 150
TOPIC = "t"
_SESSION_MS, _REBALANCE_MS = 3_000, 6_000
_ACTIONS = {
    "join": 8, "leave": 4, "crash": 4, "beat": 40, "stall": 8, "zombie": 5,
    "consume": 25, "commit": 12, "produce": 10, "wait": 12, "long_wait": 3,
    "restart": 2, "kill": 3, "grow": 1, "recreate": 1, "calm": 4,
}  # fmt: skip


class GroupRun:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.protocol = self.random.choice((Protocol.COOPERATIVE, Protocol.COOPERATIVE, Protocol.EAGER))
        config = BrokerConfig(
            group_session_timeout_ms=_SESSION_MS, group_rebalance_timeout_ms=_REBALANCE_MS, group_offsets_partitions=2
        )
        self.clock = SimClock()
        self.world = GroupWorld(self.clock, self.random, config)
        self.history = History()
        self.members: list[SimMember] = []
        self.dead: list[SimMember] = []
        self.trace: list[str] = []
        self.step_count = self.joins_checked = 0
        self._numbers = 0
        self._topic_ids = 0

    def run(self) -> None:
        run_simulated(self.clock, self._run())

    async def _run(self) -> None:
        await self.world.start()
        self._create_topic()
        names, weights = list(_ACTIONS), list(_ACTIONS.values())
        for _ in range(STEPS):
            name = self.random.choices(names, weights)[0]
            self.trace.append(f"{self.step_count}: {name}, {len(self.members)} members")
            self.step_count += 1
            await getattr(self, f"_{name}")()
            self._check()
        await self._calm()
        await self.world.coordinator.close()

    # -- steps --------------------------------------------------------------------------------------------------

    async def _join(self) -> None:
        if len(self.members) >= 8:
            return
        self._numbers += 1
        member = SimMember(self.world, self.history, self._numbers, (TOPIC,))
        before = self._state()
        if await self._tried(member.join(self.protocol)):
            self.members.append(member)
            self._check_moves(before)

    async def _leave(self) -> None:
        if member := self._any():
            self.members.remove(member)
            if member.member_id is not None:
                await self._tried(member.commit(sorted(member.positions)))
                await self._tried(self.world.coordinator.leave(GROUP, member.member_id))

    async def _crash(self) -> None:
        if member := self._any():
            self.members.remove(member)
            self.dead.append(member)

    async def _beat(self) -> None:
        if member := self._any():
            await self._tried(member.beat(self.protocol))

    async def _stall(self) -> None:
        """It lives, and does not give up what it is asked for."""
        if member := self._any():
            await self._tried(member.beat(self.protocol, revoke=False))

    async def _zombie(self) -> None:
        if self.dead:
            member = self.dead.pop(self.random.randrange(len(self.dead)))
            await member.try_as_zombie()
            if self.random.random() < 0.3 and len(self.members) < 8:
                member.forget()
                if await self._tried(member.join(self.protocol)):
                    self.members.append(member)

    async def _consume(self) -> None:
        if (member := self._any()) and member.positions:
            member.consume(self.random.choice(sorted(member.positions)), self.random.randint(1, 20))

    async def _commit(self) -> None:
        if (member := self._any()) and member.positions and member.member_id is not None:
            await self._tried(member.commit(sorted(member.positions)))

    async def _produce(self) -> None:
        self.random.choice(self.world.topics.partitions_of(TOPIC)).high_watermark += self.random.randint(1, 30)

    async def _wait(self) -> None:
        await self._pass_time(self.random.randint(1, 1_500))

    async def _long_wait(self) -> None:
        await self._pass_time(self.random.randint(_SESSION_MS, 2 * _REBALANCE_MS))

    async def _restart(self) -> None:
        await self.world.restart(orderly=True)

    async def _kill(self) -> None:
        await self.world.restart(orderly=False)

    async def _grow(self) -> None:
        self.world.topics.grow(TOPIC, self.random.randint(1, 4))

    async def _recreate(self) -> None:
        self.world.topics.delete(TOPIC)
        self.history.acknowledged.clear()
        self.history.handed_over.clear()
        for member in (*self.members, *self.dead):
            member.positions.clear()
        self._create_topic()

    async def _calm(self) -> None:
        """Everybody alive does what it should for a while: the group comes to rest, and all is read and committed."""
        for _ in range(12):
            for member in list(self.members):
                await self._tried(member.beat(self.protocol))
            await self._pass_time(_SESSION_MS // 3)
        if not self.members:
            return
        state = self._state()
        assert state is not None
        assert state.phase is GroupPhase.STABLE, f"a calm group is {state.phase}"
        assert {member.member_id for member in self.members} == {member.id for member in state.members}
        loads = [len(flatten(member.owned)) for member in state.members]
        assert max(loads) - min(loads) <= 1, f"uneven shares {loads}"
        places = {(TOPIC, n) for n in range(len(self.world.topics.partitions_of(TOPIC)))}
        assert set(state.owners()) == places, "every partition has an owner"
        for member in self.members:
            for place in sorted(member.positions):
                member.consume(place, 1 << 40)
            await member.commit(sorted(member.positions))
        for number, partition in enumerate(self.world.topics.partitions_of(TOPIC)):
            assert self.history.acknowledged[TOPIC, number] == partition.high_watermark, "everything is read"

    # -- checks -------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        state = self._state()
        if state is not None:
            state.check_invariants()
            assert state.generation >= self.history.generation_told, "a generation that was told is not forgotten"
        for place, offset in self.history.acknowledged.items():
            committed = self.world.offsets.committed(GROUP, *place)
            assert committed is not None, f"the offset of {place} is lost"
            assert committed.offset >= offset, f"the offset of {place} went back"

    def _check_moves(self, before: GroupState | None) -> None:
        """A join into an even group takes exactly the share of the newcomer."""
        after = self._state()
        if before is None or after is None or before.phase is not GroupPhase.STABLE:
            return
        if after.generation != before.generation + 1 or len(after.members) != len(before.members) + 1:
            return
        owners = before.owners()
        if not owners:
            return
        aims = {p: m.id for m in after.members for p in flatten(m.owned if m.target is None else m.target)}
        moved = sum(aims[place] != owner for place, owner in owners.items())
        assert moved == len(owners) // len(after.members), f"{moved} of {len(owners)} moved to {len(after.members)}"
        self.joins_checked += 1

    # -- means --------------------------------------------------------------------------------------------------

    def _state(self) -> GroupState | None:
        group = self.world.coordinator.log.machine(GROUP).groups.get(GROUP)
        return None if group is None else group.state

    def _any(self) -> SimMember | None:
        return self.random.choice(self.members) if self.members else None

    def _create_topic(self) -> None:
        self._topic_ids += 1
        self.world.topics.create(TOPIC, self.random.randint(1, 12), f"{self._topic_ids:032x}")

    async def _pass_time(self, milliseconds: int) -> None:
        await asyncio.sleep(milliseconds / 1000)

    async def _tried(self, work: Awaitable[object]) -> bool:
        """Refusals are part of life; assertions are not."""
        try:
            await work
        except GoQueueError:
            return False
        return True
