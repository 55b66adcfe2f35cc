"""Consumer groups from outside: look at them, move their offsets, delete them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from goqueue.errors import InvalidRequestError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class GroupAdmin:
    """Methods of `Client` about groups."""

    async def _call(self, method: str, **arguments: object) -> Any:
        raise NotImplementedError

    async def list_groups(self) -> list[dict[str, Any]]:
        return list(await self._call("group.list"))

    async def describe_group(self, group: str) -> dict[str, Any]:
        """State, generation, members and what they own."""
        return dict(await self._call("group.describe", group=group))

    async def delete_group(self, group: str) -> None:
        """Forget a group without members, with its offsets."""
        await self._call("group.delete", group=group)

    async def group_offsets(self, group: str, topics: Sequence[str] | None = None) -> dict[str, Any]:
        """Committed offsets and lag, by topic and partition as text."""
        return dict(await self._call("group.offsets", group=group, topics=None if topics is None else list(topics)))

    async def commit_offsets(self, group: str, offsets: Mapping[tuple[str, int], int | tuple[int, str]]) -> None:
        """Commit for a group without members, such as one that only shows the progress of a job."""
        by_topic: dict[str, dict[int, object]] = {}
        for (topic, partition), offset in offsets.items():
            by_topic.setdefault(topic, {})[partition] = offset
        await self._call("group.commit", group=group, offsets=by_topic)

    async def reset_offsets(
        self,
        group: str,
        topic: str,
        to: str | int | datetime,
        *,
        partitions: Sequence[int] | None = None,
        dry_run: bool = False,
    ) -> dict[int, int]:
        """Move a group without members to `earliest`, `latest`, an offset or a time; returns the offsets."""
        timestamp_ns = None
        if isinstance(to, datetime):
            timestamp_ns = (to.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1) * 1_000
            to = "timestamp"
        elif isinstance(to, bool) or not isinstance(to, int | str):
            raise InvalidRequestError(f"cannot reset to {to!r}: use earliest, latest, an offset or a time")
        found = await self._call(
            "group.reset",
            group=group,
            topic=topic,
            to=to,
            partitions=None if partitions is None else list(partitions),
            timestamp_ns=timestamp_ns,
            dry_run=dry_run,
        )
        return {int(number): offset for number, offset in found.items()}

    async def rebalance_stats(self, group: str) -> dict[str, Any]:
        return dict(await self._call("group.rebalance_stats", group=group))
