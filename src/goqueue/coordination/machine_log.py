"""The log behind a machine: its records, in the order of its decisions, and when they are durable.

    records, response = machine.handle_x(...)     decide, synchronously
    durable = machine_log.append(records)         they have their place in the log
    machine.replay(record)                        the same code that runs at the next start
    await durable                                 only now is the response true for others

Nothing may come between decision, append and replay, so the next decision sees this one. What is not durable yet is
known to this process alone; if it never becomes so, the log has failed and takes no further record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from goqueue.coordination.futures import settler
from goqueue.errors import DataDamagedError
from goqueue.host import Clock
from goqueue.record import INVISIBLE_FLAGS, BatchBuilder, decode
from goqueue.storage import GroupCommit, Log, TurnWriter

_READ_BYTES = 1 << 20


class MachineLog:
    def __init__(self, log: Log, commit: GroupCommit, clock: Clock) -> None:
        self.log = log
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._writer = TurnWriter(log, commit, soon=self._loop.call_soon)

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

    def append(self, records: Iterable[tuple[bytes, bytes | None]]) -> asyncio.Future[None]:
        """Append (key, value) records at once, in order; the future is done when they are durable.

        Records of one turn of the event loop share a write, those written during a sync share the next one. Raises
        when the log cannot take them; then nothing was appended and nothing may be replayed.
        """
        builder = BatchBuilder()
        for key, value in records:
            builder.add(value, key)
        durable: asyncio.Future[None] = self._loop.create_future()
        self._writer.append(builder.take(), settler(durable), now_ns=self._clock.wall_ns(), durable=True)
        return durable

    async def commit(self, key: bytes, value: bytes | None) -> None:
        """Append one record and return when it is durable."""
        await self.append(((key, value),))
