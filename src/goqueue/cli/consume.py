"""`goqueue consume`: read a topic in log order and print it."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Annotated

import typer

from goqueue.cli.options import AddressOption, connect
from goqueue.client import Start
from goqueue.record import Record

Form = Callable[[Record], bytes]

_AGO = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_FIELD = re.compile(r"\{(\w*)\}")


def consume(
    ctx: typer.Context,
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", "-b", help="Start at the oldest message; the default without --follow.")
    ] = False,
    offset: Annotated[int | None, typer.Option("--offset", min=0, help="Start at this offset.")] = None,
    time: Annotated[
        str | None,
        typer.Option(
            "--time", help="Start at a time: 2026-01-31T12:00:00Z, epoch milliseconds, or 1h30m for that long ago."
        ),
    ] = None,
    partition: Annotated[list[int] | None, typer.Option("--partition", "-p", help="Only this partition.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for new messages until Ctrl-C.")] = False,
    count: Annotated[int | None, typer.Option("-n", "--count", min=1, help="Stop after so many messages.")] = None,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="value (a line each), raw (exact bytes), hex, json (a line each), or a template "
            "such as '{partition}:{offset} {key} {value}'.",
        ),
    ] = "value",
    address: AddressOption = None,
) -> None:
    """Print messages. Without --follow, what is there now; with it, new messages as they come."""
    write = formatter(form)
    start = read_start(from_beginning, offset, time, follow)
    out = sys.stdout.buffer
    with connect(ctx, address) as client:
        batches = client.reader(topic, partitions=partition or None, start=start, follow=follow).batches()
        messages = (message for batch in batches for message in batch)
        try:
            for message in islice(messages, count):
                out.write(write(message))
                if follow:
                    out.flush()
        except KeyboardInterrupt:
            # The way to end --follow.
            pass
        finally:
            batches.close()
        out.flush()


def read_start(from_beginning: bool, offset: int | None, time: str | None, follow: bool) -> Start:
    if sum((from_beginning, offset is not None, time is not None)) > 1:
        raise typer.BadParameter("give one of --from-beginning, --offset and --time")
    if offset is not None:
        return offset
    if time is not None:
        return read_time(time, datetime.now(UTC))
    return "latest" if follow and not from_beginning else "earliest"


def read_time(text: str, now: datetime) -> datetime:
    """RFC 3339, epoch milliseconds, or a duration before `now`."""
    if text.isdecimal():
        return datetime.fromtimestamp(int(text) / 1000, UTC)
    ago = _AGO.fullmatch(text)
    if ago and text:
        days, hours, minutes, seconds = (int(part or 0) for part in ago.groups())
        return now - timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a time: write 2026-01-31T12:00:00Z, epoch milliseconds, or 1h30m", param_hint="--time"
        ) from None
    return moment if moment.tzinfo else moment.astimezone()


def formatter(form: str) -> Form:
    """How to print one message."""
    if form in _FORMS:
        return _FORMS[form]
    if "{" not in form:
        raise typer.BadParameter(
            f"{form!r} is not {', '.join(_FORMS)} or a template with {{fields}}", param_hint="--format"
        )
    unknown = [name for name in _FIELD.findall(form) if name not in _FIELDS]
    if unknown:
        raise typer.BadParameter(
            f"the template names {unknown[0]!r}; known: {', '.join(_FIELDS)}", param_hint="--format"
        )
    template = form.replace("\\t", "\t").replace("\\n", "\n")

    def fill(message: Record) -> bytes:
        return _FIELD.sub(lambda match: _FIELDS[match[1]](message), template).encode("utf-8", "surrogateescape") + b"\n"

    return fill


def _text(data: bytes | None) -> str:
    return "" if data is None else data.decode("utf-8", "surrogateescape")


def _time(message: Record) -> str:
    moment = datetime.fromtimestamp(message.timestamp_ns / 1e9, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _headers(message: Record) -> str:
    return ",".join(f"{_name(name)}={_text(value)}" for name, value in message.headers)


def _name(name: str | bytes) -> str:
    return name if isinstance(name, str) else _text(name)


def as_json(message: Record) -> dict[str, object]:
    """The fields of the HTTP face: `value` as text, or `value_base64` when the bytes are not."""
    headers = [{"name": _name(name), **_either("value", value)} for name, value in message.headers]
    return {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp_ns // 1_000_000,
        **_either("key", message.key),
        **_either("value", message.value),
        "headers": headers,
        "priority": message.priority,
    }


def _either(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def _json_line(message: Record) -> bytes:
    return json.dumps(as_json(message), ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


_FORMS: dict[str, Form] = {
    "value": lambda message: (message.value or b"") + b"\n",
    "raw": lambda message: message.value or b"",
    "hex": lambda message: (message.value or b"").hex().encode() + b"\n",
    "json": _json_line,
}
_FIELDS: dict[str, Callable[[Record], str]] = {
    "topic": lambda message: message.topic or "",
    "partition": lambda message: str(message.partition),
    "offset": lambda message: str(message.offset),
    "timestamp": _time,
    "timestamp_ns": lambda message: str(message.timestamp_ns),
    "key": lambda message: _text(message.key),
    "value": lambda message: _text(message.value),
    "headers": _headers,
    "priority": lambda message: str(message.priority),
}
