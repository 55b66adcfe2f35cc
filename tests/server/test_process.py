"""`goqueue serve` as a process: start, readiness, drain, and what stands in its way."""

from __future__ import annotations

import json
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from goqueue.client import SyncClient
from goqueue.protocol import wire
from tests.server.process import BrokerProcess, environment


def test_a_started_broker_is_ready_on_both_ports_and_says_where(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        assert set(broker.addresses) == {"http", "wire", "data", "pid"}
        assert broker.addresses["pid"] == broker.process.pid
        assert broker.addresses["data"] == str(tmp_path / "data")
        assert httpx.get(f"{broker.http}/readyz").status_code == 200
        with SyncClient(broker.wire) as client:
            assert client.status()["ready"] is True
        soft, hard = resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE)
        assert soft == hard


def test_the_two_faces_show_one_broker(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, SyncClient(broker.wire) as client:
        client.create_topic("t", partitions=1)
        client.send("t", b"by wire")
        body = {"messages": [{"value": "by http"}]}
        assert httpx.post(f"{broker.http}/topics/t/messages", json=body).json()["results"][0]["offset"] == 1
        answer = httpx.get(f"{broker.http}/topics/t/partitions/0/messages", params={"offset": 0}).json()
        assert [message["value"] for message in answer["messages"]] == ["by wire", "by http"]
        assert [message.value for message in client.reader("t", follow=False)] == [b"by wire", b"by http"]
        metrics = httpx.get(f"{broker.http}/metrics").text
        assert 'face="wire"' in metrics


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_ends_with_zero(tmp_path: Path, number: signal.Signals) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        with SyncClient(broker.wire) as client:
            client.create_topic("t", partitions=2)
            with client.producer(acks="leader") as producer:
                producer.send_many("t", [b"%d" % n for n in range(1000)])
            # A reader that waits for more must not hold the drain up.
            reader = client.reader("t", start="earliest", follow=True).batches()
            next(reader)
            broker.signal(number)
            assert broker.wait() == 0
            reader.close()
        lines = [json.loads(line) for line in broker.stderr().splitlines()]
        assert [line["message"] for line in lines if line["logger"].startswith("goqueue.server")] == [
            "ready",
            "signal received",
            "draining",
            "stopped",
        ]
        assert {"time", "level", "logger", "message", "wire", "pid"} <= lines[0].keys()
    with BrokerProcess(tmp_path / "data") as broker, SyncClient(broker.wire) as client:
        assert len(list(client.reader("t", follow=False))) == 1000
        # Everything was synced and closed in order: recovery had nothing to cut.
        assert "torn tail" not in broker.stderr()


def test_a_second_signal_ends_a_drain_that_takes_long(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, socket.create_connection(broker.wire_tuple) as peer:
        with SyncClient(broker.wire) as client:
            client.create_topic("t", partitions=1)
            client.send("t", bytes(16 << 20))
        # A peer that does not take its answer holds the drain up for a while.
        question = wire.fetch_body(
            wire.route("t", 0), offset=0, bytes_max=16 << 20, wait_ms=0, isolation=wire.Isolation.READ_COMMITTED
        )
        peer.sendall(wire.hello("test") + wire.frame(wire.Api.FETCH, 1, question))
        assert peer.recv(100)
        broker.signal(signal.SIGTERM)
        broker.wait_logged("draining")
        broker.signal(signal.SIGTERM)
        assert broker.wait() == 1
        assert "second signal" in broker.stderr()
    with BrokerProcess(tmp_path / "data") as broker, SyncClient(broker.wire) as client:
        assert len(list(client.reader("t", follow=False))) == 1


def test_a_second_broker_on_the_directory_is_refused_and_told_why(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        result = serve("--data", str(tmp_path / "data"), "--http", "127.0.0.1:0", "--wire", "127.0.0.1:0")
        assert result.returncode == 1
        assert "in use by another process" in result.stderr
        assert "Traceback" not in result.stderr
        assert httpx.get(f"{broker.http}/readyz").status_code == 200


@pytest.mark.parametrize("face", ["http", "wire"])
def test_a_port_in_use_is_refused_and_the_directory_is_free_again(tmp_path: Path, face: str) -> None:
    with BrokerProcess(tmp_path / "first") as broker:
        taken = broker.addresses[face].removeprefix("http://")
        ports = {"http": "127.0.0.1:0", "wire": "127.0.0.1:0", face: taken}
        result = serve("--data", str(tmp_path / "second"), "--http", ports["http"], "--wire", ports["wire"])
        assert result.returncode == 1
        assert f"cannot listen on {taken} for {face}" in result.stderr
        assert "ddress already in use" in result.stderr
        assert "Traceback" not in result.stderr
    with BrokerProcess(tmp_path / "second") as broker:
        assert broker.addresses["http"]


def test_a_configuration_with_problems_starts_nothing_and_names_them_all(tmp_path: Path) -> None:
    file = tmp_path / "goqueue.toml"
    file.write_text("[broker]\nsync_within_mss = 5\n")
    result = serve("--data", str(tmp_path / "data"), "--http", "nowhere", "--config", str(file), GOQUEUE_WIRE_PORT="x")
    assert result.returncode == 1
    assert "did you mean sync_within_ms?" in result.stderr
    assert "GOQUEUE_WIRE_PORT: must be a whole number" in result.stderr
    assert "--http: 'nowhere' is not HOST:PORT" in result.stderr
    assert not (tmp_path / "data").exists()


def test_without_print_addresses_a_person_is_greeted(tmp_path: Path) -> None:
    options = ("--data", str(tmp_path / "data"), "--http", "127.0.0.1:0", "--wire", "127.0.0.1:0")
    process = subprocess.Popen(
        [sys.executable, "-m", "goqueue", "serve", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(),
        text=True,
    )
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(5)]
        assert "is ready" in lines[0]
        assert "goqueue topic create hello" in lines[4]
    finally:
        process.terminate()
        assert process.wait(20) == 0
        process.stdout.close()  # type: ignore[union-attr]


def serve(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "goqueue", "serve", *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        env=environment(**variables),
        check=False,
    )
