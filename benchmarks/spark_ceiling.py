"""A source and a sink in Python that do as little as possible.

Their time is what Spark itself needs for rows from and to Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from plugins.apis.spark.columns import SCHEMA, wanted_columns
from plugins.apis.spark.options import ROWS_PER_TRIGGER
from plugins.apis.spark.rows import BATCH_ROWS, read_rows
from plugins.apis.spark.workers import freeze_after, freeze_loaded

TASKS = 4
_NEXT = "row"


class OneBatch(DataSource):
    """Each task reads one batch of the journal at ``path`` and yields it repeatedly, ``rows`` rows in all.

    The sink drops its rows.
    """

    @classmethod
    def name(cls) -> str:
        return "one_batch"

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(Path(self.options["path"]), int(self.options["rows"]), wanted_columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _StreamReader(Path(self.options["path"]), int(self.options["rows"]), wanted_columns(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        freeze_loaded("plan")
        return _Discarding()


class _Reader(DataSourceReader):
    def __init__(self, path: Path, rows: int, schema: pa.Schema) -> None:
        self.path = path
        self.rows = rows
        self.schema = schema

    def partitions(self) -> list[InputPartition]:
        return _tasks(self.rows)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return freeze_after("read", _again_and_again(self.path, self.schema, partition.value))


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """As many rows a micro-batch as the journal's source has."""

    def __init__(self, path: Path, rows: int, schema: pa.Schema) -> None:
        self.path = path
        self.rows = rows
        self.schema = schema

    def initialOffset(self) -> dict[str, int]:
        return {_NEXT: 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(ROWS_PER_TRIGGER)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {_NEXT: min(start[_NEXT] + ROWS_PER_TRIGGER, self.rows)}

    def prepareForTriggerAvailableNow(self) -> None:
        """There is nothing to remember: the end is known."""

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return _tasks(end[_NEXT] - start[_NEXT])

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return freeze_after("read", _again_and_again(self.path, self.schema, partition.value))


class _Discarding(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        freeze_loaded("write")
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Publish nothing."""
        freeze_loaded("commit")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Take nothing back."""


def _tasks(rows: int) -> list[InputPartition]:
    return [InputPartition(rows // TASKS)] * TASKS


def _again_and_again(path: Path, schema: pa.Schema, rows: int) -> Iterator[Any]:
    batch = next(read_rows(path, 0, BATCH_ROWS, schema))
    while rows > 0:
        yield batch.slice(0, rows)
        rows -= batch.num_rows
