"""The coordinator of consumer groups: brings time, topics and callers to the group machines.

Every decision is made, appended and replayed in one synchronous step; callers are answered when it is durable. Members
that wait (a heartbeat that asked to, a poll) are woken as soon as something looks different to them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Sequence

from goqueue.broker.config import BrokerConfig
from goqueue.broker.group_log import GroupLog
from goqueue.broker.group_views import MemberView, RebalanceStats, changed_members
from goqueue.broker.topics import Topics
from goqueue.errors import GoQueueError, InvalidNameError, InvalidRequestError, LimitExceededError, UnknownMemberError
from goqueue.groups import (
    AssignorName,
    Group,
    GroupMachine,
    GroupPhase,
    GroupRecord,
    GroupState,
    Join,
    Member,
    MemberKey,
    Mode,
    Place,
    Protocol,
    Sessions,
    TopicShape,
    stale,
)
from goqueue.host import Clock, Entropy
from goqueue.model import is_internal_name, validate_name

_SWEEP_INTERVAL_MS = 60_000
_logger = logging.getLogger(__name__)


class GroupCoordinator:
    def __init__(self, topics: Topics, clock: Clock, entropy: Entropy, config: BrokerConfig) -> None:
        self._topics = topics
        self._clock = clock
        self._entropy = entropy
        self._config = config
        self.log = GroupLog(topics, config)
        self._sessions = Sessions()
        self._last_heard_ms: dict[MemberKey, int] = {}
        self._versions: dict[MemberKey, int] = {}
        self._watchers: dict[MemberKey, list[asyncio.Future[None]]] = {}
        # When partitions that were not given up are taken; monotonic.
        self._revocations: dict[str, int] = {}
        self._next_sweep_ms = 0
        self.stats: dict[str, RebalanceStats] = {}
        # Next offsets of polls, by group: in memory, and forgotten when a partition changes hands.
        self.positions: dict[str, dict[Place, int]] = {}
        self._kick = asyncio.Event()
        self._timer: asyncio.Task[None] | None = None
        self.stopping = False

    # -- life ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load, and keep time from now on."""
        await self.load()
        self._timer = asyncio.create_task(self._keep_time())

    async def load(self) -> None:
        """Replay, give every member a session and catch up with what happened to topics."""
        await self.log.load()
        now = self._now_ms()
        for name, group in self.log.groups():
            for member in group.members:
                self._begin_session(name, member, member.joined, now)
            if group.state is not None:
                self._set_revocation_deadline(name, None, group.state, now)
        for topic in {place[0] for _, group in self.log.groups() for place in group.offsets}:
            self._forget_offsets(topic)
        for name, _ in list(self.log.groups()):
            self._follow_topics(name)
        self._next_sweep_ms = now
        self._topics.listeners.append(self._topic_changed)

    def drain(self) -> None:
        """Let everyone who waits go."""
        self.stopping = True
        for key in list(self._watchers):
            self._wake(key)

    async def close(self) -> None:
        self.drain()
        if self._timer is not None:
            self._timer.cancel()
            await asyncio.gather(self._timer, return_exceptions=True)

    # -- members ------------------------------------------------------------------------------------------------

    async def join(
        self,
        name: str,
        *,
        client_id: str,
        topics: Sequence[str],
        member_id: str | None = None,
        session_timeout_ms: int | None = None,
        rebalance_timeout_ms: int | None = None,
        protocol: Protocol | None = None,
        assignor: AssignorName | None = None,
        mode: Mode | None = None,
        protocol_default: Protocol = Protocol.COOPERATIVE,
    ) -> MemberView:
        check_group_name(name)
        validate_name(client_id, kind="client")
        join = Join(
            member_id=member_id or f"{client_id}-{self._entropy.random_bytes(8).hex()}",
            is_new=not member_id,
            client_id=client_id,
            topics=self._checked_topics(topics),
            session_timeout_ms=self._checked_session(session_timeout_ms),
            rebalance_timeout_ms=rebalance_timeout_ms or self._config.group_rebalance_timeout_ms,
            protocol=protocol,
            assignor=assignor,
            mode=mode,
            protocol_default=protocol_default,
        )
        await self.log.open()
        machine = self.log.machine(name)
        records, state = machine.handle_join(name, join, self._shapes(name, topics), self._wall_ms())
        self._change(name, machine, records)
        member = state.member(join.member_id)
        assert member is not None, "it has just joined"
        now = self._now_ms()
        if join.is_new:
            self._begin_session(name, member, state.generation, now)
            self._kick.set()
        else:
            self._touch(name, member, state.generation, now)
        await self.log.settled(name)
        return self.view(name, join.member_id, state.generation)

    async def heartbeat(
        self, name: str, member_id: str, generation: int, *, wait_ms: int = 0, version: int | None = None
    ) -> MemberView:
        """The member lives. With `wait_ms` and the `version` it knows, answered when something has changed."""
        _, member = self._alive(name, member_id, generation)
        self._touch(name, member, generation, self._now_ms())
        key = name, member_id
        if wait_ms and version == self._versions.get(key) and not self.stopping:
            # Not so long that the session would end while its member waits here.
            await self.wait_change(key, min(wait_ms, member.session_timeout_ms // 2) / 1000)
            _, member = self._alive(name, member_id, generation)
            self._touch(name, member, generation, self._now_ms())
        await self.log.settled(name)
        return self.view(name, member_id, generation)

    async def revoke(self, name: str, member_id: str, generation: int, places: Iterable[Place]) -> MemberView:
        """The member has stopped reading these; whoever waits for them has them from now on."""
        _, member = self._alive(name, member_id, generation)
        self._touch(name, member, generation, self._now_ms())
        machine = self.log.machine(name)
        records, _ = machine.handle_revoke(name, member_id, list(dict.fromkeys(places)), self._wall_ms())
        self._change(name, machine, records)
        await self.log.settled(name)
        return self.view(name, member_id, generation)

    async def leave(self, name: str, member_id: str) -> int:
        """Returns the generation without the member."""
        check_group_name(name)
        machine = self.log.machine(name)
        records, state = machine.handle_leave(name, [member_id], self._shapes(name), self._wall_ms())
        self._change(name, machine, records)
        await self.log.settled(name)
        return state.generation

    def view(self, name: str, member_id: str, generation: int) -> MemberView:
        """The group in the eyes of a member that knows `generation`."""
        state, member = self.log.machine(name).member(name, member_id)
        to_revoke = member.to_revoke
        return MemberView(
            group=name,
            member_id=member_id,
            client_id=member.client_id,
            generation=state.generation,
            leader_id=state.members[0].id,
            protocol=state.protocol,
            mode=state.mode,
            phase=member.phase,
            assignment=member.to_read,
            to_revoke=to_revoke,
            revocation_deadline_ms=self.revocation_deadline_ms(name) if to_revoke else None,
            rebalance_required=generation != state.generation or member.target is not None,
            member_ids=tuple(member.id for member in state.members),
            version=self._versions.get((name, member_id), 0),
            heartbeat_interval_ms=min(self._config.group_heartbeat_interval_ms, max(member.session_timeout_ms // 3, 1)),
            session_timeout_ms=member.session_timeout_ms,
        )

    def keep_alive(self, name: str, member: Member) -> None:
        """A member that waits here lives."""
        self._touch(name, member, 0, self._now_ms())

    def fenced(self, name: str, member_id: str, generation: int) -> Member:
        """A member that knows the current generation and therefore lives; anyone else is refused."""
        check_group_name(name)
        _, member = self.log.machine(name).fenced(name, member_id, generation)
        self._touch(name, member, generation, self._now_ms())
        return member

    def _alive(self, name: str, member_id: str, generation: int) -> tuple[GroupState, Member]:
        """A member whose view may be a step behind, if its group lets it catch up; never one of its own past."""
        check_group_name(name)
        state, member = self.log.machine(name).member(name, member_id)
        session = self._sessions.get((name, member_id))
        known = member.joined if session is None else session.generation
        oldest = state.generation if state.protocol is Protocol.EAGER else known
        if not oldest <= generation <= state.generation:
            raise stale(name, generation, state)
        return state, member

    # -- groups -------------------------------------------------------------------------------------------------

    def groups(self) -> list[tuple[str, Group]]:
        return sorted(self.log.groups(), key=lambda found: found[0])

    def group(self, name: str) -> Group:
        check_group_name(name)
        return self.log.machine(name).get(name)

    def last_heard_ms(self, name: str, member_id: str) -> int | None:
        """Wall clock of the last sign of life; None when there was none since the broker started."""
        return self._last_heard_ms.get((name, member_id))

    def revocation_deadline_ms(self, name: str) -> int | None:
        """Wall clock at which partitions are taken that were not given up; None when none are asked for."""
        deadline = self._revocations.get(name)
        return None if deadline is None else self._wall_ms() + deadline - self._now_ms()

    def rebalance_stats(self, name: str | None = None) -> dict[str, int | None]:
        """How rebalances went since the broker started: of one group, or of all together."""
        if name is not None:
            self.group(name)
            return self.stats.get(name, RebalanceStats()).fields()
        return RebalanceStats.total(self.stats.values()).fields()

    async def delete(self, name: str) -> None:
        check_group_name(name)
        machine = self.log.machine(name)
        self._change(name, machine, machine.handle_delete(name))
        self.positions.pop(name, None)
        self.stats.pop(name, None)
        await self.log.settled(name)

    async def wait_change(self, key: MemberKey, timeout_s: float) -> None:
        """Return when something looks different to a member, or after the time."""
        watcher = self.watch(key)
        try:
            await asyncio.wait((watcher,), timeout=timeout_s)
        finally:
            self.stop_watching(key, watcher)

    def watch(self, key: MemberKey) -> asyncio.Future[None]:
        """A future that is done when something looks different to a member; hand it back to `stop_watching`."""
        watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watchers.setdefault(key, []).append(watcher)
        return watcher

    def stop_watching(self, key: MemberKey, watcher: asyncio.Future[None]) -> None:
        watchers = self._watchers.get(key, [])
        if watcher in watchers:
            watchers.remove(watcher)
        if not watchers:
            self._watchers.pop(key, None)

    @property
    def session_count(self) -> int:
        return len(self._sessions)

    # -- changes ------------------------------------------------------------------------------------------------

    def _change(self, name: str, machine: GroupMachine, records: list[GroupRecord]) -> None:
        """Write what was decided about one group and tell those who see a difference."""
        if not records:
            return
        group = machine.groups.get(name)
        before = None if group is None else group.state
        self.log.write(machine, records)
        group = machine.groups.get(name)
        after = None if group is None else group.state
        if before is after:
            return
        now = self._now_ms()
        different, gone = changed_members(before, after)
        for member in (*different, *gone):
            key = name, member.id
            self._versions[key] = self._versions.get(key, 0) + 1
            self._wake(key)
        for member in gone:
            key = name, member.id
            self._sessions.end(key)
            self._versions.pop(key, None)
            self._last_heard_ms.pop(key, None)
        if after is not None:
            self._set_revocation_deadline(name, before, after, now)
            self._forget_positions(name, before, after)
        stats = self.stats.setdefault(name, RebalanceStats())
        stats.note(before, after, wall_ms=self._wall_ms(), monotonic_ms=now)

    def _set_revocation_deadline(self, name: str, before: GroupState | None, after: GroupState, now: int) -> None:
        late = [member.rebalance_timeout_ms for member in after.members if member.to_revoke]
        if not late or after.phase is not GroupPhase.REBALANCING:
            self._revocations.pop(name, None)
        elif name not in self._revocations or before is None or before.generation != after.generation:
            self._revocations[name] = now + max(late)
            self._kick.set()

    def _forget_positions(self, name: str, before: GroupState | None, after: GroupState) -> None:
        positions = self.positions.get(name)
        if not positions or after.mode is not Mode.EXCLUSIVE:
            return
        earlier, now = {} if before is None else before.owners(), after.owners()
        for place in list(positions):
            if earlier.get(place) != now.get(place):
                del positions[place]

    def _wake(self, key: MemberKey) -> None:
        for watcher in self._watchers.get(key, ()):
            if not watcher.done():
                watcher.set_result(None)

    # -- topics -------------------------------------------------------------------------------------------------

    def _topic_changed(self, topic: str) -> None:
        try:
            self._forget_offsets(topic)
            for name, group in list(self.log.groups()):
                if any(topic in member.topics for member in group.members):
                    self._follow_topics(name)
        except GoQueueError as error:
            # Whoever changed the topic has done so; the groups follow at the next start.
            _logger.error("groups cannot follow a topic", extra={"topic": topic, "error": error.message})

    def _follow_topics(self, name: str) -> None:
        machine = self.log.machine(name)
        records, _ = machine.handle_topics(name, self._shapes(name), self._wall_ms())
        self._change(name, machine, records)

    def _forget_offsets(self, topic: str) -> None:
        catalog = self._topics.catalog
        topic_id = bytes.fromhex(catalog.get(topic).topic_id) if topic in catalog else None
        for machine in self.log.machines:
            if records := machine.handle_topic_gone(topic, topic_id):
                self.log.write(machine, records)
        for positions in self.positions.values():
            for place in [place for place in positions if place[0] == topic and topic_id is None]:
                del positions[place]

    def _shapes(self, name: str, more: Iterable[str] = ()) -> dict[str, TopicShape]:
        """The topics that a group and a newcomer subscribe to, as they are now."""
        group = self.log.machine(name).groups.get(name)
        wanted = {*more, *(topic for member in (group.members if group else ()) for topic in member.topics)}
        catalog = self._topics.catalog
        found = [catalog.get(topic) for topic in wanted if topic in catalog]
        return {info.name: TopicShape(info.topic_id, info.partition_count) for info in found}

    def _checked_topics(self, topics: Sequence[str]) -> tuple[str, ...]:
        if not topics:
            raise InvalidRequestError("a member needs at least one topic")
        if len(topics) > self._config.group_topics_max:
            maximum = self._config.group_topics_max
            raise LimitExceededError(f"at most {maximum} topics per member", limit="group_topics", maximum=maximum)
        for topic in topics:
            self._topics.catalog.get(topic)
            self._topics.check_public(topic)
        return tuple(dict.fromkeys(topics))

    def _checked_session(self, timeout_ms: int | None) -> int:
        if timeout_ms is None:
            return self._config.group_session_timeout_ms
        low, high = self._config.group_session_timeout_min_ms, self._config.group_session_timeout_max_ms
        if not low <= timeout_ms <= high:
            raise InvalidRequestError(f"session_timeout_ms must be from {low} to {high}, not {timeout_ms}")
        return timeout_ms

    # -- time ---------------------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return self._clock.monotonic_ns() // 1_000_000

    def _wall_ms(self) -> int:
        return self._clock.wall_ns() // 1_000_000

    def _begin_session(self, name: str, member: Member, generation: int, now: int) -> None:
        key = name, member.id
        self._sessions.begin(key, timeout_ms=member.session_timeout_ms, generation=generation, now_ms=now)
        self._last_heard_ms[key] = self._wall_ms()
        self._versions.setdefault(key, 1)

    def _touch(self, name: str, member: Member, generation: int, now: int) -> None:
        key = name, member.id
        if self._sessions.get(key) is None:
            raise UnknownMemberError(f"the session of {member.id!r} has ended; join again", group=name)
        self._sessions.touch(key, now, generation)
        self._last_heard_ms[key] = self._wall_ms()

    async def _keep_time(self) -> None:
        while True:
            self._kick.clear()
            try:
                self.tick()
            except GoQueueError as error:
                # The log takes no records: nothing can be decided, and callers are told so.
                _logger.error("groups cannot be kept", extra={"error": error.message})
                await asyncio.sleep(1)
            due = [self._next_sweep_ms, *self._revocations.values()]
            if (deadline := self._sessions.next_deadline_ms) is not None:
                due.append(deadline)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(min(due) - self._now_ms(), 1) / 1000):
                    await self._kick.wait()

    def tick(self) -> None:
        """Do what is due: members not heard of, partitions not given up, groups not used."""
        now = self._now_ms()
        expired: dict[str, list[str]] = {}
        for name, member_id in self._sessions.expired(now):
            expired.setdefault(name, []).append(member_id)
        for name, member_ids in expired.items():
            machine = self.log.machine(name)
            records, _ = machine.handle_leave(name, member_ids, self._shapes(name), self._wall_ms())
            self._change(name, machine, records)
            self.stats[name].expired_members += len(member_ids)
        for name in [name for name, deadline in self._revocations.items() if deadline <= now]:
            machine = self.log.machine(name)
            records, _ = machine.handle_revoke_timeout(name, self._shapes(name), self._wall_ms())
            self._change(name, machine, records)
            self.stats[name].forced_revocations += 1
        if now >= self._next_sweep_ms:
            self._next_sweep_ms = now + _SWEEP_INTERVAL_MS
            self._forget_abandoned()

    def _forget_abandoned(self) -> None:
        for machine in self.log.machines:
            if records := machine.handle_expiry(self._wall_ms(), self._config.group_retention_ms):
                self.log.write(machine, records)
        for known in (self.stats, self.positions):
            for name in [name for name in known if name not in self.log.machine(name).groups]:
                del known[name]


def check_group_name(name: str) -> None:
    validate_name(name, kind="group")
    if is_internal_name(name):
        raise InvalidNameError(f"group name {name!r} is not allowed: names starting with '__' are the broker's")
