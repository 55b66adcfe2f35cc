"""The bytes of the native protocol (docs/formats/wire.md), without I/O.

Frame: length u32 (of what follows), api u16, status u16, correlation u32, body. Big-endian. A request's status is 0; a
response carries the api and correlation of its request and status 0 (body as below) or 1 (body is an error object).

    HELLO    magic `GOQW`, lowest version u16, highest version u16, client id (u16 length, text)
             -> version u16, frame_bytes_max u32, server version (u16 length, text)
    PRODUCE  acks u8, run u8, topic (u16 length, text), partition u32, batch
             -> base_offset i64, timestamp_ns i64, count u32        (no response for acks none)
    FETCH    topic (u16 length, text), partition u32, offset i64, bytes_max u32, wait_ms u32, isolation u8
             -> high_watermark i64, last_stable_offset i64, log_start_offset i64, whole records
    CALL     MessagePack [method, {argument: value}] -> MessagePack value
"""

from __future__ import annotations

import struct
from enum import IntEnum

import msgspec

from goqueue.errors import GoQueueError, ProtocolError, error_classes

VERSION = 1
MAGIC = b"GOQW"
FRAME_BYTES_MAX_DEFAULT = 32 << 20

HEADER = struct.Struct(">IHHI")
LENGTH_MIN = HEADER.size - 4
PRODUCE_HEAD = struct.Struct(">BBH")
PRODUCE_REPLY = struct.Struct(">IHHIqqI")
FETCH_TAIL = struct.Struct(">IqIIB")
FETCH_REPLY = struct.Struct(">IHHIqqq")
FETCH_REPLY_BODY = struct.Struct(">qqq")
PRODUCE_REPLY_BODY = struct.Struct(">qqI")
HELLO_HEAD = struct.Struct(">4sHHH")
HELLO_REPLY = struct.Struct(">HIH")

OK = 0
FAILED = 1

# The run of a PRODUCE: a number from 1 to 127, with the top bit set in the first request of a run. 0 is no run.
RUN_BEGINS = 0x80
RUN_MAX = 0x7F


class Api(IntEnum):
    HELLO = 1
    PRODUCE = 2
    FETCH = 3
    CALL = 4


class Isolation(IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


_ERRORS = error_classes()
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder()


def frame(api: int, correlation: int, body: bytes, status: int = OK) -> bytes:
    return HEADER.pack(LENGTH_MIN + len(body), api, status, correlation) + body


def hello(client_id: str, correlation: int = 0) -> bytes:
    name = client_id.encode()[:255]
    return frame(Api.HELLO, correlation, HELLO_HEAD.pack(MAGIC, VERSION, VERSION, len(name)) + name)


def read_hello(body: bytes) -> str:
    """The client id of a valid greeting; `ProtocolError` for anything else."""
    if len(body) < HELLO_HEAD.size:
        raise ProtocolError("the greeting is too short")
    magic, low, high, length = HELLO_HEAD.unpack_from(body)
    if magic != MAGIC:
        raise ProtocolError("the peer does not speak the GoQueue wire protocol")
    if not low <= VERSION <= high:
        raise ProtocolError(f"protocol versions {low} to {high} are not supported; this broker speaks {VERSION}")
    return body[HELLO_HEAD.size : HELLO_HEAD.size + length].decode("utf-8", "replace")


def hello_reply(correlation: int, frame_bytes_max: int, server_version: str) -> bytes:
    text = server_version.encode()
    return frame(Api.HELLO, correlation, HELLO_REPLY.pack(VERSION, frame_bytes_max, len(text)) + text)


def route(topic: str, partition: int) -> bytes:
    """Topic and partition as they stand in a PRODUCE or FETCH body."""
    name = topic.encode()
    return len(name).to_bytes(2, "big") + name + partition.to_bytes(4, "big")


def read_route(data: bytes) -> tuple[str, int]:
    """The inverse of `route`; `ProtocolError` when the topic is not text."""
    try:
        return data[2:-4].decode(), int.from_bytes(data[-4:], "big")
    except UnicodeDecodeError:
        raise ProtocolError("a topic name is not UTF-8 text") from None


def fetch_body(topic_route: bytes, *, offset: int, bytes_max: int, wait_ms: int, isolation: Isolation) -> bytes:
    tail = FETCH_TAIL.pack(int.from_bytes(topic_route[-4:], "big"), offset, bytes_max, wait_ms, isolation)
    return topic_route[:-4] + tail


def pack(value: object) -> bytes:
    return _encoder.encode(value)


def unpack(body: bytes | memoryview) -> object:
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"the body is not MessagePack: {error}") from None


def error_body(error: GoQueueError) -> bytes:
    fields = {name: value for name, value in error.as_dict().items() if isinstance(value, str | int | float | bool)}
    return pack(fields)


def read_error(body: bytes) -> GoQueueError:
    """The error a peer sent, as the class that its code names."""
    fields = unpack(body)
    return error_of(fields) if isinstance(fields, dict) else ProtocolError("an error without fields")


def error_of(fields: dict[str, object]) -> GoQueueError:
    """The error that `as_dict` made these of."""
    fields = dict(fields)
    code, message = str(fields.pop("code", "")), str(fields.pop("message", ""))
    fields.pop("retriable", None)
    context = {str(name): value for name, value in fields.items()}
    return _ERRORS.get(code, GoQueueError)(message, **context)
