"""Options that many commands share, and how they find the broker: option, environment, context, default."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated

import typer

from goqueue.cli.contexts import Contexts
from goqueue.cli.output import OutputFormat
from goqueue.client import SyncClient
from goqueue.errors import InvalidRequestError

ADDRESS_DEFAULT = "127.0.0.1:9000"

AddressOption = Annotated[
    str | None,
    typer.Option("--address", "-a", metavar="HOST:PORT", help="Wire port of the broker. [env: GOQUEUE_ADDRESS]"),
]
ContextOption = Annotated[
    str | None, typer.Option("--context", metavar="NAME", help="Context to use. [env: GOQUEUE_CONTEXT]")
]
OutputOption = Annotated[OutputFormat | None, typer.Option("--output", "-o", help="Form of the output.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What was given before the command's name."""

    address: str | None = None
    context: str | None = None
    output: OutputFormat | None = None


def output_format(ctx: typer.Context, given: OutputFormat | None) -> OutputFormat:
    return given or root_defaults(ctx).output or OutputFormat.TABLE


def connect(ctx: typer.Context, given: str | None) -> SyncClient:
    """A client of the broker that the options, the environment or the current context name."""
    return SyncClient(resolve_address(root_defaults(ctx), given))


def resolve_address(defaults: Defaults, given: str | None) -> str:
    if address := given or defaults.address:
        return address
    if defaults.context is None and (address := os.environ.get("GOQUEUE_ADDRESS")):
        return address
    contexts = Contexts.load()
    name = defaults.context or os.environ.get("GOQUEUE_CONTEXT") or contexts.current
    if name is None:
        return ADDRESS_DEFAULT
    if name not in contexts.addresses:
        known = ", ".join(sorted(contexts.addresses)) or "none"
        raise InvalidRequestError(
            f"there is no context {name!r} (known: {known}); "
            f"make it with `goqueue config set-context {name} --address HOST:PORT`"
        )
    return contexts.addresses[name]


def root_defaults(ctx: typer.Context) -> Defaults:
    """The options given before the command."""
    return ctx.obj if isinstance(ctx.obj, Defaults) else Defaults()
