"""Messages on their way into the partitions of one topic: encoded as they come, without an object for each.

A face that carries messages one by one adds them here in their order; every message has a position, counted from 0,
and ends either in a batch or in `errors`. Which partition a message belongs to is decided here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from goqueue.broker.topics import Topics
from goqueue.delays import due_header
from goqueue.errors import GoQueueError, RecordError
from goqueue.metadata import TopicInfo
from goqueue.model import partition_for_key
from goqueue.record import BatchBuilder, Flag

_DELAYED = int(Flag.DELAYED)

Headers = Iterable[tuple[str | bytes, str | bytes]]


class Placed(NamedTuple):
    """A batch that is in its partition: the message at `positions[n]` has offset `base_offset + n`."""

    partition: int
    positions: Sequence[int]
    base_offset: int
    timestamp_ns: int


class Gathering:
    __slots__ = ("_topics", "_turn", "batches", "count", "delayed", "dues", "errors", "info")

    def __init__(self, topics: Topics, info: TopicInfo, turn: int) -> None:
        self.info = info
        self.count = 0
        self.batches: dict[int, tuple[BatchBuilder, list[int]]] = {}
        self.errors: dict[int, GoQueueError] = {}
        # Due times of delayed messages: by position, and per partition as (place in the batch, due time).
        self.delayed: dict[int, int] = {}
        self.dues: dict[int, list[tuple[int, int]]] = {}
        self._topics = topics
        # Messages without key and partition of one request stay together.
        self._turn = turn % info.partition_count

    def add(
        self,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers | None = None,
        priority: int = 2,
        partition: int | None = None,
        deliver_at_ms: int | None = None,
    ) -> None:
        """Take one message; one that cannot be stored costs only itself. With `deliver_at_ms` it is a delayed one."""
        position = self.count
        self.count = position + 1
        try:
            if partition is not None:
                self._topics.partition(self.info.name, partition)
                number = partition
            else:
                number = self._turn if key is None else partition_for_key(key, self.info.partition_count)
            builder, positions = self.batches.get(number) or self._batch(number)
            if deliver_at_ms is None:
                builder.add(value, key, headers, priority)
            else:
                builder.add(value, key, [due_header(deliver_at_ms), *(headers or ())], priority, flags=_DELAYED)
                self.delayed[position] = deliver_at_ms
                self.dues.setdefault(number, []).append((len(positions), deliver_at_ms))
        except GoQueueError as error:
            self.errors[position] = error
        else:
            positions.append(position)

    def add_plain(self, values: list[bytes], keys: list[bytes | None] | None = None) -> None:
        """Take many messages of normal priority without headers; `keys` None is no key for all of them."""
        if keys is None and self._extend(values):
            return
        partition_count = self.info.partition_count
        position = self.count
        for value, key in zip(values, keys or [None] * len(values), strict=True):
            number = self._turn if key is None else partition_for_key(key, partition_count)
            try:
                builder, positions = self.batches.get(number) or self._batch(number)
                builder.add(value, key)
            except GoQueueError as error:
                self.errors[position] = error
            else:
                positions.append(position)
            position += 1
        self.count = position

    def refuse(self, error: GoQueueError) -> None:
        """The message of this position could not even be read."""
        self.errors[self.count] = error
        self.count += 1

    def _extend(self, values: list[bytes]) -> bool:
        """All values at once, or none of them when one is refused."""
        builder, positions = self._batch(self._turn)
        try:
            builder.extend(values)
        except RecordError:
            return False
        positions.extend(range(self.count, self.count + len(values)))
        self.count += len(values)
        return True

    def _batch(self, number: int) -> tuple[BatchBuilder, list[int]]:
        batch = self.batches.get(number)
        if batch is None:
            batch = self.batches[number] = (BatchBuilder(self.info.settings.max_message_bytes), [])
        return batch
