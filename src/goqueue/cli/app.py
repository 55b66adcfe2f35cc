"""The root of the command line: what commands there are, and how trouble is told.

An error of ours is a message on stderr with what to do and exit code 1; a wrong use is exit code 2. Nobody but a
programmer is ever shown a traceback.
"""

from __future__ import annotations

import os
import sys

import typer

from goqueue.cli import config, consume, delay, group, pin, produce, serve, sql, status, topic
from goqueue.cli.options import AddressOption, ContextOption, Defaults, OutputOption
from goqueue.cli.output import fail
from goqueue.errors import GoQueueError

app = typer.Typer(
    name="goqueue",
    help="A message broker that joins a replayable log with per-message delivery.",
    epilog="First steps: `goqueue serve`, then in another terminal `goqueue topic create orders`, "
    "`goqueue produce orders hello`, `goqueue consume orders`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("serve")(serve.serve)
app.add_typer(topic.app, name="topic")
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.add_typer(pin.app, name="pin")
app.command("sql")(sql.sql)
app.add_typer(group.app, name="group")
app.add_typer(delay.app, name="delay")
app.command("status")(status.status)
app.add_typer(config.app, name="config")
app.command("version")(status.version)


@app.callback()
def root(
    ctx: typer.Context, address: AddressOption = None, context: ContextOption = None, output: OutputOption = None
) -> None:
    # Options given before the command are defaults for the same options after it.
    ctx.obj = Defaults(address=address, context=context, output=output)


def main() -> None:
    """The console script."""
    try:
        app(prog_name="goqueue")
    except GoQueueError as error:
        fail(error)
        sys.exit(1)
    except BrokenPipeError:
        # The reader of our output has gone, as `head` does. Python would complain again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
