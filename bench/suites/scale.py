"""Many of a thing: idle connections, topics."""

from __future__ import annotations

import asyncio
import resource
import shutil
import socket
import time
from collections.abc import Iterator

from bench.broker import run, running_broker
from bench.measurement import Measurement, Target
from bench.registry import case
from bench.workspace import Workspace
from goqueue.client import Client
from goqueue.protocol import wire


@case("idle connections that have greeted")
def connections(workspace: Workspace) -> Iterator[Measurement]:
    count = workspace.sized(10_000, 50)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with running_broker(workspace) as broker:
        host, _, port = broker.wire.rpartition(":")
        before = broker.rss_bytes()
        held = []
        try:
            for number in range(count):
                held.append(_greeted(host, int(port)))
                if number % 500 == 0:
                    workspace.progress(f"scale: {number} connections")
            grown = (broker.rss_bytes() - before) / 1e6
        finally:
            for connection in held:
                connection.close()
    yield Measurement(name=f"memory of {count:,} connections", value=grown, unit="MB", target=Target(at_most=50.0))


def _greeted(host: str, port: int) -> socket.socket:
    connection = socket.create_connection((host, port))
    connection.sendall(wire.hello("idle"))
    assert connection.recv(4096)
    return connection


@case("topics of 3 partitions", durability="every topic durable before its answer")
def topics(workspace: Workspace) -> Iterator[Measurement]:
    count = workspace.sized(1_000, 10)
    data = workspace.directory("topics")
    try:
        with running_broker(workspace, keep=data) as broker:
            workspace.progress("scale: creating topics")
            start = time.perf_counter()
            run(_create(broker.wire, count))
            created = time.perf_counter() - start
        start = time.perf_counter()
        with running_broker(workspace, keep=data):
            reopened = time.perf_counter() - start
    finally:
        shutil.rmtree(data, ignore_errors=True)
    yield Measurement(name=f"create {count:,}", value=created, unit="s", target=Target(at_most=30.0))
    yield Measurement(name="reopen, from start to ready", value=reopened, unit="s", target=Target(at_most=5.0))


async def _create(address: str, count: int) -> None:
    async with Client(address) as client:
        for start in range(0, count, 50):
            await asyncio.gather(*(client.create_topic(f"t{n}") for n in range(start, min(start + 50, count))))
