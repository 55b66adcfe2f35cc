"""`goqueue pin`: what keeps retention from removing data."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from goqueue.cli.options import AddressOption, OutputOption, connect, output_format
from goqueue.cli.output import OutputFormat, show_rows

app = typer.Typer(
    help="Retention pins: offsets that a reader, such as a Spark query, may still need.", no_args_is_help=True
)


@app.command("list")
def list_pins(ctx: typer.Context, address: AddressOption = None, output: OutputOption = None) -> None:
    """All pins, with what they hold and until when."""
    form = output_format(ctx, output)
    with connect(ctx, address) as client:
        pins = client.list_pins()
    if form is OutputFormat.TABLE:
        for pin in pins:
            pin["offsets"] = " ".join(f"{number}:{offset}" for number, offset in pin["offsets"].items())
            pin["expires"] = datetime.fromtimestamp(pin["expires_ms"] / 1000, UTC).isoformat(timespec="seconds")
    show_rows(pins, {"name": "NAME", "topic": "TOPIC", "offsets": "OFFSETS", "expires": "EXPIRES"}, form)


@app.command("delete")
def delete(
    ctx: typer.Context, name: Annotated[str, typer.Argument(metavar="PIN")], address: AddressOption = None
) -> None:
    """Remove a pin; retention may then remove what it held."""
    with connect(ctx, address) as client:
        found = client.remove_pin(name)
    print(f"deleted pin {name}" if found else f"there is no pin {name}")
