"""A broker with its faces, in this process and on this event loop."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from goqueue.broker import BrokerApi, BrokerConfig
from goqueue.errors import AddressUnavailableError
from goqueue.frontends.wire import WireConfig, WireServer
from goqueue.host import OsClock, OsDisk, OsEntropy
from goqueue.server.logs import LogSettings

if TYPE_CHECKING:
    from goqueue.frontends.http import HttpConfig, HttpServer
    from goqueue.frontends.metrics import ConnectionCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    data: str = "./data"
    broker: BrokerConfig = field(default_factory=BrokerConfig)
    wire: WireConfig = field(default_factory=WireConfig)
    # None serves no HTTP: an embedded broker has no use for it and saves loading it.
    http: HttpConfig | None = None
    log: LogSettings = field(default_factory=LogSettings)


class Server:
    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self._broker: BrokerApi | None = None
        self._wire: WireServer | None = None
        self._http: HttpServer | None = None

    @property
    def broker(self) -> BrokerApi:
        assert self._broker is not None, "started first"
        return self._broker

    @property
    def wire_address(self) -> tuple[str, int]:
        assert self._wire is not None, "started first"
        return self._wire.address

    @property
    def http_address(self) -> tuple[str, int] | None:
        """None when this server has no HTTP."""
        return None if self._http is None else self._http.address

    async def start(self) -> None:
        """Open the data directory, then the ports; when anything fails, all of it is closed again."""
        self._broker = await BrokerApi.open(
            disk=OsDisk(), path=self.config.data, clock=OsClock(), entropy=OsEntropy(), config=self.config.broker
        )
        try:
            await self._start_wire(self._broker)
            await self._start_http(self._broker)
        except BaseException:
            await self.stop()
            raise

    async def _start_wire(self, broker: BrokerApi) -> None:
        wire = WireServer(broker, self.config.wire)
        try:
            await wire.start()
        except OSError as error:
            raise _unavailable("wire", self.config.wire.host, self.config.wire.port, error) from error
        self._wire = wire

    async def _start_http(self, broker: BrokerApi) -> None:
        config = self.config.http
        if config is None:
            return
        from goqueue.frontends.http import HttpServer

        http = HttpServer(broker, config)
        http.metrics.watch_connections("wire", self._wire_connections)
        try:
            await http.start()
        except OSError as error:
            raise _unavailable("http", config.host, config.port, error) from error
        self._http = http

    def _wire_connections(self) -> ConnectionCounts:
        from goqueue.frontends.metrics import ConnectionCounts

        wire = self._wire
        assert wire is not None, "the wire face starts first"
        return ConnectionCounts(len(wire.connections), wire.accepted, wire.refused)

    async def stop(self) -> None:
        """Drain: refuse new work, answer what is under way, make everything durable, let go."""
        if self._broker is not None:
            self._broker.drain()
        faces = [face.stop() for face in (self._wire, self._http) if face is not None]
        try:
            await asyncio.gather(*faces)
        finally:
            if self._broker is not None:
                await self._broker.close()


def _unavailable(face: str, host: str, port: int, error: OSError) -> AddressUnavailableError:
    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
    return AddressUnavailableError(
        f"cannot listen on {host}:{port} for {face}: {reason}; "
        f"stop what uses it, or choose another with --{face} HOST:PORT (port 0 picks a free one)",
        host=host,
        port=port,
    )
