"""Byte streams between processes: what peers, clients and the simulator connect through.

A connection is a pair of ordered byte streams that may end at any byte. The server's data port uses the event loop's
buffered transports directly (see frontends/wire); these protocols are for code that must also run in the simulator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

# One read never waits for more than this; enough to keep a replication stream busy.
_RECEIVE_BUFFER_BYTES = 256 * 1024
# How long `close` lets unsent bytes drain to a silent peer before it aborts.
_CLOSE_TIMEOUT_S = 5.0


class Connection(Protocol):
    @property
    def peer(self) -> str: ...

    async def receive(self, bytes_max: int) -> bytes:
        """At least one byte, or `b""` when the peer has finished."""
        ...

    async def send(self, data: bytes) -> None:
        """Hand the bytes over; returns when the send buffer has room again."""
        ...

    async def close(self) -> None: ...


class Listener(Protocol):
    @property
    def address(self) -> tuple[str, int]: ...

    async def close(self) -> None:
        """Stop accepting, then cancel every `serve` still running and wait for it: nothing outlives its listener."""
        ...


class Network(Protocol):
    async def connect(self, host: str, port: int) -> Connection:
        """`OSError` when nobody answers."""
        ...

    async def listen(self, host: str, port: int, serve: Callable[[Connection], Awaitable[None]]) -> Listener:
        """Call `serve` for every connection and close it afterwards; port 0 picks a free one."""
        ...


class ServeTasks:
    """One task per accepted connection, owned by a listener. The connection is closed however its task ends."""

    def __init__(self, serve: Callable[[Connection], Awaitable[None]]) -> None:
        self._serve = serve
        self._connections: dict[asyncio.Task[None], Connection] = {}

    def start(self, connection: Connection) -> None:
        task = asyncio.get_running_loop().create_task(self._run(connection))
        self._connections[task] = connection
        task.add_done_callback(lambda done: self._connections.pop(done, None))

    async def _run(self, connection: Connection) -> None:
        try:
            await self._serve(connection)
        except ConnectionError:
            pass  # The peer went away: its right, and nobody is left to tell.
        except Exception as error:
            context = {"message": f"serving {connection.peer} failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
        finally:
            await connection.close()

    def cancel_nowait(self) -> dict[asyncio.Task[None], Connection]:
        """Cancel all but the calling task; returns what is still ending."""
        current = asyncio.current_task()
        running = {task: connection for task, connection in self._connections.items() if task is not current}
        for task in running:
            task.cancel()
        return running

    async def cancel(self) -> None:
        """Cancel all but the calling task and wait for them."""
        running = self.cancel_nowait()
        await asyncio.gather(*running, return_exceptions=True)
        for connection in running.values():  # A task cancelled before its first step has closed nothing.
            await connection.close()


class OsConnection:
    """A TCP connection."""

    __slots__ = ("_peer", "_reader", "_writer")

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        peername = writer.get_extra_info("peername")
        # A peer that has already gone has no name any more.
        self._peer = f"{peername[0]}:{peername[1]}" if peername else "unknown"

    @property
    def peer(self) -> str:
        return self._peer

    async def receive(self, bytes_max: int) -> bytes:
        return await self._reader.read(bytes_max)

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def close(self) -> None:
        self._writer.close()
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                # Shielded: cancelling the waiter would cancel the future every other waiter shares.
                await asyncio.shield(self._writer.wait_closed())
        except TimeoutError:
            self._writer.transport.abort()
        except OSError:
            pass  # The peer was faster; closed is closed.


class OsListener:
    """A listening TCP socket."""

    __slots__ = ("_address", "_server", "_tasks")

    def __init__(self, server: asyncio.Server, tasks: ServeTasks) -> None:
        self._server = server
        self._tasks = tasks
        host, port = server.sockets[0].getsockname()[:2]
        self._address: tuple[str, int] = (host, port)

    @property
    def address(self) -> tuple[str, int]:
        return self._address

    async def close(self) -> None:
        self._server.close()
        await self._tasks.cancel()


class OsNetwork:
    """The kernel's TCP, through asyncio streams."""

    async def connect(self, host: str, port: int) -> OsConnection:
        return OsConnection(*await asyncio.open_connection(host, port, limit=_RECEIVE_BUFFER_BYTES))

    async def listen(self, host: str, port: int, serve: Callable[[Connection], Awaitable[None]]) -> OsListener:
        tasks = ServeTasks(serve)

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tasks.start(OsConnection(reader, writer))

        return OsListener(await asyncio.start_server(accept, host, port, limit=_RECEIVE_BUFFER_BYTES), tasks)
