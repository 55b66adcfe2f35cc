"""A task's work in the executor: records of an offset range as Arrow batches, from files where they can be reached.

Sealed segments are decoded straight from the broker's files, if the directory under that path is the broker's (its
id says so); what cannot be read there, and the tail, comes from the broker as raw batches. Either way the kernel
verifies every record. A segment that disappears while a task begins is read from the broker, which knows best what is
gone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.types import StructType

from goqueue.client import ClientConfig, SyncClient
from goqueue.errors import DataDamagedError, GoQueueError, OffsetOutOfRangeError
from goqueue.host import OsDisk
from goqueue.storage import LogView, SegmentSpan, read_directory_id
from goqueue_spark.columns import Shape
from goqueue_spark.options import SourceOptions
from goqueue_spark.plan import OffsetRange

# About 16,000 rows of 100 bytes: smaller batches cost more to hand over, larger ones gain nothing.
_BLOCK_BYTES = 2 << 20
_FETCH_BYTES = 4 << 20
_CONNECT_TIMEOUT_MS = 10_000
_TRIES = 5
_FIRST_WAIT_S = 0.2


class RangeReader:
    """One use: `batches` yields what a range holds, in offset order."""

    def __init__(self, work: OffsetRange, schema: StructType, options: SourceOptions) -> None:
        self._work = work
        self._options = options
        self._shape = Shape(schema, work.topic, work.partition)
        self._disk = OsDisk()
        self._client: SyncClient | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        offset, end = self._work.start, self._work.end
        try:
            for span in self._reachable():
                if span.base_offset > offset:
                    yield from self._from_broker(offset, min(span.base_offset, end))
                offset = max(offset, span.base_offset)
                yield from self._from_file(span, offset, min(span.end_offset, end))
                offset = min(span.end_offset, end)
            if offset < end:
                yield from self._from_broker(offset, end)
        finally:
            if self._client is not None:
                self._client.close()

    # -- files --------------------------------------------------------------------------------------------------

    def _reachable(self) -> tuple[SegmentSpan, ...]:
        """The segments whose files may be read here."""
        if self._options.path is not None:
            return self._work.sealed
        if not self._options.read_files:
            return ()
        try:
            found = read_directory_id(self._disk, self._work.data_directory)
        except OSError:
            return ()
        return self._work.sealed if found == self._work.directory_id else ()

    def _from_file(self, span: SegmentSpan, start: int, end: int) -> Iterator[pa.RecordBatch]:
        shape, priorities, reached = self._shape, self._work.bounds.priorities, start

        def decoder(block: memoryview) -> tuple[object, int, int]:
            return shape.decode(block, reached, end, priorities)

        try:
            for batch in LogView(self._disk, self._work.directory).decode(span, start, end, _BLOCK_BYTES, decoder):
                assert isinstance(batch, pa.RecordBatch)
                if batch.num_rows:
                    yield batch
        except FileNotFoundError:
            # Gone since the plan was made: removed by retention, or merged by compaction into another file.
            if self._options.path is not None:
                raise DataDamagedError(
                    f"a segment of {self._work.directory} disappeared while it was read",
                    file=self._work.directory,
                    from_offset=start,
                    to_offset=end,
                ) from None
            yield from self._from_broker(start, end)

    # -- broker -------------------------------------------------------------------------------------------------

    def _from_broker(self, offset: int, end: int) -> Iterator[pa.RecordBatch]:
        while offset < end:
            block, start_of_log = self._fetch(offset)
            if start_of_log > offset:
                offset = self._skip_lost(offset, start_of_log)
                continue
            if not len(block):
                raise OffsetOutOfRangeError(
                    f"{self._work.topic} partition {self._work.partition} ends at {offset}, before {end}: it was cut",
                    offset=end,
                    log_end_offset=offset,
                )
            batch, used, reached = self._shape.decode(block, offset, end, self._work.bounds.priorities)
            if batch.num_rows:
                yield batch
            # Nothing used: all that is left lies behind the end, what was in front is compacted away.
            offset = reached if used else end

    def _skip_lost(self, offset: int, start_of_log: int) -> int:
        if self._options.fail_on_data_loss:
            raise OffsetOutOfRangeError(
                f"offset {offset} of {self._work.topic} partition {self._work.partition} is gone; the log starts at "
                f"{start_of_log}. Set failOnDataLoss to false to go on without it",
                offset=offset,
                log_start_offset=start_of_log,
            )
        return start_of_log

    def _fetch(self, offset: int) -> tuple[memoryview, int]:
        """One block, tried again while the trouble may pass; (records, start of the log)."""
        wait_s = _FIRST_WAIT_S
        for number in range(_TRIES):
            try:
                if self._client is None:
                    config = ClientConfig(client_id="goqueue-spark-task", connect_timeout_ms=_CONNECT_TIMEOUT_MS)
                    self._client = SyncClient(self._options.bootstrap, config)
                block = self._client.fetch(
                    self._work.topic,
                    self._work.partition,
                    offset,
                    bytes_max=_FETCH_BYTES,
                    isolation=self._options.isolation,
                )
                return block.data, block.log_start_offset
            except OffsetOutOfRangeError as error:
                start = error.context.get("log_start_offset")
                if not isinstance(start, int) or start <= offset:
                    raise
                return memoryview(b""), start
            except GoQueueError as error:
                if not error.retriable or number == _TRIES - 1:
                    raise
            time.sleep(wait_s)
            wait_s *= 2
        raise AssertionError("the last try returns or raises")
