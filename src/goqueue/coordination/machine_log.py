"""The log behind a machine: what was decided becomes state only after it is durable.

record = machine.handle_x(...)         decide, synchronously
await machine_log.commit(k, v)         append and sync
machine.replay(record)                 the same code that runs at the next start
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from goqueue.coordination.futures import settler
from goqueue.errors import DataDamagedError
from goqueue.host import Clock
from goqueue.record import INVISIBLE_FLAGS, BatchBuilder, decode
from goqueue.storage import GroupCommit, Log

_READ_BYTES = 1 << 20


class MachineLog:
    def __init__(self, log: Log, commit: GroupCommit, clock: Clock) -> None:
        self.log = log
        self._commit = commit
        self._clock = clock

    def replay(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Every (key, value) in order. Damaged stretches are passed over; `log.damages` tells of them."""
        offset = self.log.log_start_offset
        while offset < self.log.log_end_offset:
            try:
                data = self.log.read(offset, _READ_BYTES)
            except DataDamagedError as error:
                offset = int(str(error.context["to_offset"]))
                continue
            records = decode(data)
            for record in records:
                if not record.flags & INVISIBLE_FLAGS and record.key is not None:
                    yield record.key, record.value
            offset = records[-1].offset + 1

    async def commit(self, key: bytes, value: bytes | None) -> None:
        """Append one record and return when it is durable."""
        builder = BatchBuilder()
        builder.add(value, key)
        facts = self.log.append(builder.take(), now_ns=self._clock.wall_ns())
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        self._commit.wait(self.log, facts.next_offset, settler(durable))
        await durable
