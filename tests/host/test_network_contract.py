"""What every network promises: the same assertions over TCP and the simulated one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from goqueue.host import Connection, Network, OsNetwork
from goqueue.testing import NetworkFaults, SimNetwork

MakeNetwork = Callable[[], Network]
DEADLINE_S = 30


@pytest.fixture(params=["os", "sim", "sim-split"])
def make_network(request: pytest.FixtureRequest) -> MakeNetwork:
    faults = NetworkFaults(split=0.5, delay_s_max=0.0005) if request.param == "sim-split" else NetworkFaults()
    return OsNetwork if request.param == "os" else lambda: SimNetwork(random.Random(1), faults=faults)


def run(main: Awaitable[None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await main

    asyncio.run(bounded())


async def receive_exactly(connection: Connection, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = await connection.receive(count - len(data))
        assert part, f"ended after {len(data)} of {count} bytes"
        data += part
    return data


async def send_forever(connection: Connection) -> None:
    while True:
        await connection.send(b"x")
        await asyncio.sleep(0)


async def echo(connection: Connection) -> None:
    while data := await connection.receive(1 << 16):
        await connection.send(data)


def test_bytes_come_back_in_order(make_network: MakeNetwork) -> None:
    async def main() -> None:
        network = make_network()
        listener = await network.listen("127.0.0.1", 0, echo)
        connection = await network.connect(*listener.address)
        host, port = listener.address
        assert connection.peer == f"{host}:{port}"
        sent = b"".join(b"%d," % number for number in range(1000))
        for start in range(0, len(sent), 7):
            await connection.send(sent[start : start + 7])
        assert await receive_exactly(connection, len(sent)) == sent
        await connection.close()
        await listener.close()

    run(main())


def test_receive_takes_no_more_than_asked(make_network: MakeNetwork) -> None:
    async def main() -> None:
        network = make_network()
        listener = await network.listen("127.0.0.1", 0, echo)
        connection = await network.connect(*listener.address)
        await connection.send(b"abcdef")
        parts = [await connection.receive(2)]
        while sum(map(len, parts)) < 6:
            parts.append(await connection.receive(2))
        assert b"".join(parts) == b"abcdef"
        assert all(1 <= len(part) <= 2 for part in parts)
        await connection.close()
        await listener.close()

    run(main())


def test_everything_sent_before_a_close_arrives_before_the_end(make_network: MakeNetwork) -> None:
    async def main() -> None:
        network = make_network()

        async def serve(connection: Connection) -> None:
            await connection.send(b"x" * 5000)

        listener = await network.listen("127.0.0.1", 0, serve)
        connection = await network.connect(*listener.address)
        assert await receive_exactly(connection, 5000) == b"x" * 5000
        assert await connection.receive(10) == b""
        await connection.close()
        await connection.close()
        assert await connection.receive(10) == b""
        await listener.close()

    run(main())


def test_sending_to_a_peer_that_closed_fails_in_the_end(make_network: MakeNetwork) -> None:
    async def main() -> None:
        network = make_network()

        async def serve(connection: Connection) -> None:
            await connection.receive(1)

        listener = await network.listen("127.0.0.1", 0, serve)
        connection = await network.connect(*listener.address)
        with pytest.raises(ConnectionError):
            await send_forever(connection)
        await connection.close()
        await listener.close()

    run(main())


def test_a_sender_waits_for_a_receiver_that_does_not_read(make_network: MakeNetwork) -> None:
    async def main() -> None:
        network = make_network()
        total = 64 << 20
        may_read = asyncio.Event()
        received: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def serve(connection: Connection) -> None:
            await may_read.wait()
            count = 0
            while data := await connection.receive(1 << 20):
                count += len(data)
            received.set_result(count)

        async def send_all(connection: Connection) -> None:
            chunk = bytes(1 << 20)
            for _ in range(total // len(chunk)):
                await connection.send(chunk)
            await connection.close()

        listener = await network.listen("127.0.0.1", 0, serve)
        sender = asyncio.create_task(send_all(await network.connect(*listener.address)))
        _, pending = await asyncio.wait([sender], timeout=0.05)
        assert sender in pending, "64 MiB fit in no socket buffer"
        may_read.set()
        await sender
        assert await received == total
        await listener.close()

    run(main())


def test_connect_fails_where_nobody_listens(make_network: MakeNetwork) -> None:
    async def main() -> None:
        network = make_network()
        listener = await network.listen("127.0.0.1", 0, echo)
        await listener.close()
        with pytest.raises(ConnectionRefusedError):
            await network.connect(*listener.address)

    run(main())


def test_an_address_is_given_once(make_network: MakeNetwork) -> None:
    async def main() -> None:
        network = make_network()
        first = await network.listen("127.0.0.1", 0, echo)
        second = await network.listen("127.0.0.1", 0, echo)
        assert first.address != second.address
        with pytest.raises(OSError, match="in use"):
            await network.listen(*first.address, echo)
        await first.close()
        await second.close()

    run(main())


def test_closing_a_listener_cancels_its_servers_and_ends_their_connections(make_network: MakeNetwork) -> None:
    async def main() -> None:
        network = make_network()
        started = asyncio.Event()
        cancelled = asyncio.Event()

        async def serve(connection: Connection) -> None:
            started.set()
            try:
                await connection.receive(1)
            except asyncio.CancelledError:
                cancelled.set()
                raise

        listener = await network.listen("127.0.0.1", 0, serve)
        connection = await network.connect(*listener.address)
        await started.wait()
        await listener.close()
        assert cancelled.is_set()
        assert await connection.receive(1) == b""
        await connection.close()

    run(main())


def test_a_failing_server_closes_its_connection_and_is_reported(make_network: MakeNetwork) -> None:
    async def main() -> None:
        network = make_network()
        reported: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))

        async def serve(connection: Connection) -> None:
            raise ValueError("a bug")

        listener = await network.listen("127.0.0.1", 0, serve)
        connection = await network.connect(*listener.address)
        assert await connection.receive(1) == b""
        assert [type(error) for error in reported] == [ValueError]
        await connection.close()
        await listener.close()

    run(main())
