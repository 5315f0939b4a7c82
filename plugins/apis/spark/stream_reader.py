"""``spark.readStream.format("kernel")``: follows a journal from the position in the query's checkpoint."""

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
"""The only name in the offsets that Spark stores: ``{"offset": n}``, where n is the next row to read."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Exists as long as its query, in a separate process beside the driver; each task has a copy."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self.schema = wanted_columns(schema)
        self.options = options
        self.journal = options.journal
        if options.ending_offset != "latest" or options.ending_timestamp:
            raise SparkOptionError("a stream has no end: leave out endingOffset and endingTimestamp")
        self._last: int | None = None
        self._written: int | None = None

    def initialOffset(self) -> dict[str, int]:
        return {_NEXT: bounds(self._reader(), self.options)[0]}

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self.options.max_offsets_per_trigger
        return ReadMaxRows(most) if most > 0 else ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        first, end = self._unread(start[_NEXT])
        # Spark calls this when the previous batch is done; it calls ``commit`` for that batch one batch
        # later.
        self._write_position(start[_NEXT])
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
        first, present_end = self._unread(start[_NEXT])
        if present_end < end[_NEXT] and next_offset(self._reader()) < end[_NEXT]:
            raise DataLost(
                f"{self.journal} ends at offset {present_end}, and this query was about to read up to {end[_NEXT]}: the journal's end was lost since. "
                "It can go on when there are so many rows again; to begin anew at once give it a new checkpoint"
            )
        first = min(first, end[_NEXT])
        return [Rows(*part) for part in ranges(first, end[_NEXT], self.options.rows_per_task)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_task(self.journal, partition, self.schema, self.options)

    def commit(self, end: dict[str, int]) -> None:
        self._write_position(end[_NEXT])

    def stop(self) -> None:
        """Do nothing: a reader keeps no file open between two calls."""

    def _write_position(self, position: int) -> None:
        if self.options.consumer and (self._written is None or position > self._written):
            write_position(self.journal, self.options.consumer, position)
            self._written = position

    def _reader(self) -> JournalReader:
        return JournalReader(self.journal)

    def _unread(self, start: int) -> tuple[int, int]:
        """Return the first offset to read and the journal's end.

        Raises ``DataLost`` if rows from ``start`` on have been deleted or lost.
        """
        reader = self._reader()
        earliest, end = reader.bounds()
        if end < start <= next_offset(reader):
            end = start  # rows were lost in a power failure; their offsets are not used again, so nothing is missed
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
