"""From one state of a group to the next: new targets, and who gets what right away.

Cooperative: a partition goes to its new owner when its old one has given it up, so nobody who keeps partitions has to
stop. Eager: everything is dealt at once, and the old generation may not poll or commit any more. In shared modes every
member has everything it subscribes to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from goqueue.groups.assignors import ASSIGNORS
from goqueue.groups.state import GroupState, Member, Mode, Place, Protocol, TopicShape, collect, flatten

Shapes = Mapping[str, TopicShape]


def rebalanced(state: GroupState, members: Sequence[Member], shapes: Shapes, now_ms: int) -> GroupState:
    """The next generation, with these members and topics."""
    wanted = {name for member in members for name in member.topics}
    topics = {name: shapes[name] for name in sorted(wanted) if name in shapes}
    held = {member.id: _still_there(member, state, topics) for member in members}
    if state.mode is not Mode.EXCLUSIVE:
        settled = [_owning(member, _all_of(member, topics), None) for member in members]
    else:
        subscriptions = {member.id: member.topics for member in members}
        counts = {name: shape.partitions for name, shape in topics.items()}
        targets = ASSIGNORS[state.assignor](subscriptions, counts, held) if members else {}
        if state.protocol is Protocol.EAGER:
            settled = [_owning(member, targets[member.id], None) for member in members]
        else:
            settled = _granted([_owning(member, held[member.id], targets[member.id]) for member in members])
    return msgspec.structs.replace(
        state, generation=state.generation + 1, changed_ms=now_ms, topics=topics, members=tuple(settled)
    )


def released(state: GroupState, given_up: Mapping[str, Sequence[Place]], now_ms: int) -> GroupState:
    """The same generation after members gave up partitions; whoever waits for them has them now."""
    members = []
    for member in state.members:
        gone = set(given_up.get(member.id, ()))
        rest = [place for place in flatten(member.owned) if place not in gone]
        members.append(_owning(member, rest, _aim(member)) if gone else member)
    return msgspec.structs.replace(state, changed_ms=now_ms, members=tuple(_granted(members)))


def _still_there(member: Member, state: GroupState, topics: Shapes) -> list[Place]:
    """What a member owns of topics that are the same as before and that it still wants."""
    return [
        (name, number)
        for name, number in flatten(member.owned)
        if name in member.topics
        and name in topics
        and name in state.topics
        and topics[name].topic_id == state.topics[name].topic_id
        and number < topics[name].partitions
    ]


def _all_of(member: Member, topics: Shapes) -> list[Place]:
    return [(name, n) for name in member.topics if name in topics for n in range(topics[name].partitions)]


def _aim(member: Member) -> list[Place]:
    return flatten(member.owned if member.target is None else member.target)


def _granted(members: Sequence[Member]) -> list[Member]:
    """Give every member what it should have and nobody holds."""
    held = {place for member in members for place in flatten(member.owned)}
    result = []
    for member in members:
        aim = _aim(member)
        free = [place for place in aim if place not in held]
        result.append(_owning(member, flatten(member.owned) + free, aim))
    return result


def _owning(member: Member, owned: Sequence[Place], target: Sequence[Place] | None) -> Member:
    mine = collect(owned)
    aim = None if target is None else collect(target)
    return msgspec.structs.replace(member, owned=mine, target=None if aim == mine else aim)
