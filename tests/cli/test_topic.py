from __future__ import annotations

import json

import yaml

from tests.cli.conftest import Run


def test_a_topic_lives_from_create_to_delete(run: Run) -> None:
    assert run("topic", "create", "life", "--partitions", "4", "-c", "retention_ms=1000").out == (
        "created topic life with 4 partitions\n"
    )
    described = json.loads(run("topic", "describe", "life", "-o", "json").out)
    assert (described["partitions"], described["config"]["retention_ms"]) == (4, 1000)
    assert run("topic", "alter", "life", "-c", "cleanup_policy=compact").code == 0
    listed = json.loads(run("topic", "list", "-o", "json").out)
    assert {t["name"]: t["config"]["cleanup_policy"] for t in listed}["life"] == "compact"
    assert run("topic", "delete", "life", "--yes").out == "deleted topic life\n"
    gone = run("topic", "describe", "life")
    assert gone.code == 1
    assert "TOPIC_NOT_FOUND" in gone.err
    assert "goqueue topic list" in gone.err


def test_lists_come_as_table_json_and_yaml(run: Run, topic: str) -> None:
    table = run("topic", "list").out
    assert table.splitlines()[0].split() == ["NAME", "PARTITIONS", "CLEANUP"]
    assert any(line.split() == [topic, "2", "delete"] for line in table.splitlines())
    assert yaml.safe_load(run("topic", "list", "-o", "yaml").out) == json.loads(run("topic", "list", "-o", "json").out)
    # The option may stand before the command too.
    assert json.loads(run("-o", "json", "topic", "list").out)


def test_describe_shows_settings_and_offsets(run: Run, topic: str) -> None:
    run("produce", topic, "x", "--partition", "1")
    out = run("topic", "describe", topic).out
    assert "retention_ms = 604,800,000" in out
    assert out.splitlines()[-1].split() == ["1", "0", "1"]


def test_delete_asks_and_takes_no_for_an_answer(run: Run, topic: str) -> None:
    refused = run("topic", "delete", topic, stdin=b"n\n")
    assert refused.code == 1
    assert "0 messages?" in refused.out
    assert run("topic", "describe", topic).code == 0
    assert run("topic", "delete", topic, stdin=b"y\n").code == 0
    assert run("topic", "describe", topic).code == 1


def test_what_the_broker_refuses_is_told_with_its_code(run: Run, topic: str) -> None:
    exists = run("topic", "create", topic)
    assert (exists.code, "TOPIC_EXISTS" in exists.err) == (1, True)
    unknown = run("topic", "alter", topic, "-c", "retention=5")
    assert (unknown.code, "unknown setting 'retention'" in unknown.err) == (1, True)
    assert run("topic", "create", "../x").code == 1


def test_wrong_use_is_exit_code_two(run: Run, topic: str) -> None:
    for arguments in (
        ["topic", "create"],
        ["topic", "create", "a", "--partitions", "0"],
        ["topic", "create", "a", "-c", "retention_ms"],
        ["topic", "alter", topic],
        ["topic", "list", "-o", "xml"],
        ["nonsense"],
    ):
        result = run(*arguments)
        assert result.code == 2, arguments
        assert "Traceback" not in result.err
