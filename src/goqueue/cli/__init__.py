"""The `goqueue` command: starts a broker and talks to one over the native protocol."""

from goqueue.cli.app import main

__all__ = ["main"]
