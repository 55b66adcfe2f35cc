"""Running a server as a process: event loop, limits, signals.

The first SIGTERM or SIGINT drains: no new work, answers under way go out, everything is synced, exit 0. The second one
ends the process at once, which loses nothing that was acknowledged with acks=all.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
from collections.abc import Callable
from dataclasses import dataclass

from goqueue.server.server import Server, ServerConfig

_logger = logging.getLogger(__name__)
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Where a running server can be reached; None for a face that it does not have."""

    http: str | None
    wire: str
    data: str
    pid: int

    def as_dict(self) -> dict[str, object]:
        return {"http": self.http, "wire": self.wire, "data": self.data, "pid": self.pid}


def serve(config: ServerConfig, ready: Callable[[Addresses], None]) -> None:
    """Run a server until a signal ends it; `ready` is called once, when it takes requests."""
    raise_file_limit()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(config, ready))


async def _serve(config: ServerConfig, ready: Callable[[Addresses], None]) -> None:
    server = Server(config)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, _on_signal, number, stopping)
    # Recovery may take long; a signal must end it too.
    starting = asyncio.create_task(server.start())
    waiting = asyncio.create_task(stopping.wait())
    await asyncio.wait((starting, waiting), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await starting
        return
    try:
        await starting
    except BaseException:
        waiting.cancel()
        raise
    # What exists now lives until the end: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    addresses = addresses_of(server)
    _logger.info("ready", extra=addresses.as_dict())
    ready(addresses)
    await waiting
    _logger.info("draining")
    await server.stop()
    _logger.info("stopped")


def _on_signal(number: int, stopping: asyncio.Event) -> None:
    name = signal.Signals(number).name
    if stopping.is_set():
        _logger.warning("second signal, ending at once", extra={"signal": name})
        os._exit(1)
    _logger.info("signal received", extra={"signal": name})
    stopping.set()


def addresses_of(server: Server) -> Addresses:
    http = server.http_address
    return Addresses(
        http=None if http is None else f"http://{_join(*http)}",
        wire=_join(*server.wire_address),
        data=os.path.abspath(server.config.data),
        pid=os.getpid(),
    )


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def raise_file_limit() -> int:
    """Every connection and every segment is an open file: take all that the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError) as error:
            _logger.warning("the limit of open files stays", extra={"limit": soft, "reason": str(error)})
    return soft


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop
