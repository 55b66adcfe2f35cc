"""The HTTP port: uvicorn on the event loop that the broker belongs to, without its signals and its logging."""

from __future__ import annotations

import asyncio
import logging
import socket

import uvicorn

from goqueue.broker import BrokerApi
from goqueue.frontends.http.app import build
from goqueue.frontends.http.config import HttpConfig
from goqueue.frontends.http.connection import HttpConnection
from goqueue.frontends.metrics import ConnectionCounts, Metrics

_logger = logging.getLogger(__name__)


class HttpServer:
    def __init__(self, broker: BrokerApi, config: HttpConfig, metrics: Metrics | None = None) -> None:
        self.config = config
        self.accepted = self.refused = 0
        self.metrics = metrics or Metrics(broker, per_partition=config.metrics_per_partition)
        self.metrics.watch_connections("http", self._connection_counts)
        self._gate = build(broker, config, self.metrics)
        connection = type("BoundHttpConnection", (HttpConnection,), {"owner": self})
        self._uvicorn = uvicorn.Server(
            uvicorn.Config(
                self._gate,
                http=connection,
                ws="none",
                loop="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=-(-config.keep_alive_timeout_ms // 1000),
                timeout_graceful_shutdown=-(-config.stop_timeout_ms // 1000),
            )
        )
        self._sockets: list[socket.socket] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Listen. From here on requests are answered."""
        config = self._uvicorn.config
        config.load()
        self._uvicorn.lifespan = config.lifespan_class(config)
        self._sockets = [await _listen(self.config.host, self.config.port)]
        await self._uvicorn.startup(sockets=self._sockets)
        self._tasks = [asyncio.create_task(self._uvicorn.main_loop()), asyncio.create_task(self._sweep())]

    @property
    def address(self) -> tuple[str, int]:
        assert self._sockets, "started first"
        host, port = self._sockets[0].getsockname()[:2]
        return host, port

    async def stop(self) -> None:
        """Take no more connections, answer what is under way, then close what is left."""
        if not self._tasks:
            return
        self._gate.fetcher.stop()
        self._uvicorn.should_exit = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        await self._uvicorn.shutdown(sockets=self._sockets)
        for connection in list(self._uvicorn.server_state.connections):
            assert isinstance(connection, HttpConnection)
            connection.transport.abort()

    def _connection_counts(self) -> ConnectionCounts:
        return ConnectionCounts(len(self._uvicorn.server_state.connections), self.accepted, self.refused)

    async def _sweep(self) -> None:
        interval_s = min(self.config.request_timeout_ms, self.config.answer_timeout_ms, 4_000) / 4_000
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(interval_s)
            now = loop.time()
            for connection in list(self._uvicorn.server_state.connections):
                assert isinstance(connection, HttpConnection)
                connection.check_deadline(now)


async def _listen(host: str, port: int) -> socket.socket:
    """A listening socket at the first address of `host`."""
    loop = asyncio.get_running_loop()
    family, kind, protocol, _, address = (await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setblocking(False)
        listener.bind(address)
    except OSError:
        listener.close()
        raise
    return listener
