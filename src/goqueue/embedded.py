"""A whole broker inside this process: `with goqueue.open(path) as q`.

The broker runs on an event loop in a thread of its own and listens on a free loopback port, so the object returned is
the ordinary blocking client, and other clients can join at `q.address`. For tests and small applications.
"""

from __future__ import annotations

import shutil
import tempfile

from goqueue.client.sync import LoopThread, SyncClient
from goqueue.frontends.wire import WireConfig
from goqueue.server import Server, ServerConfig


class EmbeddedBroker(SyncClient):
    """The blocking client of a broker that lives as long as this object."""

    def __init__(self, path: str | None = None) -> None:
        # Without a path the data lives in a temporary directory that goes with the broker.
        self._temporary = tempfile.mkdtemp(prefix="goqueue-") if path is None else None
        self._server_thread = LoopThread("goqueue-broker")
        try:
            self._server = self._server_thread.run(self._start(path or str(self._temporary)))
            super().__init__(self.address)
        except BaseException:
            self._server_thread.close()
            self._remove_temporary()
            raise

    @staticmethod
    async def _start(path: str) -> Server:
        server = Server(ServerConfig(data=path, wire=WireConfig(port=0)))
        await server.start()
        return server

    @property
    def address(self) -> str:
        """HOST:PORT for other clients."""
        host, port = self._server.wire_address
        return f"{host}:{port}"

    def __enter__(self) -> EmbeddedBroker:
        return self

    def close(self) -> None:
        """Flush, stop the broker in order, and release the directory."""
        super().close()
        self._server_thread.run(self._server.stop())
        self._server_thread.close()
        self._remove_temporary()

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)


def open_broker(path: str | None = None) -> EmbeddedBroker:
    """Open or create a broker in `path`; without one, in a temporary directory that is removed at the end."""
    return EmbeddedBroker(path)
