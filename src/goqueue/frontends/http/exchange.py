"""One request and its answer, below any framework: a body read within limits, an answer sent whole."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

import msgspec

from goqueue.errors import GoQueueError
from goqueue.frontends.http.errors import BodyTooLargeError, MediaTypeError, error_body, error_headers, status_of

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Header = tuple[bytes, bytes]
Fields = dict[bytes, bytes]

# Where a scope holds the server's shorter way to answer.
DIRECT = "goqueue.direct"
JSON = (b"content-type", b"application/json")
BINARY = (b"content-type", b"application/octet-stream")


def fields_of(scope: Scope) -> Fields:
    """The headers by name; names are lower case."""
    return dict(scope["headers"])


class ClientGoneError(Exception):
    """The client has closed its connection; there is nobody to answer."""


@dataclass(slots=True)
class Answer:
    status: int
    body: bytes
    headers: tuple[Header, ...] = (JSON,)

    @classmethod
    def json(cls, value: object, status: int = 200) -> Answer:
        return cls(status, msgspec.json.encode(value))

    @classmethod
    def of(cls, error: GoQueueError, *extra: Header) -> Answer:
        status = status_of(error)
        return cls(status, error_body(error), (JSON, *error_headers(status), *extra))

    async def send(self, scope: Scope, send: Send) -> None:
        """Send it, at once where the server offers to (`connection.DirectAnswer`)."""
        direct = scope.get(DIRECT)
        if direct is not None and direct.send(self.status, self.headers, self.body):
            return
        headers = [*self.headers, (b"content-length", b"%d" % len(self.body))]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


async def read_body(fields: Fields, receive: Receive, bytes_max: int) -> bytes:
    """The whole body; one that announces or turns out to be larger than allowed is read no further."""
    announced = fields.get(b"content-length")
    if announced is not None and (len(announced) > 18 or int(announced) > bytes_max):
        raise _too_large(bytes_max)
    message = await _next_part(receive)
    body: bytes = message.get("body", b"")
    if message.get("more_body"):
        parts, size = [body], len(body)
        while message.get("more_body") and size <= bytes_max:
            message = await _next_part(receive)
            parts.append(message.get("body", b""))
            size += len(parts[-1])
        if size > bytes_max:
            raise _too_large(bytes_max)
        body = b"".join(parts)
    if len(body) > bytes_max:
        raise _too_large(bytes_max)
    return body


async def _next_part(receive: Receive) -> Message:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientGoneError
    return message


async def wait_gone(receive: Receive) -> None:
    """Return when the client has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def check_media_type(fields: Fields, wanted: bytes) -> None:
    """A body is what it says it is, or it is refused: a browser can send other types to a broker without asking it."""
    given = fields.get(b"content-type", b"")
    if given != wanted and given.partition(b";")[0].strip().lower() != wanted:
        shown = given.decode("latin-1")[:100]
        raise MediaTypeError(
            f"the body must be {wanted.decode()}, not {shown or 'of unknown type'!r}", content_type=shown
        )
    encoding = fields.get(b"content-encoding")
    if encoding is not None and encoding.strip().lower() != b"identity":
        raise MediaTypeError("compressed bodies are not supported; send the body as it is")


def _too_large(bytes_max: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"the body has more than {bytes_max} bytes", maximum=bytes_max)
