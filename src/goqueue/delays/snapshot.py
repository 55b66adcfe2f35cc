"""The delays of a partition at one offset, as bytes: a start skips the log below it.

Layout, big-endian: magic `GQDS`, version u8, then i64 next offset, i64 offset of the last record about delays, u32 its
CRC32C, u32 zero, i64 pending count, i64 finished count; the offsets and due times of the pending ones, the offsets and
fates of the finished ones, i64 each; CRC32C u32 of all before it. A snapshot that does not add up is no snapshot.
"""

from __future__ import annotations

import struct
import sys
from array import array
from dataclasses import dataclass

from goqueue.record import crc32c

_HEAD = struct.Struct(">4sBxxxqqIxxxxqq")
_MAGIC = b"GQDS"
_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DelaySnapshot:
    # Every record below this offset is in it.
    next_offset: int
    # The last record about delays below it, -1 for none, and its checksum: another log does not have it.
    last_offset: int
    witness: int
    # (offsets, due times) and (offsets, fates)
    pending: tuple[array[int], array[int]]
    finished: tuple[array[int], array[int]]

    def pack(self) -> bytes:
        counts = len(self.pending[0]), len(self.finished[0])
        head = _HEAD.pack(_MAGIC, _VERSION, self.next_offset, self.last_offset, self.witness, *counts)
        body = b"".join([head, *(_big_endian(column) for column in (*self.pending, *self.finished))])
        return body + crc32c(body).to_bytes(4, "big")

    @classmethod
    def unpack(cls, data: bytes) -> DelaySnapshot | None:
        if len(data) < _HEAD.size + 4 or crc32c(data[:-4]) != int.from_bytes(data[-4:], "big"):
            return None
        magic, version, next_offset, last_offset, witness, pending, finished = _HEAD.unpack_from(data)
        if magic != _MAGIC or version != _VERSION or len(data) != _HEAD.size + 16 * (pending + finished) + 4:
            return None
        columns, position = [], _HEAD.size
        for count in (pending, pending, finished, finished):
            column = array("q", data[position : position + 8 * count])
            if sys.byteorder == "little":
                column.byteswap()
            columns.append(column)
            position += 8 * count
        return cls(
            next_offset=next_offset,
            last_offset=last_offset,
            witness=witness,
            pending=(columns[0], columns[1]),
            finished=(columns[2], columns[3]),
        )


def _big_endian(column: array[int]) -> bytes:
    if sys.byteorder == "little":
        column = column[:]
        column.byteswap()
    return column.tobytes()
