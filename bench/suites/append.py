"""Appending through the real log on the real disk: batches of 100 records of 100 bytes, stamped afresh each."""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator

from bench.loads import log_config, make_batch
from bench.measurement import Latency, Measurement, Target
from bench.registry import case
from bench.rounds import interleave
from bench.workspace import Workspace
from goqueue.errors import GoQueueError
from goqueue.host import OsClock, OsDisk
from goqueue.storage import GroupCommit, Log, TurnWriter

BATCH_RECORDS = 100
CALLERS = 64
SYNC_WITHIN_MS = 1000


@case("100 x 100 B batches, acks=leader", durability="page cache; fdatasync within 1000 ms")
def leader(workspace: Workspace) -> Iterator[Measurement]:
    total_bytes = workspace.sized(1 << 30, 4 << 20)
    sides = {
        "os.write": lambda: _bare_writes(workspace, total_bytes),
        "log": lambda: _log_appends(workspace, total_bytes),
    }
    figures = interleave(sides, rounds=workspace.sized(9, 1), progress=workspace.progress, label="append.leader")
    yield Measurement.against(
        "append",
        figures["log"],
        figures["os.write"],
        unit="MB/s",
        baseline_name="os.write of the same bytes",
        target=Target(at_least=0.5),
        note=f"{statistics.median(figures['log']) * 1e6 / len(make_batch(1)):,.0f} records/s",
    )


def _bare_writes(workspace: Workspace, total_bytes: int) -> float:
    path = os.path.join(workspace.path, "bare")
    batch = make_batch(BATCH_RECORDS)
    count = total_bytes // len(batch)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND)
    try:
        start = time.perf_counter()
        for _ in range(count):
            os.write(fd, batch)
        seconds = time.perf_counter() - start
    finally:
        os.close(fd)
        os.unlink(path)
    return count * len(batch) / seconds / 1e6


def _log_appends(workspace: Workspace, total_bytes: int) -> float:
    path = workspace.directory("leader")
    batch = make_batch(BATCH_RECORDS)
    count = total_bytes // len(batch)
    posted: deque[Callable[[], None]] = deque()
    commit = GroupCommit(post=posted.append, clock=OsClock(), sync_within_ms=SYNC_WITHIN_MS)
    log = Log.open(OsDisk(), path, log_config())
    try:
        start = time.perf_counter()
        for _ in range(count):
            # The same buffer again: verified, given new offsets and checksums as any batch; it keeps its timestamps.
            log.append(batch, now_ns=time.time_ns())
            commit.note_write(log)
            while posted:
                posted.popleft()()
        seconds = time.perf_counter() - start
        assert log.log_end_offset == count * BATCH_RECORDS
    finally:
        commit.forget(log)
        commit.close()
        log.close()
        shutil.rmtree(path)
    return count * len(batch) / seconds / 1e6


@case("100 x 100 B batches, acks=all, 64 callers", durability="fdatasync before the answer")
def all_replicas(workspace: Workspace) -> Iterator[Measurement]:
    groups = workspace.sized(400, 4)
    callers = {"one write per turn": TurnCallers(), "a write each": AppendEach()}
    sides = {
        "write + fdatasync": lambda: _bare_groups(workspace, groups, _write_each),
        "writev + fdatasync": lambda: _bare_groups(workspace, groups, os.writev),
    }
    sides |= {name: lambda way=way: _run_callers(workspace, groups, way) for name, way in callers.items()}
    figures = interleave(sides, rounds=workspace.sized(15, 1), progress=workspace.progress, label="append.all_replicas")
    for name, way in callers.items():
        yield Measurement.against(
            f"append and wait, {name}",
            figures[name],
            figures["write + fdatasync"],
            unit="MB/s",
            baseline_name="64 writes + fdatasync",
            target=Target(at_least=0.6) if name == "one write per turn" else None,
            latency=Latency.of(way.latencies_ns),
            note=f"{statistics.median(way.syncs_per_group):.2f} syncs per 64 batches",
        )
    yield Measurement.against(
        "one write per turn against writev",
        figures["one write per turn"],
        figures["writev + fdatasync"],
        unit="MB/s",
        baseline_name="writev of 64 batches + fdatasync",
    )


def _write_each(fd: int, batches: list[bytearray]) -> None:
    for batch in batches:
        os.write(fd, batch)


def _bare_groups(workspace: Workspace, groups: int, write: Callable[[int, list[bytearray]], object]) -> float:
    path = os.path.join(workspace.path, "bare")
    batches = [make_batch(BATCH_RECORDS)] * CALLERS
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND)
    try:
        start = time.perf_counter()
        for _ in range(groups):
            write(fd, batches)
            os.fdatasync(fd)
        seconds = time.perf_counter() - start
    finally:
        os.close(fd)
        os.unlink(path)
    return groups * CALLERS * len(batches[0]) / seconds / 1e6


def _run_callers(workspace: Workspace, groups: int, way: AppendEach | TurnCallers) -> float:
    path = workspace.directory("all")
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        seconds = runner.run(_call(path, groups, way))
    shutil.rmtree(path)
    return groups * CALLERS * len(make_batch(BATCH_RECORDS)) / seconds / 1e6


async def _call(path: str, appends: int, way: AppendEach | TurnCallers) -> float:
    loop = asyncio.get_running_loop()
    commit = GroupCommit(post=loop.call_soon_threadsafe, clock=OsClock(), sync_within_ms=SYNC_WITHIN_MS)
    log = Log.open(OsDisk(), path, log_config())
    way.begin(loop, log, commit)
    template = bytes(make_batch(BATCH_RECORDS))

    async def caller() -> None:
        batch = bytearray(template)
        for _ in range(appends):
            batch[:] = template
            began = time.perf_counter_ns()
            await way.append(batch)
            way.latencies_ns.append(time.perf_counter_ns() - began)

    try:
        start = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(CALLERS):
                tasks.create_task(caller())
        seconds = time.perf_counter() - start
        assert log.synced_offset == appends * CALLERS * BATCH_RECORDS
        way.syncs_per_group.append(log.statistics().sync_count / appends)
        return seconds
    finally:
        commit.forget(log)
        commit.close()
        log.close()


class AppendEach:
    """Every caller writes its own batch and waits until that is durable."""

    def __init__(self) -> None:
        self.latencies_ns: list[int] = []
        self.syncs_per_group: list[float] = []

    def begin(self, loop: asyncio.AbstractEventLoop, log: Log, commit: GroupCommit) -> None:
        self._loop, self._log, self._commit = loop, log, commit

    def append(self, batch: bytearray) -> asyncio.Future[None]:
        facts = self._log.append(batch, now_ns=time.time_ns())
        return self._durable(facts.next_offset)

    def _durable(self, offset: int) -> asyncio.Future[None]:
        durable = self._loop.create_future()
        self._commit.wait(self._log, offset, lambda error: _settle(durable, error))
        return durable


class TurnCallers(AppendEach):
    """What callers append in one turn of the loop is written with one call at its end, as the broker does it."""

    def begin(self, loop: asyncio.AbstractEventLoop, log: Log, commit: GroupCommit) -> None:
        super().begin(loop, log, commit)
        self._writer = TurnWriter(log, commit, soon=loop.call_soon)

    def append(self, batch: bytearray) -> asyncio.Future[None]:
        durable = self._loop.create_future()
        self._writer.append(batch, lambda error: _settle(durable, error), now_ns=time.time_ns(), durable=True)
        return durable


def _settle(durable: asyncio.Future[None], error: GoQueueError | None) -> None:
    if error is None:
        durable.set_result(None)
    else:
        durable.set_exception(error)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
