"""`goqueue group`: list, describe, lag, offsets, reset-offsets, delete."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from goqueue.cli.consume import read_time
from goqueue.cli.options import AddressOption, OutputOption, connect, output_format
from goqueue.cli.output import OutputFormat, show, show_fields, show_rows

app = typer.Typer(help="Consumer groups.", no_args_is_help=True)

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP")]
TopicOption = Annotated[str | None, typer.Option("--topic", "-t", help="Only this topic.")]


@app.command("list")
def list_groups(ctx: typer.Context, address: AddressOption = None, output: OutputOption = None) -> None:
    """All groups."""
    with connect(ctx, address) as client:
        groups = client.list_groups()
    columns = {"id": "GROUP", "state": "STATE", "mode": "MODE", "members": "MEMBERS", "generation": "GENERATION"}
    show_rows(groups, columns, output_format(ctx, output))


@app.command("describe")
def describe(
    ctx: typer.Context, group: GroupArgument, address: AddressOption = None, output: OutputOption = None
) -> None:
    """State and members of a group, and what each of them owns."""
    form = output_format(ctx, output)
    with connect(ctx, address) as client:
        found = client.describe_group(group)
    if form is not OutputFormat.TABLE:
        show(found, form)
        return
    members = found.pop("members")
    show_fields({**found, "topics": ", ".join(found["topics"]) or None, "members": len(members)}, form)
    if members:
        print()
        rows = [{**member, "assigned": _places(member["assigned"])} for member in members]
        show_rows(rows, {"id": "MEMBER", "state": "STATE", "assigned": "ASSIGNED"}, form)


@app.command("lag")
def lag(ctx: typer.Context, group: GroupArgument, address: AddressOption = None, output: OutputOption = None) -> None:
    """How far a group is behind, by topic."""
    with connect(ctx, address) as client:
        rows = _rows(client.group_offsets(group))
    topics: dict[str, int] = {}
    for row in rows:
        topics[row["topic"]] = topics.get(row["topic"], 0) + row["lag"]
    show_rows(
        [{"topic": topic, "lag": behind} for topic, behind in topics.items()],
        {"topic": "TOPIC", "lag": "LAG"},
        output_format(ctx, output),
    )


@app.command("offsets")
def offsets(
    ctx: typer.Context,
    group: GroupArgument,
    topic: TopicOption = None,
    address: AddressOption = None,
    output: OutputOption = None,
) -> None:
    """Committed offsets and lag of every partition."""
    with connect(ctx, address) as client:
        rows = _rows(client.group_offsets(group, None if topic is None else [topic]))
    columns = {
        "topic": "TOPIC",
        "partition": "PARTITION",
        "offset": "COMMITTED",
        "log_end_offset": "END",
        "lag": "LAG",
        "metadata": "METADATA",
    }
    show_rows(rows, columns, output_format(ctx, output))


@app.command("reset-offsets")
def reset_offsets(
    ctx: typer.Context,
    group: GroupArgument,
    topic: Annotated[str, typer.Option("--topic", "-t", help="The topic whose offsets move.")],
    to: Annotated[
        str,
        typer.Option(
            "--to", help="earliest, latest, an offset, or a time with @: @2026-01-31T12:00:00Z, @1h30m (ago)."
        ),
    ],
    partition: Annotated[list[int] | None, typer.Option("--partition", "-p", help="Only this partition.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would happen.")] = False,
    address: AddressOption = None,
    output: OutputOption = None,
) -> None:
    """Move a group that has no active members."""
    with connect(ctx, address) as client:
        before = client.group_offsets(group, [topic])[topic]
        found = client.reset_offsets(group, topic, read_target(to), partitions=partition or None, dry_run=dry_run)
    rows = [{"partition": n, "before": before[str(n)]["offset"], "after": offset} for n, offset in found.items()]
    form = output_format(ctx, output)
    show_rows(rows, {"partition": "PARTITION", "before": "BEFORE", "after": "AFTER"}, form)
    if dry_run and form is OutputFormat.TABLE:
        print("nothing was changed")


@app.command("delete")
def delete(
    ctx: typer.Context,
    group: GroupArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    address: AddressOption = None,
) -> None:
    """Forget a group without members, and its offsets."""
    with connect(ctx, address) as client:
        if not yes:
            client.describe_group(group)
            typer.confirm(f"Delete group {group} and its offsets?", abort=True)
        client.delete_group(group)
    print(f"deleted group {group}")


def read_target(text: str) -> str | int | datetime:
    """A word, an offset, or a time behind an @."""
    if text in ("earliest", "latest"):
        return text
    if text.startswith("@"):
        return read_time(text[1:], datetime.now(UTC))
    if text.isdecimal():
        return int(text)
    raise typer.BadParameter(f"{text!r} is not earliest, latest, an offset or @TIME", param_hint="--to")


def _rows(offsets: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"topic": topic, "partition": int(number), **fields}
        for topic, numbers in offsets.items()
        for number, fields in numbers.items()
    ]


def _places(assigned: dict[str, list[int]]) -> str | None:
    return "; ".join(f"{topic}: {','.join(map(str, numbers))}" for topic, numbers in assigned.items()) or None
