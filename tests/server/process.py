"""A broker in a process of its own, as a user starts it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[2] / "src"
START_TIMEOUT_S = 30


def environment(**variables: str) -> dict[str, str]:
    """This environment without settings of GoQueue, with `variables`; subprocesses find the package."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GOQUEUE_")}
    path = os.pathsep.join(part for part in (str(SOURCE), os.environ.get("PYTHONPATH", "")) if part)
    return {**clean, "PYTHONPATH": path, **variables}


class BrokerProcess:
    """`with BrokerProcess(path) as broker`; killed at the end if it still runs."""

    def __init__(self, data: Path, *, http: str = "127.0.0.1:0", wire: str = "127.0.0.1:0", **variables: str) -> None:
        self._stderr = data.parent / f"{data.name}.stderr"
        options = ("--data", str(data), "--http", http, "--wire", wire, "--print-addresses")
        with self._stderr.open("ab") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "goqueue", "serve", *options],
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environment(**variables),
            )
        self.addresses: dict[str, Any] = {}

    def wait_ready(self) -> BrokerProcess:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], START_TIMEOUT_S)
        line = self.process.stdout.readline() if ready else b""
        if not line:
            self.close()
            raise AssertionError(f"the broker did not start: {self.stderr()}")
        self.addresses = json.loads(line)
        return self

    @property
    def wire(self) -> str:
        return str(self.addresses["wire"])

    @property
    def wire_tuple(self) -> tuple[str, int]:
        host, _, port = self.wire.rpartition(":")
        return host, int(port)

    @property
    def http(self) -> str:
        return str(self.addresses["http"])

    def stderr(self) -> str:
        return self._stderr.read_text(errors="replace")

    def wait_logged(self, text: str, timeout_s: float = 10) -> None:
        deadline = time.monotonic() + timeout_s
        while text not in self.stderr():
            assert time.monotonic() < deadline, f"the broker never said {text!r}: {self.stderr()}"
            time.sleep(0.005)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, timeout_s: float = 20) -> int:
        return self.process.wait(timeout_s)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def rss_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def __enter__(self) -> BrokerProcess:
        return self.wait_ready()

    def __exit__(self, *_: object) -> None:
        self.close()


def wait_closed(peer: socket.socket, timeout_s: float = 10) -> None:
    """Return when the other side has ended the connection; what it sends until then is thrown away."""
    deadline = time.monotonic() + timeout_s
    with contextlib.suppress(ConnectionError):
        while True:
            peer.settimeout(max(deadline - time.monotonic(), 0.001))
            if not peer.recv(1 << 16):
                return
