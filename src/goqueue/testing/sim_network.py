"""A network in memory that can delay, split, cut, reset and partition.

Promises: exactly those of `goqueue.host.network`. Bytes of one direction arrive in order or not at all; a stream may
end at any byte; a `send` that returned says nothing about delivery. A partition holds bytes back, as TCP does, until it
is healed. Delays use the running loop's clock: on a `SimEventLoop` a seed is a run.

Every process speaks through its own host, `network.at("a")`; partitions are between hosts.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from goqueue.host import Connection, ServeTasks
from goqueue.testing.sim_pipe import Pipe

_ANY_HOST = frozenset({"", "0.0.0.0", "::"})
_FIRST_FREE_PORT = 49152


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkFaults:
    """How bad the network is. The default delivers everything at the next turn of the loop."""

    delay_s_max: float = 0.0  # each chunk and each connect takes up to this, uniformly
    split: float = 0.0  # probability that a send arrives in several chunks
    cut: float = 0.0  # probability per send that the connection ends after a random part of its bytes
    reset: float = 0.0  # probability per send that the connection is reset and none of its bytes arrive
    refuse: float = 0.0  # probability that a connect is refused
    connect_timeout_s: float = 10.0  # how long a connect into a partition takes to fail


class SimConnection:
    """One end of a connection."""

    def __init__(self, network: SimNetwork, incoming: Pipe, outgoing: Pipe, peer: str) -> None:
        self._network = network
        self._incoming = incoming
        self._outgoing = outgoing
        self._peer = peer

    @property
    def peer(self) -> str:
        return self._peer

    async def receive(self, bytes_max: int) -> bytes:
        return await self._incoming.receive(bytes_max)

    async def send(self, data: bytes) -> None:
        self._outgoing.check_writable()
        if self._network.chance(self._network.faults.reset):
            self.reset()
            return
        if self._network.chance(self._network.faults.cut):
            self._cut(data)
            return
        for chunk in self._network.split(data):
            self._outgoing.push(chunk, self._network.delay_s())
        await self._outgoing.wait_room()

    def _cut(self, data: bytes) -> None:
        """End the connection inside `data`. The sender learns of it at its next call, as with a real socket."""
        self._outgoing.push(data[: self._network.random.randrange(len(data) + 1)], self._network.delay_s())
        if self._network.chance(0.5):
            self._outgoing.push_end(self._network.delay_s())
            self._outgoing.break_sender()
            self._incoming.reset()
        else:
            self.reset()

    def reset(self) -> None:
        """Tear the connection down: at once on this side, by a message on the other."""
        self._incoming.reset()
        self._outgoing.push_reset(self._network.delay_s())
        self._outgoing.break_sender()

    async def close(self) -> None:
        self._outgoing.push_end(self._network.delay_s())
        self._outgoing.break_sender()
        self._incoming.abandon()

    @property
    def closed(self) -> bool:
        return self._incoming.finished and self._outgoing.finished

    def flush(self) -> None:
        """Deliver what a healed partition had held back."""
        self._incoming.flush()

    def joins(self, host_a: str, host_b: str) -> bool:
        return {host_a, host_b} == {self._incoming.source, self._incoming.target}

    def at(self, host: str) -> bool:
        return self._incoming.target == host


class SimListener:
    """A name that answers."""

    def __init__(self, network: SimNetwork, host: str, address: tuple[str, int], tasks: ServeTasks) -> None:
        self._network = network
        self._address = address
        self.host = host
        self.tasks = tasks

    @property
    def address(self) -> tuple[str, int]:
        return self._address

    async def close(self) -> None:
        self._network.forget(self)
        await self.tasks.cancel()


class SimHost:
    """The network as one host sees it; the twin of `OsNetwork`."""

    def __init__(self, network: SimNetwork, host: str) -> None:
        self._network = network
        self._host = host

    async def connect(self, host: str, port: int) -> SimConnection:
        return await self._network.connect_from(self._host, host, port)

    async def listen(self, host: str, port: int, serve: Callable[[Connection], Awaitable[None]]) -> SimListener:
        return self._network.listen_at(self._host, self._host if host in _ANY_HOST else host, port, serve)


class SimNetwork:
    """All hosts and what lies between them. Used directly, it speaks for the host `localhost`."""

    def __init__(self, rng: random.Random, *, faults: NetworkFaults | None = None) -> None:
        self.random = rng
        self.faults = faults or NetworkFaults()
        self._listeners: dict[tuple[str, int], SimListener] = {}
        self._connections: list[SimConnection] = []  # both ends of every connection, oldest first
        self._blocked: set[tuple[str, str]] = set()  # (source, target) pairs whose bytes are held back
        self._ports = itertools.count(_FIRST_FREE_PORT)

    def at(self, host: str) -> SimHost:
        return SimHost(self, host)

    async def connect(self, host: str, port: int) -> SimConnection:
        return await self.at("localhost").connect(host, port)

    async def listen(self, host: str, port: int, serve: Callable[[Connection], Awaitable[None]]) -> SimListener:
        return await self.at("localhost").listen(host, port, serve)

    # -- the nemesis ----------------------------------------------------------------------------------------------

    def partition(self, host_a: str, host_b: str) -> None:
        """Hold everything between the two, in both directions."""
        self.block(host_a, host_b)
        self.block(host_b, host_a)

    def block(self, source: str, target: str) -> None:
        """Hold what flows in one direction only."""
        self._blocked.add((source, target))

    def heal(self, host_a: str, host_b: str) -> None:
        self._blocked -= {(host_a, host_b), (host_b, host_a)}
        self._flush()

    def heal_all(self) -> None:
        self._blocked.clear()
        self._flush()

    def reset(self, host_a: str, host_b: str) -> None:
        """Reset every connection between the two."""
        for connection in [each for each in self._connections if each.joins(host_a, host_b)]:
            connection.reset()

    def kill(self, host: str) -> None:
        """The host's process dies: its listeners vanish, its peers see a reset."""
        for listener in [each for each in self._listeners.values() if each.host == host]:
            self.forget(listener)
            listener.tasks.cancel_nowait()
        for connection in [each for each in self._connections if each.at(host)]:
            connection.reset()

    # -- called by hosts, listeners and connections -----------------------------------------------------------------

    async def connect_from(self, source: str, host: str, port: int) -> SimConnection:
        await asyncio.sleep(self.delay_s())
        listener = self._listeners.get((host, port))
        target = listener.host if listener else host
        if self._holds(source, target) or self._holds(target, source):
            await asyncio.sleep(self.faults.connect_timeout_s)
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), f"{host}:{port}")
        if listener is None or self.chance(self.faults.refuse):
            raise OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED), f"{host}:{port}")
        return self._establish(source, listener)

    def listen_at(
        self, owner: str, host: str, port: int, serve: Callable[[Connection], Awaitable[None]]
    ) -> SimListener:
        address = (host, port or next(self._ports))
        if address in self._listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE), f"{host}:{port}")
        self._listeners[address] = listener = SimListener(self, owner, address, ServeTasks(serve))
        return listener

    def forget(self, listener: SimListener) -> None:
        if self._listeners.get(listener.address) is listener:
            del self._listeners[listener.address]

    def chance(self, probability: float) -> bool:
        return probability > 0 and self.random.random() < probability

    def delay_s(self) -> float:
        return self.random.uniform(0, self.faults.delay_s_max) if self.faults.delay_s_max else 0.0

    def split(self, data: bytes) -> list[bytes]:
        if len(data) < 2 or not self.chance(self.faults.split):
            return [data]
        cuts = sorted({self.random.randrange(1, len(data)) for _ in range(3)})
        return [data[start:end] for start, end in itertools.pairwise([0, *cuts, len(data)])]

    # -- internals --------------------------------------------------------------------------------------------------

    def _holds(self, source: str, target: str) -> bool:
        return (source, target) in self._blocked

    def _establish(self, source: str, listener: SimListener) -> SimConnection:
        there = Pipe(source, listener.host, self._holds)
        back = Pipe(listener.host, source, self._holds)
        there.reverse, back.reverse = back, there
        host, port = listener.address
        near = SimConnection(self, back, there, f"{host}:{port}")
        far = SimConnection(self, there, back, f"{source}:{next(self._ports)}")
        self._connections = [each for each in self._connections if not each.closed]
        self._connections += [near, far]
        listener.tasks.start(far)
        return near

    def _flush(self) -> None:
        for connection in list(self._connections):
            connection.flush()
