"""A small piece of state that is overwritten in place and survives a torn write.

The file has two slots of 512 bytes, the sector size below which a write is all or nothing; writes alternate between
them, so the slot written before the last one is always whole. Slot: magic `GQSL`, version u8, zero u8, payload length
u16, sequence u64, payload, zeros, CRC32C u32 over the 508 bytes before it. All big-endian. The valid slot with the
higher sequence wins.
"""

from __future__ import annotations

import errno
import struct

from goqueue.host import Disk, File
from goqueue.record import crc32c

SLOT_BYTES = 512
_HEAD = struct.Struct(">4sBxHQ")
_MAGIC = b"GQSL"
_VERSION = 1
PAYLOAD_BYTES_MAX = SLOT_BYTES - _HEAD.size - 4


class SlotFile:
    """Holds the newest payload; `None` when there is none that can be trusted."""

    __slots__ = ("_file", "_sequence", "damaged", "payload")

    def __init__(self, file: File) -> None:
        self._file = file
        slots = [_read_slot(file.pread(SLOT_BYTES, n * SLOT_BYTES)) for n in range(2)]
        valid = [slot for slot in slots if slot is not None]
        self._sequence = 0
        self.payload: bytes | None = None
        if valid:
            self._sequence, self.payload = max(valid)
        # A file cut short or a slot of garbage: the other slot still serves, but somebody should know.
        self.damaged = len(valid) < 2
        if self.damaged and self.payload is not None:
            self.write_both(self.payload)

    @classmethod
    def open(cls, disk: Disk, path: str) -> SlotFile:
        return cls(disk.open(path, writable=True))

    @classmethod
    def create(cls, disk: Disk, path: str, payload: bytes) -> SlotFile:
        """A new file that holds `payload` in both slots, durable but for its name (sync the directory)."""
        file = disk.create(path)
        slots = cls(file)
        slots.write_both(payload)
        slots.damaged = False
        return slots

    def write(self, payload: bytes, *, sync: bool) -> None:
        """Replace the payload. Without `sync` a power loss may bring an earlier one back, never a mixture."""
        sequence = self._sequence + 1
        pieces = self._write_all(_pack_slot(sequence, payload), (sequence % 2) * SLOT_BYTES)
        # Only now: after a failed write the next one must not go to the slot that is still whole.
        self._sequence = sequence
        self.payload = payload
        # A slot written in pieces can be torn until it is synced, and the other one may not be durable either.
        if sync or pieces > 1:
            self._file.sync()

    def _write_all(self, data: bytes, position: int) -> int:
        """Returns how many writes it took."""
        pieces = 0
        while data:
            written = self._file.pwrite(data, position)
            if not written:
                raise OSError(errno.ENOSPC, f"no bytes written to {self._file.path}")
            data, position, pieces = data[written:], position + written, pieces + 1
        return pieces

    def write_both(self, payload: bytes) -> None:
        """Replace the payload in both slots, durably: no older one can come back even if a slot is damaged later."""
        self.write(payload, sync=False)
        self.write(payload, sync=True)

    def close(self) -> None:
        self._file.close()


def read_slots(disk: Disk, path: str) -> bytes | None:
    """The newest payload of a slot file that somebody else owns; nothing is repaired."""
    file = disk.open(path)
    try:
        slots = [_read_slot(file.pread(SLOT_BYTES, n * SLOT_BYTES)) for n in range(2)]
    finally:
        file.close()
    return max((slot for slot in slots if slot is not None), default=(0, None))[1]


def _pack_slot(sequence: int, payload: bytes) -> bytes:
    assert len(payload) <= PAYLOAD_BYTES_MAX, "a slot is for small state"
    body = (_HEAD.pack(_MAGIC, _VERSION, len(payload), sequence) + payload).ljust(SLOT_BYTES - 4, b"\0")
    return body + crc32c(body).to_bytes(4, "big")


def _read_slot(data: bytes) -> tuple[int, bytes] | None:
    if len(data) != SLOT_BYTES or crc32c(data[:-4]) != int.from_bytes(data[-4:], "big"):
        return None
    magic, version, length, sequence = _HEAD.unpack_from(data)
    if magic != _MAGIC or version != _VERSION or length > PAYLOAD_BYTES_MAX:
        return None
    return sequence, data[_HEAD.size : _HEAD.size + length]
