"""A broker with its faces, in this process and on this event loop."""

from __future__ import annotations

from dataclasses import dataclass, field

from goqueue.broker import BrokerApi, BrokerConfig
from goqueue.frontends.wire import WireConfig, WireServer
from goqueue.host import OsClock, OsDisk, OsEntropy


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    data: str = "./data"
    broker: BrokerConfig = field(default_factory=BrokerConfig)
    wire: WireConfig = field(default_factory=WireConfig)


class Server:
    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self._broker: BrokerApi | None = None
        self._wire: WireServer | None = None

    @property
    def broker(self) -> BrokerApi:
        assert self._broker is not None, "started first"
        return self._broker

    @property
    def wire_address(self) -> tuple[str, int]:
        assert self._wire is not None, "started first"
        return self._wire.address

    async def start(self) -> None:
        self._broker = await BrokerApi.open(
            disk=OsDisk(), path=self.config.data, clock=OsClock(), entropy=OsEntropy(), config=self.config.broker
        )
        self._wire = WireServer(self._broker, self.config.wire)
        await self._wire.start()

    async def stop(self) -> None:
        """Drain: refuse new work, answer what is under way, make everything durable, let go."""
        if self._broker is not None:
            self._broker.drain()
        if self._wire is not None:
            await self._wire.stop()
        if self._broker is not None:
            await self._broker.close()
