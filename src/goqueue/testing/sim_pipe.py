"""One direction of a simulated connection.

    push -> in flight (delayed, or held by a partition) -> arrived (unread) -> receive

What is pushed arrives in that order, each item at its own time but never before the one ahead of it. The end of the
stream and a reset travel the same way, so they too wait behind a partition.
"""

from __future__ import annotations

import asyncio
import collections
import enum
import errno
import os
from collections.abc import Callable

# A sender waits while this much of its stream is unread, like one whose socket buffers are full.
_UNREAD_BYTES_MAX = 64 * 1024


class _Signal(enum.Enum):
    END = enum.auto()
    RESET = enum.auto()


class Pipe:
    """An ordered stream from one host to another."""

    def __init__(self, source: str, target: str, holds: Callable[[str, str], bool]) -> None:
        self.source = source
        self.target = target
        self._holds = holds
        self.reverse: Pipe | None = None  # the other direction; a reset that arrives here ends it as well
        self._in_flight: collections.deque[bytes | _Signal] = collections.deque()
        self._in_flight_bytes = 0
        self._due_count = 0  # items at the head of the flight whose time has come
        self._due_at = 0.0  # when the last item pushed comes due
        self._arrived = bytearray()
        self._changed = asyncio.Event()
        self._ended = False  # the receiver has, or will have, seen the end
        self._reset = False  # the receiver sees a reset
        self._abandoned = False  # the receiver closed; whatever still arrives is refused
        self._broken = False  # the sender may not send any more

    @property
    def finished(self) -> bool:
        """Nothing will ever come through again."""
        return self._broken and not self._in_flight

    # -- the sender's end -------------------------------------------------------------------------------------------

    def check_writable(self) -> None:
        if self._broken:
            raise _reset_error()

    def push(self, data: bytes, delay_s: float) -> None:
        if data:
            self._in_flight_bytes += len(data)
            self._push(data, delay_s)

    def push_end(self, delay_s: float) -> None:
        if not self._broken:
            self._push(_Signal.END, delay_s)

    def push_reset(self, delay_s: float) -> None:
        if not self._broken:
            self._push(_Signal.RESET, delay_s)

    def break_sender(self) -> None:
        self._broken = True
        self._changed.set()

    async def wait_room(self) -> None:
        while len(self._arrived) + self._in_flight_bytes > _UNREAD_BYTES_MAX:
            self.check_writable()
            await self._wait_change()

    # -- the receiver's end -----------------------------------------------------------------------------------------

    async def receive(self, bytes_max: int) -> bytes:
        while not (self._reset or self._arrived or self._ended):
            await self._wait_change()
        if self._reset:
            raise _reset_error()
        data = bytes(self._arrived[:bytes_max])
        del self._arrived[:bytes_max]
        self._changed.set()
        return data

    def reset(self) -> None:
        """The receiver's side is gone: unread bytes are discarded, and so is all that still arrives."""
        self._reset = True
        self._arrived.clear()
        self._changed.set()

    def abandon(self) -> None:
        """The receiver closed: it reads an end, and the sender will be told when more bytes arrive."""
        self._abandoned = self._ended = True
        self._changed.set()

    # -- in between -------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        while self._due_count and not self._holds(self.source, self.target):
            self._due_count -= 1
            self._arrive(self._in_flight.popleft())

    def _push(self, item: bytes | _Signal, delay_s: float) -> None:
        self._in_flight.append(item)
        loop = asyncio.get_running_loop()
        if not delay_s and self._due_at <= loop.time():
            loop.call_soon(self._come_due)
            return
        self._due_at = max(self._due_at, loop.time() + delay_s)
        loop.call_at(self._due_at, self._come_due)

    def _come_due(self) -> None:
        # Timers of the same instant may fire in any order; each only says that one more item is due.
        self._due_count += 1
        self.flush()

    def _arrive(self, item: bytes | _Signal) -> None:
        match item:
            case bytes():
                self._in_flight_bytes -= len(item)
                if self._abandoned:
                    self._broken = True
                elif not self._reset:
                    self._arrived += item
            case _Signal.END:
                self._ended = True
            case _Signal.RESET:
                self.reset()
                if self.reverse is not None:
                    self.reverse.break_sender()
        self._changed.set()

    async def _wait_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


def _reset_error() -> OSError:
    return OSError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
