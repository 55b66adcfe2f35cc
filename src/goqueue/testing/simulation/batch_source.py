"""Random batches for the storage simulator, and what must be read back from them.

Every value is different, so that a record in the wrong place cannot pass for the right one. Sizes, keys, headers,
flags and times are drawn so that the corners come often: empty values, tombstones, values that look like records,
timestamps that run backwards.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from goqueue.record import BatchBuilder, Flag, IndexCursor, Record, decode, stamp

MINUTE_NS = 60_000_000_000
_UNCOMPACTED = Flag.NULL_KEY | Flag.CONTROL | Flag.DELAYED
# Control records come from append_replica and markers; users set the others.
_FLAGS = (0, 0, 0, 0, int(Flag.DELAYED), int(Flag.TRANSACTIONAL), int(Flag.COMPRESSED), int(Flag.CONTROL))


@dataclass(frozen=True, slots=True)
class Entry:
    """One record as it must be in the log."""

    offset: int
    timestamp_ns: int
    # What compaction goes by; None is a record that no compaction removes.
    key: bytes | None
    is_tombstone: bool
    raw: bytes


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One record as it is given to the log."""

    value: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    priority: int
    timestamp_ns: int
    flags: int


def entry_of(record: Record) -> Entry:
    """What a stored record means to the model."""
    return Entry(
        offset=record.offset,
        timestamp_ns=record.timestamp_ns,
        key=None if record.flags & _UNCOMPACTED else record.key,
        is_tombstone=bool(record.flags & Flag.TOMBSTONE),
        raw=record.raw(),
    )


@dataclass(slots=True)
class Batch:
    """An encoded batch that still knows what went into it."""

    data: bytearray
    wanted: list[_Wanted]

    def entries(self, *, base_offset: int, now_ns: int) -> list[Entry]:
        """What the log makes of the batch, checked field by field against what went in. The batch stays as it is."""
        stamped = bytearray(self.data)
        stamp(stamped, base_offset, now_ns, IndexCursor(0))
        records = decode(stamped)
        assert len(records) == len(self.wanted), "a batch holds what was put into it"
        for number, (record, wanted) in enumerate(zip(records, self.wanted, strict=True)):
            got = (record.offset, record.timestamp_ns, record.priority, record.key, record.value)
            timestamp_ns = wanted.timestamp_ns or now_ns
            assert got == (base_offset + number, timestamp_ns, wanted.priority, wanted.key, wanted.value), (
                "stamped wrong"
            )
            assert record.headers == wanted.headers, "headers keep their order and bytes"
            derived = Flag.HAS_HEADERS | Flag.TOMBSTONE | Flag.NULL_KEY
            assert record.flags & ~derived == wanted.flags, "stamping leaves the flags alone"
        return [entry_of(record) for record in records]


class BatchSource:
    """Makes batches for one partition."""

    def __init__(self, rng: random.Random, *, key_count: int, value_bytes_max: int) -> None:
        self._random = rng
        self._keys = [b"", *(f"key-{number}".encode() for number in range(key_count))]
        self._value_bytes_max = value_bytes_max
        self._serial = 0

    def batch(self, count: int, *, now_ns: int) -> Batch:
        """`count` records without offsets, as a producer sends them."""
        builder = BatchBuilder(self._value_bytes_max)
        wanted = [self._wanted(now_ns) for _ in range(count)]
        for one in wanted:
            builder.add(one.value, one.key, one.headers, one.priority, one.timestamp_ns, one.flags)
        return Batch(builder.take(), wanted)

    def replica(self, offsets: list[int], *, now_ns: int) -> bytearray:
        """Records with these offsets, as a leader sends them."""
        builder = BatchBuilder(self._value_bytes_max)
        for offset in offsets:
            one = self._wanted(now_ns)
            timestamp_ns = one.timestamp_ns or now_ns
            builder.add(one.value, one.key, one.headers, one.priority, timestamp_ns, one.flags, offset)
        return builder.take()

    def _wanted(self, now_ns: int) -> _Wanted:
        rng = self._random
        flags = rng.choice(_FLAGS)
        key = None if rng.random() < 0.2 else rng.choice(self._keys)
        return _Wanted(
            value=self._value(may_be_null=key is not None and not flags),
            key=key,
            headers=self._headers(),
            priority=rng.randrange(5),
            timestamp_ns=self._timestamp_ns(now_ns),
            flags=flags,
        )

    def _value(self, *, may_be_null: bool) -> bytes | None:
        rng = self._random
        self._serial += 1
        shape = rng.random()
        if shape < 0.1 and may_be_null:
            return None
        if shape < 0.15:
            return b""
        if shape < 0.18:
            return self._lookalike()
        size = rng.randrange(1000, 7000) if shape < 0.25 else rng.randrange(4, 300)
        return self._serial.to_bytes(4, "big") + rng.randbytes(min(size, self._value_bytes_max) - 4)

    def _lookalike(self) -> bytes:
        """A value that is itself a stored record: backups and mirrors carry such values."""
        builder = BatchBuilder()
        serial = self._serial.to_bytes(4, "big")
        builder.add(serial, timestamp_ns=self._random.getrandbits(60), offset=self._random.randrange(self._serial + 50))
        return bytes(builder.take())

    def _headers(self) -> tuple[tuple[str, bytes], ...]:
        rng = self._random
        if rng.random() < 0.7:
            return ()
        return tuple((f"h{rng.randrange(3)}", rng.randbytes(rng.randrange(20))) for _ in range(rng.randrange(1, 4)))

    def _timestamp_ns(self, now_ns: int) -> int:
        rng = self._random
        if rng.random() < 0.6:
            return 0  # the log's clock decides
        return now_ns + rng.randrange(-300, 5) * MINUTE_NS + rng.randrange(1000)
