"""What the coordinator tells about groups: the view of one member, and how rebalances went."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from goqueue.groups import GroupState, Member, MemberPhase, Mode, Places, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberView:
    """A group as one of its members sees it."""

    group: str
    member_id: str
    client_id: str
    generation: int
    leader_id: str
    protocol: Protocol
    mode: Mode
    phase: MemberPhase
    # What to read, and what to stop reading and give up.
    assignment: Places
    to_revoke: Places
    # Wall clock; None when nothing is asked for.
    revocation_deadline_ms: int | None
    # True until the member has caught up with its group.
    rebalance_required: bool
    member_ids: tuple[str, ...]
    # Changes with anything above; a heartbeat that names it waits for the next one.
    version: int
    heartbeat_interval_ms: int
    session_timeout_ms: int


@dataclass(slots=True)
class RebalanceStats:
    """Since the broker started."""

    rebalances: int = 0
    partitions_moved: int = 0
    forced_revocations: int = 0
    expired_members: int = 0
    last_started_ms: int | None = None
    last_duration_ms: int = 0
    # Monotonic; None while nothing is under way.
    _began_ms: int | None = None

    def note(self, before: GroupState | None, after: GroupState | None, *, wall_ms: int, monotonic_ms: int) -> None:
        if after is None:
            return
        if before is None or before.generation != after.generation:
            self.rebalances += 1
            self.last_started_ms = wall_ms
            if self._began_ms is None:
                self._began_ms = monotonic_ms
        if after.mode is Mode.EXCLUSIVE and before is not None:
            earlier = before.owners()
            self.partitions_moved += sum(owner != earlier.get(place, owner) for place, owner in after.owners().items())
        if self._began_ms is not None and all(member.target is None for member in after.members):
            self.last_duration_ms = monotonic_ms - self._began_ms
            self._began_ms = None

    @classmethod
    def total(cls, parts: Iterable[RebalanceStats]) -> RebalanceStats:
        """Sums, and the latest of the times."""
        whole = cls()
        for part in parts:
            whole.rebalances += part.rebalances
            whole.partitions_moved += part.partitions_moved
            whole.forced_revocations += part.forced_revocations
            whole.expired_members += part.expired_members
            if (part.last_started_ms or 0) >= (whole.last_started_ms or 0):
                whole.last_started_ms, whole.last_duration_ms = part.last_started_ms, part.last_duration_ms
        return whole

    def fields(self) -> dict[str, int | None]:
        return {
            "rebalances": self.rebalances,
            "partitions_moved": self.partitions_moved,
            "forced_revocations": self.forced_revocations,
            "expired_members": self.expired_members,
            "last_started_ms": self.last_started_ms,
            "last_duration_ms": self.last_duration_ms,
        }


def changed_members(before: GroupState | None, after: GroupState | None) -> tuple[list[Member], list[Member]]:
    """Members to whom something looks different now, and members that are gone."""
    earlier = {} if before is None else {member.id: member for member in before.members}
    now = {} if after is None else {member.id: member for member in after.members}
    moved_on = before is None or after is None or before.generation != after.generation
    different = [member for member in now.values() if moved_on or earlier.get(member.id) != member]
    return different, [member for member in earlier.values() if member.id not in now]
