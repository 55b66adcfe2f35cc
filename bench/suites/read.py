"""Sequential reading of a sealed segment into Arrow, everything in the page cache."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator

from bench.loads import build_log, log_config
from bench.measurement import Measurement, Target
from bench.registry import case
from bench.rounds import interleave, pinned
from bench.workspace import Workspace
from goqueue.host import OsDisk
from goqueue.record.arrow import decode_arrow
from goqueue.storage import Log

MIB = 1 << 20


@case("one sealed 64 MiB segment into Arrow, page cache warm")
def sealed_segment(workspace: Workspace) -> Iterator[Measurement]:
    path = workspace.directory("read")
    segment_bytes = workspace.sized(64 * MIB, MIB)
    build_log(path, segment_count=2, segment_bytes=segment_bytes, progress=workspace.progress)
    log = Log.open(OsDisk(), path, log_config(segment_bytes))
    rounds = workspace.sized(15, 1)
    try:
        for chunk in workspace.sized((1 * MIB, 2 * MIB, 4 * MIB), (MIB // 4,)):
            sides = {
                "pread": lambda chunk=chunk: _bare_reads(log, chunk),
                "Arrow": lambda chunk=chunk: _arrow_reads(log, chunk),
            }
            with pinned():
                interleave(sides, rounds=1, progress=workspace.progress, label="read.sealed_segment, warm-up")
                figures = interleave(sides, rounds=rounds, progress=workspace.progress, label="read.sealed_segment")
            yield Measurement.against(
                f"locate + read + decode, {chunk // 1024} KiB at a time",
                figures["Arrow"],
                figures["pread"],
                unit="MB/s",
                baseline_name="os.pread of the same size",
                target=Target(at_least=0.3),
            )
    finally:
        log.close()
        shutil.rmtree(path)


def _bare_reads(log: Log, chunk: int) -> float:
    segment = log.sealed_segments[0]
    fd = os.open(segment.path, os.O_RDONLY)
    try:
        start = time.perf_counter()
        for position in range(0, segment.size_bytes, chunk):
            os.pread(fd, chunk, position)
        seconds = time.perf_counter() - start
    finally:
        os.close(fd)
    return segment.size_bytes / seconds / 1e6


def _arrow_reads(log: Log, chunk: int) -> float:
    segment = log.sealed_segments[0]
    offset = segment.base_offset
    start = time.perf_counter()
    while offset < segment.next_offset:
        batch = decode_arrow(log.locate(offset, chunk).read())
        offset = batch.column(0)[-1].as_py() + 1
    seconds = time.perf_counter() - start
    assert offset == segment.next_offset
    return segment.size_bytes / seconds / 1e6
