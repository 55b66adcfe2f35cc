"""Who should own which partition: sticky, range and round robin. Pure functions of members, topics and the present.

All are deterministic: equal input gives equal output, whatever the order of a dictionary. Members come in the order in
which they joined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from goqueue.groups.state import AssignorName, Place

# Topics by member, in the order of joining; partitions by topic; who owns what now.
Subscriptions = Mapping[str, Sequence[str]]
Owned = Mapping[str, Sequence[Place]]
Assignment = dict[str, list[Place]]
Assignor = Callable[[Subscriptions, Mapping[str, int], Owned], Assignment]


def assign_sticky(subscriptions: Subscriptions, topics: Mapping[str, int], owned: Owned) -> Assignment:
    """Even shares, and as few partitions as possible change hands.

    Members with the same topics differ by one at most. With different topics, no partition could go to a member that
    has two fewer.
    """
    kept = _keep(subscriptions, topics, owned)
    if len({frozenset(names) for names in subscriptions.values()}) == 1:
        return _even(kept, _places(next(iter(subscriptions.values())), topics))
    return _level(kept, subscriptions, topics)


def _places(names: Sequence[str], topics: Mapping[str, int]) -> list[Place]:
    return [(name, number) for name in sorted(set(names)) for number in range(topics.get(name, 0))]


def _keep(subscriptions: Subscriptions, topics: Mapping[str, int], owned: Owned) -> Assignment:
    """What members own that exists, that they want, and that nobody in front of them owns too."""
    taken: set[Place] = set()
    kept: Assignment = {}
    for member, names in subscriptions.items():
        wanted = set(names)
        mine = sorted(
            place
            for place in owned.get(member, ())
            if place[0] in wanted and place[1] < topics.get(place[0], 0) and place not in taken
        )
        taken.update(mine)
        kept[member] = mine
    return kept


def _even(kept: Assignment, places: list[Place]) -> Assignment:
    """Shares of floor or ceiling; the larger ones go to members that would otherwise have to give up one more."""
    share, extra = divmod(len(places), len(kept))
    order = sorted(kept, key=lambda member: -len(kept[member]))
    quota = {member: share + (position < extra) for position, member in enumerate(order)}
    result = {member: mine[: quota[member]] for member, mine in kept.items()}
    taken = {place for mine in result.values() for place in mine}
    free = iter([place for place in places if place not in taken])
    for member in kept:
        missing = quota[member] - len(result[member])
        result[member] += [next(free) for _ in range(missing)]
    return result


def _level(kept: Assignment, subscriptions: Subscriptions, topics: Mapping[str, int]) -> Assignment:
    """Free partitions go to the least loaded that wants them; then the heaviest pass on to the lightest."""
    subscribers = {name: [m for m, names in subscriptions.items() if name in names] for name in sorted(topics)}
    taken = {place for mine in kept.values() for place in mine}
    # Topics that few want first: their subscribers have no choice.
    for name in sorted(topics, key=lambda name: (len(subscribers[name]), name)):
        for number in range(topics[name]):
            if subscribers[name] and (name, number) not in taken:
                lightest = min(subscribers[name], key=lambda member: len(kept[member]))
                kept[lightest].append((name, number))
    while any(_pass_on(name, subscribers[name], kept) for name in subscribers):
        pass
    return kept


def _pass_on(name: str, members: list[str], kept: Assignment) -> bool:
    """Move one partition of a topic if that evens out the load; every move does, so this comes to an end."""
    holders = [member for member in members if any(place[0] == name for place in kept[member])]
    if not holders:
        return False
    heaviest = max(holders, key=lambda member: len(kept[member]))
    lightest = min(members, key=lambda member: len(kept[member]))
    if len(kept[heaviest]) - len(kept[lightest]) < 2:
        return False
    place = max(place for place in kept[heaviest] if place[0] == name)
    kept[heaviest].remove(place)
    kept[lightest].append(place)
    return True


def assign_range(subscriptions: Subscriptions, topics: Mapping[str, int], owned: Owned) -> Assignment:
    """Of every topic a contiguous stretch to each member by id, so that equal numbers of two topics meet."""
    result: Assignment = {member: [] for member in subscriptions}
    for name in sorted(topics):
        members = sorted(member for member, names in subscriptions.items() if name in names)
        if not members:
            continue
        share, extra = divmod(topics[name], len(members))
        start = 0
        for position, member in enumerate(members):
            end = start + share + (position < extra)
            result[member] += [(name, number) for number in range(start, end)]
            start = end
    return result


def assign_round_robin(subscriptions: Subscriptions, topics: Mapping[str, int], owned: Owned) -> Assignment:
    """One partition after the other to the members in turn, by id."""
    members = sorted(subscriptions)
    result: Assignment = {member: [] for member in subscriptions}
    turn = 0
    for name in sorted(topics):
        if not any(name in names for names in subscriptions.values()):
            continue
        for number in range(topics[name]):
            while name not in subscriptions[members[turn % len(members)]]:
                turn += 1
            result[members[turn % len(members)]].append((name, number))
            turn += 1
    return result


ASSIGNORS: dict[AssignorName, Assignor] = {
    AssignorName.STICKY: assign_sticky,
    AssignorName.RANGE: assign_range,
    AssignorName.ROUND_ROBIN: assign_round_robin,
}
