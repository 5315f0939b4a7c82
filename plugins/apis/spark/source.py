"""The data source ``kernel``: what Spark asks first, and who answers what."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from plugins.apis.spark.batch_reader import BatchReader, PushdownReader
from plugins.apis.spark.columns import SCHEMA
from plugins.apis.spark.options import ReadOptions
from plugins.apis.spark.stream_reader import StreamReader


class KernelDataSource(DataSource):
    """``spark.read.format("kernel")`` and its three sisters.  Spark makes one for each DataFrame."""

    @classmethod
    def name(cls) -> str:
        return "kernel"

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> BatchReader:
        options = ReadOptions.parse(self.options)
        return (PushdownReader if options.pushdown else BatchReader)(schema, options)

    def streamReader(self, schema: StructType) -> StreamReader:
        return StreamReader(schema, ReadOptions.parse(self.options))


class PushdownDataSource(KernelDataSource):
    """The same for a session that pushes filters down to Python: without that setting Spark refuses a reader that takes them."""

    def reader(self, schema: StructType) -> BatchReader:
        return PushdownReader(schema, ReadOptions.parse(self.options))
