"""The examples run, as they are written."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import goqueue
from tests.server.process import environment

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with goqueue.open() as broker:
        yield broker.address


def run(*command: str, **variables: str) -> str:
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=100, env=environment(**variables), check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_the_asyncio_client(address: str) -> None:
    # Twice: an example must not fail because it was run before.
    for read in (1001, 2002):
        assert f"read {read} messages" in run(sys.executable, str(EXAMPLES / "produce_consume.py"), address)


def test_the_blocking_client(address: str) -> None:
    for _ in range(2):
        assert "b'hello'" in run(sys.executable, str(EXAMPLES / "sync_client.py"), address)


def test_the_embedded_broker(tmp_path: Path) -> None:
    assert "remember the milk" in run(sys.executable, str(EXAMPLES / "embedded.py"))
    for count in (1, 2):
        out = run(sys.executable, str(EXAMPLES / "embedded.py"), str(tmp_path / "data"))
        assert out.count("remember the milk") == count


def test_the_tour(tmp_path: Path) -> None:
    variables = {"GOQUEUE": f"{sys.executable} -m goqueue", "PYTHON": sys.executable, "TMPDIR": str(tmp_path)}
    out = run("bash", str(EXAMPLES / "tour.sh"), **variables)
    assert "1003 messages" in out
    assert "== Done" in out
    assert list(tmp_path.iterdir()) == [], "the tour cleans up after itself"


def test_every_example_has_a_test() -> None:
    tested = Path(__file__).read_text()
    for example in EXAMPLES.iterdir():
        assert example.name in tested, example.name


def test_the_client_documentation_shows_code_that_runs(tmp_path: Path) -> None:
    """Every Python block of docs/client.md, in order, as one program with a broker of its own."""
    text = (ROOT / "docs" / "client.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 5
    program = tmp_path / "blocks.py"
    with goqueue.open() as broker:
        for block in blocks:
            program.write_text(block.replace("127.0.0.1:9000", broker.address))
            run(sys.executable, str(program))
