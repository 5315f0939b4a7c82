"""The data source ``kernel``: what Spark asks first, and who answers what.

Every worker process of Spark imports this, so that what only writes is imported when something is written.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from plugins.apis.spark.batch_reader import BatchReader, PushdownReader
from plugins.apis.spark.columns import SCHEMA
from plugins.apis.spark.errors import SparkOptionError
from plugins.apis.spark.options import ReadOptions, WriteOptions
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

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from plugins.apis.spark.bus_writer import BusBatchWriter
        from plugins.apis.spark.journal_writer import BatchWriter

        options = self._write_options(schema, overwrite)
        return BusBatchWriter(options) if options.address else BatchWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from plugins.apis.spark.bus_writer import BusStreamWriter
        from plugins.apis.spark.journal_writer import StreamWriter

        options = self._write_options(schema, overwrite)
        return BusStreamWriter(options) if options.address else StreamWriter(options)

    def _write_options(self, schema: StructType, overwrite: bool) -> WriteOptions:
        from plugins.apis.spark.messages import check_columns

        if overwrite:
            raise SparkOptionError(
                "messages are only ever added: say mode('append'), or of a stream outputMode('append')"
            )
        check_columns(schema)
        return WriteOptions.parse(self.options)


class PushdownDataSource(KernelDataSource):
    """The same for a session that pushes filters down to Python: without that setting Spark refuses a reader that takes them."""

    def reader(self, schema: StructType) -> BatchReader:
        return PushdownReader(schema, ReadOptions.parse(self.options))
