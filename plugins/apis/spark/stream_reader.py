"""``spark.readStream.format("kernel")``: a journal row by row, from where the query's checkpoint is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from plugins.apis.spark.batch_reader import Rows, read_task
from plugins.apis.spark.columns import wanted_columns
from plugins.apis.spark.errors import DataLost, SparkOptionError
from plugins.apis.spark.options import ReadOptions
from plugins.apis.spark.planning import bounds, next_offset, ranges
from plugins.engines.journal.positions import write_position
from plugins.protocols.journal_format.reader import JournalReader

_NEXT = "offset"
"""The one name in Spark's offset objects: ``{"offset": n}``, n being the next row to read."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives as long as its query, in a process of its own beside the driver; a copy is in every task."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self.schema = wanted_columns(schema)
        self.options = options
        self.journal = options.journal
        if options.ending_offset != "latest" or options.ending_timestamp:
            raise SparkOptionError("a stream has no end: leave out endingOffset and endingTimestamp")
        self._last: int | None = None
        self._told: int | None = None

    def initialOffset(self) -> dict[str, int]:
        return {_NEXT: bounds(self._reader(), self.options)[0]}

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self.options.max_offsets_per_trigger
        return ReadMaxRows(most) if most > 0 else ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        first, end = self._unread(start[_NEXT])
        self._tell(
            start[_NEXT]
        )  # Spark asks when the batch before is done, and says so itself one batch later
        if self._last is not None:
            end = min(end, self._last)
        if isinstance(limit, ReadMaxRows):
            end = min(end, first + limit.max_rows)
        return {_NEXT: max(end, start[_NEXT])}

    def reportLatestOffset(self) -> dict[str, int]:
        return {_NEXT: self._reader().bounds().end}

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = self._reader().bounds().end

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        first, there = self._unread(start[_NEXT])
        if there < end[_NEXT] and next_offset(self._reader()) < end[_NEXT]:
            raise DataLost(
                f"{self.journal} ends at offset {there}, and this query was about to read up to {end[_NEXT]}: the journal's end was lost since. "
                "It can go on when there are so many rows again; to begin anew at once give it a new checkpoint"
            )
        first = min(first, end[_NEXT])
        return [Rows(*piece) for piece in ranges(first, end[_NEXT], self.options.rows_per_task)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_task(self.journal, partition, self.schema, self.options)

    def commit(self, end: dict[str, int]) -> None:
        self._tell(end[_NEXT])

    def stop(self) -> None:
        """Hold nothing back: each read opens what it needs."""

    def _tell(self, position: int) -> None:
        if self.options.consumer and (self._told is None or position > self._told):
            write_position(self.journal, self.options.consumer, position)
            self._told = position

    def _reader(self) -> JournalReader:
        return JournalReader(self.journal)

    def _unread(self, start: int) -> tuple[int, int]:
        """Return the first offset to read and the journal's end; ``DataLost`` if there is a hole before it."""
        reader = self._reader()
        earliest, end = reader.bounds()
        if end < start <= next_offset(reader):
            end = start  # lost with the power, and not used again because this query or another had passed it
        if start > end:
            raise DataLost(
                f"{self.journal} ends at offset {end}, and this query has read up to {start}: it is another journal, or its end was "
                "lost. To begin with it anew give the query a new checkpoint"
            )
        if start < earliest and self.options.fail_on_data_loss:
            raise DataLost(
                f"{self.journal}: offsets {start} to {earliest - 1} have not been read and are no longer there: retention took "
                f"them. To go on from {earliest} set the option failOnDataLoss to false; so that retention waits for this query "
                "in future, give it a name with the option consumer"
            )
        return max(start, earliest), end
