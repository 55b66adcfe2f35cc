"""Options of the `goqueue` data source, named as in Spark's Kafka connector where the meaning is the same.

Everything is checked on the driver before anything is planned, and every problem is reported at once.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from goqueue.client.client import isolation_level, parse_address
from goqueue.errors import ConfigurationError, GoQueueError
from goqueue.model import NAME_LENGTH_MAX, validate_name

BOOTSTRAP_DEFAULT = "127.0.0.1:9000"
ROWS_PER_TASK_DEFAULT = 500_000
# As Spark's Kafka connector writes them inside JSON offsets.
LATEST = -1
EARLIEST = -2

_KNOWN = {
    name.lower(): name
    for name in (
        "bootstrap",
        "path",
        "subscribe",
        "subscribePattern",
        "assign",
        "startingOffsets",
        "endingOffsets",
        "startingTimestamp",
        "endingTimestamp",
        "maxOffsetsPerTrigger",
        "minPartitions",
        "failOnDataLoss",
        "includeHeaders",
        "isolation",
        "rowsPerTask",
        "readFiles",
        "group",
    )
}
# What others call it, and what Spark itself puts among the options.
_ALIASES = {"kafka.bootstrap.servers": "bootstrap", "topic": "subscribe", "topics": "subscribe", "server": "bootstrap"}
_SPARKS_OWN = frozenset({"checkpointlocation", "queryname"})


class Edge(StrEnum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSETS = "offsets"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, slots=True)
class Boundary:
    """One end of what is read."""

    edge: Edge
    # topic -> partition -> offset, where LATEST and EARLIEST stand for what they say.
    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    timestamp_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    bootstrap: str
    path: str | None
    subscribe: tuple[str, ...]
    subscribe_pattern: str | None
    assign: Mapping[str, tuple[int, ...]]
    starting: Boundary
    ending: Boundary
    max_offsets_per_trigger: int | None
    min_partitions: int
    rows_per_task: int
    fail_on_data_loss: bool
    include_headers: bool
    # Whether executors may read the broker's files where they can reach them.
    read_files: bool
    isolation: str
    # The group that shows how far a stream is; nobody reads as a member of it.
    group: str


def read_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """The options of a query, or `ConfigurationError` with everything that is wrong with them."""
    return _Parser(given, streaming=streaming).run()


class _Parser:
    def __init__(self, given: Mapping[str, str], *, streaming: bool) -> None:
        self._given = {name.lower(): str(value) for name, value in given.items()}
        self._streaming = streaming
        self._problems: list[str] = []

    def run(self) -> SourceOptions:
        self._check_names()
        path = self._given.get("path")
        bootstrap = self._given.get("bootstrap", BOOTSTRAP_DEFAULT)
        if path is not None and "bootstrap" in self._given:
            self._problems.append("path reads files without a broker: give either path or bootstrap")
        self._try(lambda: parse_address(bootstrap))
        isolation = self._given.get("isolation", "read_committed")
        self._try(lambda: isolation_level(isolation))
        options = SourceOptions(
            bootstrap=bootstrap,
            path=path,
            subscribe=self._topics(),
            subscribe_pattern=self._pattern(),
            assign=self._assigned(),
            starting=self._boundary("starting", Edge.LATEST if self._streaming else Edge.EARLIEST),
            ending=self._boundary("ending", Edge.LATEST),
            max_offsets_per_trigger=self._number("maxOffsetsPerTrigger", None),
            min_partitions=self._number("minPartitions", 1) or 1,
            rows_per_task=self._number("rowsPerTask", ROWS_PER_TASK_DEFAULT) or ROWS_PER_TASK_DEFAULT,
            fail_on_data_loss=self._flag("failOnDataLoss", True),
            include_headers=self._flag("includeHeaders", False),
            read_files=self._flag("readFiles", True),
            isolation=isolation,
            group=self._group(),
        )
        if self._problems:
            raise ConfigurationError("; ".join(self._problems), problems=self._problems)
        return options

    def _check_names(self) -> None:
        for name in self._given:
            if name in _KNOWN or name in _SPARKS_OWN:
                continue
            close = difflib.get_close_matches(name, _KNOWN, n=1)
            meant = _ALIASES.get(name) or (_KNOWN[close[0]] if close else None)
            hint = f"did you mean {meant!r}?" if meant else f"known: {', '.join(_KNOWN.values())}"
            self._problems.append(f"unknown option {name!r}; {hint}")
        chosen = [name for name in ("subscribe", "subscribePattern", "assign") if name.lower() in self._given]
        if len(chosen) != 1:
            got = f"not {' and '.join(chosen)}" if chosen else "none is given"
            self._problems.append(f"exactly one of subscribe, subscribePattern and assign says what to read; {got}")
        if self._streaming:
            for name in ("endingOffsets", "endingTimestamp"):
                if name.lower() in self._given:
                    self._problems.append(f"{name} is for batch reads: a stream ends when it is stopped")
        elif "maxoffsetspertrigger" in self._given:
            self._problems.append("maxOffsetsPerTrigger is for streams")

    def _try(self, check: object) -> None:
        try:
            check()  # type: ignore[operator]
        except GoQueueError as error:
            self._problems.append(error.message)

    def _topics(self) -> tuple[str, ...]:
        names = tuple(name.strip() for name in self._given.get("subscribe", "").split(",") if name.strip())
        if "subscribe" in self._given and not names:
            self._problems.append("subscribe names no topic")
        for name in names:
            self._try(lambda name=name: validate_name(name))
        return names

    def _group(self) -> str:
        if (named := self._given.get("group")) is not None:
            self._try(lambda: validate_name(named, kind="group"))
            return named
        # Characters of patterns and assignments that no name may have become dashes.
        read = self._given.get("subscribe") or self._given.get("subscribepattern") or self._given.get("assign", "")
        return re.sub(r"[^A-Za-z0-9._-]+", "-", f"spark-{read}").strip("-")[:NAME_LENGTH_MAX]

    def _pattern(self) -> str | None:
        pattern = self._given.get("subscribepattern")
        try:
            re.compile(pattern or "")
        except re.error as error:
            self._problems.append(f"subscribePattern is not a regular expression: {error}")
        return pattern

    def _assigned(self) -> dict[str, tuple[int, ...]]:
        text = self._given.get("assign")
        if text is None:
            return {}
        found = self._json("assign", text)
        result = {}
        for topic, numbers in found.items():
            self._try(lambda topic=topic: validate_name(topic))
            if not isinstance(numbers, list) or not all(type(n) is int and n >= 0 for n in numbers):
                self._problems.append(f'assign: {topic!r} needs a list of partitions, as in {{"{topic}": [0, 1]}}')
            else:
                result[topic] = tuple(sorted(set(numbers)))
        return result

    def _boundary(self, word: str, default: Edge) -> Boundary:
        offsets, timestamp = self._given.get(f"{word}offsets"), self._given.get(f"{word}timestamp")
        if offsets is not None and timestamp is not None:
            self._problems.append(f"{word}Offsets and {word}Timestamp exclude each other")
        if timestamp is not None:
            number = self._number(f"{word}Timestamp", None)
            return Boundary(Edge.TIMESTAMP, timestamp_ms=number or 0)
        if offsets is None:
            return Boundary(default)
        if offsets in (Edge.EARLIEST, Edge.LATEST):
            if word == "ending" and offsets == Edge.EARLIEST:
                self._problems.append("endingOffsets cannot be earliest: nothing would be read")
            return Boundary(Edge(offsets))
        return Boundary(Edge.OFFSETS, offsets=self._partition_offsets(f"{word}Offsets", offsets))

    def _partition_offsets(self, name: str, text: str) -> dict[str, dict[int, int]]:
        result: dict[str, dict[int, int]] = {}
        for topic, partitions in self._json(name, text).items():
            if not isinstance(partitions, dict) or not all(
                number.isdecimal() and type(offset) is int and offset >= EARLIEST
                for number, offset in partitions.items()
            ):
                self._problems.append(
                    f'{name}: {topic!r} needs offsets by partition, as in {{"{topic}": {{"0": 42, "1": -2}}}} '
                    "(-2 is earliest, -1 latest)"
                )
            else:
                result[topic] = {int(number): offset for number, offset in partitions.items()}
        return result

    def _json(self, name: str, text: str) -> dict[str, object]:
        try:
            found = json.loads(text)
        except json.JSONDecodeError as error:
            self._problems.append(f"{name} is neither a word it knows nor JSON: {error}")
            return {}
        if not isinstance(found, dict):
            self._problems.append(f"{name} must be a JSON object")
            return {}
        return found

    def _number(self, name: str, default: int | None) -> int | None:
        text = self._given.get(name.lower())
        if text is None:
            return default
        if not text.isdecimal() or (int(text) < 1 and "Timestamp" not in name):
            self._problems.append(f"{name} must be a whole number above 0, not {text!r}")
            return default
        return int(text)

    def _flag(self, name: str, default: bool) -> bool:
        text = self._given.get(name.lower(), str(default)).lower()
        if text not in ("true", "false"):
            self._problems.append(f"{name} must be true or false, not {text!r}")
        return text == "true"
