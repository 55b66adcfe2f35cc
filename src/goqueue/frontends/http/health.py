"""How the broker is: liveness, readiness, health, version, statistics, metrics."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from goqueue import __version__
from goqueue.broker import BrokerApi, Health, Phase
from goqueue.frontends.http.times import format_duration
from goqueue.frontends.metrics import CONTENT_TYPE, Metrics, build_commit

_FINE = frozenset({"ok", str(Phase.READY)})


class Liveness(BaseModel):
    status: str


class Readiness(BaseModel):
    status: str = Field(description="`ok` or `not_ready`.")
    reasons: list[str] = Field(description="What keeps the broker from being ready.")
    checks: dict[str, str]
    details: dict[str, float] | None = Field(default=None, description="Numbers behind the checks, with `verbose`.")


class HealthPage(BaseModel):
    status: str = Field(description="`ok`, `degraded` (it works, something needs attention) or `unavailable`.")
    checks: dict[str, str]


class Version(BaseModel):
    version: str
    commit: str


class Stats(BaseModel):
    uptime: str = Field(description="As a duration: `1h2m3.004s`.")
    uptime_ms: int
    topics: int
    partitions: int
    messages: int
    bytes: int


def health_routes(broker: BrokerApi, metrics: Metrics) -> APIRouter:
    router = APIRouter(tags=["health"])

    @router.get("/livez", response_model=Liveness)
    async def live() -> dict[str, object]:
        return {"status": "ok"}

    @router.get(
        "/readyz",
        response_model=Readiness,
        response_model_exclude_none=True,
        responses={503: {"model": Readiness, "description": "Not ready, with the reasons."}},
    )
    async def ready(response: Response, verbose: Annotated[str | None, Query()] = None) -> dict[str, object]:
        health = broker.health()
        answer: dict[str, object] = {
            "status": "ok" if health.ready else "not_ready",
            "reasons": [] if health.ready else _problems(health),
            "checks": health.checks,
        }
        if verbose is not None:
            answer["details"] = _details(broker)
        if not health.ready:
            response.status_code = 503
        return answer

    @router.get(
        "/health",
        response_model=HealthPage,
        responses={503: {"model": HealthPage, "description": "Starting, draining or closed."}},
    )
    async def health(response: Response) -> dict[str, object]:
        found = broker.health()
        if found.phase is not Phase.READY:
            response.status_code = 503
            return {"status": "unavailable", "checks": found.checks}
        return {"status": "degraded" if _problems(found) else "ok", "checks": found.checks}

    @router.get("/version", response_model=Version)
    async def version() -> dict[str, object]:
        return {"version": __version__, "commit": build_commit()}

    @router.get("/stats", response_model=Stats)
    async def stats() -> dict[str, object]:
        logs = [partition.log for partition in broker.topics.partitions(internal=False)]
        return {
            "uptime": format_duration(broker.uptime_s),
            "uptime_ms": int(broker.uptime_s * 1000),
            "topics": len(broker.topics.catalog.topics()),
            "partitions": len(logs),
            "messages": sum(log.log_end_offset - log.log_start_offset for log in logs),
            "bytes": sum(log.size_bytes for log in logs),
        }

    @router.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Prometheus text."}},
    )
    async def scrape() -> Response:
        return Response(metrics.render(), media_type=CONTENT_TYPE)

    return router


def _problems(health: Health) -> list[str]:
    return [f"{name}: {text}" for name, text in health.checks.items() if text not in _FINE]


def _details(broker: BrokerApi) -> dict[str, float]:
    guard = broker.disk_guard
    return {
        "uptime_s": broker.uptime_s,
        "disk_used_percent": guard.used_percent,
        "disk_free_bytes": float(guard.free_bytes),
        "disk_total_bytes": float(guard.total_bytes),
        "topics": float(len(broker.topics.catalog.topics())),
        "partitions": float(len(list(broker.topics.partitions(internal=False)))),
    }
