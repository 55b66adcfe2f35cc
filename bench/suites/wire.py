"""Producing over the native protocol, two processes on two cores, against a bare pipe of the same frames."""

from __future__ import annotations

import contextlib
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from bench.broker import run, running_broker
from bench.loads import make_batch
from bench.machine import REPOSITORY
from bench.measurement import Measurement, Target
from bench.registry import case
from bench.rounds import interleave
from bench.workspace import Workspace
from goqueue.client import Client
from goqueue.protocol import wire
from goqueue.protocol.wire import Api

IN_FLIGHT = 100
RECORDS = 100
REPLY_BYTES = wire.PRODUCE_REPLY.size


@case("100 x 100 B batches, one connection, 100 in flight, acks=leader", durability="page cache; fdatasync within 1 s")
def leader(workspace: Workspace) -> Iterator[Measurement]:
    yield from _compare(workspace, acks=1, pipe="plain")


@case("100 x 100 B batches, one connection, 100 in flight, acks=all", durability="fdatasync before the answer")
def durable(workspace: Workspace) -> Iterator[Measurement]:
    yield from _compare(workspace, acks=2, pipe="durable")


def _compare(workspace: Workspace, *, acks: int, pipe: str) -> Iterator[Measurement]:
    frames = workspace.sized(20_000, 200)
    with running_broker(workspace) as broker, _bare_pipe(workspace, pipe) as port:
        run(_create(broker.wire))
        host, _, number = broker.wire.rpartition(":")
        frame = wire.frame(Api.PRODUCE, 7, bytes((acks, 0)) + wire.route("t", 0) + bytes(make_batch(RECORDS)))
        with _connect(host, int(number), greet=True) as ours, _connect("127.0.0.1", port, greet=False) as bare:
            sides = {"pipe": lambda: _blast(bare, frame, frames), "broker": lambda: _blast(ours, frame, frames)}
            figures = interleave(sides, rounds=workspace.sized(7, 1), progress=workspace.progress, label="wire")
    yield Measurement.against(
        "produce",
        figures["broker"],
        figures["pipe"],
        unit="MB/s",
        baseline_name="bare socket-to-file pipe" + (" with fdatasync" if pipe == "durable" else ""),
        target=Target(at_least=0.5),
        note=f"{statistics.median(figures['broker']) * 1e6 / len(frame) * RECORDS:,.0f} records/s",
    )


async def _create(address: str) -> None:
    async with Client(address) as client:
        await client.create_topic("t", partitions=1)


@contextlib.contextmanager
def _bare_pipe(workspace: Workspace, form: str) -> Iterator[int]:
    path = os.path.join(workspace.path, "pipe")
    command = [sys.executable, "-m", "bench.pipe", path, form]
    process = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


@contextlib.contextmanager
def _connect(host: str, port: int, *, greet: bool) -> Iterator[socket.socket]:
    with socket.create_connection((host, port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if greet:
            connection.sendall(wire.hello("bench"))
            length = int.from_bytes(_take(connection, 4), "big")
            _take(connection, length)
        yield connection


def _take(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        data += connection.recv(count - len(data))
    return bytes(data)


def _blast(connection: socket.socket, frame: bytes, frames: int) -> float:
    """Keep `IN_FLIGHT` requests on their way; every answer has the same size."""
    several = 10
    block, sent, answered = frame * several, 0, 0
    start = time.perf_counter()
    while answered < frames:
        while sent < frames and sent - answered < IN_FLIGHT:
            connection.sendall(block)
            sent += several
        answers = _take(connection, REPLY_BYTES * several)
        assert answers[6:8] == b"\0\0", "a request was refused"
        answered += several
    return frames * len(frame) / (time.perf_counter() - start) / 1e6
