"""Consumer groups over HTTP: joining, living, leaving, and looking at them from outside."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from goqueue.broker import BrokerApi
from goqueue.errors import InvalidRequestError
from goqueue.frontends.group_shapes import cooperative_fields, group_fields, list_places, show_places, view_fields
from goqueue.frontends.http.openapi import errors
from goqueue.groups import AssignorName, Mode, Protocol
from goqueue.model import NAME_LENGTH_MAX

NAME_PATTERN = "^[A-Za-z0-9._-]+$"
GENERATION_MAX = (1 << 63) - 1
GroupName = Annotated[str, Path(pattern=NAME_PATTERN, min_length=1, max_length=NAME_LENGTH_MAX)]
MemberQuery = Annotated[str, Query(min_length=1, max_length=500, description="The id that joining gave.")]
Generation = Annotated[int, Field(ge=0, le=GENERATION_MAX)]
PartitionNumber = Annotated[int, Field(ge=0, le=999_999_999)]
Milliseconds = Annotated[int, Field(ge=1, le=1 << 53)]


class GroupRequest(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class JoinRequest(GroupRequest):
    client_id: str = Field(
        default="http",
        json_schema_extra={"pattern": NAME_PATTERN, "minLength": 1, "maxLength": NAME_LENGTH_MAX},
        description="Becomes the beginning of the member id.",
    )
    topics: list[str] = Field(min_length=1)
    member_id: str | None = Field(default=None, max_length=500, description="To come back as the same member.")
    mode: Literal["exclusive", "shared", "key_ordered"] | None = None
    assignor: Literal["sticky", "range", "round_robin"] | None = None
    protocol: Literal["eager", "cooperative"] | None = None
    session_timeout_ms: Milliseconds | None = None
    rebalance_timeout_ms: Milliseconds | None = None


class MemberRequest(GroupRequest):
    member_id: str = Field(min_length=1, max_length=500)
    generation: Generation


class LeaveRequest(GroupRequest):
    member_id: str = Field(min_length=1, max_length=500)
    generation: Generation | None = None


class OnePartition(GroupRequest):
    topic: str
    partition: PartitionNumber


class RevokeRequest(MemberRequest):
    revoked_partitions: list[OnePartition] = Field(max_length=100_000)


class PartitionShown(BaseModel):
    topic: str
    partition: int


class MemberAnswer(BaseModel):
    """A group as one of its members sees it."""

    member_id: str
    generation: int
    leader_id: str
    protocol: str
    mode: str
    status: str = Field(description="`ok`, or `rebalancing`.")
    state: str = Field(description="`pending_revoke`, `pending_assign` or `complete`.")
    rebalance_required: bool
    assignment: dict[str, list[int]]
    partitions_assigned: list[PartitionShown]
    partitions_to_revoke: list[PartitionShown]
    revocation_deadline: int | None = Field(description="Milliseconds since 1970.")
    members: list[str]
    version: int
    heartbeat_interval_ms: int
    session_timeout_ms: int


class LeaveAnswer(BaseModel):
    status: str
    generation: int
    rebalance_required: bool
    assignment: dict[str, list[int]]


class MemberShown(BaseModel):
    id: str
    client_id: str
    topics: list[str]
    assigned: dict[str, list[int]]
    state: str
    session_timeout_ms: int
    last_heartbeat: int | None = Field(description="Milliseconds since 1970.")


class GroupShown(BaseModel):
    id: str
    state: str = Field(description="`Empty`, `Stable` or `Rebalancing`.")
    protocol: str | None
    assignor: str | None
    mode: str | None
    generation: int
    topics: list[str]
    members: list[MemberShown]


class GroupList(BaseModel):
    groups: list[GroupShown]


class DeletedGroup(BaseModel):
    id: str
    deleted: bool


class AssignmentShown(BaseModel):
    generation: int
    state: str
    assignments: dict[str, dict[str, list[int]]] = Field(description="Partitions by member and topic.")
    member_id: str | None = None
    assignment: dict[str, list[int]] | None = Field(default=None, description="Of the member asked for.")
    partitions_to_revoke: list[PartitionShown] | None = None


class RebalanceStatsShown(BaseModel):
    rebalances: int
    partitions_moved: int
    forced_revocations: int
    expired_members: int
    last_started_ms: int | None
    last_duration_ms: int


_MEMBER_ERRORS = errors(400, 409, 413, 415, 503, 507)


def group_routes(broker: BrokerApi) -> APIRouter:
    router = APIRouter(tags=["groups"])
    groups = broker.groups

    async def join_as(group: str, request: JoinRequest, default: Protocol) -> dict[str, object]:
        view = await groups.join(
            group,
            client_id=request.client_id,
            topics=request.topics,
            member_id=request.member_id,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocol=None if request.protocol is None else Protocol(request.protocol),
            assignor=None if request.assignor is None else AssignorName(request.assignor),
            mode=None if request.mode is None else Mode(request.mode),
            protocol_default=default,
        )
        return view_fields(view)

    @router.post(
        "/groups/{group}/join",
        response_model=MemberAnswer,
        responses=errors(400, 403, 404, 409, 413, 415, 429, 503, 507),
    )
    async def join(group: GroupName, request: JoinRequest) -> dict[str, object]:
        """Join, or come back with `member_id`. A new group is eager unless `protocol` says otherwise."""
        return await join_as(group, request, Protocol.EAGER)

    @router.post(
        "/groups/{group}/join/cooperative",
        response_model=MemberAnswer,
        responses=errors(400, 403, 404, 409, 413, 415, 429, 503, 507),
    )
    async def join_cooperative(group: GroupName, request: JoinRequest) -> dict[str, object]:
        """Join a group whose members give up only what moves."""
        if request.protocol == "eager":
            raise InvalidRequestError("this path joins cooperatively; POST to .../join for the eager protocol")
        request.protocol = "cooperative"
        return await join_as(group, request, Protocol.COOPERATIVE)

    @router.post("/groups/{group}/heartbeat", response_model=MemberAnswer, responses=_MEMBER_ERRORS)
    @router.post("/groups/{group}/heartbeat/cooperative", response_model=MemberAnswer, responses=_MEMBER_ERRORS)
    async def heartbeat(group: GroupName, request: MemberRequest) -> dict[str, object]:
        return view_fields(await groups.heartbeat(group, request.member_id, request.generation))

    @router.post("/groups/{group}/revoke", response_model=MemberAnswer, responses=_MEMBER_ERRORS)
    async def revoke(group: GroupName, request: RevokeRequest) -> dict[str, object]:
        """Say that reading of these partitions has stopped, and their offsets are committed."""
        places = [(place.topic, place.partition) for place in request.revoked_partitions]
        return view_fields(await groups.revoke(group, request.member_id, request.generation, places))

    @router.post("/groups/{group}/leave", response_model=LeaveAnswer, responses=_MEMBER_ERRORS)
    @router.post("/groups/{group}/leave/cooperative", response_model=LeaveAnswer, responses=_MEMBER_ERRORS)
    async def leave(group: GroupName, request: LeaveRequest) -> dict[str, object]:
        generation = await groups.leave(group, request.member_id)
        return {"status": "left", "generation": generation, "rebalance_required": False, "assignment": {}}

    @router.get("/groups", response_model=GroupList)
    async def list_groups() -> dict[str, object]:
        return {"groups": [group_fields(broker, name, group) for name, group in groups.groups()]}

    @router.get("/groups/{group}", response_model=GroupShown, responses=errors(400, 404))
    async def describe_group(group: GroupName) -> dict[str, object]:
        return group_fields(broker, group, groups.group(group))

    @router.delete("/groups/{group}", response_model=DeletedGroup, responses=errors(400, 404, 409, 503))
    async def delete_group(group: GroupName) -> dict[str, object]:
        await groups.delete(group)
        return {"id": group, "deleted": True}

    @router.get("/groups/{group}/assignment", response_model=AssignmentShown, responses=errors(400, 404, 409))
    async def assignment(
        group: GroupName, member_id: Annotated[str | None, Query(min_length=1, max_length=500)] = None
    ) -> dict[str, Any]:
        """Who owns what; with `member_id` also that member's part."""
        found = groups.group(group)
        shown: dict[str, Any] = {
            "generation": 0 if found.state is None else found.state.generation,
            "state": group_fields(broker, group, found)["state"],
            "assignments": {member.id: show_places(member.owned) for member in found.members},
        }
        if member_id is not None:
            _, member = groups.log.machine(group).member(group, member_id)
            shown["member_id"] = member_id
            shown["assignment"] = show_places(member.to_read)
            shown["partitions_to_revoke"] = list_places(member.to_revoke)
        return shown

    @router.get("/groups/{group}/cooperative", responses=errors(400, 404))
    async def cooperative(group: GroupName) -> dict[str, Any]:
        """How far a rebalance is, member by member."""
        return cooperative_fields(broker, group, groups.group(group))

    @router.get("/groups/{group}/rebalance/stats", response_model=RebalanceStatsShown, responses=errors(400, 404))
    async def group_rebalance_stats(group: GroupName) -> dict[str, Any]:
        return groups.rebalance_stats(group)

    @router.get("/rebalance/stats", response_model=RebalanceStatsShown)
    async def rebalance_stats() -> dict[str, Any]:
        """Of all groups since the broker started."""
        return groups.rebalance_stats()

    return router
