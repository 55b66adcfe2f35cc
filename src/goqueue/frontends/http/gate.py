"""The gate: where every request comes in, and the only place that turns an error into an answer.

The paths that carry messages are answered here, without a framework; all others go on to the control plane. `/v1` is
the same tree. Names of topics and groups are checked before anything else sees them, on the path as it was sent: an
encoded slash is part of a name here, and no name may have one.
"""

from __future__ import annotations

import logging
from time import perf_counter
from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp

from goqueue.broker import Acks, BrokerApi
from goqueue.broker.groups import check_group_name
from goqueue.errors import GoQueueError, InvalidRequestError
from goqueue.frontends.http.config import HttpConfig
from goqueue.frontends.http.errors import MethodNotAllowedError
from goqueue.frontends.http.exchange import (
    Answer,
    ClientGoneError,
    Message,
    Receive,
    Scope,
    Send,
    check_media_type,
    fields_of,
    read_body,
)
from goqueue.frontends.http.fetch import Fetcher, read_query
from goqueue.frontends.http.publish import ACKS, Publisher
from goqueue.frontends.metrics import RequestCounts
from goqueue.model import validate_name

PUBLISH_PATH = "/topics/{topic}/messages"
PARTITION_PATH = "/topics/{topic}/partitions/{partition}/messages"
# The route of requests that no route was found for.
UNROUTED = "unrouted"
# Nobody was there to take the answer; nginx uses the same number in its log.
_STATUS_GONE = 499

# Paths whose meaning is remembered.
_ROUTES_MAX = 10_000

# Which message path, the topic, and the partition where the path has one.
Route = tuple[str, str, int]

_logger = logging.getLogger(__name__)


class Gate:
    def __init__(self, broker: BrokerApi, control: ASGIApp, config: HttpConfig, counts: RequestCounts) -> None:
        self._broker = broker
        self._control = control
        self._config = config
        self._counts = counts
        self._publisher = Publisher(broker)
        self.fetcher = Fetcher(broker)
        self._routes: dict[bytes, Route] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        started = perf_counter()
        route, status = UNROUTED, _STATUS_GONE
        try:
            found = self._routes.get(scope["raw_path"]) or self._route(scope)
            if found is None:
                route, status = await self._pass_on(scope, receive, send)
                return
            route, topic, number = found
            if route is PUBLISH_PATH:
                answer = await self._publish(topic, scope, receive)
            else:
                answer = await self._partition(topic, number, scope, receive)
            status = answer.status
            await answer.send(scope, send)
        except ClientGoneError:
            pass
        except GoQueueError as error:
            answer = Answer.of(error, *_allow(error))
            status = answer.status
            await answer.send(scope, send)
        except Exception:
            _logger.exception("a request failed", extra={"route": route, "method": scope["method"]})
            status = 500
            await Answer.of(GoQueueError("the broker failed at this request; its log says why")).send(scope, send)
        finally:
            self._counts.note(route, _method(scope), status, perf_counter() - started)

    def _route(self, scope: Scope) -> Route | None:
        """The message path that a request is for; None for all others, with a topic's name checked even then."""
        path: bytes = scope["raw_path"]
        parts = path.split(b"/")
        if len(parts) > 1 and parts[1] == b"v1":
            del parts[1]
            scope["root_path"] = "/v1"
        if len(parts) < 3 or parts[1] not in (b"topics", b"groups"):
            return None
        name = unquote_to_bytes(parts[2]) if b"%" in parts[2] else parts[2]
        if parts[1] == b"groups":
            check_group_name(name.decode("utf-8", "replace"))
            return None
        topic = validate_name(name.decode("utf-8", "replace"))
        self._broker.topics.check_public(topic)
        if len(parts) == 4 and parts[3] == b"messages":
            return self._remember(path, (PUBLISH_PATH, topic, 0))
        if len(parts) != 6 or parts[3] != b"partitions" or parts[5] != b"messages":
            return None
        if not parts[4].isdigit() or len(parts[4]) > 9:
            raise InvalidRequestError(f"partition {parts[4].decode('latin-1')[:40]!r} is not a number")
        return self._remember(path, (PARTITION_PATH, topic, int(parts[4])))

    def _remember(self, path: bytes, route: Route) -> Route:
        """Paths repeat; what one means depends on nothing but itself."""
        if len(self._routes) >= _ROUTES_MAX:
            self._routes.clear()
        self._routes[path] = route
        return route

    # -- messages -----------------------------------------------------------------------------------------------

    async def _publish(self, topic: str, scope: Scope, receive: Receive) -> Answer:
        if scope["method"] != "POST":
            raise MethodNotAllowedError("messages of a topic are published with POST", allow="POST")
        fields = fields_of(scope)
        check_media_type(fields, b"application/json")
        return await self._publisher.publish(topic, await read_body(fields, receive, self._config.body_bytes_max))

    async def _partition(self, topic: str, number: int, scope: Scope, receive: Receive) -> Answer:
        if scope["method"] == "GET":
            return await self.fetcher.fetch(topic, number, scope, receive)
        if scope["method"] != "POST":
            raise MethodNotAllowedError(
                "messages of a partition are read with GET, published with POST", allow="GET, POST"
            )
        fields = fields_of(scope)
        check_media_type(fields, b"application/octet-stream")
        acks = _read_acks(scope["query_string"])
        body = await read_body(fields, receive, self._config.body_bytes_max)
        return await self._publisher.publish_batch(topic, number, acks, body)

    # -- everything else ----------------------------------------------------------------------------------------

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> tuple[str, int]:
        """Let the control plane answer; returns its route and status."""
        body: bytes | None = await read_body(fields_of(scope), receive, self._config.control_body_bytes_max)
        status = _STATUS_GONE

        async def receive_again() -> Message:
            nonlocal body
            if body is None:
                return await receive()
            message = {"type": "http.request", "body": body, "more_body": False}
            body = None
            return message

        async def send_noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._control(scope, receive_again, send_noting)
        except Exception:
            # The framework has answered already and passes the exception on for the log.
            _logger.exception("a request failed", extra={"path": scope["path"], "method": scope["method"]})
        return getattr(scope.get("route"), "path", UNROUTED), status


def _read_acks(query: bytes) -> Acks:
    name = read_query(query, frozenset({"acks"})).get("acks", "all")
    if name not in ACKS:
        raise InvalidRequestError(f"acks={name[:40]!r} must be one of {', '.join(ACKS)}")
    return ACKS[name]


def _allow(error: GoQueueError) -> list[tuple[bytes, bytes]]:
    return [(b"allow", str(error.context["allow"]).encode())] if isinstance(error, MethodNotAllowedError) else []


_METHODS = frozenset({"GET", "POST", "PATCH", "DELETE", "PUT", "HEAD", "OPTIONS"})


def _method(scope: Scope) -> str:
    """As a label, which a client must not be able to invent."""
    return scope["method"] if scope["method"] in _METHODS else "other"
