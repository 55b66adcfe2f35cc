"""The bytes of one simulated file, before and after the power goes.

An inode keeps what a reader sees (`visible`), what the platter holds (`durable`) and the unsynced operations that lie
between. A sync applies the operations to the platter; a crash applies whichever of them it likes:

    each write      kept, dropped, or torn: each 512-byte sector it touches survives on its own
    each truncate   kept or dropped
    the length      a dropped write may still have lengthened the file; the gap reads as zeros or as garbage

Synced bytes are never touched by a crash, unless an unsynced operation covers them.
"""

from __future__ import annotations

import enum
import random
from dataclasses import dataclass
from typing import Any

SECTOR_BYTES = 512


@dataclass(frozen=True, slots=True)
class Write:
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    length: int


class _CrashPlan(enum.Enum):
    """The overall shape of what survives. The plain shapes are listed because pure chance would rarely hit them."""

    ALL = enum.auto()
    NONE = enum.auto()
    PREFIX = enum.auto()  # up to some operation, which is torn: what an ordered journal leaves
    MIXED = enum.auto()  # every operation on its own: reordering


class _Fate(enum.Enum):
    KEPT = enum.auto()
    DROPPED = enum.auto()
    TORN = enum.auto()


_PLANS = (_CrashPlan.ALL, _CrashPlan.NONE, _CrashPlan.PREFIX, _CrashPlan.MIXED, _CrashPlan.MIXED)
_FATES = tuple(_Fate)


class Inode:
    """One file's contents. Knows nothing of names, handles or faults."""

    __slots__ = ("durable", "linked", "unsynced", "visible")

    def __init__(self) -> None:
        self.visible = bytearray()
        self.durable = bytearray()
        self.unsynced: list[Write | Truncate] = []
        self.linked = True  # False once no name leads here; its bytes no longer count as used space

    def write(self, data: bytes, position: int) -> None:
        _place(self.visible, data, position)
        self.unsynced.append(Write(position, data))

    def truncate(self, length: int) -> None:
        _resize(self.visible, length)
        self.unsynced.append(Truncate(length))

    def sync(self) -> None:
        for operation in self.unsynced:
            match operation:
                case Write(position, data):
                    _place(self.durable, data, position)
                case Truncate(length):
                    _resize(self.durable, length)
        self.unsynced = []

    def lose_unsynced(self) -> None:
        """A sync failed: the kernel marks the dirty pages clean and forgets them. Readers still see them in the cache,
        and no later sync will write them. Truncates live in the journal and stay pending."""
        self.unsynced = [operation for operation in self.unsynced if isinstance(operation, Truncate)]

    def flip_bit(self, byte: int, bit: int) -> None:
        self.visible[byte] ^= 1 << bit
        if byte < len(self.durable):
            self.durable[byte] ^= 1 << bit
        self.unsynced = [_flipped(operation, byte, bit) for operation in self.unsynced]

    def crash(self, rng: random.Random, garbage_probability: float) -> None:
        if self.unsynced:
            garbage = rng.random() < garbage_probability
            _Survivor(self.durable, rng, garbage=garbage).apply(self.unsynced)
            self.unsynced = []
        # Also after failed syncs, when nothing is pending and yet the cache holds more than the platter.
        self.visible = bytearray(self.durable)

    def __deepcopy__(self, memo: dict[int, Any]) -> Inode:
        # Operations are immutable: a snapshot of megabytes shares them.
        copy = Inode()
        memo[id(self)] = copy
        copy.visible = bytearray(self.visible)
        copy.durable = bytearray(self.durable)
        copy.unsynced = list(self.unsynced)
        copy.linked = self.linked
        return copy


class _Survivor:
    """Turns the durable bytes of a file into what a crash leaves of it."""

    __slots__ = ("_bytes", "_garbage", "_keeps_length", "_plan", "_random")

    def __init__(self, durable: bytearray, rng: random.Random, *, garbage: bool) -> None:
        self._bytes = durable
        self._random = rng
        self._garbage = garbage
        self._plan = rng.choice(_PLANS)
        self._keeps_length = rng.random() < 0.5

    def apply(self, operations: list[Write | Truncate]) -> None:
        cut = self._random.randrange(len(operations))
        for index, operation in enumerate(operations):
            fate = self._fate(index, cut)
            match operation:
                case Truncate(length):
                    if fate is _Fate.KEPT:
                        self._shrink_or_fill(length)
                case Write(position, data):
                    self._apply_write(position, data, fate)

    def _fate(self, index: int, cut: int) -> _Fate:
        match self._plan:
            case _CrashPlan.ALL:
                return _Fate.KEPT
            case _CrashPlan.NONE:
                return _Fate.DROPPED
            case _CrashPlan.PREFIX:
                return _Fate.KEPT if index < cut else _Fate.TORN if index == cut else _Fate.DROPPED
            case _CrashPlan.MIXED:
                return self._random.choice(_FATES)

    def _apply_write(self, position: int, data: bytes, fate: _Fate) -> None:
        if fate is _Fate.KEPT:
            self._fill_to(position)
            _place(self._bytes, data, position)
            return
        if fate is _Fate.TORN:
            self._tear(position, data)
        if self._keeps_length:
            self._fill_to(position + len(data))

    def _tear(self, position: int, data: bytes) -> None:
        """Keep some sectors of the write: the first few, or any."""
        starts = [0, *range(-position % SECTOR_BYTES or SECTOR_BYTES, len(data), SECTOR_BYTES)]
        count = len(starts)
        kept = (1 << self._random.randrange(count + 1)) - 1 if self._random.random() < 0.5 else self._mask(count)
        for index, start in enumerate(starts):
            if kept >> index & 1:
                end = starts[index + 1] if index + 1 < count else len(data)
                self._fill_to(position + start)
                _place(self._bytes, data[start:end], position + start)

    def _mask(self, count: int) -> int:
        return self._random.getrandbits(count)

    def _shrink_or_fill(self, length: int) -> None:
        del self._bytes[length:]
        self._fill_to(length)

    def _fill_to(self, length: int) -> None:
        """Lengthen the file over bytes that did not survive."""
        gap = length - len(self._bytes)
        if gap > 0:
            self._bytes += self._random.randbytes(gap) if self._garbage else bytes(gap)


def _place(target: bytearray, data: bytes, position: int) -> None:
    if position == len(target):
        target += data
        return
    if position > len(target):
        target += bytes(position - len(target))
    target[position : position + len(data)] = data


def _resize(target: bytearray, length: int) -> None:
    if length < len(target):
        del target[length:]
    else:
        target += bytes(length - len(target))


def _flipped(operation: Write | Truncate, byte: int, bit: int) -> Write | Truncate:
    if isinstance(operation, Truncate) or not operation.position <= byte < operation.position + len(operation.data):
        return operation
    data = bytearray(operation.data)
    data[byte - operation.position] ^= 1 << bit
    return Write(operation.position, bytes(data))
