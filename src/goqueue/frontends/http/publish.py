"""Publishing: `POST /topics/{t}/messages` as JSON and `POST /topics/{t}/partitions/{p}/messages` as a native batch.

One result per message and in their order. Answered 200 when all are stored, 207 when some are, and when none is with
the status of what all of them have in common. Only the shape of the body as a whole can refuse a request outright.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from goqueue.broker import Acks, BrokerApi, Gathering, Placed
from goqueue.errors import GoQueueError, InvalidRequestError
from goqueue.frontends.http import values
from goqueue.frontends.http.errors import error_body, error_headers, status_of
from goqueue.frontends.http.exchange import JSON, Answer
from goqueue.frontends.http.values import AcksName, PlainMessage, RichMessage
from goqueue.record import Priority

ACKS: dict[str, Acks] = {"none": Acks.NONE, "leader": Acks.LEADER, "all": Acks.ALL}
# When no message is stored and all for one of these reasons, the answer as a whole has its status.
_SHARED_STATUS = frozenset({413, 429, 500, 503, 507})


class PlainRequest(Struct, forbid_unknown_fields=True, gc=False):
    messages: list[PlainMessage]
    acks: AcksName = "all"


class RichRequest(Struct, forbid_unknown_fields=True, gc=False):
    messages: list[RichMessage]
    acks: AcksName = "all"


class RawRequest(Struct, forbid_unknown_fields=True, gc=False):
    messages: list[Raw]
    acks: AcksName = "all"


# How the result of a message that is visible now ends.
_VISIBLE = b'"delayed":false}'
_plain = msgspec.json.Decoder(PlainRequest)
_rich = msgspec.json.Decoder(RichRequest)
_raw = msgspec.json.Decoder(RawRequest)
_message = msgspec.json.Decoder(RichMessage)
_encode = msgspec.json.Encoder().encode


class Publisher:
    def __init__(self, broker: BrokerApi) -> None:
        self._broker = broker

    async def publish(self, topic: str, body: bytes) -> Answer:
        request = parse(body)
        if not request.messages:
            raise InvalidRequestError("messages must hold at least one message")
        gathering = self._broker.gather(topic, len(request.messages))
        if isinstance(request, PlainRequest):
            _add_plain(gathering, request.messages)
            priorities = None
        else:
            priorities = [_add(self._broker, gathering, message) for message in request.messages]
        placed = await self._broker.publish_gathered(gathering, ACKS[request.acks])
        if not gathering.errors:
            return Answer(200, b'{"results":[%s]}' % _results(gathering, placed, priorities))
        return _mixed(gathering, placed, priorities)

    async def publish_batch(self, topic: str, partition: int, acks: Acks, body: bytes) -> Answer:
        facts = await self._broker.publish_batch(topic, partition, bytearray(body), acks)
        return Answer.json(
            {
                "partition": partition,
                "base_offset": facts.base_offset,
                "next_offset": facts.next_offset,
                "count": facts.count,
                "timestamp": facts.max_timestamp_ns // 1_000_000,
            }
        )


# -- requests ---------------------------------------------------------------------------------------------------


def parse(body: bytes) -> PlainRequest | RichRequest | RawRequest:
    """The request in the simplest form that holds it."""
    problem: msgspec.ValidationError | None = None
    for decoder in (_plain, _rich, _raw):
        try:
            if decoder is _rich:
                # What follows passes on pieces of JSON as they stand: they must be text, and compact.
                body.decode()
                body = msgspec.json.format(body, indent=-1)
            return decoder.decode(body)
        except msgspec.ValidationError as error:
            problem = error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _malformed(error) from None
    raise InvalidRequestError(f"the request is not {{messages: [...], acks}}: {problem}")


def _malformed(error: Exception) -> InvalidRequestError:
    text = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
    return InvalidRequestError(f"the body is not JSON: {text}")


def _add_plain(gathering: Gathering, messages: list[PlainMessage]) -> None:
    texts = [message.key for message in messages]
    keys = None
    if texts.count(None) != len(texts):
        keys = [None if text is None else text.encode() for text in texts]
    gathering.add_plain([message.value.encode() for message in messages], keys)


def _add(broker: BrokerApi, gathering: Gathering, message: RichMessage | Raw) -> int:
    """Hand one message over, or its refusal; returns its priority."""
    try:
        if isinstance(message, Raw):
            message = _message.decode(message)
        values.check_available(message)
        priority = Priority.NORMAL if message.priority is None else values.read_priority(message)
        bare = message.headers is None and message.traceparent is None
        gathering.add(
            values.read_value(message),
            values.read_key(message),
            None if bare else values.read_headers(message),
            priority,
            message.partition,
            _due_ms(broker, message) if values.is_delayed(message) else None,
        )
    except GoQueueError as error:
        gathering.refuse(error)
    except msgspec.DecodeError as error:
        gathering.refuse(InvalidRequestError(str(error)))
    else:
        return priority
    return 0


def _due_ms(broker: BrokerApi, message: RichMessage) -> int | None:
    deliver_at_ms = values.read_deliver_at_ms(message.deliver_at, message.deliverAt)
    return broker.delays.due_ms(values.read_delay_ms(message.delay), deliver_at_ms)


# -- answers ----------------------------------------------------------------------------------------------------


def _results(gathering: Gathering, placed: list[Placed], priorities: list[int] | None) -> bytes:
    """The results as JSON, put together as text: they are many and all alike."""
    if priorities is None and len(placed) == 1 and not gathering.errors:
        return _run(placed[0], Priority.NORMAL, b",")
    results = [b""] * gathering.count
    for batch in placed:
        lanes = {Priority.NORMAL} if priorities is None else {priorities[position] for position in batch.positions}
        # One text per lane in use; nearly always there is one lane.
        texts = {lane: _run(batch, lane, b"\n").split(b"\n") for lane in lanes}
        for n, position in enumerate(batch.positions):
            results[position] = texts[Priority.NORMAL if priorities is None else priorities[position]][n]
    for position, due_ms in gathering.delayed.items():
        head = results[position].removesuffix(_VISIBLE)
        results[position] = b'%s"delayed":true,"deliver_at":%d}' % (head, due_ms)
    for position, error in gathering.errors.items():
        results[position] = error_body(error)
    return b",".join(results)


def _run(batch: Placed, priority: int, separator: bytes) -> bytes:
    """The results of a whole batch: its offsets as JSON numbers, with the rest put between them."""
    head = b'{"partition":%d,"offset":' % batch.partition
    tail = b',"timestamp":%d,"priority":%d,%s' % (batch.timestamp_ns // 1_000_000, priority, _VISIBLE)
    if len(batch.positions) == 1:
        return b"%s%d%s" % (head, batch.base_offset, tail)
    offsets = _encode(list(range(batch.base_offset, batch.base_offset + len(batch.positions))))
    return head + offsets[1:-1].replace(b",", tail + separator + head) + tail


def _mixed(gathering: Gathering, placed: list[Placed], priorities: list[int] | None) -> Answer:
    results = _results(gathering, placed, priorities)
    if placed:
        return Answer(207, b'{"results":[%s]}' % results)
    errors = list(gathering.errors.values())
    statuses = {status_of(error) for error in errors}
    worst = max(errors, key=status_of)
    status = status_of(worst) if len(statuses) == 1 or max(statuses) >= 500 else 400
    status = status if status in _SHARED_STATUS else 400
    shown = {**worst.as_dict(), "message": f"none of {len(errors)} messages was stored; {worst.message}"}
    body = b'{"error":%s,"results":[%s]}' % (msgspec.json.encode(shown, enc_hook=str), results)
    headers = [field for field in error_headers(status) if field[0] != b"connection"]
    return Answer(status, body, (JSON, *headers))
