"""`goqueue config`: names for brokers, so that commands need no address."""

from __future__ import annotations

from typing import Annotated

import typer

from goqueue.cli.contexts import Contexts
from goqueue.cli.options import ADDRESS_DEFAULT, OutputOption, output_format
from goqueue.cli.output import show_fields, show_rows

app = typer.Typer(help="Contexts: names for brokers.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME")]


@app.command("set-context")
def set_context(
    name: NameArgument, address: Annotated[str, typer.Option("--address", "-a", metavar="HOST:PORT")]
) -> None:
    """Add or change a context; the first one becomes the current one."""
    contexts = Contexts.load()
    contexts.set(name, address)
    contexts.save()
    print(f"context {name} is {address}" + (" (current)" if contexts.current == name else ""))


@app.command("use-context")
def use_context(name: NameArgument) -> None:
    """Make a context the current one."""
    contexts = Contexts.load()
    contexts.use(name)
    contexts.save()
    print(f"using {name} ({contexts.addresses[name]})")


@app.command("list")
def list_contexts(ctx: typer.Context, output: OutputOption = None) -> None:
    """All contexts."""
    contexts = Contexts.load()
    rows = [
        {"name": name, "address": address, "current": name == contexts.current}
        for name, address in sorted(contexts.addresses.items())
    ]
    columns = {"name": "NAME", "address": "ADDRESS", "current": "CURRENT"}
    show_rows(rows, columns, output_format(ctx, output))


@app.command("show")
def show(ctx: typer.Context, output: OutputOption = None) -> None:
    """The current context and where contexts are kept."""
    contexts = Contexts.load()
    address = contexts.addresses.get(contexts.current or "", ADDRESS_DEFAULT)
    fields = {"context": contexts.current, "address": address, "file": str(Contexts.path())}
    show_fields(fields, output_format(ctx, output))


@app.command("delete")
def delete(name: NameArgument) -> None:
    """Forget a context."""
    contexts = Contexts.load()
    contexts.delete(name)
    contexts.save()
    print(f"deleted context {name}")
