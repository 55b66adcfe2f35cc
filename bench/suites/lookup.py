"""Finding a record by offset and by time in a log of 10 GiB and more, page cache warm, in a process of its own.

"Any segment" goes to a random segment each time, "one segment" stays in one, as a reader does. Every place is looked up
once before the clock runs: the kernel gives pages that nobody touches back to the disk, and this is not about disks.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

from bench.child import memory_bytes, run_child
from bench.loads import START_NS, STEP_NS, log_config
from bench.measurement import Latency, Measurement, Target
from bench.registry import case
from bench.rounds import pinned
from bench.workspace import GIB, Workspace
from goqueue.host import OsDisk
from goqueue.storage import Log

P99_US_MAX = 50
FETCH_BYTES = 1 << 20


@case("lookups in a large log, page cache warm")
def large_log(workspace: Workspace) -> Iterator[Measurement]:
    path = workspace.large_log()
    workspace.progress("lookup.large_log: looking up")
    found = run_child(look_up, path=path, count=workspace.sized(100_000, 200))
    where = f"{found['size_bytes'] / GIB:.1f} GiB, {found['segments']} segments, {found['entries']:,} index entries"
    for name in ("offset, any segment", "time, any segment", "offset, one segment", "time, one segment"):
        latency = Latency(**found[name])
        yield Measurement(
            name=f"by {name}, p99",
            value=latency.p99_us,
            unit="us",
            latency=latency,
            target=Target(at_most=P99_US_MAX),
            note=where,
        )
    for field, meaning in (("Anonymous", "own memory"), ("Rss", "resident, file pages included")):
        yield Measurement(
            name=f"growth by lookups: {meaning}",
            value=found["grown"][field] / 1e6,
            unit="MB",
            note=f"index files: {found['index_bytes'] / 1e6:.0f} MB",
        )


def look_up(path: str, count: int) -> dict[str, Any]:
    """Runs in a child, so that what grows is the lookups'."""
    log = Log.open(OsDisk(), path, log_config())
    source = random.Random(1)
    end, batches = log.log_end_offset, log.log_end_offset // 500
    low, high = log.sealed_segments[0].base_offset, log.sealed_segments[0].next_offset
    offsets = {"any": [source.randrange(end) for _ in range(count)]}
    offsets["one"] = [source.randrange(low, high) for _ in range(count)]
    times = {"any": [START_NS + source.randrange(batches) * STEP_NS for _ in range(count)]}
    times["one"] = [START_NS + source.randrange(high // 500) * STEP_NS for _ in range(count)]
    samples = [0] * count
    # Touches what the first lookup brings in once and for all, code pages above all.
    log.locate(0, FETCH_BYTES)
    log.offset_at_time(START_NS)
    before = memory_bytes()
    found: dict[str, Any] = {}
    with pinned():
        for where in ("any", "one"):
            _time_each(lambda offset: log.locate(offset, FETCH_BYTES), offsets[where], samples)
            found[f"offset, {where} segment"] = _latency(samples)
            _time_each(log.offset_at_time, times[where], samples)
            found[f"time, {where} segment"] = _latency(samples)
    after = memory_bytes()
    entries = sum(segment.offset_index.count for segment in log.segments)
    found |= {
        "size_bytes": log.size_bytes,
        "segments": len(log.segments),
        "entries": entries,
        "index_bytes": entries * 32,
        "grown": {field: after[field] - before[field] for field in before},
    }
    log.close()
    return found


def _time_each(lookup: Callable[[int], object], keys: list[int], samples: list[int]) -> None:
    clock = time.perf_counter_ns
    for key in keys:
        lookup(key)
    for number, key in enumerate(keys):
        start = clock()
        lookup(key)
        samples[number] = clock() - start


def _latency(samples: list[int]) -> dict[str, float]:
    latency = Latency.of(samples)
    return {name: getattr(latency, name) for name in Latency.__slots__}
