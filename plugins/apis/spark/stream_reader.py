"""``spark.readStream.format("kernel")``: follows a journal from the position in the query's checkpoint.

Offsets
-------
An offset of Spark is ``{"offset": n, "journal": id}``, where n is the journal's offset of the next row to
read, and id the journal's identity (absent in checkpoints and for journals of earlier versions, which had
none).  For each micro-batch Spark does these steps:

1. It calls ``latestOffset(start, limit)``; the answer is the batch's end.
2. It writes start and end into the checkpoint, before it reads anything.
3. It calls ``partitions(start, end)``; tasks call ``read``; the sink commits.
4. It writes into the checkpoint that the batch is done.
5. While it plans the following batch, it calls ``commit(end)``.

After step 1 it calls ``reportLatestOffset``, and shows the answer as ``latestOffset`` of the source in the
query's progress.  Nothing else is made of it, so the answer also says how far the query will be behind.

If it is killed between 2 and 4, the new query repeats the batch with the same start and end, and it must get
the same rows.  That holds because a row of a journal keeps its offset for ever, also through compaction, and
because ``partitions`` raises ``DataLost`` rather than return fewer rows.

What can be lost
----------------
* Retention deletes rows at the beginning: start is before the earliest row.  ``failOnDataLoss`` decides
  between an error and going on after the gap.  A query with the option ``consumer`` stores its position in
  the journal, and retention waits for it.
* A power failure takes rows at the end that were not synchronised.  The writer uses their offsets again,
  unless a consumer had passed them; then it begins at a higher offset (``planning.next_offset``).  A query
  that has read such rows, or has planned to, stops with ``DataLost``, whatever ``failOnDataLoss`` says: rows
  that later get these offsets would never be read.  If the writer began at a higher offset, nothing is missed
  and the query goes on.
* The journal is deleted, and another one is written at its path.  Its rows have the same offsets, so its
  identity tells.  The query stops with ``DataLost``, whatever ``failOnDataLoss`` says.

The reader keeps nothing open between two calls: a segment may be deleted at any time, and each call looks at
the journal anew.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, TypeAlias

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
from plugins.apis.spark.workers import end_quietly
from plugins.engines.journal.positions import write_position
from plugins.protocols.journal_format.identity import identity_of
from plugins.protocols.journal_format.reader import JournalReader

_NEXT, _JOURNAL = "offset", "journal"
"""The names in the offsets that Spark stores: the next row to read, and the journal's identity."""

UNREAD, SECONDS = "unread", "secondsBehind"
"""Further names in what ``reportLatestOffset`` returns: the rows after the planned micro-batch, and the age
of the oldest of them."""

Offset: TypeAlias = dict[str, Any]
"""An offset as Spark stores it, in JSON."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Exists as long as its query, in a separate process beside the driver; each task has a copy."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self.schema = wanted_columns(schema)
        self.options = options
        self.journal = options.journal
        if options.ending_offset != "latest" or options.ending_timestamp:
            raise SparkOptionError("a stream has no end: remove the options endingOffset and endingTimestamp")
        self._last: int | None = None
        """Where the query ends (``Trigger.AvailableNow``)."""
        self._planned: int | None = None
        """The end of the micro-batch that was planned last."""
        self._written: int | None = None
        """The position that was stored last for the option ``consumer``."""

    def initialOffset(self) -> Offset:
        return self._offset(bounds(self._reader(), self.options)[0])

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self.options.max_offsets_per_trigger
        return ReadMaxRows(most) if most > 0 else ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        first, end = self._range(start)
        # Spark calls this when the previous batch is done; it calls ``commit`` for that batch one batch
        # later.  Stored here, the position is right also while no new messages come.
        self._write_position(start[_NEXT])
        if self._last is not None:
            end = min(end, self._last)
        # From ``first``, not from the start: after a gap the limit is for rows that exist.
        if isinstance(limit, ReadMaxRows):
            end = min(end, first + limit.max_rows)
        # Not before the start, where ``_last`` may be after a loss: offsets must not decrease.  And exactly
        # the start, also if it has no identity: Spark takes every difference for new rows.
        self._planned = max(end, start[_NEXT])
        return self._offset(end) if end > start[_NEXT] else start

    def unread(self, since: Offset) -> int:
        """Return how many rows there are from an offset on."""
        first, end = self._range(since)
        return end - first

    def reportLatestOffset(self) -> Offset:
        """Return the journal's end, and how far behind it the micro-batch ends that was planned last."""
        reader = self._reader()
        earliest, end = reader.bounds()
        report = self._offset(end)
        if self._planned is not None:
            # Rows that retention has deleted are not unread.
            unread = max(end - max(self._planned, earliest), 0)
            oldest = reader.time_at(max(self._planned, earliest)) if unread else None
            seconds = 0.0 if oldest is None else max(time.time() - oldest / 1e6, 0.0)
            report.update({UNREAD: unread, SECONDS: round(seconds, 3)})
        return report

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = self._reader().bounds().end

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        self._check_identity(end)
        first, present_end = self._range(start)
        # Without this error the batch would be read without its last rows and recorded as done.  The journal
        # would use their offsets again, and the query would never read the rows that get them.
        if present_end < end[_NEXT] and next_offset(self._reader()) < end[_NEXT]:
            raise DataLost(
                f"{self.journal} ends at offset {present_end}, and this query was about to read up to "
                f"{end[_NEXT]}: rows at the journal's end were lost since, for example in a power failure. "
                "The query can continue when the journal has that many rows again; to begin again at once, "
                "give it a new checkpointLocation"
            )
        # All rows of a batch that was planned before may be gone by now.
        first = min(first, end[_NEXT])
        return [Rows(*part) for part in ranges(first, end[_NEXT], self.options.rows_per_task)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_task([self.journal], partition, self.schema, self.options)

    def commit(self, end: Offset) -> None:
        self._write_position(end[_NEXT])

    def stop(self) -> None:
        # There is nothing to close: a reader keeps no file open between two calls.
        end_quietly()

    def _write_position(self, position: int) -> None:
        # It never goes back: ``commit`` comes late, after ``latestOffset`` has stored a higher position.
        if self.options.consumer and (self._written is None or position > self._written):
            write_position(self.journal, self.options.consumer, position)
            self._written = position

    def _reader(self) -> JournalReader:
        return JournalReader(self.journal)

    def _offset(self, following: int) -> Offset:
        """Return the offset of Spark's for a next row to read."""
        identity = identity_of(self.journal)
        return {_NEXT: following} if identity is None else {_NEXT: following, _JOURNAL: identity}

    def _check_identity(self, offset: Offset) -> None:
        """Raise ``DataLost`` if an offset is one of another journal."""
        named, present = offset.get(_JOURNAL), identity_of(self.journal)
        # A journal or a checkpoint of an earlier version has no identity, and nothing can be compared.
        if named is not None and present is not None and named != present:
            raise DataLost(
                f"{self.journal} is not the journal that this query has read or planned to read up to offset "
                f"{offset[_NEXT]}: that one was deleted and written anew, or the path leads to another one. To "
                "read this journal from its beginning, give the query a new checkpointLocation"
            )

    def _range(self, since: Offset) -> tuple[int, int]:
        """Return the first offset to read and the journal's end.

        Raises ``DataLost`` if rows from ``since`` on have been deleted or lost, or belong to another journal.
        """
        self._check_identity(since)
        start = since[_NEXT]
        reader = self._reader()
        earliest, end = reader.bounds()
        # Rows were lost in a power failure, but their offsets are not used again, so nothing is missed.
        if end < start <= next_offset(reader):
            end = start
        if start > end:
            raise DataLost(
                f"{self.journal} ends at offset {end}, and this query has read up to {start}: the path leads "
                "to another journal, or rows at the journal's end were lost. To read this journal from its "
                "beginning, give the query a new checkpointLocation"
            )
        if start < earliest and self.options.fail_on_data_loss:
            raise DataLost(
                f"{self.journal}: offsets {start} to {earliest - 1} have not been read and no longer exist: "
                f"retention has deleted them. To continue from {earliest} set the option failOnDataLoss to "
                "false; to make retention wait for this query in future, give the query a name with the "
                "option consumer"
            )
        return max(start, earliest), end
