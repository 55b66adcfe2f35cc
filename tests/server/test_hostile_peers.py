"""The wire port among strangers: the offender is closed, the others notice nothing, memory stays bounded."""

from __future__ import annotations

import contextlib
import random
import select
import socket
import struct
import time
from collections.abc import Iterator

import pytest

from goqueue.client import SyncClient
from goqueue.protocol import wire
from goqueue.protocol.wire import Api
from tests.server.process import BrokerProcess, wait_closed

SEED = 20_260_131


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    timeouts = {f"GOQUEUE_WIRE_{name}_TIMEOUT_MS": "300" for name in ("GREETING", "FRAME", "ANSWER")}
    with BrokerProcess(tmp_path_factory.mktemp("hostile") / "data", **timeouts) as running:
        with SyncClient(running.wire) as client:
            client.create_topic("t", partitions=1)
        yield running
        assert running.process.poll() is None


@pytest.fixture
def neighbour(broker: BrokerProcess) -> Iterator[SyncClient]:
    """A well-behaved client whose connections must survive what the test does."""
    with SyncClient(broker.wire) as client:
        before = client.send("t", b"before").offset
        yield client
        assert client.send("t", b"after").offset > before
        assert client._client._control.open is not None, "the same connection as at the start"


def connect(broker: BrokerProcess, *, greet: bool = True) -> socket.socket:
    peer = socket.create_connection(broker.wire_tuple, timeout=10)
    if greet:
        peer.sendall(wire.hello("test"))
        length = int.from_bytes(receive(peer, 4), "big")
        receive(peer, length)
    return peer


def receive(peer: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = peer.recv(count - len(data))
        assert part, "the broker closed the connection"
        data += part
    return data


def push(peer: socket.socket, data: bytes) -> None:
    """Send as much as the broker takes."""
    with contextlib.suppress(ConnectionError, TimeoutError):
        peer.sendall(data)


@pytest.mark.usefixtures("neighbour")
def test_random_bytes_end_the_connection(broker: BrokerProcess) -> None:
    chance = random.Random(SEED)
    for number in range(60):
        with connect(broker, greet=number % 2 == 0) as peer:
            push(peer, chance.randbytes(chance.randint(12, 5000)))
            wait_closed(peer)


@pytest.mark.usefixtures("neighbour")
def test_damaged_frames_are_refused_or_end_the_connection(broker: BrokerProcess) -> None:
    chance = random.Random(SEED)
    good = [
        wire.frame(Api.PRODUCE, 1, b"\x02\x00" + wire.route("t", 0) + b"GQ" + bytes(60)),
        wire.frame(
            Api.FETCH,
            2,
            wire.fetch_body(wire.route("t", 0), offset=0, bytes_max=100, wait_ms=0, isolation=wire.Isolation(1)),
        ),
        wire.frame(Api.CALL, 3, wire.pack(["topic.describe", {"name": "t"}])),
    ]
    for _ in range(200):
        with connect(broker) as peer:
            frame = bytearray(chance.choice(good))
            for _ in range(chance.randint(1, 4)):
                frame[chance.randrange(len(frame))] = chance.randrange(256)
            push(peer, bytes(frame))
            peer.shutdown(socket.SHUT_WR)
            wait_closed(peer)


@pytest.mark.usefixtures("neighbour")
def test_calls_with_wrong_arguments_are_answered(broker: BrokerProcess) -> None:
    odd: list[object] = [None, -1, 2**63, 1.5, b"\xff", [], {}, True, "t" * 300, "../x"]
    with connect(broker) as peer:
        for method, argument in [
            ("topic.create", "name"),
            ("topic.describe", "name"),
            ("topic.delete", "name"),
            ("nonsense", "name"),
        ]:
            for value in odd:
                peer.sendall(wire.frame(Api.CALL, 9, wire.pack([method, {argument: value}])))
                length, _, status, correlation = wire.HEADER.unpack(receive(peer, wire.HEADER.size))
                error = wire.read_error(receive(peer, length - wire.LENGTH_MIN))
                assert (status, correlation) == (wire.FAILED, 9), (method, value)
                assert error.code != "INTERNAL", (method, value)


@pytest.mark.usefixtures("neighbour")
@pytest.mark.parametrize("length", [0, 7, (32 << 20) + 1, 2**31, 2**32 - 1])
def test_a_frame_of_impossible_length_ends_the_connection(broker: BrokerProcess, length: int) -> None:
    before = broker.rss_bytes()
    with connect(broker) as peer:
        push(peer, struct.pack(">IHHI", length, Api.PRODUCE, 0, 1))
        wait_closed(peer)
    assert broker.rss_bytes() - before < 16 << 20


@pytest.mark.usefixtures("neighbour")
def test_a_stranger_gets_no_room_for_a_large_frame(broker: BrokerProcess) -> None:
    with connect(broker, greet=False) as peer:
        push(peer, struct.pack(">IHHI", 8 << 20, Api.HELLO, 0, 1))
        wait_closed(peer)


@pytest.mark.usefixtures("neighbour")
def test_silence_and_half_frames_end_after_their_time(broker: BrokerProcess) -> None:
    with connect(broker, greet=False) as silent, connect(broker, greet=False) as slow_greeting, connect(broker) as half:
        push(slow_greeting, wire.hello("x")[:10])
        push(half, struct.pack(">IHHI", 1000, Api.PRODUCE, 0, 1) + b"half")
        for peer in (silent, slow_greeting, half):
            wait_closed(peer)


@pytest.mark.usefixtures("neighbour")
def test_a_writer_that_drips_does_not_win_time_with_every_byte(broker: BrokerProcess) -> None:
    with connect(broker) as peer:
        push(peer, struct.pack(">IHHI", 1 << 20, Api.PRODUCE, 0, 1))
        began = time.monotonic()
        closed = select.poll()
        closed.register(peer, select.POLLIN)
        # A byte every 20 ms; the broker's answer to it is the end of the connection.
        while not closed.poll(20):
            assert time.monotonic() - began < 10
            push(peer, b"x")


@pytest.mark.usefixtures("neighbour")
def test_a_peer_that_asks_and_does_not_read_is_closed_and_costs_little(broker: BrokerProcess) -> None:
    with SyncClient(broker.wire) as client, client.producer() as producer:
        producer.send_many("t", [bytes(1 << 20)] * 24)
        end = client.describe_topic("t")["partition_offsets"]["0"]["latest"]
    before = broker.rss_bytes()
    question = wire.fetch_body(
        wire.route("t", 0), offset=end - 24, bytes_max=16 << 20, wait_ms=0, isolation=wire.Isolation.READ_COMMITTED
    )
    peak = before
    with connect(broker) as peer:
        peer.settimeout(2)
        push(peer, b"".join(wire.frame(Api.FETCH, n, question) for n in range(1, 2000)))
        gone = select.poll()
        gone.register(peer, select.POLLHUP | select.POLLERR)
        deadline = time.monotonic() + 10
        while not gone.poll(20):
            peak = max(peak, broker.rss_bytes())
            assert time.monotonic() < deadline, "the broker keeps a peer that does not read"
    # 2,000 answers of 16 MiB were asked for.
    assert peak - before < 128 << 20


@pytest.mark.usefixtures("neighbour")
def test_an_http_request_on_the_wire_port_ends_the_connection(broker: BrokerProcess) -> None:
    with connect(broker, greet=False) as peer:
        push(peer, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_closed(peer)
