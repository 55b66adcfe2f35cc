"""The data port: accepts connections, sweeps out the ones that hang, and counts."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from goqueue.broker import BrokerApi, Partition
from goqueue.errors import ConfigurationError
from goqueue.frontends.wire.calls import Calls
from goqueue.frontends.wire.connection import WireConnection
from goqueue.protocol.wire import FRAME_BYTES_MAX_DEFAULT, read_route

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WireConfig:
    host: str = "127.0.0.1"
    port: int = 9000
    # A frame larger than this ends the connection; it must hold the largest message and its batch.
    frame_bytes_max: int = FRAME_BYTES_MAX_DEFAULT
    # Unanswered bytes of one connection; beyond it the broker stops reading from that connection.
    unanswered_bytes_max: int = 64 << 20
    # Requests of one connection that wait for something (long polls, calls).
    waiting_requests_max: int = 256
    connections_max: int = 50_000
    # A connection that does not greet, finish a frame, or take its answers within these times is closed.
    greeting_timeout_ms: int = 10_000
    frame_timeout_ms: int = 60_000
    answer_timeout_ms: int = 60_000

    def __post_init__(self) -> None:
        numbers = (name for name in self.__dataclass_fields__ if name not in {"host", "port"})
        problems = [f"{name} must be at least 1" for name in numbers if getattr(self, name) < 1]
        if not 0 <= self.port <= 65_535:
            problems.append(f"port must be from 0 to 65535, not {self.port}")
        if problems:
            raise ConfigurationError("; ".join(problems), problems=problems)


class WireServer:
    def __init__(self, broker: BrokerApi, config: WireConfig) -> None:
        self.broker = broker
        self.config = config
        self.calls = Calls(broker)
        self.connections: set[WireConnection] = set()
        self.accepted = self.refused = 0
        # Bytes arrive here first; a connection gets a buffer of its own only while it has half a frame.
        self.shared = memoryview(bytearray(1 << 20))
        self._routes: dict[bytes, Partition] = {}
        self._routes_generation = -1
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: WireConnection(self), self.config.host, self.config.port, backlog=1024
        )
        self._sweeper = asyncio.create_task(self._sweep())

    @property
    def address(self) -> tuple[str, int]:
        assert self._server is not None, "started first"
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    def partition(self, route: bytes) -> Partition:
        """The partition that a route names; found by its bytes after the first time."""
        topics = self.broker.topics
        if self._routes_generation != topics.generation:
            self._routes.clear()
            self._routes_generation = topics.generation
        found = self._routes.get(route)
        if found is None:
            topic, number = read_route(route)
            topics.check_public(topic)
            found = self._routes[route] = topics.partition(topic, number)
        return found

    async def stop(self) -> None:
        """Stop accepting, let answers under way go out, then close what is left."""
        if self._server is None:
            return
        self._server.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for _ in range(200):
            for connection in list(self.connections):
                connection.finish()
            await asyncio.sleep(0.01)
            if not self.connections:
                break
        for connection in list(self.connections):
            connection.abort("the broker is stopping", at_once=True)
        await self._server.wait_closed()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(1)
            now_ns = self.broker.clock.monotonic_ns()
            for connection in list(self.connections):
                connection.check_deadlines(now_ns)
