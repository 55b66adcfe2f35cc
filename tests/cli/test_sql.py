"""`goqueue sql` and `goqueue pin` as a user runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import goqueue
from goqueue.cli.sql import shown, tables_of


def run(*arguments: str, address: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "goqueue", *arguments],
        env={**os.environ, "GOQUEUE_ADDRESS": address},
        capture_output=True,
        text=True,
        timeout=110,
    )


def test_a_query_prints_rows_of_topics_as_json(tmp_path: Path) -> None:
    with goqueue.open(str(tmp_path)) as broker:
        broker.create_topic("orders", partitions=1)
        broker.send("orders", b'{"id": 7}', key=b"k")
        query = "select offset, cast(key as string) k, value from orders"
        done = run("sql", query, "-o", "json", "--master", "local[1]", address=broker.address)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [{"offset": 0, "k": "k", "value": '{"id": 7}'}]


def test_a_directory_that_is_none_is_refused_before_spark_starts(tmp_path: Path) -> None:
    done = run("sql", "select 1", "--path", str(tmp_path / "nothing"))
    assert done.returncode == 1
    assert "is no GoQueue data directory" in done.stderr


def test_pins_are_listed_and_deleted(tmp_path: Path) -> None:
    with goqueue.open(str(tmp_path)) as broker:
        broker.create_topic("orders", partitions=2)
        broker.set_pin("job", "orders", {0: 0, 1: 0})
        assert "job" in run("pin", "list", address=broker.address).stdout
        assert "deleted pin job" in run("pin", "delete", "job", address=broker.address).stdout
        assert "there is no pin job" in run("pin", "delete", "job", address=broker.address).stdout
        assert broker.list_pins() == []


def test_only_topics_that_the_query_names_become_tables() -> None:
    assert tables_of("select * from `a.b` join orders-eu on x", ["a.b", "orders-eu", "orders"]) == ["a.b", "orders-eu"]


def test_bytes_are_shown_as_text_where_they_are_text() -> None:
    assert shown(bytearray(b"text")) == "text"
    assert shown(b"\xff") == "base64:/w=="
    assert shown([b"a", None]) == ["a", None]
