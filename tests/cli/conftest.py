"""The command in this process, against a broker in this process."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import goqueue
from goqueue.cli import main


@dataclass(frozen=True, slots=True)
class Result:
    code: int
    raw: bytes
    err: str

    @property
    def out(self) -> str:
        return self.raw.decode()


Run = Callable[..., Result]


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    with goqueue.open() as broker:
        yield broker.address


@pytest.fixture
def topic(request: pytest.FixtureRequest, run: Run) -> str:
    """A topic of its own for every test."""
    # From the whole id: tests of two files may share a name, and they share the broker.
    name = "".join(c if c.isalnum() else "-" for c in request.node.nodeid)[-200:]
    assert run("topic", "create", name, "-p", "2").code == 0
    return name


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> Run:
    """Runs `goqueue` with no address and no contexts."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    for name in ("GOQUEUE_ADDRESS", "GOQUEUE_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    # Width and colours must not depend on who runs the tests.
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*arguments: str, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "argv", ["goqueue", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsysbinary.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsysbinary.readouterr()
        code = ended.value.code
        return Result(code if isinstance(code, int) else int(code is not None), out, err.decode())

    return run


@pytest.fixture
def run(bare: Run, address: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("GOQUEUE_ADDRESS", address)
    return bare
