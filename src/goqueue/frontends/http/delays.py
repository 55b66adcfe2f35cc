"""Delayed messages over HTTP: list, look up, cancel, reschedule, statistics."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from goqueue.broker import BrokerApi
from goqueue.broker.delays import LIST_MAX
from goqueue.delays import DUE_HEADER, DelayState
from goqueue.errors import StorageError
from goqueue.frontends.http import values
from goqueue.frontends.http.openapi import errors
from goqueue.frontends.http.topics import TopicName
from goqueue.frontends.shapes import delay_statistics, delayed_fields

PartitionNumber = Annotated[int, Path(ge=0, le=999_999_999)]
Offset = Annotated[int, Path(ge=0, le=2**63 - 2)]
Limit = Annotated[int, Query(ge=1, le=LIST_MAX)]
Skip = Annotated[int, Query(ge=0, le=1_000_000)]
Moment = Annotated[int, Field(strict=True)] | Annotated[str, Field(strict=True)] | None


class NewTime(BaseModel):
    model_config = ConfigDict(extra="forbid")

    delay: Moment = Field(default=None, description="From now on: `5m`, `PT5M` or milliseconds.")
    deliver_at: Moment = Field(default=None, description="RFC 3339 or milliseconds since 1970; not with delay.")
    deliverAt: Moment = Field(default=None, description="The same as deliver_at.")


class DelayedMessage(BaseModel):
    partition: int
    offset: int
    state: DelayState
    deliver_at: int | None = Field(default=None, description="Milliseconds since 1970; while it is pending.")
    remaining_ms: int | None = None
    released_offset: int | None = Field(default=None, description="Where the visible message is.")
    message: dict[str, Any] | None = Field(default=None, description="Key, value, headers, priority, as in a read.")


class DelayedList(BaseModel):
    messages: list[DelayedMessage]
    total: int = Field(description="Pending messages of the topic.")


class CancelAnswer(DelayedMessage):
    cancelled: bool = Field(description="False when it is released already; then it will be or has been seen.")


class DelayStatistics(BaseModel):
    pending: int
    scheduled: int
    released: int
    cancelled: int
    rescheduled: int
    expired: int
    unreadable: int
    lateness_max_ms: int
    lateness_mean_ms: float
    topics: dict[str, int]


def delay_routes(broker: BrokerApi) -> APIRouter:
    router = APIRouter(tags=["delays"])
    one = "/topics/{topic}/delayed/{partition}/{offset}"

    @router.get("/delay/stats", response_model=DelayStatistics)
    async def delay_stats() -> dict[str, object]:
        return delay_statistics(broker)

    @router.get(
        "/topics/{topic}/delayed",
        response_model=DelayedList,
        responses=errors(400, 403, 404),
        response_model_exclude_none=True,
    )
    async def list_delayed(topic: TopicName, limit: Limit = 100, skip: Skip = 0) -> dict[str, object]:
        found = broker.delays.pending(topic, limit=limit, skip=skip)
        messages = [delayed_fields(broker, partition, delayed) for partition, delayed in found]
        return {"messages": messages, "total": broker.delays.pending_count(topic)}

    @router.get(one, response_model=DelayedMessage, responses=errors(400, 403, 404), response_model_exclude_none=True)
    async def show_delayed(topic: TopicName, partition: PartitionNumber, offset: Offset) -> dict[str, object]:
        fields = delayed_fields(broker, partition, broker.delays.look_up(topic, partition, offset))
        return {**fields, "message": _message(broker, topic, partition, offset)}

    @router.delete(
        one, response_model=CancelAnswer, responses=errors(400, 403, 404, 503, 507), response_model_exclude_none=True
    )
    async def cancel_delayed(topic: TopicName, partition: PartitionNumber, offset: Offset) -> dict[str, object]:
        state = await broker.delays.cancel(topic, partition, offset)
        return {**delayed_fields(broker, partition, state), "cancelled": state.state is DelayState.CANCELLED}

    @router.patch(
        one,
        response_model=DelayedMessage,
        responses=errors(400, 403, 404, 409, 415, 503, 507),
        response_model_exclude_none=True,
    )
    async def reschedule_delayed(
        topic: TopicName, partition: PartitionNumber, offset: Offset, request: NewTime
    ) -> dict[str, object]:
        state = await broker.delays.reschedule(
            topic,
            partition,
            offset,
            delay_ms=values.read_delay_ms(request.delay),
            deliver_at_ms=values.read_deliver_at_ms(request.deliver_at, request.deliverAt),
        )
        return delayed_fields(broker, partition, state)

    return router


def _message(broker: BrokerApi, topic: str, partition: int, offset: int) -> dict[str, Any] | None:
    """What was published; None when retention has removed it since."""
    try:
        record = broker.delays.message(topic, partition, offset)
    except StorageError:
        return None
    return values.show_stored(partition, record, hidden_header=DUE_HEADER)
