"""One HTTP connection: uvicorn's protocol, with the limits it lacks.

A connection beyond the limit is refused with an answer; one whose request does not arrive or whose answer is not
taken in time is closed; a head that grows without end is not kept. What cannot be parsed gets the uniform error too.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from goqueue.errors import GoQueueError, InvalidRequestError, RequestTimeoutError
from goqueue.frontends.http.errors import (
    HeadTooLargeError,
    TooManyConnectionsError,
    error_body,
    error_headers,
    status_of,
)

if TYPE_CHECKING:
    from goqueue.frontends.http.server import HttpServer

_logger = logging.getLogger(__name__)
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# Larger bodies are handed over beside their head instead of being copied behind it.
_JOIN_BYTES_MAX = 64 << 10


class _Joined:
    """The transport as one answer sees it: its head waits for the first of its body, so that both leave together.

    uvicorn writes them apart, and each write is a system call that wakes the client.
    """

    __slots__ = ("_head", "_started", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head: bytes | None = None
        self._started = False

    def write(self, data: bytes) -> None:
        if self._head is not None:
            head, self._head = self._head, None
            if len(data) < _JOIN_BYTES_MAX:
                self._transport.write(head + data)
            else:
                self._transport.writelines((head, data))
        elif self._started or data == _CONTINUE:
            self._transport.write(data)
        else:
            self._started = True
            self._head = data

    def close(self) -> None:
        if self._head is not None:
            self._transport.write(self._head)
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()


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
        # The answer is a task that has not begun yet. One to HEAD never writes a body.
        if self.scope["method"] != "HEAD":
            self.cycle.transport = _Joined(self.transport)  # type: ignore[assignment]

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
