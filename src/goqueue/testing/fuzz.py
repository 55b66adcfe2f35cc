"""Fuzzer of the native kernel: `python -m goqueue.testing.fuzz --seconds 60 [--seed S] [--no-compare]`.

A seed is a run. Valid batches are made, broken in many ways (often with the checksum repaired, so that the checks
behind it are reached) and given to every kernel function. By default each answer, error class, error position and
side effect is compared with `goqueue.testing.reference`; `--no-compare` only looks for crashes and is much faster.
Buffers are arrays, not bytes: their allocation ends exactly where the data does, so that a sanitizer
(scripts/fuzz_asan.sh) sees a read of even one byte too many.
"""

from __future__ import annotations

import argparse
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from random import Random

from goqueue.errors import GoQueueError
from goqueue.record import _kernel as kernel
from goqueue.testing import reference
from goqueue.testing.reference import Cursor, ReferenceFacts

FACTS = tuple(ReferenceFacts.__dataclass_fields__)
CASES_PER_BATCH = 25
COMPARED_CALLS = 11  # what `kernel_outcomes` yields
EXTREME_U16 = (0, 1, 2, 3, 4, 5, 255, 32_767, 32_768, 65_534, 65_535)
EXTREME_U32 = (0, 1, 33, 34, 0xFFFF, 0xFFFFFF, 0x1000000, 0x1000001, 0x7FFFFFFF, 0x80000000, 0xFFFFFFDE, 0xFFFFFFFF)
SEGMENT_START = Cursor(segment_base=0)
EXTREME_I64 = (0, 1, 4096, 2**32, 2**62, 2**63 - 2, 2**63 - 1, 2**63, 2**64 - 1)  # as unsigned bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One input with the arguments of every function that gets it."""

    data: bytes
    value_bytes_max: int = reference.VALUE_BYTES_MAX
    forbidden_flags: int = 0
    base_offset: int = 0
    timestamp_ns: int = 1
    force_timestamp: bool = False
    cursor: Cursor = SEGMENT_START
    allow_gaps: bool = False
    skip_flags: int = 0
    min_offset: int = 0
    max_offset: int = reference.OFFSET_END
    limit: int = -1
    allow_partial: bool = False
    position: int = 0
    wanted_ns: int = 0


# -- making inputs ----------------------------------------------------------------------------------------------


def random_batch(rng: Random) -> list[bytes]:
    """One to eight valid records with rising offsets; now and then enough bytes for several index entries."""
    offset = rng.choice((0, 0, 7, 1000, 2**40, 2**63 - 60))
    large = rng.random() < 0.02
    records = []
    for _ in range(rng.choice((1, 1, 2, 2, 3, 4, 8))):
        records.append(_random_record(rng, offset, value_max=6000 if large else 40))
        offset += 1 if rng.random() < 0.8 else rng.randrange(1, 5)
    return records


def _random_record(rng: Random, offset: int, value_max: int) -> bytes:
    flags = rng.choice((0, 0, 0, 0x01, 0x08, 0x18, 0x20, 0x40, 0x58, 0x61))
    headers = [
        (rng.randbytes(rng.choice((0, 1, 5))), rng.randbytes(rng.choice((0, 1, 9))))
        for _ in range(rng.choice((0, 0, 0, 1, 2, 5)))
    ]
    return reference.encode_record(
        rng.choice((None, b"", rng.randbytes(rng.randrange(value_max)))),
        rng.choice((None, b"", b"a", b"b", rng.randbytes(rng.randrange(12)))),
        headers,
        priority=rng.randrange(5),
        timestamp_ns=rng.choice((0, 1, 5, 1_700_000_000_000_000_000, rng.getrandbits(62))),
        flags=flags,
        offset=offset,
    )


def flip_bits(rng: Random, data: bytearray, start: int) -> None:
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def cut(rng: Random, data: bytearray, start: int) -> None:
    del data[rng.randrange(len(data)) :]


def insert(rng: Random, data: bytearray, start: int) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.choice((b"\0", b"\xff", b"G", b"GQ", b"GQ\x01", rng.randbytes(rng.randrange(1, 40))))


def delete(rng: Random, data: bytearray, start: int) -> None:
    at = rng.randrange(len(data))
    del data[at : at + rng.choice((1, 2, 8, 34, 50))]


def set_length(rng: Random, data: bytearray, start: int) -> None:
    at, size = rng.choice(((26, 2), (28, 4), (32, 2)))
    old = int.from_bytes(data[start + at : start + at + size], "big")
    extremes = EXTREME_U16 if size == 2 else EXTREME_U32
    new = rng.choice((*extremes, old + 1, old - 1, old + 34)) % (1 << 8 * size)
    data[start + at : start + at + size] = new.to_bytes(size, "big")


def shift_lengths(rng: Random, data: bytearray, start: int) -> None:
    """Move the borders between key, value and headers; the record keeps its size."""
    key, value, block = (int.from_bytes(data[start + a : start + b], "big") for a, b in ((26, 28), (28, 32), (32, 34)))
    total = min(key + value + block, 0xFFFFFFFF)
    key = min(rng.choice((0, key, rng.randint(0, total))), 0xFFFF)
    block = min(rng.choice((0, block, rng.randint(0, total - key))), 0xFFFF, total - key)
    lengths = key.to_bytes(2, "big") + (total - key - block).to_bytes(4, "big") + block.to_bytes(2, "big")
    data[start + 26 : start + 34] = lengths


def set_field(rng: Random, data: bytearray, start: int) -> None:
    at = rng.choice((0, 1, 2, 3, 3, 3, 24, 25))
    data[start + at] = rng.choice((0, 1, 2, 4, 5, 8, 0x10, 0x18, 0x80, 0xFF, rng.randrange(256)))


def set_number(rng: Random, data: bytearray, start: int) -> None:
    at = rng.choice((8, 16))
    data[start + at : start + at + 8] = rng.choice(EXTREME_I64).to_bytes(8, "big")


def set_inner_length(rng: Random, data: bytearray, start: int) -> None:
    """A u16 somewhere in the body: header counts and the lengths of names and values are there."""
    block = start + 34 + sum(int.from_bytes(data[start + a : start + b], "big") for a, b in ((26, 28), (28, 32)))
    at = block if rng.random() < 0.5 else block + rng.randrange(24)
    if at + 2 <= len(data):
        data[at : at + 2] = rng.choice((*EXTREME_U16, 6, 7, 8)).to_bytes(2, "big")


def repeat(rng: Random, data: bytearray, start: int) -> None:
    data += data[start : start + rng.randrange(1, 200)]


MUTATIONS: tuple[Callable[[Random, bytearray, int], None], ...] = (
    flip_bits, cut, insert, delete, set_length, set_length, shift_lengths, set_field, set_field, set_number,
    set_inner_length, set_inner_length, repeat,
)  # fmt: skip


def repair_checksums(data: bytearray) -> None:
    """Give every record that the lengths lead to a right checksum, so that only the other checks can refuse it."""
    at = 0
    while at + 34 <= len(data):
        lengths = (data[at + 26 : at + 28], data[at + 28 : at + 32], data[at + 32 : at + 34])
        end = at + 34 + sum(int.from_bytes(length, "big") for length in lengths)
        if end > len(data):
            return
        checksum = kernel.crc32c(data[at + 8 : end], kernel.crc32c(data[at : at + 4]))
        data[at + 4 : at + 8] = checksum.to_bytes(4, "big")
        at = end


def mutate(rng: Random, records: list[bytes]) -> bytes:
    roll = rng.random()
    if roll < 0.03:
        return rng.randbytes(rng.randrange(120))
    data = bytearray().join(records)
    if roll < 0.10:
        return bytes(data)
    if roll < 0.14:
        return b"".join(rng.choices(records, k=rng.randrange(1, 6)))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        start = rng.choice((0, len(records[0])))
        if start + 34 > len(data):
            start = 0
        if len(data) >= 34:
            rng.choice(MUTATIONS)(rng, data, start)
    if rng.random() < 0.6:
        repair_checksums(data)
    return bytes(data)


def random_case(rng: Random, records: list[bytes]) -> Case:
    first = int.from_bytes(records[0][8:16], "big")
    last = int.from_bytes(records[-1][8:16], "big")
    low = rng.choice((0, first, last, last + 1))
    position = rng.choice((0, 0, 100, 4000, 4096, 2**31, 2**32 - 70_000))
    return Case(
        data=mutate(rng, records),
        value_bytes_max=rng.choice((reference.VALUE_BYTES_MAX,) * 3 + (0, 10, 2**32 - 1)),
        forbidden_flags=rng.choice((0, 0, 0, 0x18, 0x20, 0x40, rng.randrange(256))),
        base_offset=rng.choice((0, first, first, first, last, 2**63 - 3)),
        timestamp_ns=rng.choice((0, 1, 1_800_000_000_000_000_000, 2**63 - 1)),
        force_timestamp=rng.random() < 0.3,
        cursor=Cursor(
            segment_base=rng.choice((0, first, max(first - 5, 0))),
            position=position,
            next_index_at=rng.choice((0, position, position + 1, position + 60, position + 4096)),
            max_timestamp_ns=rng.choice((-1, 3, 2**62)),
        ),
        allow_gaps=rng.random() < 0.5,
        skip_flags=rng.choice((0, 0, 0x28, 0x04, rng.randrange(256))),
        min_offset=low,
        max_offset=rng.choice((reference.OFFSET_END, reference.OFFSET_END, last, first, low)),
        limit=rng.choice((-1, -1, 0, 1, 2)),
        allow_partial=rng.random() < 0.5,
        position=rng.choice((0, 1, 34, 50, rng.randrange(200), -5, 2**63 - 1)),
        wanted_ns=rng.choice((0, 1, 2, 5, 6, 1_700_000_000_000_000_000, 2**62, 2**63 - 1)),
    )


# -- calling ----------------------------------------------------------------------------------------------------


def exact(data: bytes | bytearray) -> memoryview:
    """A writable copy in an allocation without the spare byte that bytes and bytearray have at their end."""
    return memoryview(array("B", data))


def outcome(call: Callable[[], object]) -> object:
    """What a call answers, or which error it raises with which context."""
    try:
        return call()
    except GoQueueError as error:
        return _described(error)


def _described(error: GoQueueError | None) -> object:
    return error and (type(error).__name__, sorted(error.context.items()))


def _facts(facts: kernel.BatchFacts | ReferenceFacts) -> dict[str, object]:
    return {name: getattr(facts, name) for name in FACTS}


def kernel_outcomes(case: Case) -> Iterator[tuple[str, object]]:
    data = exact(case.data)
    yield "verify", outcome(lambda: _facts(kernel.verify(data, case.value_bytes_max, case.forbidden_flags)))
    yield "stamp", _kernel_stamp(case)
    yield "scan", _kernel_scan(case, data)
    selected = (case.skip_flags, case.min_offset, case.max_offset)
    yield "decode", outcome(lambda: _records(kernel.decode(data, *selected, case.limit, case.allow_partial)))
    yield "columns", outcome(lambda: _columns(kernel.decode_columns(data, *selected, 1, case.allow_partial)))
    yield "resync", kernel.resync(data, case.position)
    yield "whole_records", kernel.whole_records(data, case.position)
    yield "find_offset", outcome(lambda: kernel.find_offset(data, case.min_offset))
    yield "find_timestamp", outcome(lambda: kernel.find_timestamp(data, case.wanted_ns, case.min_offset))
    yield "collect_delayed", outcome(lambda: _delayed(*kernel.collect_delayed(data, b"h", case.min_offset)))
    latest: dict[bytes, int] = {}
    yield "collect_keys", (outcome(lambda: kernel.collect_keys(data, latest)), latest)
    yield "retain_latest", outcome(lambda: bytes(kernel.retain_latest(data, latest, case.wanted_ns)))


def _kernel_stamp(case: Case) -> object:
    data, cursor = exact(case.data), _kernel_cursor(case.cursor)

    def call() -> object:
        return _facts(
            kernel.stamp(
                data, case.base_offset, case.timestamp_ns, cursor, case.value_bytes_max,
                case.forbidden_flags, case.force_timestamp,
            )
        )  # fmt: skip

    return outcome(call), data.tobytes(), _cursor(cursor)


def _kernel_scan(case: Case, data: memoryview) -> object:
    cursor = _kernel_cursor(case.cursor)
    facts, error = kernel.scan(data, case.base_offset, cursor, case.allow_gaps, case.value_bytes_max)
    return _facts(facts), _described(error), _cursor(cursor)


def _kernel_cursor(cursor: Cursor) -> kernel.IndexCursor:
    return kernel.IndexCursor(cursor.segment_base, cursor.position, cursor.next_index_at, cursor.max_timestamp_ns)


def _cursor(cursor: kernel.IndexCursor) -> Cursor:
    return Cursor(
        segment_base=cursor.segment_base,
        position=cursor.position,
        next_index_at=cursor.next_index_at,
        max_timestamp_ns=cursor.max_timestamp_ns,
    )


def _records(records: list[kernel.Record]) -> object:
    return [(r.offset, r.timestamp_ns, r.priority, r.flags, r.key, r.value, r.headers, r.raw()) for r in records]


def _delayed(pairs: bytes, controls: list[kernel.Record]) -> object:
    numbers = array("q", pairs).tolist()
    return list(zip(numbers[::2], numbers[1::2], strict=True)), [record.raw() for record in controls]


def _columns(columns: kernel.Columns) -> object:
    """The columns' numbers and the concatenated bytes; their Arrow form is compared in tests/record."""
    return (
        columns.count, columns.key_nulls, columns.value_nulls, columns.header_count, columns.consumed,
        columns.next_offset, array("q", columns.offset).tolist(), array("q", columns.timestamp).tolist(),
        columns.priority, columns.flags, columns.key_data, array("i", columns.key_offsets).tolist(),
        columns.value_data, array("i", columns.value_offsets).tolist(),
    )  # fmt: skip


def reference_outcomes(case: Case) -> Iterator[tuple[str, object]]:
    data = case.data
    yield "verify", outcome(lambda: asdict(reference.verify(data, case.value_bytes_max, case.forbidden_flags)))
    yield "stamp", _reference_stamp(case)
    yield "scan", _reference_scan(case)
    selected = (case.skip_flags, case.min_offset, case.max_offset)
    yield "decode", outcome(lambda: _expected(reference.decode(data, *selected, case.limit, case.allow_partial)))
    yield "columns", outcome(lambda: _expected_columns(reference.decode(data, *selected, -1, case.allow_partial)))
    yield "resync", reference.resync(data, case.position)
    yield "whole_records", reference.whole_records(data, case.position)
    yield "find_offset", outcome(lambda: reference.find_offset(data, case.min_offset))
    yield "find_timestamp", outcome(lambda: reference.find_timestamp(data, case.wanted_ns, case.min_offset))
    yield "collect_delayed", outcome(lambda: reference.collect_delayed(data, b"h", case.min_offset))
    latest: dict[bytes, int] = {}
    yield "collect_keys", (outcome(lambda: reference.collect_keys(data, latest)), latest)
    yield "retain_latest", outcome(lambda: reference.retain_latest(data, latest, case.wanted_ns))


def _reference_stamp(case: Case) -> object:
    try:
        stamped, facts, cursor = reference.stamp(
            case.data, case.base_offset, case.timestamp_ns, case.cursor, case.value_bytes_max,
            case.forbidden_flags, case.force_timestamp,
        )  # fmt: skip
    except GoQueueError as error:
        return _described(error), case.data, case.cursor
    return asdict(facts), stamped, cursor


def _reference_scan(case: Case) -> object:
    facts, error, cursor = reference.scan(
        case.data, case.base_offset, case.cursor, case.allow_gaps, case.value_bytes_max
    )
    return asdict(facts), _described(error), cursor


def _expected(selection: reference.Selection) -> object:
    return [
        (r.offset, r.timestamp_ns, r.priority, r.flags, r.key, r.value, r.headers, r.raw) for r in selection.records
    ]


def _expected_columns(selection: reference.Selection) -> object:
    records = selection.records
    keys, values = [r.key for r in records], [r.value for r in records]
    return (
        len(records), keys.count(None), values.count(None), sum(len(r.header_pairs) for r in records),
        selection.consumed, selection.next_offset, [r.offset for r in records], [r.timestamp_ns for r in records],
        bytes(r.priority for r in records), bytes(r.flags for r in records), *_joined(keys), *_joined(values),
    )  # fmt: skip


def _joined(parts: list[bytes | None]) -> tuple[bytes, list[int]]:
    ends = [0]
    for part in parts:
        ends.append(ends[-1] + len(part or b""))
    return b"".join(part or b"" for part in parts), ends


def differences(case: Case) -> list[str]:
    """Where kernel and reference disagree, one line for each function."""
    pairs = zip(kernel_outcomes(case), reference_outcomes(case), strict=True)
    return [f"{name}: kernel {ours!r}, reference {theirs!r}" for (name, ours), (_, theirs) in pairs if ours != theirs]


# -- crash safety only ------------------------------------------------------------------------------------------


def call_all(case: Case) -> int:
    """Every function, answers thrown away; also with what the comparison leaves out. Returns the calls made."""
    data, cursor = exact(case.data), _kernel_cursor(case.cursor)
    selected = (case.skip_flags, case.min_offset, case.max_offset)
    latest: dict[bytes, int] = {}
    calls: tuple[Callable[[], object], ...] = (
        lambda: kernel.verify(data, case.value_bytes_max, case.forbidden_flags),
        lambda: kernel.scan(data, case.base_offset, cursor, case.allow_gaps, case.value_bytes_max),
        lambda: _records(kernel.decode(data, *selected, case.limit, case.allow_partial)),
        lambda: kernel.decode_columns(data, *selected, 1000, case.allow_partial),
        lambda: kernel.resync(data, case.position),
        lambda: kernel.whole_records(data, case.position),
        lambda: kernel.find_offset(data, case.min_offset),
        lambda: kernel.find_timestamp(data, case.wanted_ns, case.min_offset),
        lambda: kernel.collect_delayed(data, b"h", case.min_offset),
        lambda: kernel.collect_keys(data, latest),
        lambda: kernel.retain_latest(data, latest, case.wanted_ns),
        lambda: kernel.index_floor(data, case.min_offset),
        lambda: kernel.index_floor(data, case.wanted_ns, True),
        lambda: kernel.index_entry(data, case.position),
        lambda: kernel.index_entry(data, len(data) // 16 - 1),
        lambda: kernel.crc32c(data, case.value_bytes_max),
        lambda: kernel.stamp(data, case.base_offset, case.timestamp_ns, cursor, case.value_bytes_max),
    )
    for call in calls:
        outcome(call)
    return len(calls)


def index_differences(rng: Random) -> list[str]:
    """Index search over entries of which none, or one, is damaged."""
    keys = sorted(rng.choices((0, 1, 2, 50, 2**33, 2**62, 2**63 - 1), k=rng.randrange(9)))
    whole = b"".join(reference.index_entry_bytes(key, 10 * number) for number, key in enumerate(keys))
    torn = whole + rng.randbytes(rng.randrange(16))
    wanted = rng.choice((*keys, 0, 3, 2**40))
    found = []
    floor = sum(key <= wanted for key in keys) - 1
    if kernel.index_floor(exact(torn), wanted) != floor:
        found.append(f"index_floor of {wanted} in {torn.hex()}")
    if kernel.index_floor(exact(torn), 25, True) != min(2, len(keys) - 1):
        found.append(f"index_floor by position in {torn.hex()}")
    if whole:
        damaged, bit = bytearray(whole), rng.randrange(8 * len(whole))
        damaged[bit // 8] ^= 1 << bit % 8
        entries = [kernel.index_entry(exact(damaged), number) for number in range(-1, len(keys) + 1)]
        expected = [None, *((key, 10 * number) for number, key in enumerate(keys)), None]
        expected[1 + bit // 128] = None
        if entries != expected or kernel.index_floor(exact(damaged), wanted) not in (-2, floor):
            found.append(f"index_entry in {damaged.hex()}")
    return found


# -- running ----------------------------------------------------------------------------------------------------


class Fuzzer:
    """Runs cases of one seed; `inputs` and `calls` count what the kernel got."""

    def __init__(self, seed: int, *, compare: bool = True) -> None:
        self.seed = seed
        self.inputs = 0
        self.calls = 0
        self._compare = compare

    def run_round(self) -> str | None:
        """One batch in all its broken forms; the report of the first difference, or None.

        Rounds are seeded one by one, so a report is reproduced without what came before it."""
        round_seed = f"{self.seed}/{self.inputs // CASES_PER_BATCH}"
        rng = Random(round_seed)
        records = random_batch(rng)
        for _ in range(CASES_PER_BATCH):
            case = random_case(rng, records)
            self.inputs += 1
            if not self._compare:
                self.calls += call_all(case)
                continue
            self.calls += COMPARED_CALLS
            if found := differences(case):
                return "\n".join((f"round {round_seed}", *found, f"case {case!r}", f"input {case.data.hex()}"))
        problems = index_differences(rng)
        self.calls += 4
        return "\n".join((f"round {round_seed}", *problems)) if problems else None


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m goqueue.testing.fuzz", description="Fuzz the native kernel.")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to run")
    parser.add_argument("--seed", type=int, default=None, help="the run to repeat (default: from the clock)")
    parser.add_argument("--no-compare", action="store_true", help="only look for crashes, much faster")
    parser.add_argument("--software-crc", action="store_true", help="use the table form of CRC32C")
    options = parser.parse_args(arguments)
    if options.software_crc:
        kernel.use_hardware_crc(False)
    seed = time.time_ns() if options.seed is None else options.seed
    fuzzer = Fuzzer(seed, compare=not options.no_compare)
    print(f"seed {seed}, compare {not options.no_compare}, hardware crc {kernel.hardware_crc}", flush=True)
    start = shown = time.monotonic()
    while (now := time.monotonic()) - start < options.seconds:
        if report := fuzzer.run_round():
            print(f"DIFFERENCE, seed {seed}\n{report}", flush=True)
            return 1
        if now - shown >= 10:
            shown = now
            print(f"{now - start:6.0f} s  {fuzzer.inputs:,} inputs  {fuzzer.calls:,} calls", flush=True)
    print(f"done: {fuzzer.inputs:,} inputs, {fuzzer.calls:,} calls, no difference, seed {seed}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
