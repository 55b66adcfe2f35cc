"""`goqueue topic`: list, create, describe, alter, delete."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from goqueue.cli.options import AddressOption, OutputOption, connect, output_format
from goqueue.cli.output import OutputFormat, cell, show, show_fields, show_rows

app = typer.Typer(help="Topics.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="TOPIC")]
ConfigOption = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="KEY=VALUE", help="A setting of the topic, e.g. retention_ms=3600000."),
]


@app.command("list")
def list_topics(ctx: typer.Context, address: AddressOption = None, output: OutputOption = None) -> None:
    """All topics."""
    with connect(ctx, address) as client:
        topics = client.list_topics()
    rows = [{**topic, "cleanup_policy": topic["config"]["cleanup_policy"]} for topic in topics]
    columns = {"name": "NAME", "partitions": "PARTITIONS", "cleanup_policy": "CLEANUP"}
    form = output_format(ctx, output)
    show_rows(rows if form is OutputFormat.TABLE else topics, columns, form)


@app.command("create")
def create(
    ctx: typer.Context,
    name: NameArgument,
    partitions: Annotated[int, typer.Option("--partitions", "-p", min=1, help="How many partitions.")] = 3,
    config: ConfigOption = None,
    address: AddressOption = None,
    output: OutputOption = None,
) -> None:
    """Create a topic."""
    settings = read_settings(config or [])
    with connect(ctx, address) as client:
        topic = client.create_topic(name, partitions=partitions, config=settings)
    _changed(f"created topic {name} with {partitions} partition{'s' if partitions != 1 else ''}", topic, ctx, output)


@app.command("describe")
def describe(
    ctx: typer.Context, name: NameArgument, address: AddressOption = None, output: OutputOption = None
) -> None:
    """Settings, sizes and offsets of a topic."""
    form = output_format(ctx, output)
    with connect(ctx, address) as client:
        topic = client.describe_topic(name)
    if form is not OutputFormat.TABLE:
        show(topic, form)
        return
    offsets, settings = topic.pop("partition_offsets"), topic.pop("config")
    created = datetime.fromtimestamp(topic.pop("created_ms") / 1000, UTC)
    show_fields({**topic, "created": created.isoformat(timespec="seconds")}, form)
    print("\nsettings")
    for setting, value in settings.items():
        print(f"  {setting} = {cell(value)}")
    print()
    rows = [{"partition": int(number), **bounds} for number, bounds in offsets.items()]
    show_rows(rows, {"partition": "PARTITION", "earliest": "EARLIEST", "latest": "LATEST"}, form)


@app.command("alter")
def alter(
    ctx: typer.Context,
    name: NameArgument,
    config: ConfigOption = None,
    address: AddressOption = None,
    output: OutputOption = None,
) -> None:
    """Change settings of a topic."""
    settings = read_settings(config or [])
    if not settings:
        raise typer.BadParameter("name at least one setting: --config KEY=VALUE")
    with connect(ctx, address) as client:
        topic = client.alter_topic(name, settings)
    _changed(f"altered topic {name}: {', '.join(f'{k}={v}' for k, v in settings.items())}", topic, ctx, output)


@app.command("delete")
def delete(
    ctx: typer.Context,
    name: NameArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    address: AddressOption = None,
) -> None:
    """Delete a topic and its messages."""
    with connect(ctx, address) as client:
        if not yes:
            topic = client.describe_topic(name)
            typer.confirm(f"Delete topic {name} and its {topic['total_messages']:,} messages?", abort=True)
        client.delete_topic(name)
    print(f"deleted topic {name}")


def read_settings(pairs: list[str]) -> dict[str, object]:
    """KEY=VALUE pairs; whole numbers become numbers, and the broker judges the rest."""
    settings: dict[str, object] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{pair!r} is not KEY=VALUE", param_hint="--config")
        try:
            settings[name] = int(value)
        except ValueError:
            settings[name] = value
    return settings


def _changed(sentence: str, topic: dict[str, object], ctx: typer.Context, output: OutputFormat | None) -> None:
    form = output_format(ctx, output)
    if form is OutputFormat.TABLE:
        print(sentence)
    else:
        show(topic, form)
