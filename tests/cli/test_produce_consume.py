from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import typer

from goqueue.cli.consume import read_time
from tests.cli.conftest import Run


def test_a_value_goes_in_and_comes_out(run: Run, topic: str) -> None:
    sent = run("produce", topic, "hello", "-k", "k", "-H", "a=1", "-H", "a=2", "--priority", "high", "-p", "1")
    assert sent.out == f"{topic}/1: offset 0\n"
    assert run("consume", topic).out == "hello\n"
    message = json.loads(run("consume", topic, "--format", "json").out)
    assert (message["partition"], message["offset"], message["priority"]) == (1, 0, 1)
    assert (message["key"], message["value"]) == ("k", "hello")
    assert message["headers"] == [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}]


def test_lines_of_stdin_become_messages_in_order(run: Run, topic: str) -> None:
    lines = b"".join(b"line %d\n" % n for n in range(2500))
    sent = json.loads(run("produce", topic, "-p", "0", "-o", "json", stdin=lines + b"last without newline").out)
    assert sent["messages"] == 2501
    assert sent["partitions"]["0"] == {"count": 2501, "first_offset": 0, "last_offset": 2500}
    assert run("consume", topic).raw == lines + b"last without newline\n"


def test_lines_of_a_file_with_keys(run: Run, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"a=1\nb=2\r\na=x=y\n")
    assert run("produce", topic, "-f", str(file), "--key-separator", "=").code == 0
    shown = run("consume", topic, "--format", "{key}>{value}").out.splitlines()
    assert sorted(shown) == ["a>1", "a>x=y", "b>2"]
    assert shown.index("a>1") < shown.index("a>x=y")
    bad = run("produce", topic, "--key-separator", "=", stdin=b"nothing here\n")
    assert (bad.code, "line 1" in bad.err) == (2, True)


@pytest.mark.parametrize("acks", ["none", "leader", "all"])
def test_every_level_of_acknowledgement(run: Run, topic: str, acks: str) -> None:
    assert run("produce", topic, "x", "--acks", acks, "-p", "0").code == 0
    assert run("consume", topic, "-f", "-b", "-n", "1").out == "x\n"


def test_a_tombstone_and_bytes_survive(run: Run, topic: str) -> None:
    assert run("produce", topic, "-k", "gone", "--tombstone", "-p", "0").code == 0
    assert run("produce", topic, "-p", "0", stdin=b"\xff\xfe\n").code == 0
    first, second = map(json.loads, run("consume", topic, "--format", "json").out.splitlines())
    assert first["value"] is None
    assert base64.b64decode(second["value_base64"]) == b"\xff\xfe"
    assert run("consume", topic, "--format", "hex", "--offset", "1", "-p", "0").out == "fffe\n"
    assert run("consume", topic, "--format", "raw", "--offset", "1", "-p", "0").raw == b"\xff\xfe"


def test_a_message_that_is_refused_is_reported_and_the_code_is_one(run: Run) -> None:
    run("topic", "create", "small", "-p", "1", "-c", "max_message_bytes=5")
    result = run("produce", "small", "too long", "-o", "json")
    assert result.code == 1
    assert json.loads(result.out)["error"]["code"] == "VALUE_TOO_LARGE"
    assert "VALUE_TOO_LARGE" in result.err
    missing = run("produce", "missing", "x")
    assert (missing.code, "TOPIC_NOT_FOUND" in missing.err) == (1, True)


def test_reading_starts_and_ends_where_it_is_told(run: Run, topic: str) -> None:
    run("produce", topic, "-p", "0", stdin=b"0\n1\n2\n3\n")
    assert run("consume", topic, "-n", "2").out == "0\n1\n"
    assert run("consume", topic, "--offset", "2", "-p", "0").out == "2\n3\n"
    assert run("consume", topic, "-p", "1").out == ""
    assert run("consume", topic, "--time", "1h").out == "0\n1\n2\n3\n"
    assert run("consume", topic, "--time", (datetime.now(UTC) + timedelta(hours=1)).isoformat()).out == ""
    template = "{topic}/{partition}@{offset}={value}{headers} {priority}"
    assert run("consume", topic, "-n", "1", "--format", template).out == f"{topic}/0@0=0 2\n"


def test_times_are_read_in_three_forms() -> None:
    now = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert read_time("1h30m", now) == now - timedelta(hours=1, minutes=30)
    assert read_time("1769860800000", now) == now
    assert read_time("2026-01-31T12:00:00Z", now) == now
    with pytest.raises(typer.BadParameter):
        read_time("yesterday", now)


def test_wrong_use_is_exit_code_two(run: Run, topic: str, tmp_path: Path) -> None:
    for arguments in (
        ["produce"],
        ["produce", topic, "x", "--priority", "5"],
        ["produce", topic, "x", "-H", "novalue"],
        ["produce", topic, "x", "-f", str(tmp_path / "missing")],
        ["produce", topic, "--tombstone"],
        ["produce", topic, "x", "--acks", "some"],
        ["consume"],
        ["consume", topic, "--format", "xml"],
        ["consume", topic, "--format", "{nonsense}"],
        ["consume", topic, "-b", "--offset", "1"],
        ["consume", topic, "--time", "soon"],
        ["consume", topic, "-n", "0"],
    ):
        result = run(*arguments)
        assert result.code == 2, arguments
        assert "Traceback" not in result.err
    bad = run("consume", topic, "-p", "9")
    assert (bad.code, "no partition 9" in bad.err) == (1, True)
