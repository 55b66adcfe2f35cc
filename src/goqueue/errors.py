"""The error tree: every refusal and failure of GoQueue, with a stable code.

A face (HTTP, wire, CLI) maps `code` to its own vocabulary in one table; a caller decides by `retriable` whether the
same request may succeed later; `context` carries the facts a person needs to act. Codes are part of the public
contract.
"""

from __future__ import annotations

from typing import ClassVar


class GoQueueError(Exception):
    """Base of everything GoQueue raises on purpose."""

    code: ClassVar[str] = "INTERNAL"
    retriable: ClassVar[bool] = False

    def __init__(self, message: str, **context: object) -> None:
        super().__init__(message)
        self.message = message
        self.context = context

    def as_dict(self) -> dict[str, object]:
        """The uniform error object of every face."""
        return {"code": self.code, "message": self.message, "retriable": self.retriable, **self.context}


class InvalidRequestError(GoQueueError):
    """The caller's fault: the same request will never succeed."""

    code = "INVALID_REQUEST"


class ConfigurationError(InvalidRequestError):
    """One or more configuration values are wrong; `problems` lists them all at once."""

    code = "CONFIGURATION_INVALID"


class InvalidNameError(InvalidRequestError):
    """A topic or group name outside `[A-Za-z0-9._-]{1,249}`."""

    code = "NAME_INVALID"


# -- records ----------------------------------------------------------------------------------------------------


class RecordError(InvalidRequestError):
    """A record or batch that does not follow docs/formats/record.md. `position` is the byte where it starts."""

    code = "RECORD_INVALID"


class RecordTruncatedError(RecordError):
    """The buffer ends inside a record."""

    code = "RECORD_TRUNCATED"


class MagicInvalidError(RecordError):
    """The bytes at a record's start are not the magic 0x47 0x51."""

    code = "MAGIC_INVALID"


class VersionUnsupportedError(RecordError):
    """A record version this build does not read."""

    code = "VERSION_UNSUPPORTED"


class ChecksumMismatchError(RecordError):
    """CRC32C of the record does not match its bytes."""

    code = "CHECKSUM_MISMATCH"


class RecordMalformedError(RecordError):
    """Fields that contradict each other: flags against lengths, a reserved byte set, a broken headers block."""

    code = "RECORD_MALFORMED"


class FlagsForbiddenError(RecordError):
    """The record carries flags its writer may not set."""

    code = "FLAGS_FORBIDDEN"


class KeyTooLargeError(RecordError):
    code = "KEY_TOO_LARGE"


class ValueTooLargeError(RecordError):
    code = "VALUE_TOO_LARGE"


class HeadersTooLargeError(RecordError):
    code = "HEADERS_TOO_LARGE"


class PriorityInvalidError(RecordError):
    code = "PRIORITY_INVALID"


class TimestampInvalidError(RecordError):
    """A timestamp before 1970."""

    code = "TIMESTAMP_INVALID"


class OffsetGapError(RecordError):
    """A replicated batch does not continue the log where it ends."""

    code = "OFFSET_GAP"


class BatchEmptyError(RecordError):
    code = "BATCH_EMPTY"


class BatchTooLargeError(RecordError):
    """A batch that would not fit into one segment."""

    code = "BATCH_TOO_LARGE"


# -- storage ----------------------------------------------------------------------------------------------------


class StorageError(GoQueueError):
    """The disk or what is on it, not the caller."""

    code = "STORAGE_ERROR"


class DirectoryLockedError(StorageError):
    """Another process holds the data directory."""

    code = "DIRECTORY_LOCKED"


class DirectoryFormatError(StorageError):
    """The data directory was written by a format this build does not know."""

    code = "DIRECTORY_FORMAT_UNSUPPORTED"


class DiskFullError(StorageError):
    """The append was refused for lack of space; nothing was written and the log is as before."""

    code = "DISK_FULL"
    retriable = True


class PartitionFailedError(StorageError):
    """A write or fsync failed. The partition stays failed until it is reopened: what the kernel did with the
    dirty pages after a failed fsync is unknown, so retrying could report success for lost bytes."""

    code = "PARTITION_FAILED"


class DataDamagedError(StorageError):
    """Committed bytes on disk are not what was written. `file`, `from_offset` and `to_offset` name the range."""

    code = "DATA_DAMAGED"


class OffsetOutOfRangeError(StorageError):
    """The offset is below the log's start or beyond its end."""

    code = "OFFSET_OUT_OF_RANGE"


class LogClosedError(StorageError):
    code = "LOG_CLOSED"


# -- topics and the broker --------------------------------------------------------------------------------------


class TopicNotFoundError(GoQueueError):
    code = "TOPIC_NOT_FOUND"


class TopicExistsError(GoQueueError):
    code = "TOPIC_EXISTS"


class PartitionNotFoundError(GoQueueError):
    code = "PARTITION_NOT_FOUND"


class TopicInternalError(GoQueueError):
    """Topics whose name starts with `__` belong to the broker."""

    code = "TOPIC_INTERNAL"


class LimitExceededError(GoQueueError):
    """A named limit of the broker; `limit` says which one and `maximum` how much."""

    code = "LIMIT_EXCEEDED"


class NotReadyError(GoQueueError):
    """The broker is starting or draining."""

    code = "NOT_READY"
    retriable = True


class RunBrokenError(GoQueueError):
    """An earlier batch of the same run was refused; storing this one would put it in front of that batch."""

    code = "RUN_BROKEN"
    retriable = True


class AddressUnavailableError(GoQueueError):
    """A port the broker should listen on is taken, or may not be used."""

    code = "ADDRESS_UNAVAILABLE"


class DiskGuardError(GoQueueError):
    """Writes are refused because the disk is nearly full; reads go on."""

    code = "DISK_FULL"
    retriable = True


# -- consumer groups --------------------------------------------------------------------------------------------


class GroupNotFoundError(GoQueueError):
    code = "GROUP_NOT_FOUND"


class FencedError(GoQueueError):
    """The caller acts on a view of the group that is over; it must look again before it goes on."""

    code = "FENCED"


class UnknownMemberError(FencedError):
    """The member has left, was expired, or never joined; it has to join anew, without a member id."""

    code = "UNKNOWN_MEMBER"


class StaleGenerationError(FencedError):
    """The group has moved on; `generation` is the current one."""

    code = "STALE_GENERATION"


class PartitionNotAssignedError(FencedError):
    """The partition belongs to another member, or to none."""

    code = "PARTITION_NOT_ASSIGNED"


class MemberIdInUseError(GoQueueError):
    """Another client is the member of that id."""

    code = "MEMBER_ID_IN_USE"


class GroupNotEmptyError(GoQueueError):
    """The group has active members, and this is only for groups without."""

    code = "GROUP_NOT_EMPTY"


class GroupMismatchError(GoQueueError):
    """A member that wants another protocol, assignor or mode than the one its group has."""

    code = "GROUP_MISMATCH"


# -- delays -----------------------------------------------------------------------------------------------------


class DelayInvalidError(InvalidRequestError):
    """A delay that is negative, not a number, or given in two ways at once."""

    code = "DELAY_INVALID"


class DelayTooLongError(InvalidRequestError):
    """The message would be due later than `delay_max_ms` from now."""

    code = "DELAY_TOO_LONG"


class DelayedNotFoundError(GoQueueError):
    """No delayed message is known at this partition and offset."""

    code = "DELAYED_NOT_FOUND"


class DelayedFinishedError(GoQueueError):
    """The delayed message is no longer pending; `state` says what became of it."""

    code = "DELAYED_FINISHED"


# -- connections ------------------------------------------------------------------------------------------------


class ProtocolError(GoQueueError):
    """The peer does not speak the wire protocol; the connection is over."""

    code = "PROTOCOL_ERROR"


class ConnectionLostError(GoQueueError):
    """The connection ended while a request was under way; whether it was carried out is unknown."""

    code = "CONNECTION_LOST"
    retriable = True


class RequestTimeoutError(GoQueueError):
    code = "REQUEST_TIMEOUT"
    retriable = True


class BufferFullError(GoQueueError):
    """The client's buffer is full and the caller chose not to wait."""

    code = "BUFFER_FULL"
    retriable = True


class ClientClosedError(GoQueueError):
    code = "CLIENT_CLOSED"


def error_classes() -> dict[str, type[GoQueueError]]:
    """Every class by its code, for faces that carry errors as data. The first definition of a code wins."""
    found: dict[str, type[GoQueueError]] = {}
    pending: list[type[GoQueueError]] = [GoQueueError]
    while pending:
        current = pending.pop(0)
        found.setdefault(current.code, current)
        pending.extend(current.__subclasses__())
    return found
