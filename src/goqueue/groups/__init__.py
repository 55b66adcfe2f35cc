"""Consumer groups: who reads what, and how far they are. Pure machines; shells keep time and do the I/O."""

from goqueue.groups.assignors import ASSIGNORS
from goqueue.groups.machine import Group, GroupMachine, GroupRecord, Join, stale
from goqueue.groups.offsets import Commit, Committed
from goqueue.groups.sessions import MemberKey, Sessions
from goqueue.groups.state import (
    AssignorName,
    GroupPhase,
    GroupState,
    Member,
    MemberPhase,
    Mode,
    Place,
    Places,
    Protocol,
    TopicShape,
    collect,
    flatten,
)

__all__ = [
    "ASSIGNORS",
    "AssignorName",
    "Commit",
    "Committed",
    "Group",
    "GroupMachine",
    "GroupPhase",
    "GroupRecord",
    "GroupState",
    "Join",
    "Member",
    "MemberKey",
    "MemberPhase",
    "Mode",
    "Place",
    "Places",
    "Protocol",
    "Sessions",
    "TopicShape",
    "collect",
    "flatten",
    "stale",
]
