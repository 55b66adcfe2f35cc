"""Where a setting came from: flags, environment, file, and the order in which they win.

A source turns what it holds into `Given` values, named by section and field, and collects what is wrong with it
instead of stopping at the first problem. It knows the names of the fields, not their meaning.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

# (section, field); the section of what stands outside all sections is "".
Name = tuple[str, str]

# Kubernetes puts variables of this shape into every container for each service, whatever the service is called.
_SERVICE_LINK = re.compile(r"_SERVICE_HOST$|_SERVICE_PORT(_|$)|_PORT_\d+_(TCP|UDP)")
PREFIX = "GOQUEUE_"


@dataclass(frozen=True, slots=True)
class Given:
    """A value and where it was written, in words that lead the reader there."""

    value: object
    where: str


@dataclass(slots=True)
class Source:
    values: dict[Name, Given] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def put(self, name: Name, value: object, where: str) -> None:
        if name in self.values:
            self.problems.append(f"{where}: already set by {self.values[name].where}; use one of them")
        self.values[name] = Given(value, where)

    def put_address(self, section: str, text: object, where: str) -> None:
        """HOST:PORT, [HOST]:PORT or just :PORT for all interfaces, as the fields `host` and `port` of a section."""
        host, colon, port = str(text).rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not colon or not port.isdecimal() or int(port) > 65_535:
            self.problems.append(f"{where}: {str(text)!r} is not HOST:PORT")
            return
        self.put((section, "host"), host or "0.0.0.0", where)
        self.put((section, "port"), int(port), where)


def from_flags(flags: Mapping[str, object], addresses: Iterable[str]) -> Source:
    """Flags by their name without dashes: `data`, an address section, or `section-field`. None means not given."""
    source = Source()
    for flag, value in flags.items():
        if value is None:
            continue
        if flag in addresses:
            source.put_address(flag, value, f"--{flag}")
        else:
            section, dash, name = flag.partition("-")
            source.put((section, name) if dash else ("", flag), value, f"--{flag}")
    return source


def from_environment(environment: Mapping[str, str], known: Iterable[Name], addresses: Iterable[str]) -> Source:
    """GOQUEUE_DATA, GOQUEUE_WIRE and GOQUEUE_<SECTION>_<FIELD>. An empty variable counts as not set."""
    source = Source()
    names = {variable_of(name): name for name in known}
    short = {f"{PREFIX}{section.upper()}": section for section in addresses}
    sections = tuple(f"{PREFIX}{section.upper()}_" for section, _ in names.values() if section)
    for variable, value in sorted(environment.items()):
        if not variable.startswith(PREFIX) or not value:
            continue
        if variable in short:
            source.put_address(short[variable], value, variable)
        elif variable in names:
            source.put(names[variable], value, variable)
        elif not _SERVICE_LINK.search(variable):
            close = _closest(variable, [*names, *short])
            # Other programs may use the prefix: outside our sections only what looks like a slip is refused.
            if variable.startswith(sections) or (close and variable not in OTHER_VARIABLES):
                source.problems.append(f"{variable}: unknown variable{_suggestion(close)}")
    return source


# Read by the commands, not by the server.
OTHER_VARIABLES = frozenset(
    PREFIX + name for name in ("ADDRESS", "CONFIG", "CONTEXT", "OUTPUT", "COMPLETE", "HTTP_URL")
)


def from_file(path: str, known: Iterable[Name], addresses: Iterable[str]) -> Source:
    """A TOML file with `data` on top and a table per section; `wire = "HOST:PORT"` is short for its host and port."""
    source = Source()
    try:
        with open(path, "rb") as file:
            document = tomllib.load(file)
    except OSError as error:
        source.problems.append(f"{path}: cannot be read: {error.strerror}")
        return source
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        source.problems.append(f"{path}: not valid TOML: {error}")
        return source
    names = set(known)
    sections = {section for section, _ in names if section}
    for key, value in document.items():
        if key in sections and isinstance(value, dict):
            _read_table(source, path, key, value, names)
        elif key in addresses and isinstance(value, str):
            source.put_address(key, value, f"{path}: {key}")
        elif ("", key) in names:
            source.put(("", key), value, f"{path}: {key}")
        elif key in sections:
            source.problems.append(f"{path}: {key}: must be a table, written as [{key}]")
        else:
            close = _closest(key, [*sections, *(name for section, name in names if not section)])
            source.problems.append(f"{path}: {key}: unknown key{_suggestion(close)}")
    return source


def _read_table(source: Source, path: str, section: str, table: dict[str, object], names: set[Name]) -> None:
    for key, value in table.items():
        where = f"{path}: [{section}] {key}"
        if (section, key) in names:
            source.put((section, key), value, where)
        else:
            close = _closest(key, [name for owner, name in names if owner == section])
            source.problems.append(f"{where}: unknown key{_suggestion(close)}")


def variable_of(name: Name) -> str:
    return PREFIX + "_".join(part for part in name if part).upper()


def _closest(word: str, known: list[str]) -> str | None:
    return next(iter(difflib.get_close_matches(word, known, n=1, cutoff=0.75)), None)


def _suggestion(close: str | None) -> str:
    return f"; did you mean {close}?" if close else ""
