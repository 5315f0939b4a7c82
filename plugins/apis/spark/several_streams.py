"""A stream over several journals: each is followed as a stream of its own follows it (``stream_reader.py``).

An offset of Spark is ``{"journals": {path: offset}}``, where each offset is one of ``StreamReader``.

A pattern may match more journals later.  Such a journal is first added to the offset, without any of its
rows: a micro-batch that Spark repeats has to get the same rows, and its start does not name the journal.  The
rows come with the next micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
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
from plugins.apis.spark.errors import DataLost
from plugins.apis.spark.options import ReadOptions
from plugins.apis.spark.stream_reader import SECONDS, UNREAD, Offset, StreamReader
from plugins.apis.spark.workers import end_quietly

_JOURNALS = "journals"


class RowsOf(InputPartition):
    """The rows of one task.

    It names its journal: tasks have the reader as it was when the query began, and journals
    may have come since.
    """

    def __init__(self, path: str, rows: Rows) -> None:
        super().__init__((path, rows.value))
        self.path = path
        self.rows = rows


class SeveralStreams(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Exists as long as its query, in a separate process beside the driver; each task has a copy."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self.schema = wanted_columns(schema)
        self.options = options
        self._spark_schema = schema
        self._streams: dict[str, StreamReader] = {}
        self._complete = False
        """Whether the journals are those that there were when the query began (``Trigger.AvailableNow``)."""
        self._find()

    def initialOffset(self) -> Offset:
        return _joined({path: stream.initialOffset() for path, stream in self._streams.items()})

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self.options.max_offsets_per_trigger
        return ReadMaxRows(most) if most > 0 else ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        self._find()
        begun = self._begun(start)
        limits = self._limits(begun, limit)
        found = {path: self._streams[path].latestOffset(since, limits[path]) for path, since in begun.items()}
        for path in self._streams.keys() - found.keys():
            # Its rows come with the next micro-batch (see above).
            found[path] = self._first(path)
        joined = _joined(found)
        # Exactly the start, if there is nothing new: Spark takes every difference for new rows.
        return start if joined == start else joined

    def reportLatestOffset(self) -> Offset:
        """Return the ends of all journals, and how far behind them the planned micro-batch ends."""
        reports = {path: stream.reportLatestOffset() for path, stream in self._streams.items()}
        unread = sum(report.pop(UNREAD, 0) for report in reports.values())
        seconds = max(report.pop(SECONDS, 0.0) for report in reports.values())
        return {**_joined(reports), UNREAD: unread, SECONDS: seconds}

    def prepareForTriggerAvailableNow(self) -> None:
        self._find()
        self._complete = True
        for stream in self._streams.values():
            stream.prepareForTriggerAvailableNow()

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        self._find()
        tasks: list[InputPartition] = []
        ends = end[_JOURNALS]
        for path, since in self._begun(start).items():
            parts = self._streams[path].partitions(since, ends[path])
            tasks += [RowsOf(path, part) for part in parts if isinstance(part, Rows)]
        return tasks

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, RowsOf):
            # If ``partitions`` returns none, Spark makes one task all the same.
            return iter(())
        return read_task([Path(partition.path)], partition.rows, self.schema, self.options)

    def commit(self, end: Offset) -> None:
        for path, reached in end[_JOURNALS].items():
            # With failOnDataLoss = false a journal may be gone since the micro-batch was planned.
            if path in self._streams:
                self._streams[path].commit(reached)

    def stop(self) -> None:
        end_quietly()

    def _find(self) -> None:
        """Have a stream for each journal that there is now."""
        if not self._complete:
            # A stream that is there already is kept: it knows what was planned and how far the position is
            # stored.
            paths = map(str, self.options.journals)
            self._streams = {path: self._streams.get(path) or self._stream(path) for path in paths}

    def _stream(self, path: str) -> StreamReader:
        options = msgspec.structs.replace(self.options, path=path, paths="")
        return StreamReader(self._spark_schema, options)

    def _first(self, path: str) -> Offset:
        """Return where to begin with a journal that came later.

        At its first row, wherever the query began.
        """
        options = msgspec.structs.replace(
            self._streams[path].options, starting_offset="earliest", starting_timestamp=""
        )
        return StreamReader(self._spark_schema, options).initialOffset()

    def _begun(self, start: Offset) -> dict[str, Offset]:
        """Return the offsets of the journals with which the query has begun."""
        if _JOURNALS not in start:
            raise DataLost(
                "the checkpoint of this query is that of a stream of one journal, and its path now means several: "
                "give the query that path again, or a new checkpointLocation"
            )
        begun: dict[str, Offset] = start[_JOURNALS]
        gone = sorted(begun.keys() - self._streams.keys())
        if gone and self.options.fail_on_data_loss:
            raise DataLost(
                f"{', '.join(gone)}: this query has read from it, and it is not among the journals that "
                f"{self.options.path or self.options.paths} means: it was moved or deleted. To continue with the "
                "others set the option failOnDataLoss to false"
            )
        return {path: since for path, since in begun.items() if path in self._streams}

    def _limits(self, begun: dict[str, Offset], limit: ReadLimit) -> dict[str, ReadLimit]:
        """Divide a limit among journals by what each has unread, so that all come to their end together."""
        if not isinstance(limit, ReadMaxRows):
            return dict.fromkeys(begun, limit)
        unread = {path: self._streams[path].unread(since) for path, since in begun.items()}
        total = sum(unread.values())
        if total <= limit.max_rows:
            return {path: ReadMaxRows(max(rows, 1)) for path, rows in unread.items()}
        # At least a row of each, so that none is left behind for ever.
        return {path: ReadMaxRows(max(limit.max_rows * rows // total, 1)) for path, rows in unread.items()}


def _joined(offsets: dict[str, Offset]) -> Offset:
    return {_JOURNALS: {path: offsets[path] for path in sorted(offsets)}}
