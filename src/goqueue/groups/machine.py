"""The groups of one partition of `__consumer_offsets`. Pure: `handle_*` decides, only `replay` changes durable state.

Records: `group:{name}` holds a `GroupState` as JSON, `offset:{group}:{topic}:{partition}` a committed offset
(offsets.py); a tombstone deletes either. Names cannot contain a colon. Who has been heard of lately is not durable: the
shell keeps time and asks for the expiry of members (sessions.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from goqueue.errors import (
    GroupMismatchError,
    GroupNotEmptyError,
    GroupNotFoundError,
    InvalidRequestError,
    LimitExceededError,
    MemberIdInUseError,
    PartitionNotAssignedError,
    StaleGenerationError,
    UnknownMemberError,
)
from goqueue.groups.offsets import Commit, Committed, decode_offset, encode_offset
from goqueue.groups.rebalance import Shapes, rebalanced, released
from goqueue.groups.state import (
    AssignorName,
    GroupState,
    Member,
    Mode,
    Place,
    Protocol,
    decode_state,
    encode_state,
    flatten,
)

# A key and its value; None deletes it.
GroupRecord = tuple[bytes, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A request to join, with what the shell has decided: the id of a new member and its timeouts."""

    member_id: str
    # False when the client says it is this member already.
    is_new: bool
    client_id: str
    topics: tuple[str, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    # None takes what the group has, else the first choice of each.
    protocol: Protocol | None = None
    assignor: AssignorName | None = None
    mode: Mode | None = None
    protocol_default: Protocol = Protocol.COOPERATIVE


@dataclass(slots=True)
class Group:
    """`state` is None for a group that has only offsets: it never had a member."""

    state: GroupState | None = None
    offsets: dict[Place, Committed] = field(default_factory=dict)

    @property
    def members(self) -> tuple[Member, ...]:
        return () if self.state is None else self.state.members

    @property
    def last_used_ms(self) -> int:
        changed = 0 if self.state is None else self.state.changed_ms
        return max([changed, *(committed.committed_ms for committed in self.offsets.values())])


class GroupMachine:
    def __init__(self, *, groups_max: int = 10_000, members_max: int = 1_000) -> None:
        self.groups: dict[str, Group] = {}
        self._groups_max = groups_max
        self._members_max = members_max

    # -- questions ----------------------------------------------------------------------------------------------

    def get(self, name: str) -> Group:
        group = self.groups.get(name)
        if group is None:
            raise GroupNotFoundError(f"there is no group {name!r}", group=name)
        return group

    def member(self, name: str, member_id: str) -> tuple[GroupState, Member]:
        """A member of a group, or `UnknownMemberError`: to a member that was expired its group may be gone too."""
        group = self.groups.get(name)
        state = None if group is None else group.state
        member = None if state is None else state.member(member_id)
        if state is None or member is None:
            raise UnknownMemberError(
                f"{member_id[:100]!r} is not a member of group {name!r}; join again without a member id",
                group=name,
                member_id=member_id[:100],
            )
        return state, member

    def fenced(self, name: str, member_id: str, generation: int) -> tuple[GroupState, Member]:
        """A member that knows the current generation."""
        state, member = self.member(name, member_id)
        if generation != state.generation:
            raise stale(name, generation, state)
        return state, member

    # -- decisions ----------------------------------------------------------------------------------------------

    def handle_join(self, name: str, join: Join, shapes: Shapes, now_ms: int) -> tuple[list[GroupRecord], GroupState]:
        group = self.groups.get(name)
        state = None if group is None else group.state
        if group is None and len(self.groups) >= self._groups_max:
            raise _limit("groups", self._groups_max, f"the broker keeps {self._groups_max} groups at most")
        if not join.is_new:
            state, member = self.member(name, join.member_id)
            _check_same_client(name, member, join)
            _check_same_kind(name, state, join)
            if set(member.topics) == set(join.topics):
                return [], state
            changed = msgspec.structs.replace(member, topics=join.topics)
            members = [changed if member.id == changed.id else member for member in state.members]
            return self._decided(name, rebalanced(state, members, shapes, now_ms))
        if state is None or not state.members:
            state = _founded(state, join, now_ms)
        _check_same_kind(name, state, join)
        if state.member(join.member_id) is not None:
            raise MemberIdInUseError(f"member id {join.member_id!r} is taken", group=name)
        if len(state.members) >= self._members_max:
            raise _limit("group_members", self._members_max, f"a group has at most {self._members_max} members")
        member = Member(
            id=join.member_id,
            client_id=join.client_id,
            topics=join.topics,
            session_timeout_ms=join.session_timeout_ms,
            rebalance_timeout_ms=join.rebalance_timeout_ms,
            joined=state.generation + 1,
        )
        return self._decided(name, rebalanced(state, [*state.members, member], shapes, now_ms))

    def handle_leave(
        self, name: str, member_ids: Collection[str], shapes: Shapes, now_ms: int
    ) -> tuple[list[GroupRecord], GroupState]:
        """Members that leave, or that were not heard of for too long."""
        for member_id in member_ids:
            state, _ = self.member(name, member_id)
        rest = [member for member in state.members if member.id not in member_ids]
        return self._decided(name, rebalanced(state, rest, shapes, now_ms))

    def handle_revoke(
        self, name: str, member_id: str, places: Sequence[Place], now_ms: int
    ) -> tuple[list[GroupRecord], GroupState]:
        """A member has stopped reading partitions that it was asked to give up."""
        state, member = self.member(name, member_id)
        asked = set(flatten(member.to_revoke))
        owned = set(flatten(member.owned))
        for place in places:
            if place not in owned:
                raise _not_assigned(name, member_id, place)
            if place not in asked:
                raise InvalidRequestError(
                    f"nobody asked for {place[0]}-{place[1]}; give up only what is in partitions_to_revoke",
                    topic=place[0],
                    partition=place[1],
                )
        if not places:
            return [], state
        return self._decided(name, released(state, {member_id: places}, now_ms))

    def handle_revoke_timeout(self, name: str, shapes: Shapes, now_ms: int) -> tuple[list[GroupRecord], GroupState]:
        """Take away what was not given up in time. A new generation, so that the late ones are refused."""
        state = self.get(name).state
        assert state is not None, "only a group with members revokes"
        taken = {member.id: flatten(member.to_revoke) for member in state.members}
        freed = released(state, taken, now_ms)
        return self._decided(name, rebalanced(freed, freed.members, shapes, now_ms))

    def handle_topics(self, name: str, shapes: Shapes, now_ms: int) -> tuple[list[GroupRecord], GroupState | None]:
        """A topic came, went or grew: nothing to do, or a new generation."""
        state = self.get(name).state
        if state is None or not state.members:
            return [], state
        wanted = {name for member in state.members for name in member.topics}
        if {topic: shapes[topic] for topic in wanted if topic in shapes} == state.topics:
            return [], state
        return self._decided(name, rebalanced(state, state.members, shapes, now_ms))

    def handle_commit(
        self, name: str, member_id: str | None, generation: int, commits: Sequence[Commit], now_ms: int
    ) -> list[GroupRecord]:
        """Offsets of partitions that the member owns; without a member, of a group that has none."""
        group = self.groups.get(name)
        if member_id is None:
            if group is not None and group.members:
                raise UnknownMemberError(
                    f"group {name!r} has active members; only they may commit, with member_id and generation",
                    group=name,
                )
            if group is None and len(self.groups) >= self._groups_max:
                raise _limit("groups", self._groups_max, f"the broker keeps {self._groups_max} groups at most")
        else:
            _, member = self.fenced(name, member_id, generation)
            owned = member.owned
            for topic, partition, _, _, _ in commits:
                if partition not in owned.get(topic, ()):
                    raise _not_assigned(name, member_id, (topic, partition))
        head = f"offset:{name}:"
        return [(f"{head}{c.topic}:{c.partition}".encode(), encode_offset(c, now_ms)) for c in commits]

    def handle_reset(self, name: str, commits: Sequence[Commit], now_ms: int) -> list[GroupRecord]:
        """Offsets as an operator wants them; not under the feet of members."""
        if self.get(name).members:
            raise GroupNotEmptyError(
                f"group {name!r} has active members; stop them before its offsets are reset", group=name
            )
        return self.handle_commit(name, None, 0, commits, now_ms)

    def handle_delete(self, name: str) -> list[GroupRecord]:
        group = self.get(name)
        if group.members:
            raise GroupNotEmptyError(f"group {name!r} has active members; stop them before it is deleted", group=name)
        return self._tombstones(name, group)

    def handle_expiry(self, now_ms: int, retention_ms: int) -> list[GroupRecord]:
        """Forget groups without members that nobody has used for long."""
        records: list[GroupRecord] = []
        for name, group in self.groups.items():
            if not group.members and group.last_used_ms + retention_ms <= now_ms:
                records += self._tombstones(name, group)
        return records

    def handle_topic_gone(self, topic: str, topic_id: bytes | None) -> list[GroupRecord]:
        """Offsets of a topic that is not there any more, or that is another one under the same name."""
        return [
            (_offset_key(name, place), None)
            for name, group in self.groups.items()
            for place, committed in group.offsets.items()
            if place[0] == topic and committed.topic_id != topic_id
        ]

    def _tombstones(self, name: str, group: Group) -> list[GroupRecord]:
        own: list[GroupRecord] = [] if group.state is None else [(f"group:{name}".encode(), None)]
        return own + [(_offset_key(name, place), None) for place in group.offsets]

    @staticmethod
    def _decided(name: str, state: GroupState) -> tuple[list[GroupRecord], GroupState]:
        return [(f"group:{name}".encode(), encode_state(state))], state

    # -- state --------------------------------------------------------------------------------------------------

    def replay(self, record: GroupRecord) -> None:
        key, value = record
        kind, name, *place = key.decode().split(":")
        group = self.groups.get(name)
        if group is None:
            if value is None:
                return
            group = self.groups[name] = Group()
        if kind == "group":
            group.state = None if value is None else decode_state(value)
        elif kind == "offset":
            where = place[0], int(place[1])
            if value is None:
                group.offsets.pop(where, None)
            else:
                group.offsets[where] = decode_offset(value)
        if value is None and group.state is None and not group.offsets:
            del self.groups[name]

    def check_invariants(self) -> None:
        for group in self.groups.values():
            assert group.state is not None or group.offsets, "an unused group is not kept"
            if group.state is not None:
                group.state.check_invariants()


def stale(name: str, generation: int, state: GroupState) -> StaleGenerationError:
    return StaleGenerationError(
        f"generation {generation} of group {name!r} is not the current one, {state.generation}; "
        f"join again with the member id, or heartbeat, to learn what changed",
        group=name,
        generation=state.generation,
        rebalance_required=True,
    )


def _founded(before: GroupState | None, join: Join, now_ms: int) -> GroupState:
    """A group without members takes the form its first one asks for; its generation goes on."""
    return GroupState(
        protocol=join.protocol or join.protocol_default,
        assignor=join.assignor or AssignorName.STICKY,
        mode=join.mode or Mode.EXCLUSIVE,
        generation=0 if before is None else before.generation,
        changed_ms=now_ms,
        topics={},
        members=(),
    )


def _check_same_kind(name: str, state: GroupState, join: Join) -> None:
    pairs: Mapping[str, tuple[object, object]] = {
        "protocol": (join.protocol, state.protocol),
        "assignor": (join.assignor, state.assignor),
        "mode": (join.mode, state.mode),
    }
    for what, (wanted, has) in pairs.items():
        if wanted is not None and wanted != has:
            raise GroupMismatchError(
                f"group {name!r} has {what} {has}, not {wanted}; join without it, or use another group", group=name
            )


def _check_same_client(name: str, member: Member, join: Join) -> None:
    if member.client_id != join.client_id:
        raise MemberIdInUseError(
            f"member id {member.id!r} of group {name!r} belongs to client {member.client_id!r}; join without one",
            group=name,
            member_id=member.id,
        )


def _not_assigned(name: str, member_id: str, place: Place) -> PartitionNotAssignedError:
    return PartitionNotAssignedError(
        f"{place[0]}-{place[1]} is not assigned to member {member_id!r} of group {name!r}",
        group=name,
        topic=place[0],
        partition=place[1],
    )


def _offset_key(name: str, place: Place) -> bytes:
    return f"offset:{name}:{place[0]}:{place[1]}".encode()


def _limit(limit: str, maximum: int, text: str) -> LimitExceededError:
    return LimitExceededError(text, limit=limit, maximum=maximum)
