"""How results and errors reach the user: a table for people, JSON or YAML for programs; errors on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum

import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from goqueue.errors import GoQueueError


class OutputFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def show(value: object, form: OutputFormat) -> None:
    """Print data as JSON or YAML."""
    if form is OutputFormat.JSON:
        print(json.dumps(value, indent=2, ensure_ascii=False))
    else:
        print(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), end="")


def show_rows(rows: Sequence[Mapping[str, object]], columns: Mapping[str, str], form: OutputFormat) -> None:
    """A list of things: all their fields as data, or the chosen `columns` (field: title) as a table."""
    if form is not OutputFormat.TABLE:
        show([dict(row) for row in rows], form)
        return
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    numeric = {name for name in columns if rows and all(isinstance(row.get(name), int) for row in rows)}
    for name, title in columns.items():
        table.add_column(title, justify="right" if name in numeric else "left", overflow="fold")
    for row in rows:
        # As Text, because names and values may hold what rich would take for markup.
        table.add_row(*(Text(cell(row.get(name))) for name in columns))
    _console().print(table)


def show_fields(fields: Mapping[str, object], form: OutputFormat) -> None:
    """One thing: its fields below each other."""
    if form is not OutputFormat.TABLE:
        show(dict(fields), form)
        return
    width = max(map(len, fields), default=0)
    for name, value in fields.items():
        print(f"{name:<{width}}  {cell(value)}")


def cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def fail(error: GoQueueError) -> None:
    """Tell what went wrong, what to do and the stable code, on stderr."""
    print(f"error: {error.message} [{error.code}]", file=sys.stderr)
    hint = _HINTS.get(error.code)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)


_HINTS = {
    "TOPIC_NOT_FOUND": "`goqueue topic list` shows the topics, `goqueue topic create NAME` makes one",
    "TOPIC_EXISTS": "`goqueue topic alter NAME --config k=v` changes it",
    "GROUP_NOT_FOUND": "`goqueue group list` shows the groups",
    "GROUP_NOT_EMPTY": "`goqueue group describe GROUP` shows its members",
    "CONNECTION_LOST": "name the broker's wire port with --address HOST:PORT or GOQUEUE_ADDRESS",
    "PROTOCOL_ERROR": "is that the wire port (default 9000)? HTTP listens on another one",
    "OFFSET_OUT_OF_RANGE": "`goqueue topic describe NAME` shows the offsets that exist",
}


def _console() -> Console:
    # Piped tables are not cut to 80 columns.
    console = Console()
    return console if console.is_terminal else Console(width=200)
