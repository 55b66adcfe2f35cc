"""`goqueue delay`: messages that wait for their time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from goqueue.cli.options import AddressOption, OutputOption, connect, output_format
from goqueue.cli.output import OutputFormat, show_fields, show_rows
from goqueue.model.times import format_duration, parse_duration_ms, parse_time_ns

app = typer.Typer(help="Delayed messages.", no_args_is_help=True)

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC")]
PartitionArgument = Annotated[int, typer.Argument(metavar="PARTITION", min=0)]
OffsetArgument = Annotated[int, typer.Argument(metavar="OFFSET", min=0)]
DelayOption = Annotated[str | None, typer.Option("--delay", metavar="DURATION", help="From now on, e.g. 5m.")]
DeliverAtOption = Annotated[
    str | None, typer.Option("--deliver-at", metavar="TIME", help="RFC 3339 or milliseconds since 1970.")
]


@dataclass(frozen=True, slots=True)
class Times:
    """One of the two is set."""

    delay: timedelta | None = None
    deliver_at: float | None = None


def read_times(delay: str | None, deliver_at: str | None) -> Times | None:
    """The options as times; None when neither is given."""
    if delay is not None and deliver_at is not None:
        raise typer.BadParameter("give --delay or --deliver-at, not both")
    if delay is not None:
        milliseconds = parse_duration_ms(delay, "--delay")
        if milliseconds > 10**14:
            raise typer.BadParameter("--delay is too long")
        return Times(delay=timedelta(milliseconds=milliseconds))
    return None if deliver_at is None else Times(deliver_at=parse_time_ns(deliver_at, "--deliver-at") / 1e9)


@app.command("list")
def list_delayed(
    ctx: typer.Context,
    topic: TopicArgument,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000)] = 100,
    skip: Annotated[int, typer.Option("--skip", min=0)] = 0,
    address: AddressOption = None,
    output: OutputOption = None,
) -> None:
    """Pending messages of a topic, the earliest first."""
    form = output_format(ctx, output)
    with connect(ctx, address) as client:
        messages = client.delayed(topic, limit=limit, skip=skip)
    rows = [_readable(message) for message in messages] if form is OutputFormat.TABLE else messages
    columns = {"partition": "PARTITION", "offset": "OFFSET", "deliver_at": "DELIVER AT", "remaining": "REMAINING"}
    show_rows(rows, columns, form)


@app.command("show")
def show_delayed(
    ctx: typer.Context,
    topic: TopicArgument,
    partition: PartitionArgument,
    offset: OffsetArgument,
    address: AddressOption = None,
    output: OutputOption = None,
) -> None:
    """State and time of one message."""
    with connect(ctx, address) as client:
        _show(client.get_delayed(topic, partition, offset), output_format(ctx, output))


@app.command("cancel")
def cancel(
    ctx: typer.Context,
    topic: TopicArgument,
    partition: PartitionArgument,
    offset: OffsetArgument,
    address: AddressOption = None,
    output: OutputOption = None,
) -> None:
    """Cancel a message; exit code 1 when it is too late."""
    form = output_format(ctx, output)
    with connect(ctx, address) as client:
        answer = client.cancel_delayed(topic, partition, offset)
    if form is not OutputFormat.TABLE:
        show_fields(answer, form)
    elif answer["cancelled"]:
        print(f"cancelled {topic}/{partition} offset {offset}")
    else:
        print(f"{topic}/{partition} offset {offset} is {answer['state']} and was not cancelled")
    if not answer["cancelled"]:
        raise typer.Exit(1)


@app.command("reschedule")
def reschedule(
    ctx: typer.Context,
    topic: TopicArgument,
    partition: PartitionArgument,
    offset: OffsetArgument,
    delay: DelayOption = None,
    deliver_at: DeliverAtOption = None,
    address: AddressOption = None,
    output: OutputOption = None,
) -> None:
    """Give a pending message another time."""
    when = read_times(delay, deliver_at)
    if when is None:
        raise typer.BadParameter("give --delay or --deliver-at")
    with connect(ctx, address) as client:
        answer = client.reschedule_delayed(topic, partition, offset, delay=when.delay, deliver_at=when.deliver_at)
    _show(answer, output_format(ctx, output))


@app.command("stats")
def stats(ctx: typer.Context, address: AddressOption = None, output: OutputOption = None) -> None:
    """Pending, released, cancelled; how late releases were."""
    form = output_format(ctx, output)
    with connect(ctx, address) as client:
        found = client.delay_statistics()
    if form is OutputFormat.TABLE:
        found["topics"] = ", ".join(f"{name}: {count:,}" for name, count in found["topics"].items()) or "-"
    show_fields(found, form)


def _show(message: dict[str, Any], form: OutputFormat) -> None:
    show_fields(_readable(message) if form is OutputFormat.TABLE else message, form)


def _readable(message: dict[str, Any]) -> dict[str, Any]:
    """Times as people read them."""
    shown = dict(message)
    if "deliver_at" in shown:
        moment = datetime.fromtimestamp(shown["deliver_at"] / 1000, UTC)
        shown["deliver_at"] = moment.isoformat(timespec="milliseconds")
        shown["remaining"] = format_duration(shown.pop("remaining_ms") / 1000)
    return shown
