"""The bare pipe: frames from a socket to a file and an answer for each, and nothing else.

It receives as the broker does (one large buffer, one write and one answer per wake-up) but looks at no byte of a frame
except its length. What the broker costs beyond it is verifying, stamping, indexing and routing.
"""

from __future__ import annotations

import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import cast

REPLY = b"\x00" * 32


class Pipe(asyncio.BufferedProtocol):
    def __init__(self, fd: int, *, durable: bool) -> None:
        self._fd = fd
        self._durable = durable
        self._buffer = memoryview(bytearray(4 << 20))
        self._filled = 0
        self._waiting = 0
        self._syncing = False
        self._thread = ThreadPoolExecutor(1)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer[self._filled : self._filled + (1 << 20)]

    def buffer_updated(self, nbytes: int) -> None:
        filled, position, frames = self._filled + nbytes, 0, 0
        while filled - position >= 4:
            end = position + 4 + int.from_bytes(self._buffer[position : position + 4], "big")
            if end > filled:
                break
            position, frames = end, frames + 1
        if position:
            os.write(self._fd, self._buffer[:position])
        self._buffer[: filled - position] = bytes(self._buffer[position:filled])
        self._filled = filled - position
        if not self._durable:
            self._transport.write(REPLY * frames)
            return
        self._waiting += frames
        self._sync()

    def _sync(self) -> None:
        if self._syncing or not self._waiting:
            return
        self._syncing, frames, self._waiting = True, self._waiting, 0
        loop = asyncio.get_running_loop()
        done = loop.run_in_executor(self._thread, os.fdatasync, self._fd)
        done.add_done_callback(lambda _: self._answer(frames))

    def _answer(self, frames: int) -> None:
        self._syncing = False
        self._transport.write(REPLY * frames)
        self._sync()


async def serve(path: str, durable: bool) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    server = await asyncio.get_running_loop().create_server(lambda: Pipe(fd, durable=durable), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    import uvloop

    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    uvloop.run(serve(sys.argv[1], sys.argv[2] == "durable"))
