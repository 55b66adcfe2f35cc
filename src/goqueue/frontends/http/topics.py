"""Topics over HTTP: create, list, describe, alter, delete, and their partitions."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from goqueue.broker import BrokerApi
from goqueue.errors import InvalidRequestError
from goqueue.frontends.http.openapi import errors, settings_schema
from goqueue.frontends.shapes import size_fields, topic_fields
from goqueue.metadata.catalog import PARTITIONS_DEFAULT, PARTITIONS_PER_TOPIC_MAX
from goqueue.model import NAME_LENGTH_MAX

NAME_PATTERN = "^[A-Za-z0-9._-]+$"
_HOUR_MS = 3_600_000
# One node so far: it leads every partition and is its only replica.
_NODE = 0

TopicName = Annotated[str, Path(pattern=NAME_PATTERN, min_length=1, max_length=NAME_LENGTH_MAX)]
Settings = Annotated[dict[str, Any], WithJsonSchema(settings_schema(required=False))]
SettingsShown = Annotated[dict[str, Any], WithJsonSchema(settings_schema(required=True))]


class _Request(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class NewTopic(_Request):
    # Documented here and refused by the broker, whose error says more.
    name: str = Field(
        json_schema_extra={"pattern": NAME_PATTERN, "minLength": 1, "maxLength": NAME_LENGTH_MAX},
        description="Names starting with `__` are the broker's.",
    )
    num_partitions: int = Field(default=PARTITIONS_DEFAULT, ge=1, le=PARTITIONS_PER_TOPIC_MAX)
    retention_hours: float | None = Field(
        default=None,
        ge=0,
        le=1e9,
        allow_inf_nan=False,
        description="Shorthand for `config.retention_ms`; 0 is for ever.",
    )
    config: Settings = {}


class TopicChanges(_Request):
    config: Settings


class Topic(BaseModel):
    name: str
    partitions: int
    topic_id: str
    created_ms: int
    config: SettingsShown


class Offsets(BaseModel):
    earliest: int
    latest: int = Field(description="The next offset to be written.")


class TopicDescription(Topic):
    total_messages: int
    total_size_bytes: int
    partition_offsets: dict[str, Offsets]


class TopicList(BaseModel):
    topics: list[Topic]


class DeletedTopic(BaseModel):
    name: str
    deleted: bool


class PartitionDescription(BaseModel):
    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]
    leader_epoch: int
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    log_end_offset: int
    size_bytes: int


class PartitionList(BaseModel):
    partitions: list[PartitionDescription]


def topic_routes(broker: BrokerApi) -> APIRouter:
    router = APIRouter(tags=["topics"])

    @router.post(
        "/topics", status_code=201, response_model=Topic, responses=errors(400, 403, 409, 413, 415, 429, 503, 507)
    )
    async def create_topic(request: NewTopic) -> dict[str, object]:
        settings = _with_retention(request)
        return topic_fields(
            await broker.create_topic(request.name, partition_count=request.num_partitions, settings=settings)
        )

    @router.get("/topics", response_model=TopicList)
    async def list_topics() -> dict[str, object]:
        return {"topics": [topic_fields(info) for info in broker.topics.catalog.topics()]}

    @router.get("/topics/{topic}", response_model=TopicDescription, responses=errors(400, 403, 404))
    async def describe_topic(topic: TopicName) -> dict[str, object]:
        return {**topic_fields(broker.topics.catalog.get(topic)), **size_fields(broker, topic)}

    @router.patch("/topics/{topic}", response_model=Topic, responses=errors(400, 403, 404, 413, 415, 503, 507))
    async def alter_topic(topic: TopicName, request: TopicChanges) -> dict[str, object]:
        return topic_fields(await broker.alter_topic(topic, request.config))

    @router.delete("/topics/{topic}", response_model=DeletedTopic, responses=errors(400, 403, 404, 503))
    async def delete_topic(topic: TopicName) -> dict[str, object]:
        await broker.delete_topic(topic)
        return {"name": topic, "deleted": True}

    @router.get("/topics/{topic}/partitions", response_model=PartitionList, responses=errors(400, 403, 404))
    async def list_partitions(topic: TopicName) -> dict[str, object]:
        return {
            "partitions": [
                {
                    "partition": partition.identity.partition,
                    "leader": _NODE,
                    "replicas": [_NODE],
                    "isr": [_NODE],
                    "leader_epoch": 0,
                    "log_start_offset": partition.log.log_start_offset,
                    "high_watermark": partition.high_watermark,
                    "last_stable_offset": partition.last_stable_offset,
                    "log_end_offset": partition.log.log_end_offset,
                    "size_bytes": partition.log.size_bytes,
                }
                for partition in broker.topics.partitions_of(topic)
            ]
        }

    return router


def _with_retention(request: NewTopic) -> dict[str, Any]:
    if request.retention_hours is None:
        return request.config
    if "retention_ms" in request.config:
        raise InvalidRequestError("retention_hours and config.retention_ms exclude each other")
    return {**request.config, "retention_ms": int(request.retention_hours * _HOUR_MS)}
