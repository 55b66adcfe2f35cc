"""The data source `goqueue`: batch and streaming reads on Spark's Python Data Source API, in Arrow throughout.

Spark calls the planning methods in Python processes of the driver and `read` in those of the executors; all state that
crosses is the pickled reader and its `OffsetRange`s.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from goqueue.errors import ConfigurationError
from goqueue_spark.columns import check_schema, message_schema
from goqueue_spark.layout import Catalog, TopicLayout, chosen, open_catalog
from goqueue_spark.options import SourceOptions, read_options
from goqueue_spark.plan import (
    OffsetRange,
    StreamOffsets,
    Stretch,
    beyond,
    cut,
    first_offset,
    limited,
    plan_batch,
    present_offset,
)
from goqueue_spark.pushdown import NO_BOUNDS, narrow
from goqueue_spark.reading import RangeReader

# Set by `session()` for the whole process tree: a reader that takes filters fails where Spark does not push them.
PUSHDOWN_VARIABLE = "GOQUEUE_SPARK_PUSHDOWN"


class GoQueueSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "goqueue"

    def schema(self) -> StructType:
        return message_schema(include_headers=str(self.options.get("includeHeaders", "false")).lower() == "true")

    def reader(self, schema: StructType) -> DataSourceReader:
        check_schema(schema)
        options = read_options(self.options, streaming=False)
        pushing = os.environ.get(PUSHDOWN_VARIABLE) == "1"
        return (PushingReader if pushing else BatchReader)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        check_schema(schema)
        return StreamReader(read_options(self.options, streaming=True), schema)


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._bounds = NO_BOUNDS

    def partitions(self) -> Sequence[InputPartition]:
        catalog = open_catalog(self._options)
        try:
            # Spark asks an empty list for its partitions again and again, an empty range is read once.
            return plan_batch(catalog, self._options, self._bounds) or [_NOTHING]
        finally:
            catalog.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, OffsetRange):
            yield from RangeReader(partition, self._schema, self._options).batches()


class PushingReader(BatchReader):
    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        self._bounds, left = narrow(filters)
        return left


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are {topic: {partition: next offset}}. Re-reading a range gives the same rows."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._catalog: Catalog | None = None
        self._available_now: StreamOffsets | None = None

    def __getstate__(self) -> dict[str, object]:
        # Connections stay where they are; whoever gets a copy opens its own.
        return {**self.__dict__, "_catalog": None}

    # -- driver -------------------------------------------------------------------------------------------------

    def initialOffset(self) -> StreamOffsets:
        catalog = self._open()
        offsets = {
            layout.topic: {
                str(number): first_offset(
                    catalog,
                    layout,
                    layout.partition(number),
                    self._options.starting,
                    self._options.fail_on_data_loss,
                )
                for number in numbers
            }
            for layout, numbers in self._chosen()
        }
        catalog.pin(self._options.group, offsets)
        return offsets

    def getDefaultReadLimit(self) -> ReadLimit:
        rows = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def latestOffset(self, start: StreamOffsets, limit: ReadLimit) -> StreamOffsets:
        end = self._available_now or self._ends()
        end = _merged(start, end)
        if isinstance(limit, ReadMaxRows):
            return limited(self._complete(start, end), end, limit.max_rows)
        return end

    def reportLatestOffset(self) -> StreamOffsets:
        return self._ends()

    def prepareForTriggerAvailableNow(self) -> None:
        self._available_now = self._ends()

    def partitions(self, start: StreamOffsets, end: StreamOffsets) -> Sequence[InputPartition]:
        layouts = {layout.topic: layout for layout, _ in self._chosen()}
        self._check_topics(start, layouts)
        start = self._complete(start, end)
        stretches = []
        for topic, offsets in end.items():
            layout = layouts[topic]
            for number, offset in offsets.items():
                place = layout.partition(int(number))
                if offset > place.end_offset:
                    raise beyond(layout, place, offset)
                first = present_offset(layout, place, start[topic][number], self._options.fail_on_data_loss)
                stretches.append(Stretch(layout, place, first, offset))
        return cut(stretches, self._options, NO_BOUNDS) or [_NOTHING]

    def commit(self, end: StreamOffsets) -> None:
        """Spark will not ask for anything below `end` again; everything from there on must stay."""
        self._open().pin(self._options.group, end)
        self._open().show_progress(self._options.group, end)

    def stop(self) -> None:
        if self._catalog is not None:
            self._catalog.close()
            self._catalog = None

    def _open(self) -> Catalog:
        if self._catalog is None:
            self._catalog = open_catalog(self._options)
        return self._catalog

    def _chosen(self) -> list[tuple[TopicLayout, tuple[int, ...]]]:
        return chosen(self._open(), self._options)

    def _ends(self) -> StreamOffsets:
        return {
            layout.topic: {str(number): layout.partition(number).end_offset for number in numbers}
            for layout, numbers in self._chosen()
        }

    def _complete(self, start: StreamOffsets, end: StreamOffsets) -> StreamOffsets:
        """`start` with the partitions that have come since: they are read from their beginning."""
        return {
            topic: {number: start.get(topic, {}).get(number, 0) for number in offsets} for topic, offsets in end.items()
        }

    def _check_topics(self, start: StreamOffsets, layouts: dict[str, TopicLayout]) -> None:
        if unknown := sorted(set(start) - set(layouts)):
            raise ConfigurationError(
                f"the checkpoint is of a query on {', '.join(unknown)}, and this one reads "
                f"{', '.join(sorted(layouts)) or 'nothing'}; use another checkpointLocation"
            )

    # -- executors ----------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, OffsetRange):
            yield from RangeReader(partition, self._schema, self._options).batches()


_NOTHING = InputPartition(None)


def _merged(start: StreamOffsets, end: StreamOffsets) -> StreamOffsets:
    """Never behind `start`: a stream does not go back, whatever has happened to the log; reading will say what."""
    return {
        topic: {number: max(offset, start.get(topic, {}).get(number, 0)) for number, offset in offsets.items()}
        for topic, offsets in end.items()
    }
