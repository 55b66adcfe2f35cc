"""Assignors: even, complete, deterministic; sticky moves as few partitions as any even assignment could."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.groups import ASSIGNORS, AssignorName, Place
from goqueue.groups.assignors import Assignment, assign_range, assign_round_robin, assign_sticky

NAMES = ("a", "b", "c")


@st.composite
def situations(draw: st.DrawFn, *, same_topics: bool = False) -> tuple[dict, dict, dict]:
    topics = draw(st.dictionaries(st.sampled_from(NAMES), st.integers(1, 6), min_size=1))
    members = [f"m{n}" for n in range(draw(st.integers(1, 5)))]
    every = sorted(topics)
    wanted = st.lists(st.sampled_from(every), min_size=1, unique=True)
    shared = draw(wanted)
    subscriptions = {member: tuple(shared if same_topics else draw(wanted)) for member in members}
    owned: dict[str, list[Place]] = {member: [] for member in members}
    for topic, count in topics.items():
        for number in range(count + 1):  # one that does not exist any more
            owner = draw(st.sampled_from([None, *members]))
            if owner is not None:
                owned[owner].append((topic, number))
    return subscriptions, topics, owned


def check_complete(assignment: Assignment, subscriptions: dict, topics: dict) -> None:
    given = [place for mine in assignment.values() for place in mine]
    assert len(given) == len(set(given)), "no partition twice"
    wanted = {name for names in subscriptions.values() for name in names}
    assert set(given) == {(name, n) for name in wanted for n in range(topics.get(name, 0))}
    for member, mine in assignment.items():
        assert {topic for topic, _ in mine} <= set(subscriptions[member])


@pytest.mark.parametrize("name", list(AssignorName))
@given(situation=situations())
def test_every_partition_goes_to_one_member_that_wants_it(name: AssignorName, situation: tuple) -> None:
    subscriptions, topics, owned = situation
    assignment = ASSIGNORS[name](subscriptions, topics, owned)
    check_complete(assignment, subscriptions, topics)
    assert assignment == ASSIGNORS[name](subscriptions, topics, owned)


@given(situation=situations())
def test_no_partition_could_even_out_a_sticky_assignment(situation: tuple) -> None:
    subscriptions, topics, owned = situation
    assignment = assign_sticky(subscriptions, topics, owned)
    for member, mine in assignment.items():
        for topic, _ in mine:
            for other, names in subscriptions.items():
                assert topic not in names or len(mine) - len(assignment[other]) <= 1, (member, other)


@settings(max_examples=150)
@given(situation=situations(same_topics=True))
def test_sticky_moves_as_few_partitions_as_the_best_even_assignment(situation: tuple) -> None:
    subscriptions, topics, owned = situation
    members = list(subscriptions)
    places = [(name, n) for name in sorted(set(next(iter(subscriptions.values())))) for n in range(topics[name])]
    owner = {place: member for member, mine in owned.items() for place in mine}
    assignment = assign_sticky(subscriptions, topics, owned)
    kept = sum(owner.get(place) == member for member, mine in assignment.items() for place in mine)
    share, extra = divmod(len(places), len(members))
    holdings = {member: sum(owner.get(place) == member for place in places) for member in members}
    # The oracle: every way to choose who gets the larger share; a member keeps what fits into its own.
    best = max(
        sum(min(holdings[m], share + (m in larger)) for m in members)
        for larger in itertools.combinations(members, extra)
    )
    assert kept == best


def test_a_join_takes_only_the_share_of_the_new_member() -> None:
    topics = {"t": 12}
    owned = assign_sticky({"a": ["t"], "b": ["t"], "c": ["t"]}, topics, {})
    after = assign_sticky({"a": ["t"], "b": ["t"], "c": ["t"], "d": ["t"]}, topics, owned)
    assert {member: len(mine) for member, mine in after.items()} == {"a": 3, "b": 3, "c": 3, "d": 3}
    for member in "abc":
        assert set(after[member]) < set(owned[member])


def test_range_gives_equal_numbers_of_topics_to_the_same_member() -> None:
    assignment = assign_range({"x": ["a", "b"], "y": ["a", "b"]}, {"a": 3, "b": 3}, {})
    assert assignment["x"] == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    assert assignment["y"] == [("a", 2), ("b", 2)]


def test_round_robin_deals_in_turn() -> None:
    assignment = assign_round_robin({"y": ["a"], "x": ["a", "b"]}, {"a": 3, "b": 1}, {})
    assert assignment == {"x": [("a", 0), ("a", 2), ("b", 0)], "y": [("a", 1)]}
