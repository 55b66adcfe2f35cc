"""One HTTP connection: uvicorn's protocol, with the limits it lacks.

A connection beyond the limit is refused with an answer; one whose request does not arrive or whose answer is not
taken in time is closed; a head that grows without end is not kept. What cannot be parsed gets the uniform error too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from goqueue.errors import GoQueueError, InvalidRequestError, RequestTimeoutError
from goqueue.frontends.http.errors import (
    HeadTooLargeError,
    TooManyConnectionsError,
    error_body,
    error_headers,
    status_of,
)
from goqueue.frontends.http.exchange import DIRECT

if TYPE_CHECKING:
    from goqueue.frontends.http.server import HttpServer

_logger = logging.getLogger(__name__)
# Larger bodies are handed over beside their head instead of being copied behind it.
_JOIN_BYTES_MAX = 64 << 10


class DirectAnswer:
    """One whole answer with one write, instead of uvicorn's two messages and two writes.

    Does to the cycle what uvicorn's `send` does with a start and a last body, for answers whose headers are our own.
    """

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    def send(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bool:
        """False when the client does not take its answers as fast as it asks: then uvicorn's way waits for it."""
        cycle = self._cycle
        if cycle.flow.write_paused:
            return False
        if cycle.disconnected:
            return True
        fields = b"".join([b"%s: %s\r\n" % field for field in (*cycle.default_headers, *headers)])
        if b"connection: close\r\n" in fields:
            cycle.keep_alive = False
        elif not cycle.keep_alive:
            fields += b"connection: close\r\n"
        head = b"%s%scontent-length: %d\r\n\r\n" % (STATUS_LINE[status], fields, len(body))
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        if len(body) < _JOIN_BYTES_MAX:
            cycle.transport.write(head + body)
        else:
            cycle.transport.writelines((head, body))
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()
        return True


class HttpConnection(HttpToolsProtocol):
    # Set on the class that a server makes for itself, because uvicorn builds its protocols alone.
    owner: HttpServer

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        # When the request under way has to be here, or its answer has to be taken; 0 while nothing is owed.
        self.deadline = 0.0
        self._in_head = True
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        owner = self.owner
        owner.accepted += 1
        if len(self.connections) > owner.config.connections_max:
            owner.refused += 1
            self.connections.discard(self)
            self.refuse(TooManyConnectionsError("the broker holds its maximum of connections"))
            return
        self.deadline = self.loop.time() + owner.config.request_timeout_ms / 1000

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(data)
            before = self._head_bytes
            super().data_received(data)
            if self._in_head and before == self._head_bytes > self.owner.config.head_bytes_max:
                self.refuse(
                    HeadTooLargeError(f"the request's head has more than {self.owner.config.head_bytes_max} bytes")
                )
        else:
            super().data_received(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.deadline = self.loop.time() + self.owner.config.request_timeout_ms / 1000

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._in_head = False
        # The request is a task that has not begun yet. An answer to HEAD has no body, which uvicorn knows.
        if self.scope["method"] != "HEAD":
            self.scope[DIRECT] = DirectAnswer(self.cycle)  # type: ignore[literal-required]

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head = True
        self._head_bytes = 0
        self.deadline = 0.0

    def pause_writing(self) -> None:
        super().pause_writing()
        self.deadline = self.loop.time() + self.owner.config.answer_timeout_ms / 1000

    def resume_writing(self) -> None:
        super().resume_writing()
        self.deadline = 0.0

    def check_deadline(self, now: float) -> None:
        """Close the connection if what it owes is overdue."""
        if not self.deadline or now < self.deadline or self.transport.is_closing():
            return
        _logger.warning("http connection timed out", extra={"peer": str(self.client)})
        if self.flow.write_paused:
            self.transport.abort()
        elif self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.close()
        else:
            self.refuse(RequestTimeoutError("the request did not arrive in time"))

    def send_400_response(self, msg: str) -> None:
        self.refuse(InvalidRequestError(msg))

    def refuse(self, error: GoQueueError) -> None:
        """Answer and close, below the application."""
        if self.transport.is_closing():
            return
        status, body = status_of(error), error_body(error)
        fields = [*self.server_state.default_headers, *error_headers(status)]
        lines = [b"%s: %s\r\n" % field for field in fields if field[0] != b"connection"]
        end = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(b"".join([STATUS_LINE[status], *lines, end, body]))
        self.transport.close()
