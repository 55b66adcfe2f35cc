"""Groups as every face shows them."""

from __future__ import annotations

from collections.abc import Iterable

from goqueue.broker import BrokerApi, MemberView, OffsetView
from goqueue.groups import Group, GroupPhase, Places, Protocol, flatten


def group_fields(broker: BrokerApi, name: str, group: Group) -> dict[str, object]:
    """A group; one that never had a member has no protocol, and shows the topics it has offsets of."""
    state = group.state
    topics = {place[0] for place in group.offsets} | {topic for member in group.members for topic in member.topics}
    return {
        "id": name,
        "state": str(GroupPhase.EMPTY if state is None else state.phase),
        "protocol": None if state is None else str(state.protocol),
        "assignor": None if state is None else str(state.assignor),
        "mode": None if state is None else str(state.mode),
        "generation": 0 if state is None else state.generation,
        "topics": sorted(topics),
        "members": [
            {
                "id": member.id,
                "client_id": member.client_id,
                "topics": list(member.topics),
                "assigned": show_places(member.owned),
                "state": str(member.phase),
                "session_timeout_ms": member.session_timeout_ms,
                "last_heartbeat": broker.groups.last_heard_ms(name, member.id),
            }
            for member in group.members
        ],
    }


def summary_fields(name: str, group: Group) -> dict[str, object]:
    state = group.state
    return {
        "id": name,
        "state": str(GroupPhase.EMPTY if state is None else state.phase),
        "mode": None if state is None else str(state.mode),
        "generation": 0 if state is None else state.generation,
        "members": len(group.members),
    }


def view_fields(view: MemberView) -> dict[str, object]:
    """Everything a member needs to know, for joining and for living on."""
    return {
        "member_id": view.member_id,
        "generation": view.generation,
        "leader_id": view.leader_id,
        "protocol": str(view.protocol),
        "mode": str(view.mode),
        "status": "rebalancing" if view.rebalance_required else "ok",
        "state": str(view.phase),
        "rebalance_required": view.rebalance_required,
        "assignment": show_places(view.assignment),
        "partitions_assigned": list_places(view.assignment),
        "partitions_to_revoke": list_places(view.to_revoke),
        "revocation_deadline": view.revocation_deadline_ms,
        "members": list(view.member_ids),
        "version": view.version,
        "heartbeat_interval_ms": view.heartbeat_interval_ms,
        "session_timeout_ms": view.session_timeout_ms,
    }


def show_places(places: Places) -> dict[str, list[int]]:
    return {topic: list(numbers) for topic, numbers in places.items()}


def list_places(places: Places) -> list[dict[str, object]]:
    return [{"topic": topic, "partition": number} for topic, number in flatten(places)]


def offset_fields(views: Iterable[OffsetView], *, all_partitions: bool = True) -> dict[str, dict[str, object]]:
    """By topic and partition as text; without `all_partitions` only what was committed."""
    shown: dict[str, dict[str, object]] = {}
    for view in views:
        if view.offset is None and not all_partitions:
            continue
        shown.setdefault(view.topic, {})[str(view.partition)] = {
            "offset": view.offset,
            "metadata": view.metadata,
            "committed_at": view.committed_ms,
            "lag": view.lag,
            "log_start_offset": view.log_start_offset,
            "log_end_offset": view.log_end_offset,
        }
    return shown


def cooperative_fields(broker: BrokerApi, name: str, group: Group) -> dict[str, object]:
    """How far a rebalance is, member by member."""
    state = group.state
    return {
        "id": name,
        "state": str(GroupPhase.EMPTY if state is None else state.phase),
        "protocol": str(Protocol.COOPERATIVE if state is None else state.protocol),
        "generation": 0 if state is None else state.generation,
        "members": [
            {
                "id": member.id,
                "state": str(member.phase),
                "assigned": show_places(member.to_read),
                "partitions_to_revoke": list_places(member.to_revoke),
            }
            for member in group.members
        ],
        "revocation_deadline": broker.groups.revocation_deadline_ms(name),
    }
