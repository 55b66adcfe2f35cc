"""Reading: `GET /topics/{t}/partitions/{p}/messages`, as JSON or as the batch that is stored, at once or by long poll.

A long poll answers as soon as there is something, when its time is over, or when the server stops; it ends without an
answer when the client goes away. It holds nothing but a place in the partition's list of readers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from msgspec import Struct

from goqueue.broker import BrokerApi, FetchResult
from goqueue.errors import InvalidRequestError
from goqueue.frontends.http.errors import MediaTypeError
from goqueue.frontends.http.exchange import BINARY, Answer, ClientGoneError, Receive, Scope, fields_of, wait_gone
from goqueue.frontends.http.times import parse_duration_ms, parse_time_ns
from goqueue.frontends.http.values import ShownMessage, show_records

T = TypeVar("T")

_NAMES = frozenset({"offset", "timestamp", "limit", "max_bytes", "isolation", "wait", "encoding"})
_ISOLATIONS = {"read_committed": True, "read_uncommitted": False}
_ENCODINGS = {"auto": False, "base64": True}


class Page(Struct, gc=False):
    messages: list[ShownMessage]
    next_offset: int
    high_watermark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a client asked for; None where it leaves the choice to the broker."""

    offset: int | None = None
    from_latest: bool = False
    timestamp_ns: int | None = None
    limit: int | None = None
    bytes_max: int | None = None
    committed: bool = True
    wait_ms: int = 0
    base64: bool = False
    binary: bool = False


class Fetcher:
    def __init__(self, broker: BrokerApi) -> None:
        self._broker = broker
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Let every long poll answer with what there is."""
        self._stopping.set()

    async def fetch(self, topic: str, partition: int, scope: Scope, receive: Receive) -> Answer:
        question = read_question(scope["query_string"], fields_of(scope).get(b"accept"))
        offset = question.offset
        if question.from_latest:
            offset = self._broker.topics.partition(topic, partition).high_watermark
        if question.binary:
            return await self._binary(topic, partition, offset, question, receive)
        return await self._page(topic, partition, offset, question, receive)

    async def _page(
        self, topic: str, partition: int, offset: int | None, question: Question, receive: Receive
    ) -> Answer:
        def read(start: int | None, timestamp_ns: int | None, wait_ms: int) -> Coroutine[Any, Any, Any]:
            return self._broker.read(
                topic,
                partition,
                offset=start,
                timestamp_ns=timestamp_ns,
                limit=question.limit,
                bytes_max=question.bytes_max,
                committed=question.committed,
                wait_ms=wait_ms,
            )

        result = await read(offset, question.timestamp_ns, 0)
        if not result.records and question.wait_ms:
            start = result.next_offset
            result = await self._wait(lambda wait_ms: read(start, None, wait_ms), question.wait_ms, receive)
        shown = show_records(partition, result.records, base64=question.base64)
        return Answer.json(Page(shown, result.next_offset, result.high_watermark))

    async def _binary(
        self, topic: str, partition: int, offset: int | None, question: Question, receive: Receive
    ) -> Answer:
        def fetch(start: int | None, timestamp_ns: int | None, wait_ms: int) -> Coroutine[Any, Any, FetchResult]:
            return self._broker.fetch(
                topic,
                partition,
                offset=start,
                timestamp_ns=timestamp_ns,
                bytes_max=question.bytes_max,
                committed=question.committed,
                wait_ms=wait_ms,
            )

        found = await fetch(offset, question.timestamp_ns, 0)
        if not found.data and question.wait_ms:
            start = found.next_offset
            found = await self._wait(lambda wait_ms: fetch(start, None, wait_ms), question.wait_ms, receive)
        offsets = {
            b"goqueue-base-offset": found.base_offset,
            b"goqueue-next-offset": found.next_offset,
            b"goqueue-log-start-offset": found.log_start_offset,
            b"goqueue-high-watermark": found.high_watermark,
            b"goqueue-last-stable-offset": found.last_stable_offset,
        }
        return Answer(200, found.data, (BINARY, *((name, b"%d" % value) for name, value in offsets.items())))

    async def _wait(self, look: Callable[[int], Coroutine[Any, Any, T]], wait_ms: int, receive: Receive) -> T:
        """Look until there is something; `ClientGoneError` when there is nobody left to show it to."""
        looking = asyncio.ensure_future(look(wait_ms))
        gone = asyncio.ensure_future(wait_gone(receive))
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((looking, gone, stopping), return_when=asyncio.FIRST_COMPLETED)
            if looking.done():
                return looking.result()
            if gone.done():
                raise ClientGoneError
            return await look(0)
        finally:
            for task in (looking, gone, stopping):
                task.cancel()
            await asyncio.gather(looking, gone, stopping, return_exceptions=True)


# -- questions --------------------------------------------------------------------------------------------------


def read_question(query: bytes, accept: bytes | None) -> Question:
    """The parameters, checked; an unknown one is refused, because a misspelt offset would start from the beginning."""
    given = read_query(query, _NAMES)
    if "offset" in given and "timestamp" in given:
        raise InvalidRequestError("offset and timestamp exclude each other")
    place = given.get("offset")
    binary = b"application/octet-stream" in (accept or b"").lower()
    if binary and {"limit", "encoding"} & given.keys():
        raise MediaTypeError("limit and encoding are for JSON; a native batch is bounded by max_bytes")
    return Question(
        offset=None if place in (None, "earliest", "latest") else read_int("offset", str(place), low=0),
        from_latest=place == "latest",
        timestamp_ns=parse_time_ns(given["timestamp"], "timestamp") if "timestamp" in given else None,
        limit=read_int("limit", given["limit"], low=1) if "limit" in given else None,
        bytes_max=read_int("max_bytes", given["max_bytes"], low=1) if "max_bytes" in given else None,
        committed=_choose(given, "isolation", _ISOLATIONS, "read_committed"),
        wait_ms=parse_duration_ms(given["wait"], "wait") if "wait" in given else 0,
        base64=_choose(given, "encoding", _ENCODINGS, "auto"),
        binary=binary,
    )


def read_query(query: bytes, names: frozenset[str]) -> dict[str, str]:
    given: dict[str, str] = {}
    if not query:
        return given
    try:
        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=32)
    except ValueError:
        raise InvalidRequestError("too many query parameters") from None
    for name, value in pairs:
        if name not in names:
            raise InvalidRequestError(f"unknown parameter {name[:40]!r}; known: {', '.join(sorted(names))}")
        if name in given:
            raise InvalidRequestError(f"parameter {name} is given twice")
        given[name] = value
    return given


def read_int(name: str, text: str, *, low: int) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18 or int(text) < low:
        raise InvalidRequestError(f"{name}={text[:40]!r} must be a whole number of at least {low}")
    return int(text)


def _choose(given: dict[str, str], name: str, choices: dict[str, bool], default: str) -> bool:
    text = given.get(name, default)
    if text not in choices:
        raise InvalidRequestError(f"{name}={text[:40]!r} must be one of {', '.join(choices)}")
    return choices[text]
