"""A broker with its HTTP port, in a thread of its own, and real sockets to it."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from goqueue.broker import BrokerApi, BrokerConfig
from goqueue.frontends.http import HttpConfig, HttpServer
from goqueue.host import OsClock, OsDisk, OsEntropy

T = TypeVar("T")
DEADLINE_S = 10.0


class RunningServer:
    """The broker belongs to the event loop of its thread; `run` and `call` bring work there."""

    def __init__(self, path: Path, http: HttpConfig, broker: BrokerConfig) -> None:
        self.path = path
        self._configs = http, broker
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.broker, self.server = self.run(self._open())
        self.host, self.port = self.server.address
        self.url = f"http://{self.host}:{self.port}"
        self.client = httpx.Client(base_url=self.url, timeout=DEADLINE_S)

    async def _open(self) -> tuple[BrokerApi, HttpServer]:
        http, config = self._configs
        disk = OsDisk()
        broker = await BrokerApi.open(
            disk=disk, path=str(self.path), clock=OsClock(), entropy=OsEntropy(), config=config
        )
        server = HttpServer(broker, http)
        await server.start()
        return broker, server

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE_S)

    def call(self, function: Callable[[], T]) -> T:
        async def called() -> T:
            return function()

        return self.run(called())

    def wait_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not self.call(condition):
            assert time.monotonic() < deadline, "the condition did not come true in time"

    def topic(self, name: str, partitions: int = 1, **config: object) -> str:
        answer = self.client.post("/topics", json={"name": name, "num_partitions": partitions, "config": config})
        assert answer.status_code == 201, answer.text
        return name

    def publish(self, topic: str, *messages: dict[str, Any], acks: str = "leader") -> httpx.Response:
        return self.client.post(f"/topics/{topic}/messages", json={"messages": list(messages), "acks": acks})

    def read(self, topic: str, partition: int = 0, **parameters: object) -> Any:
        answer = self.client.get(f"/topics/{topic}/partitions/{partition}/messages", params=parameters)  # type: ignore[arg-type]
        assert answer.status_code == 200, answer.text
        return answer.json()

    def readers(self, topic: str) -> int:
        """Long polls that wait at the first partition of a topic."""
        return len(self.broker.topics.partition(topic, 0)._readers)

    def raw(self, request: bytes) -> tuple[int, bytes]:
        """Send bytes as they are; returns the status and the body."""
        with socket.create_connection((self.host, self.port), timeout=DEADLINE_S) as connection:
            connection.sendall(request)
            return self.read_answer(connection)

    @staticmethod
    def read_answer(connection: socket.socket) -> tuple[int, bytes]:
        data = b""
        with suppress(ConnectionResetError):
            while b"\r\n\r\n" not in data and (part := connection.recv(65536)):
                data += part
        head, _, body = data.partition(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length"))
        while len(body) < length and (part := connection.recv(65536)):
            body += part
        return int(head.split(b" ", 2)[1]), body

    def stop(self) -> None:
        self.client.close()
        self.run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_S)
        self._loop.close()

    async def _stop(self) -> None:
        self.broker.drain()
        await self.server.stop()
        await self.broker.close()


Start = Callable[..., RunningServer]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start servers of one's own; `path` continues an earlier one."""
    started: list[RunningServer] = []

    def start_one(
        path: Path | None = None, http: dict[str, Any] | None = None, broker: dict[str, Any] | None = None
    ) -> RunningServer:
        where = path or tmp_path / f"data-{len(started)}"
        started.append(RunningServer(where, HttpConfig(port=0, **(http or {})), BrokerConfig(**(broker or {}))))
        return started[-1]

    yield start_one
    for server in started:
        if server._thread.is_alive():
            server.stop()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One server for a whole file of tests that keep out of each other's topics."""
    server = RunningServer(tmp_path_factory.mktemp("http"), HttpConfig(port=0), BrokerConfig())
    yield server
    server.stop()
