"""The record kernel on one batch of 1000 records of 100 bytes, in memory.

Baselines: what the same bytes cost when they are only copied and checksummed, and the plain-Python oracle of the tests.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from unittest.mock import patch

import crc32c as crc32c_package
import pyarrow as pa

from bench.loads import VALUE_BYTES, make_batch
from bench.measurement import Measurement, Target
from bench.registry import case
from bench.rounds import interleave, pinned, time_calls
from bench.workspace import Workspace
from goqueue.record import BatchBuilder, IndexCursor, crc32c, decode, decode_columns, stamp, verify
from goqueue.record.arrow import arrow_schema, decode_arrow
from goqueue.testing import reference

RECORDS = 1000
NOW_NS = 1_700_000_000_000_000_000

COPY_AND_CRC = "memcpy + crc32c"
COPY_AND_CRC_3 = "memcpy + crc32c package"
NATIVE = ("stamp", "verify", "encode", "decode to Arrow buffers", "decode to Arrow", "decode to objects")
# What the issue gives a target for; the others are for the record.
TARGETED = ("stamp", "decode to Arrow buffers", "decode to Arrow")
Action = Callable[[], object]


@case("1000 records of 100 bytes against memcpy + CRC32C")
def against_memcpy(workspace: Workspace) -> Iterator[Measurement]:
    native = NativeActions()
    calls = workspace.sized(30, 3)
    sides = {name: lambda action=action: time_calls(action, calls=calls) for name, action in native.bare().items()}
    sides |= {name: lambda name=name: native.time(name, calls) for name in NATIVE}
    with pinned():
        rounds = workspace.sized(60, 2)
        figures = interleave(sides, rounds=rounds, progress=workspace.progress, label="kernel")
    for name in NATIVE:
        yield Measurement.against(
            name,
            _per_record(figures[name]),
            _per_record(figures[COPY_AND_CRC]),
            unit="ns/record",
            baseline_name=COPY_AND_CRC,
            target=Target(at_most=3) if name in TARGETED else None,
        )
    for name in TARGETED:
        yield Measurement.against(
            name,
            _per_record(figures[name]),
            _per_record(figures[COPY_AND_CRC_3]),
            unit="ns/record",
            baseline_name=COPY_AND_CRC_3,
            note="the package checksums three stretches at once; records are checksummed one by one",
        )


@case("the same against the plain-Python reference")
def against_python(workspace: Workspace) -> Iterator[Measurement]:
    native, plain = NativeActions(), reference_actions()
    calls, rounds = workspace.sized(10, 1), workspace.sized(5, 1)
    sides = {name: lambda name=name: native.time(name, calls) for name in plain}
    sides |= {f"{name}, Python": lambda action=action: _time_plain(action) for name, action in plain.items()}
    sides |= {f"{name}, fast CRC": lambda action=action: _time_plain_fast_crc(action) for name, action in plain.items()}
    with pinned():
        figures = interleave(sides, rounds=rounds, progress=workspace.progress, label="kernel")
    for suffix, label in (("Python", "reference"), ("fast CRC", "reference, C checksum")):
        for name in plain:
            times = zip(figures[name], figures[f"{name}, {suffix}"], strict=True)
            speedups = [python / ours for ours, python in times]
            yield Measurement(
                name=f"{name}, speedup over {label}",
                value=statistics.median(speedups),
                unit="x",
                target=Target(at_least=20) if name in TARGETED and suffix == "Python" else None,
                note=f"reference: {statistics.median(figures[f'{name}, {suffix}']) / RECORDS:,.0f} ns/record",
            )


def _per_record(figures_ns: list[float]) -> list[float]:
    return [figure / RECORDS for figure in figures_ns]


class NativeActions:
    """Every operation on the same batch. Stamping changes it, so it gets its bytes back, untimed, before each call."""

    def __init__(self) -> None:
        self._template = bytes(make_batch(RECORDS))
        self._work = bytearray(self._template)
        stamped = bytearray(self._template)
        stamp(stamped, 0, NOW_NS, IndexCursor(0))
        self._stamped = bytes(stamped)
        self._values = [record.value for record in decode(self._stamped)]
        self._actions: dict[str, Action] = {
            "stamp": lambda: stamp(self._work, 0, NOW_NS, IndexCursor(0)),
            "verify": lambda: verify(self._stamped),
            "encode": self._encode,
            "decode to Arrow buffers": lambda: decode_columns(self._stamped),
            "decode to Arrow": lambda: decode_arrow(self._stamped),
            "decode to objects": lambda: decode(self._stamped),
        }

    def time(self, name: str, calls: int) -> float:
        return time_calls(self._actions[name], calls=calls, before=self._restore if name == "stamp" else None)

    def bare(self) -> dict[str, Action]:
        source, target = memoryview(self._stamped), memoryview(bytearray(len(self._stamped)))

        def copy_and_crc() -> None:
            target[:] = source
            crc32c(source)

        def copy_and_crc_3() -> None:
            target[:] = source
            crc32c_package.crc32c(source)

        return {COPY_AND_CRC: copy_and_crc, COPY_AND_CRC_3: copy_and_crc_3}

    def _restore(self) -> None:
        self._work[:] = self._template

    def _encode(self) -> bytearray:
        builder = BatchBuilder()
        builder.extend(self._values)
        return builder.take()


def reference_actions() -> dict[str, Action]:
    template = bytes(make_batch(RECORDS, value_bytes=VALUE_BYTES))
    stamped = reference.stamp(template, 0, NOW_NS, reference.Cursor(segment_base=0))[0]
    return {
        "stamp": lambda: reference.stamp(template, 0, NOW_NS, reference.Cursor(segment_base=0)),
        "verify": lambda: reference.verify(stamped),
        "decode to Arrow": lambda: _reference_arrow(stamped),
        "decode to objects": lambda: reference.decode(stamped),
    }


def _reference_arrow(batch: bytes) -> pa.RecordBatch:
    records = reference.decode(batch).records
    columns = [
        [record.offset for record in records],
        [record.timestamp_ns for record in records],
        [record.priority for record in records],
        [record.flags for record in records],
        [record.key for record in records],
        [record.value for record in records],
        [record.header_pairs for record in records],
    ]
    schema = arrow_schema()
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _time_plain(action: Action) -> float:
    # The oracle remembers checksums for the fuzzer's sake; here every one is to be computed.
    return time_calls(action, calls=1, before=reference.crc32c.cache_clear)


def _time_plain_fast_crc(action: Action) -> float:
    """The checksum alone makes the oracle slow; with a C one it is what one would write without a kernel."""
    with patch.object(reference, "crc32c", crc32c_package.crc32c):
        return time_calls(action, calls=3)
