"""One connection to a broker: requests out, answers back to whoever asked, by correlation id.

Answers may come in any order. When the connection ends, every open request gets `ConnectionLostError`; whether the
broker carried it out is unknown.
"""

from __future__ import annotations

import asyncio
from typing import cast

from goqueue.errors import ConnectionLostError, GoQueueError, ProtocolError
from goqueue.protocol import wire
from goqueue.protocol.wire import Api

_BUFFER_BYTES = 256 << 10
# An answer before and after the greeting is never larger; a peer that says so is no broker.
_GREETING_BYTES_MAX = 1 << 10
_ANSWER_BYTES_MAX = 256 << 20


class Connection(asyncio.BufferedProtocol):
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._filled = 0
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._correlation = 0
        # Numbers of the runs under way, by route.
        self._runs: dict[bytes, set[int]] = {}
        self._room = asyncio.Event()
        self._room.set()
        self._answer_bytes_max = _GREETING_BYTES_MAX
        self._lost = self._loop.create_future()
        self.closed = False
        self.frame_bytes_max = wire.FRAME_BYTES_MAX_DEFAULT

    @classmethod
    async def open(cls, host: str, port: int, *, client_id: str, timeout_s: float) -> Connection:
        """Connect and greet; `ConnectionLostError` when nobody answers in time."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                _, connection = await loop.create_connection(cls, host, port)
                reply = await connection._greet(client_id)
        except (OSError, TimeoutError) as error:
            raise ConnectionLostError(
                f"no broker answers at {host}:{port} ({str(error) or 'timeout'}); is `goqueue serve` running there?",
                host=host,
                port=port,
            ) from error
        _, connection.frame_bytes_max, _ = wire.HELLO_REPLY.unpack_from(reply)
        connection._answer_bytes_max = _ANSWER_BYTES_MAX
        return connection

    async def _greet(self, client_id: str) -> bytes:
        answer: asyncio.Future[bytes] = self._loop.create_future()
        self._waiting[0] = answer
        assert self._transport is not None
        self._transport.write(wire.hello(client_id))
        try:
            return await answer
        except BaseException:
            self._transport.abort()
            raise

    # -- requests -----------------------------------------------------------------------------------------------

    def request(self, api: Api, *parts: bytes | bytearray) -> asyncio.Future[bytes]:
        """Send a request; the future is its answer's body, or the error the broker sent."""
        answer: asyncio.Future[bytes] = self._loop.create_future()
        if self.closed or self._transport is None:
            answer.set_exception(ConnectionLostError("the connection to the broker is closed"))
            return answer
        correlation = self._correlation = (self._correlation + 1) & 0xFFFFFFFF or 1
        self._waiting[correlation] = answer
        self._write(api, correlation, parts)
        return answer

    def tell(self, api: Api, *parts: bytes | bytearray) -> None:
        """Send a request that has no answer."""
        if self.closed or self._transport is None:
            raise ConnectionLostError("the connection to the broker is closed")
        self._write(api, 0, parts)

    def _write(self, api: Api, correlation: int, parts: tuple[bytes | bytearray, ...]) -> None:
        length = wire.LENGTH_MIN + sum(map(len, parts))
        assert self._transport is not None
        self._transport.write(b"".join((wire.HEADER.pack(length, api, wire.OK, correlation), *parts)))

    def begin_run(self, route: bytes) -> int:
        """A number for a run of PRODUCE requests that no other run to this partition has; 0 when all are taken."""
        taken = self._runs.setdefault(route, set())
        number = next((number for number in range(1, wire.RUN_MAX + 1) if number not in taken), 0)
        taken.add(number)
        return number

    def end_run(self, route: bytes, number: int) -> None:
        """Nothing of the run is under way any more."""
        taken = self._runs.get(route, set())
        taken.discard(number)
        if not taken:
            self._runs.pop(route, None)

    async def call(self, method: str, **arguments: object) -> object:
        """A method of the control plane."""
        return wire.unpack(await self.request(Api.CALL, wire.pack([method, arguments])))

    async def wait_room(self) -> None:
        """Return when the send buffer takes more."""
        await self._room.wait()

    def close(self) -> None:
        """End in order: what was written still leaves."""
        if self._transport is not None:
            self._transport.close()
        self._end(ConnectionLostError("the connection was closed"))

    def abort(self, error: GoQueueError) -> None:
        """End at once; whoever waits for an answer gets `error`."""
        if self._transport is not None:
            self._transport.abort()
        self._end(error)

    async def wait_closed(self, timeout_s: float) -> None:
        """Return when everything written has left and the connection is gone; give up after the time."""
        await asyncio.wait((self._lost,), timeout=timeout_s)
        if not self._lost.done() and self._transport is not None:
            self._transport.abort()

    # -- transport ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=1 << 20)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(ConnectionLostError(f"the connection to the broker ended: {exc or 'closed by the broker'}"))
        if not self._lost.done():
            self._lost.set_result(None)

    def _end(self, error: GoQueueError) -> None:
        self.closed = True
        self._room.set()
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(error)

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        filled, position = self._filled + nbytes, 0
        buffer, unpack = self._buffer, wire.HEADER.unpack_from
        while filled - position >= wire.HEADER.size:
            length, _, status, correlation = unpack(buffer, position)
            if not wire.LENGTH_MIN <= length <= self._answer_bytes_max:
                self.abort(ProtocolError("the peer does not speak the GoQueue wire protocol"))
                return
            end = position + 4 + length
            if end > filled:
                break
            self._answer(status, correlation, bytes(buffer[position + wire.HEADER.size : end]))
            position = end
        self._keep_rest(position, filled)

    def _keep_rest(self, position: int, filled: int) -> None:
        """Move an unfinished frame to the front, once, into a buffer that will hold all of it."""
        rest, buffer = filled - position, self._buffer
        wanted = 4 + int.from_bytes(buffer[position : position + 4], "big") if rest >= wire.HEADER.size else 0
        if wanted > len(buffer):
            buffer = memoryview(bytearray(wanted))
        if rest and (position or buffer is not self._buffer):
            buffer[:rest] = bytes(self._buffer[position:filled])
        self._buffer, self._filled = buffer, rest

    def _answer(self, status: int, correlation: int, body: bytes) -> None:
        answer = self._waiting.pop(correlation, None)
        if answer is None or answer.done():
            return
        if status == wire.OK:
            answer.set_result(body)
        elif status == wire.FAILED:
            answer.set_exception(wire.read_error(body))
        else:
            answer.set_exception(ProtocolError(f"the broker answered with status {status}"))
