"""Calls about consumer groups: membership, offsets, administration."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from goqueue.broker import BrokerApi
from goqueue.frontends.group_shapes import group_fields, offset_fields, summary_fields, view_fields
from goqueue.groups import AssignorName, Mode, Protocol


def group_calls(broker: BrokerApi) -> dict[str, Callable[..., Awaitable[object]]]:
    groups, offsets = broker.groups, broker.group_offsets

    async def join(
        group: str,
        client_id: str,
        topics: list[str],
        member_id: str | None = None,
        session_timeout_ms: int | None = None,
        rebalance_timeout_ms: int | None = None,
        protocol: Protocol | None = None,
        assignor: AssignorName | None = None,
        mode: Mode | None = None,
    ) -> dict[str, object]:
        view = await groups.join(
            group,
            client_id=client_id,
            topics=topics,
            member_id=member_id,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            protocol=None if protocol is None else Protocol(protocol),
            assignor=None if assignor is None else AssignorName(assignor),
            mode=None if mode is None else Mode(mode),
        )
        return view_fields(view)

    async def heartbeat(
        group: str, member_id: str, generation: int, wait_ms: int = 0, version: int | None = None
    ) -> dict[str, object]:
        view = await groups.heartbeat(group, member_id, generation, wait_ms=wait_ms, version=version)
        return view_fields(view)

    async def revoke(
        group: str, member_id: str, generation: int, partitions: dict[str, list[int]]
    ) -> dict[str, object]:
        places = [(topic, number) for topic, numbers in partitions.items() for number in numbers]
        return view_fields(await groups.revoke(group, member_id, generation, places))

    async def leave(group: str, member_id: str) -> int:
        return await groups.leave(group, member_id)

    async def commit(
        group: str,
        offsets: dict[str, dict[int, int | tuple[int, str]]],
        member_id: str | None = None,
        generation: int = 0,
    ) -> None:
        await broker.group_offsets.commit(group, member_id, generation, offsets)

    async def committed(group: str, topics: list[str] | None = None) -> dict[str, dict[str, object]]:
        return offset_fields(offsets.show(group, topics))

    async def reset(
        group: str,
        topic: str,
        to: int | str,
        partitions: list[int] | None = None,
        timestamp_ns: int | None = None,
        dry_run: bool = False,
    ) -> dict[str, int]:
        found = await offsets.reset(
            group, topic, partitions=partitions, to=to, timestamp_ns=timestamp_ns, dry_run=dry_run
        )
        return {str(number): offset for number, offset in found.items()}

    async def list_all() -> list[dict[str, object]]:
        return [summary_fields(name, group) for name, group in groups.groups()]

    async def describe(group: str) -> dict[str, object]:
        return group_fields(broker, group, groups.group(group))

    async def delete(group: str) -> None:
        await groups.delete(group)

    async def stats(group: str) -> dict[str, int | None]:
        return groups.rebalance_stats(group)

    return {
        "group.join": join,
        "group.heartbeat": heartbeat,
        "group.revoke": revoke,
        "group.leave": leave,
        "group.commit": commit,
        "group.offsets": committed,
        "group.reset": reset,
        "group.list": list_all,
        "group.describe": describe,
        "group.delete": delete,
        "group.rebalance_stats": stats,
    }
