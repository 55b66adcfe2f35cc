"""What is known of a group, as immutable values; a change is a new value, and its bytes are the record of it.

    Empty --join--> Stable <--all released--> Rebalancing --leave of the last--> Empty

A member owns the partitions it may read and commit. Its target is what it should own; None is "the same". What it owns
beyond its target it has been asked to give up, and what it owns less is still in the hands of another member.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec
from msgspec import Struct

# One partition of one topic, as a key.
Place = tuple[str, int]
# Partitions by topic, ascending.
Places = dict[str, tuple[int, ...]]


class Protocol(StrEnum):
    # Members give up only what moves, and keep reading the rest.
    COOPERATIVE = "cooperative"
    # Everything is dealt anew at once; the old generation is fenced.
    EAGER = "eager"


class Mode(StrEnum):
    # A partition belongs to one member.
    EXCLUSIVE = "exclusive"
    # Every member has every partition, and messages are leased one by one.
    SHARED = "shared"
    # The same with one message of a key at a time.
    KEY_ORDERED = "key_ordered"


class AssignorName(StrEnum):
    STICKY = "sticky"
    RANGE = "range"
    ROUND_ROBIN = "round_robin"


class GroupPhase(StrEnum):
    EMPTY = "Empty"
    STABLE = "Stable"
    REBALANCING = "Rebalancing"


class MemberPhase(StrEnum):
    # It has partitions to give up.
    PENDING_REVOKE = "pending_revoke"
    # Others still hold what it is to get.
    PENDING_ASSIGN = "pending_assign"
    COMPLETE = "complete"


class TopicShape(Struct, frozen=True):
    """A topic as the assignment saw it; another id is another topic, whatever its name."""

    topic_id: str
    partitions: int


class Member(Struct, frozen=True, omit_defaults=True, kw_only=True):
    id: str
    client_id: str
    topics: tuple[str, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    # The generation that its joining made.
    joined: int
    owned: Places = {}
    target: Places | None = None

    @property
    def to_revoke(self) -> Places:
        return {} if self.target is None else subtract(self.owned, self.target)

    @property
    def to_read(self) -> Places:
        """What it owns and keeps."""
        return self.owned if self.target is None else subtract(self.owned, self.to_revoke)

    @property
    def phase(self) -> MemberPhase:
        if self.target is None:
            return MemberPhase.COMPLETE
        return MemberPhase.PENDING_REVOKE if self.to_revoke else MemberPhase.PENDING_ASSIGN


class GroupState(Struct, frozen=True, kw_only=True):
    protocol: Protocol
    assignor: AssignorName
    mode: Mode
    generation: int
    # When the members, or what they own, changed last.
    changed_ms: int
    # The subscribed topics as of the last assignment.
    topics: dict[str, TopicShape]
    # In the order in which they joined; the first one is the leader.
    members: tuple[Member, ...]

    @property
    def phase(self) -> GroupPhase:
        if not self.members:
            return GroupPhase.EMPTY
        unfinished = any(member.target is not None for member in self.members)
        return GroupPhase.REBALANCING if unfinished else GroupPhase.STABLE

    def member(self, member_id: str) -> Member | None:
        return next((member for member in self.members if member.id == member_id), None)

    def owners(self) -> dict[Place, str]:
        """Who holds what; only of use in exclusive mode."""
        return {place: member.id for member in self.members for place in flatten(member.owned)}

    def check_invariants(self) -> None:
        assert len({member.id for member in self.members}) == len(self.members), "a member id is there once"
        held = [place for member in self.members for place in flatten(member.owned)]
        for topic, partition in held:
            assert partition < self.topics[topic].partitions, "nobody owns what does not exist"
        if self.mode is Mode.EXCLUSIVE:
            assert len(set(held)) == len(held), "a partition has one owner"
            aims = [place for m in self.members for place in flatten(m.owned if m.target is None else m.target)]
            assert len(set(aims)) == len(aims), "a partition has one owner to be"
        for member in self.members:
            assert member.target is None or member.target != member.owned, "a reached target is forgotten"


def flatten(places: Mapping[str, Iterable[int]]) -> list[Place]:
    return [(topic, partition) for topic, partitions in places.items() for partition in partitions]


def collect(places: Iterable[Place]) -> Places:
    found: dict[str, list[int]] = {}
    for topic, partition in places:
        found.setdefault(topic, []).append(partition)
    return {topic: tuple(sorted(found[topic])) for topic in sorted(found)}


def subtract(places: Places, others: Places) -> Places:
    gone = set(flatten(others))
    return collect(place for place in flatten(places) if place not in gone)


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(GroupState)


def encode_state(state: GroupState) -> bytes:
    return _encoder.encode(state)


def decode_state(data: bytes) -> GroupState:
    return _decoder.decode(data)
