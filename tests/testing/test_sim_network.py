"""What only the simulated network does: partitions, cuts, resets, delays, and all of it again from a seed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from goqueue.host import Connection
from goqueue.testing import NetworkFaults, SimClock, SimNetwork, run_simulated

T = TypeVar("T")
PORT = 9000


def run(main: Coroutine[Any, Any, T], clock: SimClock | None = None) -> T:
    return run_simulated(clock or SimClock(), main)


async def echo(connection: Connection) -> None:
    while data := await connection.receive(1 << 16):
        await connection.send(data)


async def receive_until_silent(connection: Connection, seconds: float = 60) -> bytes:
    """Everything that arrives before the stream ends or falls silent."""
    data = b""
    try:
        while part := await asyncio.wait_for(connection.receive(1 << 16), seconds):
            data += part
    except OSError:
        pass  # A reset, or the silence (TimeoutError is an OSError).
    return data


def test_a_wildcard_listener_answers_under_the_name_of_its_host() -> None:
    async def main() -> bytes:
        network = SimNetwork(random.Random(1))
        await network.at("b").listen("0.0.0.0", PORT, echo)
        connection = await network.at("a").connect("b", PORT)
        await connection.send(b"hello")
        return await connection.receive(100)

    assert run(main()) == b"hello"


def test_a_partition_holds_bytes_back_until_it_is_healed() -> None:
    async def main() -> None:
        network = SimNetwork(random.Random(1))
        await network.at("b").listen("b", PORT, echo)
        connection = await network.at("a").connect("b", PORT)
        network.partition("a", "b")
        await connection.send(b"one")
        await connection.send(b"two")
        assert await receive_until_silent(connection) == b""
        network.heal("a", "b")
        assert await receive_until_silent(connection) == b"onetwo"

    run(main())


def test_a_partition_between_two_hosts_leaves_a_third_alone() -> None:
    async def main() -> bytes:
        network = SimNetwork(random.Random(1))
        await network.at("b").listen("b", PORT, echo)
        network.partition("a", "b")
        connection = await network.at("c").connect("b", PORT)
        await connection.send(b"hello")
        return await connection.receive(100)

    assert run(main()) == b"hello"


def test_a_one_way_block_lets_requests_through_and_holds_the_answers() -> None:
    async def main() -> None:
        network = SimNetwork(random.Random(1))
        seen: list[bytes] = []

        async def serve(connection: Connection) -> None:
            while data := await connection.receive(100):
                seen.append(data)
                await connection.send(b"answer")

        await network.at("b").listen("b", PORT, serve)
        connection = await network.at("a").connect("b", PORT)
        network.block("b", "a")
        await connection.send(b"request")
        assert await receive_until_silent(connection) == b""
        assert seen == [b"request"]
        network.heal_all()
        assert await receive_until_silent(connection) == b"answer"

    run(main())


def test_connecting_into_a_partition_times_out() -> None:
    clock = SimClock()
    start_ns = clock.monotonic_ns()

    async def main() -> None:
        network = SimNetwork(random.Random(1), faults=NetworkFaults(connect_timeout_s=20))
        await network.at("b").listen("b", PORT, echo)
        network.block("b", "a")
        with pytest.raises(TimeoutError):
            await network.at("a").connect("b", PORT)

    run(main(), clock)
    assert clock.monotonic_ns() - start_ns >= 20 * 10**9


def test_the_end_of_a_stream_does_not_cross_a_partition() -> None:
    async def main() -> None:
        network = SimNetwork(random.Random(1))
        ended = asyncio.Event()

        async def serve(connection: Connection) -> None:
            assert await connection.receive(1) == b""
            ended.set()

        await network.at("b").listen("b", PORT, serve)
        connection = await network.at("a").connect("b", PORT)
        network.partition("a", "b")
        await connection.close()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ended.wait(), 60)
        network.heal("a", "b")
        await ended.wait()

    run(main())


def test_a_sender_into_a_partition_waits_when_its_buffer_is_full() -> None:
    async def main() -> None:
        network = SimNetwork(random.Random(1))
        await network.at("b").listen("b", PORT, echo)
        connection = await network.at("a").connect("b", PORT)
        network.partition("a", "b")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(connection.send(bytes(1 << 20)), 60)

    run(main())


def test_a_reset_fails_both_ends() -> None:
    async def main() -> None:
        network = SimNetwork(random.Random(1))
        far_error: asyncio.Future[type] = asyncio.get_running_loop().create_future()

        async def serve(connection: Connection) -> None:
            try:
                await connection.receive(1)
            except ConnectionResetError as error:
                far_error.set_result(type(error))
                with pytest.raises(ConnectionResetError):
                    await connection.send(b"x")

        await network.at("b").listen("b", PORT, serve)
        connection = await network.at("a").connect("b", PORT)
        network.reset("a", "c")
        network.reset("a", "b")
        with pytest.raises(ConnectionResetError):
            await connection.receive(1)
        with pytest.raises(ConnectionResetError):
            await connection.send(b"x")
        assert await far_error is ConnectionResetError
        await connection.close()

    run(main())


def test_a_killed_host_stops_answering_and_resets_its_peers() -> None:
    async def main() -> None:
        network = SimNetwork(random.Random(1))
        await network.at("b").listen("b", PORT, echo)
        connection = await network.at("a").connect("b", PORT)
        await connection.send(b"x")
        assert await connection.receive(1) == b"x"
        network.kill("b")
        with pytest.raises(ConnectionResetError):
            await connection.receive(1)
        with pytest.raises(ConnectionResetError):
            await connection.send(b"x")
        with pytest.raises(ConnectionRefusedError):
            await network.at("a").connect("b", PORT)
        await network.at("b").listen("b", PORT, echo)
        assert await network.at("a").connect("b", PORT)

    run(main())


def test_a_connection_whose_server_never_got_a_turn_ends_with_its_listener() -> None:
    async def main() -> bytes:
        network = SimNetwork(random.Random(1))
        listener = await network.at("b").listen("b", PORT, echo)
        connection = await network.at("a").connect("b", PORT)
        await listener.close()
        return await connection.receive(1)

    assert run(main()) == b""


def test_a_chunk_does_not_arrive_before_the_delay_of_the_one_ahead() -> None:
    clock = SimClock()

    async def main(seed: int) -> tuple[float, float]:
        network = SimNetwork(random.Random(seed), faults=NetworkFaults(delay_s_max=100))
        arrived_s: asyncio.Future[float] = asyncio.get_running_loop().create_future()

        async def serve(connection: Connection) -> None:
            await connection.receive(1)
            arrived_s.set_result(asyncio.get_running_loop().time())

        await network.at("b").listen("b", PORT, serve)
        connection = await network.at("a").connect("b", PORT)
        expected = random.Random()
        expected.setstate(network.random.getstate())
        due_s = asyncio.get_running_loop().time() + expected.uniform(0, 100)
        await connection.send(b"x")
        network.faults = NetworkFaults()
        await connection.send(b"y")
        return due_s, await arrived_s

    for seed in range(10):
        due_s, arrived_s = run(main(seed), clock)
        assert arrived_s == pytest.approx(due_s, abs=1e-6)


def test_a_cut_stream_delivers_a_prefix_and_then_ends() -> None:
    sent = bytes(range(200))
    lengths = set()

    async def main(seed: int) -> bytes:
        network = SimNetwork(random.Random(seed), faults=NetworkFaults(cut=1))
        received: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def serve(connection: Connection) -> None:
            received.set_result(await receive_until_silent(connection))

        await network.at("b").listen("b", PORT, serve)
        connection = await network.at("a").connect("b", PORT)
        await connection.send(sent)
        with pytest.raises(ConnectionResetError):
            await connection.send(sent)
        return await received

    for seed in range(100):
        arrived = run(main(seed))
        assert sent.startswith(arrived)
        lengths.add(len(arrived))
    assert len(lengths) > 30


def test_delay_and_splitting_keep_the_order_of_a_stream() -> None:
    async def main(seed: int) -> bytes:
        network = SimNetwork(random.Random(seed), faults=NetworkFaults(delay_s_max=5, split=0.5))
        await network.at("b").listen("b", PORT, echo)
        connection = await network.at("a").connect("b", PORT)
        for number in range(50):
            await connection.send(b"%d," % number)
        return await receive_until_silent(connection)

    expected = b"".join(b"%d," % number for number in range(50))
    assert all(run(main(seed)) == expected for seed in range(20))


def test_refusals_strike_about_as_often_as_asked() -> None:
    async def main() -> int:
        network = SimNetwork(random.Random(1), faults=NetworkFaults(refuse=0.3))
        await network.at("b").listen("b", PORT, echo)
        count = 0
        for _ in range(300):
            try:
                connection = await network.at("a").connect("b", PORT)
            except ConnectionRefusedError:
                count += 1
            else:
                await connection.close()
        return count

    assert 50 < run(main()) < 130


def test_the_same_seed_is_the_same_run() -> None:
    faults = NetworkFaults(delay_s_max=1, split=0.3, cut=0.05, reset=0.05, refuse=0.1)

    async def client(network: SimNetwork, name: str, history: list[tuple[str, int, bytes]], clock: SimClock) -> None:
        for number in range(20):
            try:
                connection = await network.at(name).connect("server", PORT)
                await connection.send(b"%s %d" % (name.encode(), number))
                answer = await asyncio.wait_for(connection.receive(100), 10)
                await connection.close()
            except OSError as error:
                answer = type(error).__name__.encode()
            history.append((name, clock.monotonic_ns(), answer))

    def simulate(seed: int) -> list[tuple[str, int, bytes]]:
        history: list[tuple[str, int, bytes]] = []
        clock = SimClock()

        async def main() -> None:
            network = SimNetwork(random.Random(seed), faults=faults)
            await network.at("server").listen("server", PORT, echo)
            await asyncio.gather(*(client(network, name, history, clock) for name in ("a", "b", "c")))

        run(main(), clock)
        return history

    for seed in range(5):
        first = simulate(seed)
        assert len(first) == 60
        assert simulate(seed) == first
    assert simulate(1) != simulate(2)
