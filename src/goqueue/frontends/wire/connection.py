"""One client connection of the data port.

Per wake-up: all frames present are parsed, batches are stamped in place, every touched partition is written once, and
all answers leave with one write. Bytes are received into the server's shared buffer; only a connection with half a
frame pays for a buffer of its own. A peer that breaks the protocol, hangs or does not read is closed with a logged
reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, cast

from goqueue import __version__
from goqueue.broker import Acks, Partition
from goqueue.errors import GoQueueError, LimitExceededError, ProtocolError, RunBrokenError
from goqueue.protocol import wire
from goqueue.protocol.wire import Api
from goqueue.record import BatchFacts

if TYPE_CHECKING:
    from goqueue.frontends.wire.server import WireServer

_logger = logging.getLogger(__name__)
_OWN_BUFFER_BYTES = 256 << 10
_GREETING_BYTES_MAX = 1 << 10
# Fetched bytes that may wait to be sent; a fetch beyond it is answered when the peer has taken what it asked for.
_ANSWER_BYTES_MAX = 4 << 20

# Broken runs of one connection that a client may leave behind; ours leaves none.
_BROKEN_RUNS_MAX = 4_096
# With more fetched bytes than this, answers are handed over side by side: joining them would copy the records.
_JOIN_BYTES_MAX = 64 << 10

# (correlation, facts, acks, run) of a batch staged in this wake-up
_Staged = tuple[int, BatchFacts, int, int]


class WireConnection(asyncio.BufferedProtocol):
    __slots__ = (
        "_broken_runs",
        "_buffer",
        "_can_write",
        "_closed",
        "_deadline_ns",
        "_filled",
        "_finishing",
        "_greeted",
        "_out",
        "_out_bytes",
        "_peer",
        "_reading_paused",
        "_server",
        "_staged",
        "_tasks",
        "_transport",
        "_unanswered_bytes",
    )

    def __init__(self, server: WireServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._peer: object = None
        # Bytes of an unfinished frame and, while there are any, where they are kept.
        self._buffer: memoryview | None = None
        self._filled = 0
        self._greeted = False
        self._closed = False
        self._finishing = False
        self._reading_paused = False
        self._unanswered_bytes = 0
        self._out: list[bytes] = []
        # Fetched bytes in `_out`.
        self._out_bytes = 0
        # Runs in which a batch was refused that the peer will send again, by route and number.
        self._broken_runs: set[tuple[bytes, int]] = set()
        self._staged: dict[Partition, list[_Staged]] = {}
        self._tasks: set[asyncio.Task[None]] | None = None
        self._can_write: asyncio.Event | None = None
        # When this connection has to have greeted, finished its frame or read its answers.
        self._deadline_ns = 0

    # -- transport ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._peer = transport.get_extra_info("peername")
        server = self._server
        server.accepted += 1
        if len(server.connections) >= server.config.connections_max:
            server.refused += 1
            self._refuse(0, Api.HELLO, LimitExceededError("the broker holds its maximum of connections"))
            self._send()
            self.abort("too many connections")
            return
        server.connections.add(self)
        self._set_deadline(server.config.greeting_timeout_ms)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        self._server.connections.discard(self)
        self._buffer = None
        for task in self._tasks or ():
            task.cancel()
        if self._can_write is not None:
            self._can_write.set()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._server.shared if self._buffer is None else self._buffer[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        buffer = self._server.shared if self._buffer is None else self._buffer
        filled = self._filled + nbytes
        try:
            used = self._parse(buffer, filled)
        except ProtocolError as error:
            self._finish_turn()
            self.abort(error.message)
            return
        self._finish_turn()
        self._keep_rest(buffer, used, filled)

    def _keep_rest(self, buffer: memoryview, used: int, filled: int) -> None:
        """Keep the bytes of an unfinished frame, in a buffer that will hold all of it."""
        rest = filled - used
        if not rest:
            self._filled = 0
            if self._buffer is not None and len(self._buffer) > _OWN_BUFFER_BYTES:
                self._buffer = None
            if self._greeted and not self._writing_blocked:
                self._deadline_ns = 0
            return
        wanted = _OWN_BUFFER_BYTES
        if rest >= 4:
            wanted = max(wanted, 4 + int.from_bytes(buffer[used : used + 4], "big"))
        target = self._buffer
        if target is None or len(target) < wanted:
            target = memoryview(bytearray(wanted))
        if used or target is not buffer:
            target[:rest] = bytes(buffer[used:filled])
        self._buffer, self._filled = target, rest
        if used or not self._deadline_ns:
            self._set_deadline(self._server.config.frame_timeout_ms)

    # -- frames -------------------------------------------------------------------------------------------------

    def _parse(self, buffer: memoryview, filled: int) -> int:
        """Handle every whole frame; returns the bytes used."""
        position = 0
        unpack, header_bytes = wire.HEADER.unpack_from, wire.HEADER.size
        frame_max = self._frame_bytes_max
        now_ns = self._server.broker.clock.wall_ns()
        while filled - position >= header_bytes:
            length, api, status, correlation = unpack(buffer, position)
            if length > frame_max or length < wire.LENGTH_MIN or status:
                raise ProtocolError(f"a frame of {length} bytes, api {api}, status {status} is not allowed")
            end = position + 4 + length
            if end > filled:
                break
            body = position + header_bytes
            if api == Api.PRODUCE and self._greeted:
                self._produce(buffer, body, end, correlation, now_ns)
            else:
                self._other(api, bytes(buffer[body:end]), correlation)
                frame_max = self._frame_bytes_max
            position = end
        if filled - position >= 4 and int.from_bytes(buffer[position : position + 4], "big") > frame_max:
            raise ProtocolError("the next frame is larger than allowed")
        return position

    @property
    def _frame_bytes_max(self) -> int:
        """A stranger gets no more room than a greeting needs."""
        return self._server.config.frame_bytes_max if self._greeted else _GREETING_BYTES_MAX

    def _other(self, api: int, body: bytes, correlation: int) -> None:
        if not self._greeted:
            if api != Api.HELLO:
                raise ProtocolError("the first frame must be a greeting")
            wire.read_hello(body)
            self._greeted = True
            self._deadline_ns = 0
            self._out.append(wire.hello_reply(correlation, self._server.config.frame_bytes_max, __version__))
        elif api == Api.FETCH:
            self._fetch(body, correlation)
        elif api == Api.CALL:
            self._spawn(self._call(body, correlation), api, correlation)
        else:
            raise ProtocolError(f"unknown api {api}")

    # -- produce ------------------------------------------------------------------------------------------------

    def _produce(self, buffer: memoryview, start: int, end: int, correlation: int, now_ns: int) -> None:
        if end - start < wire.PRODUCE_HEAD.size + 4:
            raise ProtocolError("a produce request is too short")
        acks, run, topic_bytes = wire.PRODUCE_HEAD.unpack_from(buffer, start)
        batch = start + wire.PRODUCE_HEAD.size + topic_bytes + 4
        if batch > end or acks > Acks.ALL:
            raise ProtocolError("a produce request contradicts itself")
        route = bytes(buffer[start + 2 : batch])
        try:
            if self._broken_runs and run:
                self._check_run(route, run)
            self._server.broker.check_writable()
            partition = self._server.partition(route)
            facts = partition.stage(buffer[batch:end], now_ns)
        except GoQueueError as error:
            self._refuse_batch(route, correlation, acks, run, error)
            return
        staged = self._staged.get(partition)
        if staged is None:
            self._staged[partition] = [(correlation, facts, acks, run)]
        else:
            staged.append((correlation, facts, acks, run))

    def _check_run(self, route: bytes, run: int) -> None:
        """Refuse what comes behind a refused batch of its run; the first batch of a run makes its number whole."""
        key = (route, run & wire.RUN_MAX)
        if run & wire.RUN_BEGINS:
            self._broken_runs.discard(key)
        elif key in self._broken_runs:
            raise RunBrokenError("an earlier batch of this run was refused; begin a new run with that batch")

    def _refuse_batch(self, route: bytes, correlation: int, acks: int, run: int, error: GoQueueError) -> None:
        """Refuse a batch, and with it those behind it when the peer is going to send it again."""
        if run and error.retriable:
            self._broken_runs.add((route, run & wire.RUN_MAX))
            if len(self._broken_runs) > _BROKEN_RUNS_MAX:
                # Its requests stay unanswered, so nothing behind them is taken for stored.
                self.abort("left too many runs broken")
                return
        if acks != Acks.NONE:
            self._refuse(correlation, Api.PRODUCE, error)

    def _finish_turn(self) -> None:
        """Write what the frames of this wake-up staged, then send all answers that are ready."""
        if self._staged:
            staged, self._staged = self._staged, {}
            for partition, batches in staged.items():
                self._write(partition, batches)
        self._send()

    def _write(self, partition: Partition, batches: list[_Staged]) -> None:
        try:
            partition.write()
        except GoQueueError as error:
            self._refuse_all(partition, batches, error)
            return
        durable = []
        for item in batches:
            if item[2] == Acks.LEADER:
                self._out.append(_produced(item))
            elif item[2] == Acks.ALL:
                durable.append(item)
        if durable:
            self._answer_when_durable(partition, durable)

    def _answer_when_durable(self, partition: Partition, batches: list[_Staged]) -> None:
        size = sum(facts.byte_count for _, facts, _, _ in batches)
        self._unanswered_bytes += size
        self._balance_reading()

        def done(error: GoQueueError | None) -> None:
            self._unanswered_bytes -= size
            if self._closed:
                return
            if error is None:
                self._out.extend(map(_produced, batches))
            else:
                self._refuse_all(partition, batches, error)
            self._send()
            self._balance_reading()

        partition.when_durable(batches[-1][1].next_offset, done)

    def _refuse_all(self, partition: Partition, batches: list[_Staged], error: GoQueueError) -> None:
        """Batches of one partition that failed together."""
        route = wire.route(partition.identity.topic, partition.identity.partition)
        for correlation, _, acks, run in batches:
            self._refuse_batch(route, correlation, acks, run, error)

    # -- fetch --------------------------------------------------------------------------------------------------

    def _fetch(self, body: bytes, correlation: int) -> None:
        tail = len(body) - wire.FETCH_TAIL.size
        if tail < 2 or int.from_bytes(body[:2], "big") != tail - 2:
            raise ProtocolError("a fetch request contradicts itself")
        number, offset, bytes_max, wait_ms, isolation = wire.FETCH_TAIL.unpack_from(body, tail)
        try:
            partition = self._server.partition(body[:tail] + number.to_bytes(4, "big"))
        except GoQueueError as error:
            self._refuse(correlation, Api.FETCH, error)
            return
        committed = isolation == wire.Isolation.READ_COMMITTED
        end = partition.last_stable_offset if committed else partition.high_watermark
        if (offset == end and wait_ms) or self._backlogged:
            task = self._fetch_later(partition, offset, bytes_max, wait_ms, committed, correlation)
            self._spawn(task, Api.FETCH, correlation)
        else:
            self._fetch_now(partition, offset, bytes_max, committed, correlation)

    def _fetch_now(self, partition: Partition, offset: int, bytes_max: int, committed: bool, correlation: int) -> None:
        bytes_max = min(bytes_max, self._server.broker.config.fetch_bytes_max, self._server.config.frame_bytes_max)
        try:
            data = partition.locate(offset, bytes_max, committed=committed).read()
        except GoQueueError as error:
            self._refuse(correlation, Api.FETCH, error)
            return
        length = wire.FETCH_REPLY.size - 4 + len(data)
        head = wire.FETCH_REPLY.pack(
            length,
            Api.FETCH,
            wire.OK,
            correlation,
            partition.high_watermark,
            partition.last_stable_offset,
            partition.log.log_start_offset,
        )
        self._out.append(head)
        self._out.append(data)
        self._out_bytes += len(data)

    async def _fetch_later(
        self, partition: Partition, offset: int, bytes_max: int, wait_ms: int, committed: bool, correlation: int
    ) -> None:
        broker = self._server.broker
        await broker.wait_data(partition, offset, min(wait_ms, broker.config.wait_max_ms) / 1000)
        while self._backlogged and not self._closed:
            if self._can_write is not None:
                await self._can_write.wait()
            # The transport looks at its buffer after this turn of the loop, not at every write.
            await asyncio.sleep(0)
        if not self._closed:
            self._fetch_now(partition, offset, bytes_max, committed, correlation)
            self._send()

    # -- calls --------------------------------------------------------------------------------------------------

    async def _call(self, body: bytes, correlation: int) -> None:
        try:
            answer = wire.frame(Api.CALL, correlation, wire.pack(await self._server.calls.run(wire.unpack(body))))
        except GoQueueError as error:
            answer = wire.frame(Api.CALL, correlation, wire.error_body(error), wire.FAILED)
        except Exception:
            # Our bug, and the peer must not wait for ever because of it.
            _logger.exception("a call failed", extra={"peer": str(self._peer)})
            failure = GoQueueError("the broker failed to carry this out; its log says why")
            answer = wire.frame(Api.CALL, correlation, wire.error_body(failure), wire.FAILED)
        if not self._closed:
            self._out.append(answer)
            self._send()

    def _spawn(self, work: Coroutine[object, None, None], api: int, correlation: int) -> None:
        if self._tasks is None:
            self._tasks = set()
        maximum = self._server.config.waiting_requests_max
        if len(self._tasks) >= maximum:
            work.close()
            text = f"{maximum} requests of this connection are waiting already"
            self._refuse(correlation, api, LimitExceededError(text, limit="waiting_requests", maximum=maximum))
            return
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- answers ------------------------------------------------------------------------------------------------

    def _refuse(self, correlation: int, api: int, error: GoQueueError) -> None:
        self._out.append(wire.frame(api, correlation, wire.error_body(error), wire.FAILED))

    def _send(self) -> None:
        if self._out and not self._closed and self._transport is not None:
            out, self._out = self._out, []
            large, self._out_bytes = self._out_bytes > _JOIN_BYTES_MAX, 0
            if large:
                self._transport.writelines(out)
            else:
                self._transport.write(b"".join(out) if len(out) > 1 else out[0])

    @property
    def _backlogged(self) -> bool:
        """The peer has asked for more than it takes."""
        if self._writing_blocked or self._out_bytes > _ANSWER_BYTES_MAX:
            return True
        return self._transport is not None and self._transport.get_write_buffer_size() > _ANSWER_BYTES_MAX

    @property
    def _writing_blocked(self) -> bool:
        return self._can_write is not None and not self._can_write.is_set()

    def pause_writing(self) -> None:
        """The peer does not take its answers: read no more of its requests until it does."""
        if self._can_write is None:
            self._can_write = asyncio.Event()
        self._can_write.clear()
        self._set_deadline(self._server.config.answer_timeout_ms)
        self._balance_reading()

    def resume_writing(self) -> None:
        if self._can_write is not None:
            self._can_write.set()
        self._deadline_ns = 0
        self._balance_reading()

    def _balance_reading(self) -> None:
        full = self._unanswered_bytes > self._server.config.unanswered_bytes_max
        stop = full or self._writing_blocked or self._finishing
        if self._transport is None or self._closed or stop == self._reading_paused:
            return
        self._reading_paused = stop
        if stop:
            self._transport.pause_reading()
        else:
            if self._filled:
                # The time in which we did not read is not the peer's.
                self._set_deadline(self._server.config.frame_timeout_ms)
            self._transport.resume_reading()

    # -- ending -------------------------------------------------------------------------------------------------

    def _set_deadline(self, timeout_ms: int) -> None:
        self._deadline_ns = self._server.broker.clock.monotonic_ns() + timeout_ms * 1_000_000

    def check_deadlines(self, now_ns: int) -> None:
        waits_for_us = self._reading_paused and not self._writing_blocked
        if self._deadline_ns and now_ns > self._deadline_ns and not waits_for_us:
            what = "did not take its answers" if self._writing_blocked else "did not finish its frame"
            self.abort(what if self._greeted else "did not greet")
        elif not self._filled and self._buffer is not None:
            self._buffer = None

    def finish(self) -> None:
        """Take no more requests and close if no answer is under way; call it again until the connection is gone."""
        if self._transport is None or self._closed or self._transport.is_closing():
            return
        self._finishing = True
        self._balance_reading()
        if not self._unanswered_bytes and not self._tasks:
            self._transport.close()

    def abort(self, reason: str, *, at_once: bool = False) -> None:
        _logger.warning("connection closed", extra={"peer": str(self._peer), "reason": reason})
        self._closed = True
        self._server.connections.discard(self)
        if self._transport is not None:
            self._transport.abort() if at_once or self._writing_blocked else self._transport.close()


def _produced(item: _Staged) -> bytes:
    correlation, facts, _, _ = item
    length = wire.PRODUCE_REPLY.size - 4
    return wire.PRODUCE_REPLY.pack(
        length, Api.PRODUCE, wire.OK, correlation, facts.base_offset, facts.max_timestamp_ns, facts.count
    )
