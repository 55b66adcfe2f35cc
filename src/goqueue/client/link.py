"""A connection that comes back: opened when first needed, opened again after it was lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass

from goqueue.client.connection import Connection
from goqueue.errors import ClientClosedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Waiting times between tries: doubling, jittered, bounded."""

    first_ms: int = 50
    longest_ms: int = 2_000

    async def waits(self) -> AsyncIterator[int]:
        """Yields the number of the try; sleeps before every one but the first."""
        wait_ms, number = self.first_ms, 0
        while True:
            yield number
            await asyncio.sleep(wait_ms * random.uniform(0.5, 1.0) / 1000)
            wait_ms, number = min(wait_ms * 2, self.longest_ms), number + 1


class Link:
    def __init__(self, host: str, port: int, *, client_id: str, connect_timeout_ms: int) -> None:
        self._host = host
        self._port = port
        self._client_id = client_id
        self._timeout_s = connect_timeout_ms / 1000
        self._connection: Connection | None = None
        self._opening = asyncio.Lock()
        self._closed = False

    @property
    def open(self) -> Connection | None:
        """The connection if there is one that works."""
        connection = self._connection
        return connection if connection is not None and not connection.closed else None

    async def connection(self) -> Connection:
        """A working connection; `ConnectionLostError` when the broker cannot be reached."""
        if (connection := self.open) is not None:
            return connection
        async with self._opening:
            if self._closed:
                raise ClientClosedError("the client is closed")
            if (connection := self.open) is None:
                connection = self._connection = await Connection.open(
                    self._host, self._port, client_id=self._client_id, timeout_s=self._timeout_s
                )
            return connection

    async def close(self) -> None:
        """End the connection once what was sent has left."""
        self._closed = True
        if self._connection is not None:
            self._connection.close()
            await self._connection.wait_closed(self._timeout_s)
