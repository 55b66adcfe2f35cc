"""A group machine with its log: decisions are appended and replayed as a shell would."""

from __future__ import annotations

from typing import Any

from goqueue.groups import Commit, GroupMachine, GroupRecord, GroupState, Join, Member, Place, TopicShape, flatten

TOPIC_ID = "ab" * 16


class Driver:
    def __init__(self, **limits: int) -> None:
        self.limits = limits
        self.machine = GroupMachine(**limits)
        self.log: list[GroupRecord] = []
        self.shapes = {"t": TopicShape(TOPIC_ID, 4)}
        self.now_ms = 1_000
        self._ids = 0

    def apply(self, records: list[GroupRecord]) -> None:
        for record in records:
            self.log.append(record)
            self.machine.replay(record)
        self.machine.check_invariants()

    def join(
        self, group: str = "g", topics: tuple[str, ...] = ("t",), member_id: str | None = None, **options: Any
    ) -> str:
        self._ids += 1
        join = Join(
            member_id=member_id or f"m{self._ids}",
            is_new=member_id is None,
            client_id=options.pop("client_id", "c"),
            topics=topics,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=60_000,
            **options,
        )
        records, _ = self.machine.handle_join(group, join, self.shapes, self.now_ms)
        self.apply(records)
        return join.member_id

    def leave(self, *member_ids: str, group: str = "g") -> None:
        self.apply(self.machine.handle_leave(group, member_ids, self.shapes, self.now_ms)[0])

    def revoke(self, member_id: str, *places: Place, group: str = "g") -> None:
        given = list(places) or flatten(self.member(member_id).to_revoke)
        self.apply(self.machine.handle_revoke(group, member_id, given, self.now_ms)[0])

    def commit(self, member_id: str | None, generation: int, offsets: dict[Place, int], group: str = "g") -> None:
        topic_ids = {name: bytes.fromhex(shape.topic_id) for name, shape in self.shapes.items()}
        commits = [Commit(t, p, offset, topic_ids[t], "") for (t, p), offset in offsets.items()]
        self.apply(self.machine.handle_commit(group, member_id, generation, commits, self.now_ms))

    def state(self, group: str = "g") -> GroupState:
        state = self.machine.get(group).state
        assert state is not None
        return state

    def member(self, member_id: str, group: str = "g") -> Member:
        member = self.state(group).member(member_id)
        assert member is not None
        return member

    def settle(self, group: str = "g") -> None:
        """Every member gives up what it is asked for."""
        for member in self.state(group).members:
            if member.to_revoke:
                self.revoke(member.id, group=group)

    def restarted(self) -> GroupMachine:
        machine = GroupMachine(**self.limits)
        for record in self.log:
            machine.replay(record)
        return machine
