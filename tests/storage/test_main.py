"""`python -m goqueue.storage DIR` tells a person what is in a data directory, and why it cannot when it cannot."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from goqueue.host import OsDisk, OsEntropy
from goqueue.model import TopicPartition
from goqueue.storage import DataDirectory
from goqueue.storage.__main__ import main
from tests.storage.logs import append


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    directory = DataDirectory.open(OsDisk(), str(path), OsEntropy())
    for number in range(2):
        append(directory.open_log(TopicPartition("orders", number)), *[b"v"] * (number + 3))
    directory.close()
    return path


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "goqueue.storage", *arguments], capture_output=True, text=True, check=False
    )


def test_every_partition_is_one_line_of_json(path: Path) -> None:
    result = run(str(path))
    assert (result.returncode, result.stderr) == (0, "")
    head, *lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert head == {"directory": str(path), "partitions": 2}
    assert [(line["partition"], line["log_end_offset"]) for line in lines] == [("orders-0", 3), ("orders-1", 4)]
    assert all(line["recovery"]["was_clean"] for line in lines)
    assert all(line["damages"] == [] for line in lines)


def test_damage_is_shown(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = path / "logs/orders/0/00000000000000000000.log"
    log.write_bytes(log.read_bytes()[:-5])
    assert main([str(path)]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    [damage] = lines[1]["damages"]
    assert (damage["from_offset"], damage["to_offset"]) == (2, 3)
    assert damage["file"] == str(log)


def test_a_directory_in_use_is_an_error_in_one_line(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = DataDirectory.open(OsDisk(), str(path), OsEntropy())
    assert main([str(path)]) == 1
    directory.close()
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("goqueue: the data directory")
    assert output.err.count("\n") == 1


def test_a_path_that_is_no_directory_is_an_error_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    result = run(str(tmp_path / "file"))
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("goqueue: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [(), ("a", "b")])
def test_wrong_arguments_show_the_usage(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(list(arguments)) == 2
    assert "usage" in capsys.readouterr().err
