from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import goqueue
from tests.cli.conftest import Run
from tests.server.process import environment


def test_contexts_name_brokers(bare: Run, address: str, tmp_path: Path) -> None:
    assert bare("config", "list").code == 0
    assert bare("config", "set-context", "test", "--address", address).out == f"context test is {address} (current)\n"
    assert bare("config", "set-context", "other", "-a", "127.0.0.1:1").code == 0
    assert bare("status").code == 0
    assert bare("--context", "other", "status").code == 1
    assert bare("config", "use-context", "other").code == 0
    assert bare("status").code == 1
    assert bare("status", "--address", address).code == 0
    rows = json.loads(bare("config", "list", "-o", "json").out)
    assert rows == [
        {"name": "other", "address": "127.0.0.1:1", "current": True},
        {"name": "test", "address": address, "current": False},
    ]
    assert json.loads(bare("config", "show", "-o", "json").out) == {
        "context": "other",
        "address": "127.0.0.1:1",
        "file": str(tmp_path / "xdg" / "goqueue" / "config.toml"),
    }
    assert bare("config", "delete", "other").code == 0
    assert json.loads(bare("config", "show", "-o", "json").out)["context"] is None


def test_a_context_that_is_wrong_or_missing_is_refused(bare: Run, tmp_path: Path) -> None:
    assert bare("config", "set-context", "a b", "--address", "h:1").code == 1
    assert bare("config", "set-context", "a", "--address", "nowhere").code == 1
    assert "there is no context 'x'" in bare("config", "use-context", "x").err
    assert "there is no context 'x'" in bare("--context", "x", "status").err
    file = tmp_path / "xdg" / "goqueue" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text("contexts = 3")
    broken = bare("status")
    assert (broken.code, str(file) in broken.err) == (1, True)


def test_status_tells_what_the_broker_is(run: Run) -> None:
    answer = json.loads(run("status", "-o", "json").out)
    assert answer["ready"] is True
    assert answer["version"] == goqueue.__version__
    assert answer["checks"]["disk"] in {"ok", "warning"}
    assert "check storage" in run("status").out


def test_the_version_needs_no_broker(bare: Run) -> None:
    assert bare("version").out.startswith(f"goqueue {goqueue.__version__} ")
    assert json.loads(bare("version", "-o", "json").out)["version"] == goqueue.__version__


def test_a_refused_connection_is_a_message_and_not_a_traceback(bare: Run) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = "{}:{}".format(*probe.getsockname())
        for command in (["status"], ["topic", "list"], ["produce", "t", "x"], ["consume", "t"]):
            result = bare(*command, "--address", address)
            assert result.code == 1
            assert f"no broker answers at {address}" in result.err
            assert "goqueue serve" in result.err
            assert "Traceback" not in result.err
    assert bare("status", "--address", "nonsense").code == 1


def test_every_command_has_help(bare: Run) -> None:
    for command in ([], ["serve"], ["topic"], ["topic", "create"], ["produce"], ["consume"], ["status"], ["config"]):
        result = bare(*command, "--help")
        assert result.code == 0
        assert "Usage: goqueue" in result.out


def test_completion_offers_commands() -> None:
    variables = {"_GOQUEUE_COMPLETE": "complete_bash", "COMP_WORDS": "goqueue to", "COMP_CWORD": "1"}
    command = [sys.executable, "-m", "goqueue"]
    result = subprocess.run(
        command, env=environment(**variables), capture_output=True, text=True, timeout=30, check=False
    )
    assert result.stdout.split() == ["topic"]


def test_ctrl_c_ends_following_without_noise(run: Run, topic: str, address: str) -> None:
    run("produce", topic, "first")
    process = subprocess.Popen(
        [sys.executable, "-m", "goqueue", "consume", topic, "--follow", "--from-beginning", "--address", address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"first\n"
        run("produce", topic, "second")
        assert process.stdout.readline() == b"second\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
        assert (process.returncode, out, err) == (0, b"", b"")
    finally:
        process.kill()
        process.wait()


def test_produce_shows_progress_on_a_terminal(run: Run, topic: str, address: str, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"x\n" * 5000)
    terminal, inside = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "goqueue", "produce", topic, "-f", str(file), "--address", address],
        stdout=subprocess.PIPE,
        stderr=inside,
        env=environment(TERM="xterm"),
    )
    os.close(inside)
    seen, deadline = b"", time.monotonic() + 20
    try:
        while select.select([terminal], [], [], deadline - time.monotonic())[0]:
            try:
                seen += os.read(terminal, 4096)
            except OSError:  # the other end is closed
                break
        out, _ = process.communicate(timeout=20)
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
    assert process.returncode == 0
    assert b"producing" in seen
    assert out.count(b"offsets") >= 1
