"""Messages as JSON and back: which bytes a `value`, a `key` or a header stands for, and how bytes are shown.

In: a string is its UTF-8 bytes, any other JSON its compact text with numbers as they were written, null is no key or a
tombstone; `*_base64` holds anything. Out: text where the bytes are UTF-8, else `*_base64`; null is always `key` or
`value`.
A message that says nothing but text takes the short way (`PlainMessage`); the others are looked at field by field.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterable
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from goqueue.errors import InvalidRequestError
from goqueue.frontends.http.errors import FeatureUnavailableError
from goqueue.frontends.http.times import parse_duration_ms, parse_time_ns
from goqueue.record import Priority, Record

AcksName = Literal["none", "leader", "all"]

_PRIORITIES: dict[int | str | None, int] = {
    None: Priority.NORMAL,
    **{int(lane): int(lane) for lane in Priority},
    **{lane.name.lower(): int(lane) for lane in Priority},
}
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)
_QUOTE = ord('"')
_text = msgspec.json.Decoder(str)


class PlainMessage(Struct, forbid_unknown_fields=True, gc=False):
    value: str
    key: str | None = None


class HeaderField(Struct, forbid_unknown_fields=True, gc=False):
    name: str | UnsetType = UNSET
    name_base64: str | UnsetType = UNSET
    value: str | UnsetType = UNSET
    value_base64: str | UnsetType = UNSET


class RichMessage(Struct, forbid_unknown_fields=True, gc=False):
    value: Raw | UnsetType = UNSET
    value_base64: str | UnsetType | None = UNSET
    key: Raw | UnsetType = UNSET
    key_base64: str | UnsetType | None = UNSET
    headers: dict[str, str] | list[HeaderField] | None = None
    partition: int | None = None
    priority: int | str | None = None
    traceparent: str | None = None
    delay: int | str | None = None
    deliver_at: int | str | None = None
    deliverAt: int | str | None = None
    # Not carried out yet, and therefore refused.
    ttl: object = None


class ShownMessage(Struct, gc=False):
    partition: int
    offset: int
    timestamp: int
    key: str | UnsetType | None
    key_base64: str | UnsetType
    value: str | UnsetType | None
    value_base64: str | UnsetType
    headers: dict[str, str] | list[dict[str, str]]
    priority: int


# -- in ---------------------------------------------------------------------------------------------------------


def read_value(message: RichMessage) -> bytes | None:
    if message.value_base64 is not UNSET:
        return _other_form(message.value, message.value_base64, "value")
    if message.value is UNSET:
        raise InvalidRequestError("a message needs value or value_base64; null deletes its key")
    return json_bytes(bytes(message.value))


def read_key(message: RichMessage) -> bytes | None:
    if message.key_base64 is not UNSET:
        return _other_form(message.key, message.key_base64, "key")
    return None if message.key is UNSET else json_bytes(bytes(message.key))


def _other_form(plain: Raw | UnsetType, base64: str | None, name: str) -> bytes | None:
    if plain is not UNSET:
        raise InvalidRequestError(f"{name} and {name}_base64 exclude each other")
    return None if base64 is None else read_base64(base64, f"{name}_base64")


def json_bytes(raw: bytes) -> bytes | None:
    """The bytes that a piece of compact JSON stands for."""
    if raw[0] == _QUOTE:
        return raw[1:-1] if b"\\" not in raw else _text.decode(raw).encode()
    return None if raw == b"null" else raw


def read_base64(text: str, name: str) -> bytes:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError):
        raise InvalidRequestError(f"{name} is not base64") from None


def read_priority(message: RichMessage) -> int:
    priority = _PRIORITIES.get(message.priority)
    if priority is None:
        names = ", ".join(lane.name.lower() for lane in Priority)
        raise InvalidRequestError(f"priority {str(message.priority)[:40]!r} is not 0 to 4 or one of {names}")
    return priority


def read_headers(message: RichMessage) -> list[tuple[str | bytes, str | bytes]] | None:
    given = message.headers
    headers: list[tuple[str | bytes, str | bytes]] = []
    if isinstance(given, dict):
        headers = [*given.items()]
    elif given is not None:
        headers = [_read_header(field) for field in given]
    if message.traceparent is not None:
        if not _TRACEPARENT.fullmatch(message.traceparent):
            raise InvalidRequestError("traceparent is not of the form 00-<32 hex>-<16 hex>-<2 hex> (W3C Trace Context)")
        if any(name in ("traceparent", b"traceparent") for name, _ in headers):
            raise InvalidRequestError("traceparent is given twice, as a field and as a header")
        headers.append(("traceparent", message.traceparent))
    return headers or None


def _read_header(field: HeaderField) -> tuple[bytes, bytes]:
    return _one_of(field.name, field.name_base64, "name"), _one_of(field.value, field.value_base64, "value")


def _one_of(text: str | UnsetType, base64: str | UnsetType, name: str) -> bytes:
    if text is not UNSET and base64 is UNSET:
        return text.encode()
    if text is UNSET and base64 is not UNSET:
        return read_base64(base64, f"a header's {name}_base64")
    raise InvalidRequestError(f"a header has one of {name} and {name}_base64")


def check_available(message: RichMessage) -> None:
    """Refuse what would have to be ignored."""
    if message.ttl is not None:
        raise FeatureUnavailableError("ttl is not available yet; publish without it", field="ttl")


def is_delayed(message: RichMessage) -> bool:
    return message.delay is not None or message.deliver_at is not None or message.deliverAt is not None


def read_delay_ms(delay: int | str | None) -> int | None:
    """A duration as text or milliseconds; negative numbers are the broker's to refuse."""
    return parse_duration_ms(delay, "delay") if isinstance(delay, str) else delay


def read_deliver_at_ms(deliver_at: int | str | None, alias: int | str | None) -> int | None:
    """A time as text or milliseconds since 1970, rounded up: never early."""
    if deliver_at is not None and alias is not None:
        raise InvalidRequestError("deliver_at and deliverAt are the same field; give one of them")
    given = alias if deliver_at is None else deliver_at
    return -(-parse_time_ns(given, "deliver_at") // 1_000_000) if isinstance(given, str) else given


# -- out --------------------------------------------------------------------------------------------------------


def show_records(partition: int, records: Iterable[Record], *, base64: bool) -> list[ShownMessage]:
    return [
        ShownMessage(
            partition,
            record.offset,
            record.timestamp_ns // 1_000_000,
            *_shown(record.key, base64),
            *_shown(record.value, base64),
            _show_headers(record, base64=base64),
            record.priority,
        )
        for record in records
    ]


def _shown(data: bytes | None, base64: bool) -> tuple[str | UnsetType | None, str | UnsetType]:
    """As text, and as base64; one of the two."""
    if data is None:
        return None, UNSET
    if not base64:
        try:
            return data.decode(), UNSET
        except UnicodeDecodeError:
            pass
    return UNSET, _base64(data)


def _show_headers(record: Record, *, base64: bool) -> dict[str, str] | list[dict[str, str]]:
    """An object where names are unique and everything is text, else a list."""
    pairs = record.headers
    if not pairs:
        return {}
    if not base64:
        try:
            plain = {name: value.decode() for name, value in pairs if isinstance(name, str)}
        except UnicodeDecodeError:
            plain = {}
        if len(plain) == len(pairs):
            return plain
    return [_show_header(name, value, base64=base64) for name, value in pairs]


def _show_header(name: str | bytes, value: bytes, *, base64: bool) -> dict[str, str]:
    field = {"name": name} if isinstance(name, str) else {"name_base64": _base64(name)}
    text, _ = _shown(value, base64)
    if isinstance(text, str):
        return {**field, "value": text}
    return {**field, "value_base64": _base64(value)}


def _base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()


def show_stored(partition: int, record: Record, *, hidden_header: str) -> dict[str, Any]:
    """One record as a plain object, without a header that is the broker's own."""
    (shown,) = show_records(partition, [record], base64=False)
    fields: dict[str, Any] = msgspec.to_builtins(shown)
    headers = fields["headers"]
    if isinstance(headers, dict):
        headers.pop(hidden_header, None)
    else:
        fields["headers"] = [header for header in headers if header.get("name") != hidden_header]
    return fields
