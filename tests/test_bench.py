"""The benchmarks run: every case gives figures at its tiniest size. How fast anything is, no test asks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("crc32c")

REPOSITORY = Path(__file__).parents[1]


def run_bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(REPOSITORY / "src"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "bench", *arguments]
    return subprocess.run(
        command, cwd=REPOSITORY, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=100
    )


def test_a_quick_run_measures_every_case_and_leaves_nothing_behind(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    scratch = tmp_path / "scratch"
    done = run_bench("--quick", "--json", str(figures), "--directory", str(scratch))
    assert done.returncode == 0, done.stderr
    document = json.loads(figures.read_text())
    assert document["quick"]
    assert document["machine"]["cores"] > 0
    for case in document["cases"]:
        assert case["error"] is None
        assert case["measurements"], f"{case['name']} gave no figure"
        assert case["measurements"][0]["name"] in done.stdout
    assert list(scratch.iterdir()) == []


def test_an_unknown_name_is_refused_with_the_names_there_are() -> None:
    done = run_bench("no-such-suite")
    assert done.returncode == 2
    assert "kernel" in done.stderr
