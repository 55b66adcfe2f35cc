"""Publishing over HTTP from raw sockets with prebuilt requests, so that the client costs as little as it can."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import cast
from urllib.parse import urlsplit

from bench.broker import run, running_broker
from bench.measurement import Measurement, Target
from bench.registry import case
from bench.workspace import Workspace
from goqueue.client import Client

CONNECTIONS = 32


@case("POST /topics/t/messages, 32 keep-alive connections, acks=leader", durability="page cache; fdatasync within 1 s")
def publish(workspace: Workspace) -> Iterator[Measurement]:
    seconds = workspace.sized(5.0, 0.3)
    with running_broker(workspace) as broker:
        run(_create(broker.wire))
        workspace.progress("http: single messages")
        single = run(_load(broker.http, 1, seconds))
        workspace.progress("http: batches of 1000")
        batches = run(_load(broker.http, 1_000, seconds))
    yield Measurement(name="single messages", value=single, unit="req/s", target=Target(at_least=18_000))
    yield Measurement(name="batches of 1000", value=batches / 1e3, unit="M msg/s", target=Target(at_least=2.0))


async def _create(address: str) -> None:
    async with Client(address) as client:
        await client.create_topic("t", partitions=1)


class _Poster(asyncio.Protocol):
    """Sends the same request again as soon as it is answered."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._rest = b""
        self.answers = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._rest += data
        head, found, body = self._rest.partition(b"\r\n\r\n")
        if not found:
            return
        assert head.startswith(b"HTTP/1.1 200"), head[:80]
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        if len(body) >= length:
            self._rest = body[length:]
            self.answers += 1
            self._transport.write(self._request)


async def _load(address: str, count: int, seconds: float) -> float:
    """Requests per second; thousands of messages per second for batches of a thousand."""
    target = urlsplit(address)
    body = json.dumps({"messages": [{"value": "x" * 100}] * count, "acks": "leader"}).encode()
    head = (
        "POST /topics/t/messages HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    loop = asyncio.get_running_loop()
    posters = []
    for _ in range(CONNECTIONS if count == 1 else 4):
        _, poster = await loop.create_connection(lambda: _Poster(head.encode() + body), target.hostname, target.port)
        posters.append(poster)
    start = time.perf_counter()
    await asyncio.sleep(seconds)
    answers = sum(poster.answers for poster in posters)
    return answers / (time.perf_counter() - start)
