"""Errors as HTTP answers: one table from code to status, one shape of body."""

from __future__ import annotations

import msgspec

from goqueue.errors import GoQueueError, InvalidRequestError, NotReadyError

# How long a client should wait before it tries again, where only time can help.
RETRY_AFTER_S = 1


class PathNotFoundError(GoQueueError):
    code = "PATH_NOT_FOUND"


class MethodNotAllowedError(GoQueueError):
    code = "METHOD_NOT_ALLOWED"


class BodyTooLargeError(GoQueueError):
    """The body is larger than `body_bytes_max`; it was not read to its end and the connection closes."""

    code = "BODY_TOO_LARGE"


class HeadTooLargeError(GoQueueError):
    code = "HEAD_TOO_LARGE"


class MediaTypeError(GoQueueError):
    code = "MEDIA_TYPE_UNSUPPORTED"


class FeatureUnavailableError(InvalidRequestError):
    """A field of the contract that this build does not carry out yet; refused rather than ignored."""

    code = "FEATURE_UNAVAILABLE"


class TooManyConnectionsError(NotReadyError):
    code = "TOO_MANY_CONNECTIONS"


STATUS: dict[str, int] = {
    "INVALID_REQUEST": 400,
    "CONFIGURATION_INVALID": 400,
    "NAME_INVALID": 400,
    "RECORD_INVALID": 400,
    "OFFSET_OUT_OF_RANGE": 400,
    "PROTOCOL_ERROR": 400,
    "TOPIC_INTERNAL": 403,
    "PATH_NOT_FOUND": 404,
    "TOPIC_NOT_FOUND": 404,
    "PARTITION_NOT_FOUND": 404,
    "GROUP_NOT_FOUND": 404,
    "DELAYED_NOT_FOUND": 404,
    "METHOD_NOT_ALLOWED": 405,
    "REQUEST_TIMEOUT": 408,
    "TOPIC_EXISTS": 409,
    "FENCED": 409,
    "MEMBER_ID_IN_USE": 409,
    "GROUP_NOT_EMPTY": 409,
    "GROUP_MISMATCH": 409,
    "DELAYED_FINISHED": 409,
    "BODY_TOO_LARGE": 413,
    "KEY_TOO_LARGE": 413,
    "VALUE_TOO_LARGE": 413,
    "HEADERS_TOO_LARGE": 413,
    "BATCH_TOO_LARGE": 413,
    "MEDIA_TYPE_UNSUPPORTED": 415,
    "LIMIT_EXCEEDED": 429,
    "BUFFER_FULL": 429,
    "HEAD_TOO_LARGE": 431,
    "INTERNAL": 500,
    "STORAGE_ERROR": 500,
    "DATA_DAMAGED": 500,
    "NOT_READY": 503,
    "LOG_CLOSED": 503,
    "PARTITION_FAILED": 503,
    "CONNECTION_LOST": 503,
    "TOO_MANY_CONNECTIONS": 503,
    "DISK_FULL": 507,
}

# Limits that waiting does not lift, because they are about the request and not about the broker.
_LIMIT_STATUS = {
    "publish_messages": 413,
    "partitions_per_topic": 400,
    "group_topics": 400,
    "commit_partitions": 413,
    "commit_metadata": 413,
}


def status_of(error: GoQueueError) -> int:
    """The status of an error; a code that is not in the table has the status of the nearest ancestor that is."""
    if error.code == "LIMIT_EXCEEDED":
        return _LIMIT_STATUS.get(str(error.context.get("limit")), 429)
    for ancestor in type(error).__mro__:
        status = STATUS.get(getattr(ancestor, "code", ""))
        if status is not None:
            return status
    return 500


def error_body(error: GoQueueError) -> bytes:
    return msgspec.json.encode({"error": error.as_dict()}, enc_hook=str)


def error_headers(status: int) -> list[tuple[bytes, bytes]]:
    """What an answer of that status carries besides its body."""
    if status in (429, 503):
        return [(b"retry-after", b"%d" % RETRY_AFTER_S)]
    # The rest of the request is still on its way: the connection cannot be used again.
    return [(b"connection", b"close")] if status in (408, 413, 431) else []
