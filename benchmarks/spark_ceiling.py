"""A Python source of Spark's that does as little as one can: what it takes is what Spark itself needs for rows that come from Python."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from plugins.apis.spark.columns import SCHEMA
from plugins.apis.spark.rows import BATCH_ROWS, read_rows

TASKS = 4


class OneBatch(DataSource):
    """Each task reads one batch of the journal at ``path`` and hands it over again and again, ``rows`` in all."""

    @classmethod
    def name(cls) -> str:
        return "one_batch"

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(Path(self.options["path"]), int(self.options["rows"]), schema.names)


class _Reader(DataSourceReader):
    def __init__(self, path: Path, rows: int, columns: list[str]) -> None:
        self.path = path
        self.rows = rows
        self.columns = columns

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(self.rows // TASKS)] * TASKS

    def read(self, partition: InputPartition) -> Iterator[Any]:
        batch = next(read_rows(self.path, 0, BATCH_ROWS, self.columns))
        for _ in range(partition.value // batch.num_rows):
            yield batch
