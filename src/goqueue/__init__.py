"""GoQueue: a message broker that joins a replayable log with per-message delivery.

Importing the root costs nothing; `goqueue.open` loads the broker when it is first used.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["__version__", "open"]

__version__ = "0.1.0.dev0"


def open(path: str | None = None) -> Any:
    """A whole broker in this process, as a context manager with the blocking client's methods.

    Without a path the data lives in a temporary directory that is removed at the end. See `goqueue.embedded`.
    """
    return importlib.import_module("goqueue.embedded").open_broker(path)
