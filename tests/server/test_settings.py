"""Configuration: one precedence, every problem at once, every field reachable and documented."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from goqueue.errors import ConfigurationError
from goqueue.server import LogFormat, LogLevel, LogSettings, ServerConfig, configure_logging
from goqueue.server.settings import SECTIONS, known_names, load_settings
from goqueue.server.sources import variable_of

DOCUMENT = Path(__file__).parents[2] / "docs" / "configuration.md"


def problems_of(**sources: object) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(**sources)  # type: ignore[arg-type]
    problems = caught.value.context["problems"]
    assert isinstance(problems, list)
    assert all(problem in caught.value.message for problem in problems)
    return problems


def test_the_defaults_need_no_source() -> None:
    config = load_settings()
    assert (config.data, config.wire.port, config.log) == ("./data", 9000, LogSettings())
    assert config.http is not None
    assert config.http.port == 8080


def test_a_flag_wins_over_the_environment_that_over_the_file_that_over_the_default(tmp_path: Path) -> None:
    file = tmp_path / "goqueue.toml"
    file.write_text(
        'data = "file"\nhttp = "127.0.0.1:1"\n[wire]\nport = 1\nconnections_max = 11\n[log]\nlevel = "error"\n'
    )

    def load(flags: dict[str, object], environment: dict[str, str]) -> ServerConfig:
        return load_settings(flags, environment, str(file))

    by_file = load({}, {})
    assert (by_file.data, by_file.wire.port, by_file.http and by_file.http.port) == ("file", 1, 1)
    by_environment = load({}, {"GOQUEUE_DATA": "env", "GOQUEUE_WIRE_PORT": "2", "GOQUEUE_HTTP": "127.0.0.1:2"})
    assert (by_environment.data, by_environment.wire.port) == ("env", 2)
    assert by_environment.wire.connections_max == 11
    by_flag = load({"data": "flag", "wire": "0.0.0.0:3", "log-level": "debug"}, {"GOQUEUE_WIRE": "127.0.0.1:2"})
    assert (by_flag.data, by_flag.wire.host, by_flag.wire.port) == ("flag", "0.0.0.0", 3)
    assert by_flag.log.level is LogLevel.DEBUG


def test_the_file_can_be_named_by_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "goqueue.toml"
    file.write_text('data = "here"\n')
    assert load_settings({}, {"GOQUEUE_CONFIG": str(file)}).data == "here"


@pytest.mark.parametrize("name", [name for name in known_names() if name[0]], ids=".".join)
def test_every_field_can_be_set_in_the_file_and_in_the_environment(name: tuple[str, str], tmp_path: Path) -> None:
    section, field = name
    default = getattr(SECTIONS[section](), field)
    if isinstance(default, bool):
        value: object = not default
    elif isinstance(default, int):
        value = default - 1 if field.endswith("percent") else default + 1
    else:
        value = {"host": "0.0.0.0", "level": "error", "format": "json"}[field]
    by_environment = load_settings({}, {variable_of(name): str(value)})
    assert getattr(getattr(by_environment, section), field) == value
    file = tmp_path / "goqueue.toml"
    file.write_text(f"[{section}]\n{field} = {json.dumps(value)}\n")
    assert getattr(getattr(load_settings(file=str(file)), section), field) == value


def test_all_problems_are_reported_together_with_where_they_came_from(tmp_path: Path) -> None:
    file = tmp_path / "goqueue.toml"
    file.write_text(
        'data = 5\ndaata = "x"\nwire = 3\n[broker]\nsync_within_ms = "soon"\ndisk_warn_percent = 95\n'
        "fetch_byte_max = 1\n[http]\nmetrics_per_partition = 2\n"
    )
    environment = {"GOQUEUE_WIRE_CONNECTIONS_MAX": "0", "GOQUEUE_BROKER_NONSENSE": "1", "GOQUEUE_HTTP": "8080"}
    found = problems_of(flags={"log-level": "loud", "wire": "127.0.0.1"}, environment=environment, file=str(file))
    text = "\n".join(found)
    for expected in (
        f"{file}: data: must be a path",
        f"{file}: daata: unknown key; did you mean data?",
        f"{file}: wire: must be a table",
        f"{file}: [broker] sync_within_ms: must be a whole number, not 'soon'",
        f"{file}: [broker] disk_warn_percent: disk_warn_percent <= disk_refuse_percent",
        f"{file}: [broker] fetch_byte_max: unknown key; did you mean fetch_bytes_max?",
        f"{file}: [http] metrics_per_partition: must be true or false",
        "GOQUEUE_WIRE_CONNECTIONS_MAX: connections_max must be at least 1",
        "GOQUEUE_BROKER_NONSENSE: unknown variable",
        "GOQUEUE_HTTP: '8080' is not HOST:PORT",
        "--log-level: must be one of debug, info, warning, error",
        "--wire: '127.0.0.1' is not HOST:PORT",
    ):
        assert expected in text
    assert len(found) == 12


def test_a_file_that_cannot_be_read_or_parsed_is_named(tmp_path: Path) -> None:
    assert "cannot be read" in problems_of(file=str(tmp_path / "none.toml"))[0]
    broken = tmp_path / "broken.toml"
    broken.write_text("[wire\n")
    assert "not valid TOML" in problems_of(file=str(broken))[0]


def test_an_address_and_its_port_from_one_source_contradict_each_other() -> None:
    environment = {"GOQUEUE_WIRE": "127.0.0.1:1", "GOQUEUE_WIRE_PORT": "2"}
    assert problems_of(environment=environment) == ["GOQUEUE_WIRE_PORT: already set by GOQUEUE_WIRE; use one of them"]


def test_variables_of_others_are_left_alone_and_slips_are_not() -> None:
    others = {
        "GOQUEUE_SERVICE_HOST": "10.0.0.1",
        "GOQUEUE_WIRE_SERVICE_PORT": "9000",
        "GOQUEUE_WIRE_PORT_9000_TCP": "tcp://10.0.0.1:9000",
        "GOQUEUE_TEAM_COLOUR": "blue",
        "GOQUEUE_ADDRESS": "somewhere:9000",
    }
    assert load_settings({}, others).wire.port == 9000
    assert problems_of(environment={"GOQUEUE_DATTA": "x"}) == [
        "GOQUEUE_DATTA: unknown variable; did you mean GOQUEUE_DATA?"
    ]


def test_the_documentation_names_every_field_with_its_default() -> None:
    text = DOCUMENT.read_text()
    for section, owner in SECTIONS.items():
        table = re.search(rf"^## \[{section}\]$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
        assert table, f"docs/configuration.md has no section [{section}]"
        documented = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", table[1], re.MULTILINE))
        expected = {field.name: str(field.default).lower() for field in fields(owner)}
        assert {name: value.replace("_", "") for name, value in documented.items()} == {
            name: value.replace("_", "") for name, value in expected.items()
        }


@pytest.fixture
def root_logger() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield root
    root.handlers[:] = handlers
    root.setLevel(level)


def test_json_logs_carry_the_extra_fields(root_logger: logging.Logger) -> None:
    stream = io.StringIO()
    configure_logging(LogSettings(level=LogLevel.INFO), stream)
    logger = logging.getLogger("goqueue.test")
    logger.debug("not shown")
    logger.info("closed %s", "it", extra={"peer": "1.2.3.4", "where": {"a": 1}, "odd": object, "time": "mine"})
    try:
        raise ValueError("boom")
    except ValueError:
        logger.exception("failed")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first["message"] == "closed it"
    assert (first["level"], first["logger"], first["peer"]) == ("info", "goqueue.test", "1.2.3.4")
    assert first["where"] == {"a": 1}
    assert first["extra_time"] == "mine"
    assert "ValueError: boom" in second["exception"]


def test_human_logs_are_one_line_with_the_extra_fields(root_logger: logging.Logger) -> None:
    stream = io.StringIO()
    configure_logging(LogSettings(format=LogFormat.HUMAN), stream)
    logging.getLogger("goqueue.test").warning("connection closed", extra={"reason": "did not greet", "port": 5})
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d\.\d{3} WARNING connection closed  reason='did not greet' port=5\n", stream.getvalue()
    )
