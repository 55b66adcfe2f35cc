"""`goqueue produce`: messages from an argument, a file or stdin."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from goqueue.cli.delay import Times, read_times
from goqueue.cli.options import AddressOption, OutputOption, connect, output_format
from goqueue.cli.output import OutputFormat, fail, show
from goqueue.client import SendResult, SyncProducer
from goqueue.errors import GoQueueError

PRIORITIES = ("critical", "high", "normal", "low", "background")
# Messages handed over and not yet answered; what waits beyond it waits in the file.
_WINDOW = 10_000


class AcksChoice(StrEnum):
    NONE = "none"
    LEADER = "leader"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Outgoing:
    value: bytes | None
    key: bytes | None


@dataclass(slots=True)
class Tally:
    """What became of the messages: a range of offsets per partition, and the failures."""

    partitions: dict[int, list[int]] = field(default_factory=dict)
    count: int = 0
    failed: int = 0
    first_error: GoQueueError | None = None
    last: SendResult | None = None

    def add(self, partition: int, first: int, last: int, count: int) -> None:
        self.count += count
        low_high = self.partitions.setdefault(partition, [first, last, 0])
        low_high[:] = [min(low_high[0], first), max(low_high[1], last), low_high[2] + count]

    def add_result(self, answer: Future[SendResult]) -> None:
        try:
            result = answer.result()
        except GoQueueError as error:
            self.failed += 1
            self.first_error = self.first_error or error
        else:
            self.last = result
            self.add(result.partition, result.offset, result.offset, 1)


def produce(
    ctx: typer.Context,
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    value: Annotated[
        str | None, typer.Argument(metavar="[VALUE]", help="The message; without it, lines of stdin.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", exists=True, dir_okay=False, readable=True, help="One message per line."),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Key of every message.")] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", metavar="TEXT", help="Lines are KEY, this text, VALUE.")
    ] = None,
    header: Annotated[list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE")] = None,
    priority: Annotated[str, typer.Option("--priority", help="0 to 4, or critical to background.")] = "normal",
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0)] = None,
    acks: Annotated[AcksChoice, typer.Option("--acks", help="When a message counts as sent.")] = AcksChoice.ALL,
    delay: Annotated[
        str | None, typer.Option("--delay", metavar="DURATION", help="Visible after this time, e.g. 5m or 1h30m.")
    ] = None,
    deliver_at: Annotated[
        str | None,
        typer.Option("--deliver-at", metavar="TIME", help="Visible at this time: RFC 3339 or ms since 1970."),
    ] = None,
    tombstone: Annotated[bool, typer.Option("--tombstone", help="A null value, which deletes the key.")] = False,
    address: AddressOption = None,
    output: OutputOption = None,
) -> None:
    """Publish messages and print where they are."""
    level, headers = read_priority(priority), read_headers(header or [])
    _check_use(value, file, key, key_separator, tombstone)
    when = read_times(delay, deliver_at)
    single = tombstone or value is not None
    tally = Tally()
    with connect(ctx, address) as client, _lines(file, single) as lines:
        messages: Iterator[Outgoing]
        if single:
            text = None if value is None else _bytes(value)
            messages = iter([Outgoing(text, None if key is None else _bytes(key))])
        else:
            messages = _messages(lines, key, key_separator)
        # One message waits for no company.
        with client.producer(acks=acks.value, linger_ms=0 if single else 5) as producer:
            client.describe_topic(topic)
            if not single and not headers and when is None and level == 2 and key is None and key_separator is None:
                _send_values(producer, topic, _progress(messages, lines), partition, tally)
            else:
                _send_each(producer, topic, _progress(messages, lines), headers, level, partition, when, tally)
    _report(topic, tally, single, output_format(ctx, output))
    if tally.first_error is not None:
        fail(tally.first_error)
        raise typer.Exit(1)


def _check_use(value: str | None, file: Path | None, key: str | None, separator: str | None, tombstone: bool) -> None:
    if value is not None and file is not None:
        raise typer.BadParameter("give VALUE or --file, not both")
    if tombstone and (value is not None or file is not None or key is None):
        raise typer.BadParameter("--tombstone needs --key and no value")
    if separator is not None and (not separator or key is not None or value is not None):
        raise typer.BadParameter("--key-separator is for lines, without --key and VALUE")


def _bytes(text: str) -> bytes:
    # Arguments that are not UTF-8 arrive with surrogates; this gives back the bytes that were typed.
    return text.encode("utf-8", "surrogateescape")


def read_priority(text: str) -> int:
    """A number from 0 to 4 or its name."""
    if text in PRIORITIES:
        return PRIORITIES.index(text)
    if text not in {"0", "1", "2", "3", "4"}:
        raise typer.BadParameter(f"{text!r} is not 0 to 4 or one of {', '.join(PRIORITIES)}", param_hint="--priority")
    return int(text)


def read_headers(pairs: list[str]) -> list[tuple[str | bytes, str | bytes]]:
    headers: list[tuple[str | bytes, str | bytes]] = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint="--header")
        headers.append((_bytes(name), _bytes(value)))
    return headers


@contextmanager
def _lines(file: Path | None, single: bool) -> Iterator[BinaryIO | None]:
    if single:
        yield None
    elif file is None:
        if sys.stdin.isatty():
            print("reading messages from the keyboard, one per line; end with Ctrl-D", file=sys.stderr)
        yield sys.stdin.buffer
    else:
        with file.open("rb") as opened:
            yield opened


def _messages(lines: BinaryIO | None, key: str | None, separator: str | None) -> Iterator[Outgoing]:
    assert lines is not None
    fixed = None if key is None else _bytes(key)
    between = None if separator is None else _bytes(separator)
    for number, line in enumerate(lines, 1):
        text = line.removesuffix(b"\n").removesuffix(b"\r")
        if between is None:
            yield Outgoing(text, fixed)
            continue
        head, found, tail = text.partition(between)
        if not found:
            raise typer.BadParameter(f"line {number} does not hold the key separator {separator!r}")
        yield Outgoing(tail, head)


def _send_values(
    producer: SyncProducer, topic: str, messages: Iterable[Outgoing], partition: int | None, tally: Tally
) -> None:
    """The fast way for plain lines: whole batches, one result each."""
    source = iter(messages)
    while chunk := [message.value or b"" for message in islice(source, _WINDOW)]:
        for run in producer.send_many(topic, chunk, partition=partition):
            last = run.base_offset + run.count - 1 if run.base_offset >= 0 else -1
            tally.add(run.partition, run.base_offset, last, run.count)


def _send_each(
    producer: SyncProducer,
    topic: str,
    messages: Iterable[Outgoing],
    headers: list[tuple[str | bytes, str | bytes]],
    priority: int,
    partition: int | None,
    when: Times | None,
    tally: Tally,
) -> None:
    waiting: deque[Future[SendResult]] = deque()
    for message in messages:
        if len(waiting) >= _WINDOW:
            tally.add_result(waiting.popleft())
        times = (None, None) if when is None else (when.delay, when.deliver_at)
        waiting.append(producer.send(topic, message.value, message.key, headers or None, priority, partition, *times))
    for answer in waiting:
        tally.add_result(answer)


def _progress(messages: Iterator[Outgoing], lines: BinaryIO | None) -> Iterator[Outgoing]:
    """Show how far a long input has come, when there is somebody to look."""
    if lines is None or not sys.stderr.isatty() or (lines is sys.stdin.buffer and sys.stdin.isatty()):
        yield from messages
        return
    columns = (SpinnerColumn(), TextColumn("producing"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("producing", total=None)
        for count, message in enumerate(messages, 1):
            yield message
            if count % 1000 == 0:
                progress.update(task, completed=count)


def _report(topic: str, tally: Tally, single: bool, form: OutputFormat) -> None:
    if form is not OutputFormat.TABLE:
        show(_single_fields(topic, tally) if single else _summary_fields(topic, tally), form)
        return
    for number, (first, last, count) in sorted(tally.partitions.items()):
        where = f"{topic}/{number}"
        if first < 0:
            print(f"{where}: {count:,} sent without waiting for an answer")
        elif count == 1:
            print(f"{where}: offset {first}")
        else:
            print(f"{where}: {count:,} messages, offsets {first} to {last}")
    if tally.failed:
        print(f"{tally.failed:,} messages failed", file=sys.stderr)


def _single_fields(topic: str, tally: Tally) -> dict[str, object]:
    if tally.last is None:
        error = tally.first_error
        return {"topic": topic, "error": None if error is None else error.as_dict()}
    result = tally.last
    return {
        "topic": topic,
        "partition": result.partition,
        "offset": result.offset,
        "timestamp_ns": result.timestamp_ns,
        **({} if result.deliver_at_ms is None else {"deliver_at": result.deliver_at_ms}),
    }


def _summary_fields(topic: str, tally: Tally) -> dict[str, object]:
    partitions = {
        str(number): {"count": count, "first_offset": first, "last_offset": last}
        for number, (first, last, count) in sorted(tally.partitions.items())
    }
    return {"topic": topic, "messages": tally.count, "failed": tally.failed, "partitions": partitions}
