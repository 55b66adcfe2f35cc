"""The application: the gate in front, FastAPI behind it, one shape of error for both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match

from goqueue import __version__
from goqueue.broker import BrokerApi
from goqueue.errors import GoQueueError, InvalidRequestError
from goqueue.frontends.http.config import HttpConfig
from goqueue.frontends.http.delays import delay_routes
from goqueue.frontends.http.errors import MediaTypeError, MethodNotAllowedError, PathNotFoundError
from goqueue.frontends.http.exchange import Answer
from goqueue.frontends.http.gate import Gate
from goqueue.frontends.http.group_offsets import group_offset_routes
from goqueue.frontends.http.groups import group_routes
from goqueue.frontends.http.health import health_routes
from goqueue.frontends.http.openapi import complete
from goqueue.frontends.http.topics import topic_routes
from goqueue.frontends.metrics import Metrics


def build(broker: BrokerApi, config: HttpConfig, metrics: Metrics) -> Gate:
    """The whole HTTP face of a broker, as one ASGI application."""
    app = FastAPI(
        title="GoQueue",
        version=__version__,
        description="A message broker. The same tree is served under `/` and under `/v1`.",
        redirect_slashes=False,
        root_path_in_servers=False,
    )
    groups = (group_routes(broker), group_offset_routes(broker))
    routers = (topic_routes(broker), *groups, delay_routes(broker), health_routes(broker, metrics))
    for router in routers:
        app.include_router(router)
    _answer_errors(app, [route for router in routers for route in router.routes])
    app.openapi = _document(app)  # type: ignore[method-assign]
    return Gate(broker, app, config, metrics.requests)


def _document(app: FastAPI) -> Callable[[], dict[str, Any]]:
    generated = app.openapi

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = complete(generated())
        return app.openapi_schema

    return document


def _answer_errors(app: FastAPI, routes: list[BaseRoute]) -> None:
    @app.exception_handler(GoQueueError)
    async def refused(request: Request, error: GoQueueError) -> Response:
        return _response(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        if request.method in ("POST", "PATCH") and not _is_json(request):
            return _response(MediaTypeError("the body must be application/json"))
        problems = [f"{'.'.join(str(part) for part in e['loc'])}: {e['msg']}" for e in error.errors()]
        return _response(InvalidRequestError("; ".join(problems), problems=problems))

    @app.exception_handler(HTTPException)
    async def unanswerable(request: Request, error: HTTPException) -> Response:
        path = request.url.path[:200]
        if error.status_code == 404:
            return _response(PathNotFoundError(f"there is nothing at {path!r}", path=path))
        if error.status_code == 405:
            allow = ", ".join(_methods_at(routes, request))
            text = f"{request.method} is not for {path!r}; it takes {allow}"
            return _response(MethodNotAllowedError(text, allow=allow), allow=allow)
        return _response(InvalidRequestError(str(error.detail)))

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        return _response(GoQueueError("the broker failed at this request; its log says why"))


def _response(error: GoQueueError, **headers: str) -> Response:
    answer = Answer.of(error)
    fields = {name.decode(): value.decode() for name, value in answer.headers}
    return Response(answer.body, answer.status, {**fields, **headers})


def _is_json(request: Request) -> bool:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"


def _methods_at(routes: list[BaseRoute], request: Request) -> list[str]:
    """Every method that some route of this path takes."""
    found: set[str] = set()
    for route in routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            found |= getattr(route, "methods", None) or set()
    return sorted(found)
