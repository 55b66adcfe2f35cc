"""`goqueue serve`: run a broker in this process until a signal ends it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Annotated

import typer

from goqueue import __version__

if TYPE_CHECKING:
    from goqueue.server import Addresses


def serve(
    data: Annotated[
        str | None, typer.Option("--data", metavar="DIR", help="Data directory. [env: GOQUEUE_DATA; default: ./data]")
    ] = None,
    http: Annotated[
        str | None,
        typer.Option("--http", metavar="HOST:PORT", help="HTTP port. [env: GOQUEUE_HTTP; default: 127.0.0.1:8080]"),
    ] = None,
    wire: Annotated[
        str | None,
        typer.Option("--wire", metavar="HOST:PORT", help="Wire port. [env: GOQUEUE_WIRE; default: 127.0.0.1:9000]"),
    ] = None,
    config: Annotated[
        str | None, typer.Option("--config", metavar="FILE", help="TOML file with settings. [env: GOQUEUE_CONFIG]")
    ] = None,
    log_level: Annotated[
        str | None,
        typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error. [env: GOQUEUE_LOG_LEVEL]"),
    ] = None,
    log_format: Annotated[
        str | None,
        typer.Option("--log-format", metavar="FORM", help="auto, json or human. [env: GOQUEUE_LOG_FORMAT]"),
    ] = None,
    print_addresses: Annotated[
        bool, typer.Option("--print-addresses", help="Print the addresses as one JSON line when ready.")
    ] = False,
) -> None:
    """Run a broker. A flag wins over the environment, that over the file, that over the default.

    Port 0 picks a free one. SIGTERM or Ctrl-C drains and ends; a second one ends at once.
    """
    # Loaded here, because the other commands need none of it and should start fast.
    from goqueue.server import configure_logging
    from goqueue.server import serve as run_server
    from goqueue.server.settings import load_settings

    flags = {"data": data, "http": http, "wire": wire, "log-level": log_level, "log-format": log_format}
    settings = load_settings(flags, os.environ, config)
    configure_logging(settings.log)
    run_server(settings, _print_json if print_addresses else _print_banner)


def _print_json(addresses: Addresses) -> None:
    print(json.dumps(addresses.as_dict()), flush=True)


def _print_banner(addresses: Addresses) -> None:
    option = "" if addresses.wire == "127.0.0.1:9000" else f" --address {addresses.wire}"
    print(
        f"GoQueue {__version__} is ready\n"
        f"  http  {addresses.http}\n"
        f"  wire  {addresses.wire}\n"
        f"  data  {addresses.data}\n"
        f"Try:  goqueue topic create hello{option}; goqueue produce hello world{option}; "
        f"goqueue consume hello{option}\n"
        "Stop with Ctrl-C.",
        flush=True,
    )
