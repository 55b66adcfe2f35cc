"""The OpenAPI document: what FastAPI knows of the control plane, completed by the paths that the gate answers."""

from __future__ import annotations

from dataclasses import fields
from enum import StrEnum
from typing import Any, get_type_hints

from goqueue.metadata import TopicSettings

Json = dict[str, Any]

_ERROR_REF = {"$ref": "#/components/schemas/Error"}
_DESCRIPTIONS = {
    400: "The request is wrong.",
    403: "The topic is internal.",
    404: "There is no such topic, partition, group or message.",
    405: "The path does not take this method.",
    409: "It exists or is finished already, or the member or its generation is not current.",
    413: "Too large.",
    415: "The body is of another type.",
    429: "A limit is reached; try again later.",
    500: "Stored data is damaged, or the broker failed.",
    503: "The broker is starting or draining, or the partition has failed.",
    507: "The disk is full.",
}
_RETRY_AFTER = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds."}}


def errors(*statuses: int) -> dict[int | str, Json]:
    """Responses of an operation that all have the uniform error object."""
    return {status: _error_response(status) for status in statuses}


def _error_response(status: int) -> Json:
    response: Json = {"description": _DESCRIPTIONS[status], "content": {"application/json": {"schema": _ERROR_REF}}}
    return {**response, "headers": _RETRY_AFTER} if status in (429, 503) else response


def settings_schema(*, required: bool) -> Json:
    """The settings of a topic, derived from their declaration."""
    hints = get_type_hints(TopicSettings)
    defaults = TopicSettings().as_dict()
    properties = {field.name: _setting(hints[field.name], defaults[field.name]) for field in fields(TopicSettings)}
    schema: Json = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": list(properties)} if required else schema


def _setting(kind: type, default: object) -> Json:
    if issubclass(kind, StrEnum):
        return {"type": "string", "enum": [str(choice) for choice in kind], "default": default}
    names = {bool: "boolean", int: "integer", float: "number", str: "string"}
    return {"type": names[kind], "default": default}


def complete(document: Json) -> Json:
    """Add the message paths, the error object and the statuses that every operation shares."""
    document["servers"] = [{"url": "/"}, {"url": "/v1"}]
    document["paths"] = {**document["paths"], **_message_paths()}
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas.update(_schemas())
    for path in document["paths"].values():
        for operation in path.values():
            if isinstance(operation, dict) and "responses" in operation:
                _share(operation)
    return document


def _share(operation: Json) -> None:
    """What FastAPI documents as 422 is answered as 400 here; anything may meet a bug."""
    responses = operation["responses"]
    if responses.pop("422", None) is not None:
        responses.setdefault("400", _error_response(400))
    responses.setdefault("500", _error_response(500))


# -- message paths ----------------------------------------------------------------------------------------------


def _message_paths() -> Json:
    return {
        "/topics/{topic}/messages": {"parameters": [_TOPIC], "post": _PUBLISH},
        "/topics/{topic}/partitions/{partition}/messages": {
            "parameters": [_TOPIC, _PARTITION],
            "get": _FETCH,
            "post": _PUBLISH_BATCH,
        },
    }


def _json(schema: str) -> Json:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}


def _texts(statuses: dict[int | str, Json]) -> Json:
    return {str(status): response for status, response in statuses.items()}


def _query(name: str, schema: Json, description: str) -> Json:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": description}


_TOPIC: Json = {
    "name": "topic",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "pattern": "^[A-Za-z0-9._-]+$", "minLength": 1, "maxLength": 249},
}
_PARTITION: Json = {
    "name": "partition",
    "in": "path",
    "required": True,
    "schema": {"type": "integer", "minimum": 0, "maximum": 999_999_999},
}
_COUNT: Json = {"type": "integer", "minimum": 1, "maximum": 10**18 - 1}
_TIME: Json = {
    "anyOf": [
        {"type": "integer", "minimum": 0, "maximum": (1 << 63) // 1_000_000},
        {"type": "string", "format": "date-time"},
    ]
}
_DURATION: Json = {
    "anyOf": [
        {"type": "integer", "minimum": 0, "maximum": 10**18 - 1},
        {"type": "string", "pattern": "^([0-9]{1,9}(ns|us|ms|s|m|h|d))+$"},
        {"type": "string", "format": "duration"},
    ]
}
_ACKS: Json = {"type": "string", "enum": ["none", "leader", "all"], "default": "all"}
_BYTES: Json = {"type": "string", "format": "binary"}
_HEADER: Json = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "name_base64": {"type": "string", "format": "byte"},
        "value": {"type": "string"},
        "value_base64": {"type": "string", "format": "byte"},
    },
    "additionalProperties": False,
    "allOf": [
        {"oneOf": [{"required": ["name"]}, {"required": ["name_base64"]}]},
        {"oneOf": [{"required": ["value"]}, {"required": ["value_base64"]}]},
    ],
}
_LANES = ["critical", "high", "normal", "low", "background"]
_BATCH_FIELDS = ("partition", "base_offset", "next_offset", "count", "timestamp")
_OFFSET_HEADERS: Json = {
    name: {"schema": {"type": "integer"}}
    for name in (
        "GoQueue-Base-Offset",
        "GoQueue-Next-Offset",
        "GoQueue-Log-Start-Offset",
        "GoQueue-High-Watermark",
        "GoQueue-Last-Stable-Offset",
    )
}

_PUBLISH: Json = {
    "tags": ["messages"],
    "operationId": "publish",
    "summary": "Publish messages",
    "description": "One result per message, in their order. `acks`: wait for nothing, the write or the sync.",
    "requestBody": {"required": True, "content": _json("PublishRequest")},
    "responses": {
        "200": {"description": "All messages are stored.", "content": _json("PublishAnswer")},
        "207": {
            "description": "Some are stored; the others have an error.",
            "content": _json("PublishAnswer"),
        },
        **_texts(errors(400, 403, 404, 413, 415, 429, 500, 503, 507)),
    },
}
_PUBLISH_BATCH: Json = {
    "tags": ["messages"],
    "operationId": "publishBatch",
    "summary": "Publish a native record batch",
    "description": "The body is a batch as in docs/formats/record.md; it is stored whole or not at all.",
    "parameters": [_query("acks", _ACKS, "What to wait for.")],
    "requestBody": {"required": True, "content": {"application/octet-stream": {"schema": _BYTES}}},
    "responses": {
        "200": {"description": "The batch is stored.", "content": _json("BatchAnswer")},
        **_texts(errors(400, 403, 404, 413, 415, 429, 500, 503, 507)),
    },
}
_FETCH: Json = {
    "tags": ["messages"],
    "operationId": "fetch",
    "summary": "Read messages",
    "description": "In log order, from an offset or a time on; from the first message kept when neither is given. With "
    "`Accept: application/octet-stream` the answer is the stored batch and its offsets are in headers.",
    "parameters": [
        _query(
            "offset",
            {
                "anyOf": [
                    {"type": "integer", "minimum": 0, "maximum": 10**18 - 1},
                    {"type": "string", "enum": ["earliest", "latest"]},
                ]
            },
            "First offset wanted.",
        ),
        _query("timestamp", _TIME, "First time wanted: RFC 3339 or milliseconds since 1970. Not with offset."),
        _query("limit", {**_COUNT, "default": 100}, "Messages at most; the broker never gives more than 1000."),
        _query("max_bytes", {**_COUNT, "default": 1 << 20}, "Bytes at most, but always one message."),
        _query("isolation", {"type": "string", "enum": ["read_committed", "read_uncommitted"]}, "What to see."),
        _query("wait", _DURATION, "Wait for messages: `30s`, `PT30S` or milliseconds; at most 60 s."),
        _query("encoding", {"type": "string", "enum": ["auto", "base64"]}, "How bytes are shown."),
    ],
    "responses": {
        "200": {
            "description": "Messages, or none yet.",
            "content": {**_json("Page"), "application/octet-stream": {"schema": _BYTES}},
        },
        **_texts(errors(400, 403, 404, 415, 500, 503)),
    },
}


def _schemas() -> Json:
    text: Json = {"type": "string"}
    number: Json = {"type": "integer"}
    maybe_text: Json = {"anyOf": [text, {"type": "null"}]}
    base64: Json = {"anyOf": [{"type": "string", "format": "byte"}, {"type": "null"}]}
    headers: Json = {"anyOf": [{"type": "object", "additionalProperties": text}, {"type": "array", "items": _HEADER}]}
    message: Json = {
        "value": {"description": "A string is text; any other JSON its compact text; null deletes the key."},
        "value_base64": base64,
        "key": {"description": "Likewise; null is no key."},
        "key_base64": base64,
        "headers": {"anyOf": [*headers["anyOf"], {"type": "null"}]},
        "partition": {
            "anyOf": [{**number, "minimum": 0}, {"type": "null"}],
            "description": "Chosen by key, or in turn, when absent.",
        },
        "priority": {
            "anyOf": [{**number, "minimum": 0, "maximum": 4}, {**text, "enum": _LANES}, {"type": "null"}],
            "description": "0 critical to 4 background, 2 normal when absent.",
        },
        "delay": {
            "anyOf": [*_DURATION["anyOf"], {"type": "null"}],
            "description": "Becomes visible after this time; `5m`, `PT5M` or milliseconds.",
        },
        "deliver_at": {
            "anyOf": [*_TIME["anyOf"], {"type": "null"}],
            "description": "Becomes visible at this time; not with delay.",
        },
        "deliverAt": {"anyOf": [*_TIME["anyOf"], {"type": "null"}], "description": "The same as deliver_at."},
        "traceparent": {
            "anyOf": [{**text, "pattern": "^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$"}, {"type": "null"}],
            "description": "W3C Trace Context; stored as a header.",
        },
    }
    result: Json = {
        "partition": number,
        "offset": number,
        "timestamp": {**number, "description": "Milliseconds since 1970."},
        "priority": number,
        "delayed": {"type": "boolean"},
        "deliver_at": {**number, "description": "When a delayed message becomes visible, in ms since 1970."},
        "error": {"$ref": "#/components/schemas/ErrorFields"},
    }
    shown: Json = {
        "partition": number,
        "offset": number,
        "timestamp": {**number, "description": "Milliseconds since 1970."},
        "key": maybe_text,
        "key_base64": text,
        "value": {**maybe_text, "description": "Present where the bytes are UTF-8; null is a tombstone."},
        "value_base64": text,
        "headers": headers,
        "priority": number,
    }
    results: Json = {"type": "array", "items": {"type": "object", "properties": result, "additionalProperties": False}}
    return {
        "ErrorFields": _object({"code": text, "message": text, "retriable": {"type": "boolean"}}),
        "Error": _object({"error": {"$ref": "#/components/schemas/ErrorFields"}}),
        "Message": {
            "type": "object",
            "properties": message,
            "additionalProperties": False,
            "oneOf": [{"required": ["value"]}, {"required": ["value_base64"]}],
            "not": {"required": ["key", "key_base64"]},
        },
        "PublishRequest": {
            "type": "object",
            "properties": {
                "messages": {"type": "array", "items": {"$ref": "#/components/schemas/Message"}, "minItems": 1},
                "acks": _ACKS,
            },
            "required": ["messages"],
            "additionalProperties": False,
        },
        "PublishAnswer": _object({"results": results}),
        "BatchAnswer": _object(dict.fromkeys(_BATCH_FIELDS, number)),
        "ShownMessage": {
            "type": "object",
            "properties": shown,
            "required": ["partition", "offset", "timestamp", "headers", "priority"],
            "additionalProperties": False,
        },
        "GroupPage": _object(
            {
                "messages": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"topic": text, **shown},
                        "required": ["topic", "partition", "offset", "timestamp", "headers", "priority"],
                    },
                },
                "next_offset": {
                    "type": "object",
                    "additionalProperties": {"type": "object", "additionalProperties": number},
                },
            }
        ),
        "Page": _object(
            {
                "messages": {"type": "array", "items": {"$ref": "#/components/schemas/ShownMessage"}},
                "next_offset": number,
                "high_watermark": number,
            }
        ),
    }


def _object(properties: Json) -> Json:
    """An object that has all of these, and may have more."""
    return {"type": "object", "properties": properties, "required": list(properties)}
