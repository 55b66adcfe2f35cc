"""Work that nobody waits for: retention, rolling by age, compaction, scrub, the disk guard.

Long parts (reading and writing whole segments) run in a thread; decisions and changes stay on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from goqueue.broker.config import BrokerConfig
from goqueue.broker.disk_guard import DiskGuard, DiskState
from goqueue.broker.partition import Partition
from goqueue.broker.pins import Pins
from goqueue.broker.topics import Topics
from goqueue.errors import GoQueueError
from goqueue.host import Clock
from goqueue.storage import Scrubber, apply_retention, install_compaction, plan_compaction

_logger = logging.getLogger(__name__)


class Maintenance:
    def __init__(self, topics: Topics, pins: Pins, guard: DiskGuard, clock: Clock, config: BrokerConfig) -> None:
        self._topics = topics
        self._pins = pins
        self._guard = guard
        self._clock = clock
        self._config = config
        self._tasks: list[asyncio.Task[None]] = []
        # The lowest offset of a partition that retention must keep, asked before it removes anything.
        self.pinned_offset: Callable[[Partition], int | None] = lambda partition: None
        self.deleted_segments = self.compactions = self.scrubbed_bytes = 0

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._keep_house()), asyncio.create_task(self._watch_disk())]
        if self._config.scrub_bytes_per_second:
            self._tasks.append(asyncio.create_task(self._scrub()))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _watch_disk(self) -> None:
        while True:
            await asyncio.sleep(self._config.disk_check_interval_ms / 1000)
            before, now = self._guard.state, self._guard.look()
            if now is not before:
                level = logging.WARNING if now is not DiskState.OK else logging.INFO
                _logger.log(level, "disk guard", extra={"state": str(now), "used_percent": self._guard.used_percent})

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(self._config.maintenance_interval_ms / 1000)
            await self._pins.sweep()
            for partition in list(self._topics.partitions()):
                await self.tend(partition)

    async def tend(self, partition: Partition) -> None:
        """Everything that is due for one partition; its trouble stays its own."""
        if partition.log.failure is not None or partition.log.closed:
            return
        try:
            now_ns = self._clock.wall_ns()
            partition.log.roll_if_old(now_ns)
            self.deleted_segments += apply_retention(
                partition.log, now_ns=now_ns, pinned_offset=self.pinned_offset(partition)
            )
            if partition.log.config.compact:
                await self.compact(partition)
        except (GoQueueError, OSError) as error:
            _logger.error("maintenance failed", extra={"partition": str(partition.identity), "error": str(error)})
        await asyncio.sleep(0)

    async def compact(self, partition: Partition, *, everything: bool = False) -> None:
        plan = plan_compaction(
            partition.log,
            now_ns=self._clock.wall_ns(),
            end_offset=partition.last_stable_offset,
            everything=everything,
        )
        if plan is None:
            return
        result = await asyncio.to_thread(plan.run)
        if not partition.log.closed:
            install_compaction(partition.log, result)
            self.compactions += 1

    async def _scrub(self) -> None:
        scrubbers: dict[Partition, Scrubber] = {}
        while True:
            partitions = list(self._topics.partitions())
            scrubbers = {partition: scrubbers.get(partition) or Scrubber(partition.log) for partition in partitions}
            for partition in partitions:
                await self._scrub_round(partition, scrubbers[partition])
            await asyncio.sleep(self._config.maintenance_interval_ms / 1000)

    async def _scrub_round(self, partition: Partition, scrubber: Scrubber) -> None:
        while not partition.log.closed and (step := scrubber.next_step()) is not None:
            try:
                found = await asyncio.to_thread(step.run)
            except OSError as error:
                _logger.error("scrub failed", extra={"partition": str(partition.identity), "error": str(error)})
                return
            if not partition.log.closed:
                scrubber.finish(step, found)
            for damage in found.damages:
                _logger.error("scrub found damage", extra={"partition": str(partition.identity), "file": damage.file})
            self.scrubbed_bytes += step.byte_count
            await asyncio.sleep(step.byte_count / self._config.scrub_bytes_per_second)
