"""A real broker in this event loop, and a scripted one that shows what a client sends and answers as told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from goqueue.errors import GoQueueError
from goqueue.frontends.wire import WireConfig
from goqueue.protocol import wire
from goqueue.protocol.wire import Api
from goqueue.record import Record, decode
from goqueue.server import Server, ServerConfig


@asynccontextmanager
async def broker(path: Path, port: int = 0, **wire_options: Any) -> AsyncIterator[Server]:
    server = Server(ServerConfig(data=str(path), wire=WireConfig(port=port, **wire_options)))
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def address_of(server: Server) -> str:
    host, port = server.wire_address
    return f"{host}:{port}"


async def wait_until(condition: Callable[[], bool], deadline_s: float = 10) -> None:
    async with asyncio.timeout(deadline_s):
        while not condition():
            await asyncio.sleep(0.005)


class ScriptedBroker:
    """Speaks the protocol for one topic; keeps every batch it was sent. `on_produce` decides the answer.

    It returns True to answer with an offset, False to stay silent, or raises: an error to send, `ConnectionError` to
    hang up.
    """

    def __init__(self, partitions: int = 1) -> None:
        self.partitions = partitions
        self.batches: list[tuple[int, list[Record]]] = []
        self.connections = 0
        self.on_produce: Callable[[], Awaitable[bool]] = _accept
        self._next = dict.fromkeys(range(partitions), 0)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> ScriptedBroker:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def address(self) -> str:
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    def values(self) -> list[bytes | None]:
        return [record.value for _, records in self.batches for record in records]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while True:
                length, api, _, correlation = wire.HEADER.unpack(await reader.readexactly(wire.HEADER.size))
                body = await reader.readexactly(length - wire.LENGTH_MIN)
                writer.write(await self._answer(api, correlation, body))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, api: int, correlation: int, body: bytes) -> bytes:
        if api == Api.HELLO:
            return wire.hello_reply(correlation, wire.FRAME_BYTES_MAX_DEFAULT, "scripted")
        if api == Api.CALL:
            offsets = {str(number): {"earliest": 0, "latest": 0} for number in self._next}
            return wire.frame(
                api, correlation, wire.pack({"partitions": self.partitions, "partition_offsets": offsets})
            )
        assert api == Api.PRODUCE, api
        acks, _, topic_bytes = wire.PRODUCE_HEAD.unpack_from(body)
        start = wire.PRODUCE_HEAD.size + topic_bytes
        partition = int.from_bytes(body[start : start + 4], "big")
        records = decode(body[start + 4 :])
        self.batches.append((partition, records))
        try:
            if not await self.on_produce() or not acks:
                return b""
        except GoQueueError as error:
            return wire.frame(api, correlation, wire.error_body(error), wire.FAILED)
        base, self._next[partition] = self._next[partition], self._next[partition] + len(records)
        return wire.frame(api, correlation, wire.PRODUCE_REPLY_BODY.pack(base, 1, len(records)))


async def _accept() -> bool:
    return True
