"""Offsets and polls of consumer groups over HTTP."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Query, Request, Response
from msgspec import Struct, UnsetType
from pydantic import BaseModel, Field

from goqueue.broker import BrokerApi
from goqueue.errors import InvalidRequestError
from goqueue.frontends.group_shapes import offset_fields
from goqueue.frontends.http.exchange import wait_gone
from goqueue.frontends.http.groups import GENERATION_MAX, Generation, GroupName, GroupRequest, MemberQuery
from goqueue.frontends.http.openapi import errors
from goqueue.frontends.http.times import parse_duration_ms, parse_time_ns
from goqueue.frontends.http.values import show_records

OFFSET_MAX = (1 << 63) - 1
_STATUS_GONE = 499

# Partitions are text in JSON, as in every object keyed by them.
PartitionKey = Annotated[str, Field(pattern="^[0-9]{1,9}$")]
OffsetNumber = Annotated[int, Field(ge=0, le=OFFSET_MAX)]


class OffsetWithMetadata(GroupRequest):
    offset: OffsetNumber
    metadata: str = ""


class CommitRequest(GroupRequest):
    member_id: str | None = Field(
        default=None, max_length=500, description="Absent for a group that has no members, such as a job's progress."
    )
    generation: Generation = 0
    offsets: dict[str, dict[PartitionKey, OffsetNumber | OffsetWithMetadata]]


class ResetRequest(GroupRequest):
    topic: str
    partitions: list[Annotated[int, Field(ge=0, le=999_999_999)]] | None = None
    to: Literal["earliest", "latest", "offset", "timestamp"] | OffsetNumber
    offset: OffsetNumber | None = None
    timestamp: Annotated[int, Field(ge=0, le=(1 << 63) // 1_000_000)] | str | None = Field(
        default=None, description="RFC 3339 or milliseconds since 1970."
    )
    dry_run: bool = False


class OffsetShown(BaseModel):
    offset: int | None
    metadata: str
    committed_at: int | None
    lag: int
    log_start_offset: int
    log_end_offset: int


class OffsetsShown(BaseModel):
    offsets: dict[str, dict[str, OffsetShown]]


class ResetShown(BaseModel):
    dry_run: bool
    offsets: dict[str, dict[str, dict[str, int | None]]]


class GroupMessage(Struct, gc=False):
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: str | UnsetType | None
    key_base64: str | UnsetType
    value: str | UnsetType | None
    value_base64: str | UnsetType
    headers: dict[str, str] | list[dict[str, str]]
    priority: int


class PollAnswer(Struct, gc=False):
    messages: list[GroupMessage]
    next_offset: dict[str, dict[str, int]]


def group_offset_routes(broker: BrokerApi) -> APIRouter:
    router = APIRouter(tags=["groups"])
    offsets = broker.group_offsets

    @router.post(
        "/groups/{group}/offsets",
        response_model=OffsetsShown,
        responses=errors(400, 403, 404, 409, 413, 415, 429, 503, 507),
    )
    async def commit(group: GroupName, request: CommitRequest) -> dict[str, object]:
        """Commit the next offsets to read; all of them or none, durable when answered."""
        wanted = {
            topic: {int(number): _wanted(value) for number, value in numbers.items()}
            for topic, numbers in request.offsets.items()
        }
        await offsets.commit(group, request.member_id, request.generation, wanted)
        views = offsets.show(group, wanted) if wanted else []
        return {"offsets": offset_fields([view for view in views if view.partition in wanted[view.topic]])}

    @router.get("/groups/{group}/offsets", response_model=OffsetsShown, responses=errors(400, 403, 404))
    async def show(group: GroupName, topic: Annotated[str | None, Query(max_length=249)] = None) -> dict[str, object]:
        """Committed offsets and lag of every partition that the group reads; of one topic where it is named."""
        return {"offsets": offset_fields(offsets.show(group, None if topic is None else [topic]))}

    @router.post(
        "/groups/{group}/offsets/reset",
        response_model=ResetShown,
        responses=errors(400, 403, 404, 409, 413, 415, 500, 503, 507),
    )
    async def reset(group: GroupName, request: ResetRequest) -> dict[str, object]:
        """Move a group without members; with `dry_run` only say where to."""
        to, timestamp_ns = _target(request)
        before = {view.partition: view.offset for view in offsets.show(group, [request.topic])}
        found = await offsets.reset(
            group,
            request.topic,
            partitions=request.partitions,
            to=to,
            timestamp_ns=timestamp_ns,
            dry_run=request.dry_run,
        )
        moves = {str(n): {"offset": offset, "before": before.get(n)} for n, offset in found.items()}
        return {"dry_run": request.dry_run, "offsets": {request.topic: moves}}

    @router.get(
        "/groups/{group}/poll",
        response_model=None,
        responses={
            **errors(400, 409, 500, 503),
            200: {
                "description": "Messages, or none in time.",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/GroupPage"}}},
            },
        },
    )
    async def poll(
        group: GroupName,
        request: Request,
        member_id: MemberQuery,
        generation: Annotated[int, Query(ge=0, le=GENERATION_MAX)],
        timeout: Annotated[str, Query(max_length=40, description="`30s`, `PT30S` or milliseconds; at most 60 s.")] = "",
        limit: Annotated[int, Query(ge=1, le=10**18 - 1)] = 100,
        reset: Annotated[
            Literal["earliest", "latest"], Query(description="Where to begin without a committed offset.")
        ] = "earliest",
        encoding: Annotated[Literal["auto", "base64"], Query(description="How bytes are shown.")] = "auto",
    ) -> Response:
        """Messages of the partitions that the member owns; waits for the first one."""
        config = broker.config
        wait_ms = parse_duration_ms(timeout, "timeout") if timeout else config.wait_default_ms
        looking = asyncio.ensure_future(
            broker.group_poll.poll(
                group,
                member_id,
                generation,
                limit=min(limit, config.read_limit_max),
                wait_ms=min(wait_ms, config.wait_max_ms),
                reset=reset,
            )
        )
        gone = asyncio.ensure_future(wait_gone(request.receive))
        try:
            await asyncio.wait((looking, gone), return_when=asyncio.FIRST_COMPLETED)
            if not looking.done():
                return Response(status_code=_STATUS_GONE)
            result = looking.result()
        finally:
            for task in (looking, gone):
                task.cancel()
            await asyncio.gather(looking, gone, return_exceptions=True)
        next_offset: dict[str, dict[str, int]] = {}
        for (topic, number), offset in result.next_offsets.items():
            next_offset.setdefault(topic, {})[str(number)] = offset
        messages = [
            GroupMessage(place[0], *(getattr(shown, name) for name in shown.__struct_fields__))
            for place, records in result.messages
            for shown in show_records(place[1], records, base64=encoding == "base64")
        ]
        body = msgspec.json.encode(PollAnswer(messages, next_offset))
        return Response(body, media_type="application/json")

    return router


def _wanted(value: int | OffsetWithMetadata) -> int | tuple[int, str]:
    return value if isinstance(value, int) else (value.offset, value.metadata)


def _target(request: ResetRequest) -> tuple[str | int, int | None]:
    given: dict[str, Any] = {"offset": request.offset, "timestamp": request.timestamp}
    for name, value in given.items():
        if (value is not None) != (request.to == name):
            raise InvalidRequestError(f'{name} belongs to "to": "{name}", and only there')
    if request.to == "offset" and request.offset is not None:
        return request.offset, None
    if request.to == "timestamp":
        return "timestamp", parse_time_ns(str(request.timestamp), "timestamp")
    return request.to, None
