"""The machines of `__consumer_offsets` and their logs: decide, append, replay in one step, then wait.

The topic is made when the first group needs it: a broker without groups has none. Its partition count is fixed then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

from goqueue.broker.config import BrokerConfig
from goqueue.broker.topics import Topics
from goqueue.coordination import MachineLog
from goqueue.errors import GoQueueError
from goqueue.groups import Group, GroupMachine, GroupRecord
from goqueue.metadata import CleanupPolicy, TopicSettings
from goqueue.model import partition_for_key

OFFSETS_TOPIC = "__consumer_offsets"
_SETTINGS = TopicSettings(cleanup_policy=CleanupPolicy.COMPACT, segment_bytes=16 << 20)
_logger = logging.getLogger(__name__)


class GroupLog:
    def __init__(self, topics: Topics, config: BrokerConfig) -> None:
        self._topics = topics
        self._config = config
        self._logs: list[MachineLog] = []
        self._machines: list[GroupMachine] = []
        # The last append of each partition: nobody is told of a state that is not durable.
        self._settling: list[asyncio.Future[None] | None] = []
        self._opening = asyncio.Lock()

    async def load(self) -> None:
        """Replay what is there."""
        if OFFSETS_TOPIC in self._topics.catalog:
            await self.open()

    async def open(self) -> None:
        """Make sure that there is a log to write to."""
        if self._logs:
            return
        async with self._opening:
            if self._logs:
                return
            logs = await self._topics.open_internal(OFFSETS_TOPIC, self._config.group_offsets_partitions, _SETTINGS)
            limits = {"groups_max": self._config.groups_max, "members_max": self._config.group_members_max}
            self._machines = [GroupMachine(**limits) for _ in logs]
            self._settling = [None] * len(logs)
            for machine, log in zip(self._machines, logs, strict=True):
                for record in log.replay():
                    machine.replay(record)
            self._logs = logs

    @property
    def machines(self) -> list[GroupMachine]:
        return self._machines

    def groups(self) -> Iterator[tuple[str, Group]]:
        for machine in self._machines:
            yield from machine.groups.items()

    def machine(self, name: str) -> GroupMachine:
        """The machine of a group; before the first group there is an empty one."""
        if not self._machines:
            return GroupMachine()
        return self._machines[self._index(name)]

    def _index(self, name: str) -> int:
        return partition_for_key(name.encode(), len(self._machines))

    def write(self, machine: GroupMachine, records: list[GroupRecord]) -> asyncio.Future[None]:
        """Append what a machine has decided and let it happen; the future is done when it is durable."""
        index = self._machines.index(machine)
        durable = self._logs[index].append(records)
        durable.add_done_callback(_log_failure)
        self._settling[index] = durable
        for record in records:
            machine.replay(record)
        return durable

    async def settled(self, name: str) -> None:
        """Return when everything that has been decided about a group is durable."""
        if self._settling and (last := self._settling[self._index(name)]) is not None and not last.done():
            # Shielded: one caller that gives up must not take the others' answer away.
            await asyncio.shield(last)


def _log_failure(durable: asyncio.Future[None]) -> None:
    error = None if durable.cancelled() else durable.exception()
    if isinstance(error, GoQueueError):
        _logger.error("a change of groups did not become durable", extra={"error": error.message})
