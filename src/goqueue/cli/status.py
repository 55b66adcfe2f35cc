"""`goqueue status` and `goqueue version`."""

from __future__ import annotations

import platform

import typer

from goqueue import __version__
from goqueue.cli.options import AddressOption, OutputOption, connect, output_format
from goqueue.cli.output import OutputFormat, show, show_fields


def status(ctx: typer.Context, address: AddressOption = None, output: OutputOption = None) -> None:
    """Whether the broker is ready, and why not. Exit code 1 when it is not."""
    form = output_format(ctx, output)
    with connect(ctx, address) as client:
        answer = client.status()
    if form is OutputFormat.TABLE:
        checks = answer.pop("checks", {})
        show_fields({**answer, **{f"check {name}": text for name, text in checks.items()}}, form)
    else:
        show(answer, form)
    if not answer["ready"]:
        raise typer.Exit(1)


def version(ctx: typer.Context, output: OutputOption = None) -> None:
    """The version of this program."""
    form = output_format(ctx, output)
    if form is OutputFormat.TABLE:
        print(f"goqueue {__version__} (Python {platform.python_version()})")
    else:
        show({"version": __version__, "python": platform.python_version()}, form)
