"""The server's configuration, composed from its sources: flag > environment > file > default.

Every field of every section can be set in the file and in the environment. All problems are reported at once, each
with the place it came from; a configuration with a problem starts nothing.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import fields
from enum import StrEnum
from typing import Any

from goqueue.broker import BrokerConfig
from goqueue.errors import ConfigurationError
from goqueue.frontends.http.config import HttpConfig
from goqueue.frontends.wire import WireConfig
from goqueue.server.logs import LogSettings
from goqueue.server.server import ServerConfig
from goqueue.server.sources import Given, Name, Source, from_environment, from_file, from_flags

# Sections and the classes that own their fields; docs/configuration.md lists every field.
SECTIONS: dict[str, type[Any]] = {"broker": BrokerConfig, "wire": WireConfig, "http": HttpConfig, "log": LogSettings}
# Sections whose address has a short form, as a flag, a variable and a key: HOST:PORT.
ADDRESSES = ("http", "wire")


def known_names() -> list[Name]:
    return [("", "data"), *((section, field.name) for section, owner in SECTIONS.items() for field in fields(owner))]


def load_settings(
    flags: Mapping[str, object] | None = None, environment: Mapping[str, str] | None = None, file: str | None = None
) -> ServerConfig:
    """Compose the configuration; `ConfigurationError` names everything that is wrong with it."""
    flags, environment = flags or {}, environment or {}
    file = file or environment.get("GOQUEUE_CONFIG") or None
    names = known_names()
    sources = [
        from_file(file, names, ADDRESSES) if file else Source(),
        from_environment(environment, names, ADDRESSES),
        from_flags(flags, ADDRESSES),
    ]
    problems = [problem for source in sources for problem in source.problems]
    given: dict[Name, Given] = {}
    for source in sources:
        given.update(source.values)
    sections = {section: _section(section, given, problems) for section in SECTIONS}
    data = given.get(("", "data"), Given(ServerConfig.__dataclass_fields__["data"].default, "default"))
    if not isinstance(data.value, str) or not data.value:
        problems.append(f"{data.where}: must be a path, not {data.value!r}")
    if problems:
        raise ConfigurationError(
            "the configuration is invalid:\n" + "\n".join(f"  {problem}" for problem in problems), problems=problems
        )
    return ServerConfig(data=str(data.value), **sections)


def _section(section: str, given: Mapping[Name, Given], problems: list[str]) -> Any:
    """The section's object from what was given for it; its own validation is traced back to where a value came from."""
    owner = SECTIONS[section]
    hints = typing.get_type_hints(owner)
    values: dict[str, object] = {}
    for field in fields(owner):
        if (found := given.get((section, field.name))) is None:
            continue
        try:
            values[field.name] = convert(found.value, hints[field.name])
        except ValueError as error:
            problems.append(f"{found.where}: {error}")
    try:
        return owner(**values)
    except ConfigurationError as error:
        named = error.context.get("problems", [error.message])
        assert isinstance(named, list)
        problems.extend(f"{_where(section, str(problem), given)}: {problem}" for problem in named)
        return None


def _where(section: str, problem: str, given: Mapping[Name, Given]) -> str:
    """Problems begin with the field they are about."""
    found = given.get((section, problem.split(" ", 1)[0].rstrip(":")))
    return found.where if found else f"[{section}]"


def convert(value: object, wanted: Any) -> object:
    """`value`, which may be text from the environment, as the type of a field; `ValueError` says what is expected."""
    if isinstance(wanted, types.UnionType) or typing.get_origin(wanted) is typing.Union:
        options = [option for option in typing.get_args(wanted) if option is not type(None)]
        return None if value in ("", "none") else convert(value, options[0])
    if typing.get_origin(wanted) in (tuple, list, frozenset):
        return _convert_list(value, wanted)
    if wanted is bool:
        return _convert_bool(value)
    if wanted in (int, float):
        return _convert_number(value, wanted)
    if isinstance(wanted, type) and issubclass(wanted, StrEnum):
        if value not in list(wanted):
            raise ValueError(f"must be one of {', '.join(wanted)}, not {value!r}")
        return wanted(str(value))
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {value!r}")
    return value


def _convert_bool(value: object) -> bool:
    words = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    raise ValueError(f"must be true or false, not {value!r}")


def _convert_number(value: object, wanted: type[int] | type[float]) -> int | float:
    kind = "a whole number" if wanted is int else "a number"
    if isinstance(value, bool) or not isinstance(value, str | int | wanted):
        raise ValueError(f"must be {kind}, not {value!r}")
    try:
        return wanted(value)
    except ValueError:
        raise ValueError(f"must be {kind}, not {value!r}") from None


def _convert_list(value: object, wanted: Any) -> object:
    item, origin = typing.get_args(wanted)[0], typing.get_origin(wanted)
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, list):
        raise ValueError(f"must be a list, not {value!r}")
    return origin(convert(part, item) for part in value)
