"""What the broker says about itself, on stderr: JSON lines for machines, one readable line for people.

Both forms carry the `extra` fields of a record, because the message is the same for every occurrence and the fields
are what tell them apart. Nothing here writes to stdout, which belongs to the commands.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TextIO

import msgspec


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    # Human on a terminal, JSON elsewhere.
    AUTO = "auto"
    JSON = "json"
    HUMAN = "human"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    # Records below this level are not written.
    level: LogLevel = LogLevel.INFO
    format: LogFormat = LogFormat.AUTO


# What every record has; the rest came in through `extra`.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


def extra_fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, then the extra fields, then the traceback if any."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in extra_fields(record).items():
            # An extra field must not pass itself off as one of ours.
            fields[f"extra_{name}" if name in fields else name] = value
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(fields, enc_hook=repr).decode()


class HumanFormatter(logging.Formatter):
    """`12:30:01.250 WARNING connection closed  peer=... reason=...`"""

    def format(self, record: logging.LogRecord) -> str:
        clock = datetime.fromtimestamp(record.created).strftime("%H:%M:%S.%f")[:-3]
        fields = " ".join(f"{name}={_readable(value)}" for name, value in extra_fields(record).items())
        line = f"{clock} {record.levelname:<7} {record.getMessage()}" + (f"  {fields}" if fields else "")
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def configure_logging(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Send every logger of this process to `stream` (stderr), in the form and from the level asked for."""
    stream = stream or sys.stderr
    human = settings.format is LogFormat.HUMAN or (settings.format is LogFormat.AUTO and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(HumanFormatter() if human else JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())
    # These bring handlers of their own, which would say everything twice.
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True


def _timestamp(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _readable(value: object) -> str:
    text = str(value)
    return repr(text) if not text or any(character.isspace() for character in text) else text
