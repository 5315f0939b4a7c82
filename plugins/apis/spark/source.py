"""The data source ``kernel``: what Spark asks first, and who answers what.

Every worker process of Spark imports this, so that what only writes is imported when something is written.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from plugins.apis.spark.batch_reader import BatchReader, PushdownReader
from plugins.apis.spark.columns import SCHEMA
from plugins.apis.spark.errors import SparkOptionError
from plugins.apis.spark.options import ReadOptions, WriteOptions
from plugins.apis.spark.stream_reader import StreamReader
from plugins.apis.spark.workers import settle

if TYPE_CHECKING:
    from plugins.apis.spark.writers import Publish


class KernelDataSource(DataSource):
    """``spark.read.format("kernel")`` and its three sisters.  Spark makes one for each DataFrame."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        settle("describe")  # a worker of its own does this for each DataFrame, and one the planning

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
        from plugins.apis.spark.writers import BatchWriter

        options = self._write_options(schema, overwrite)
        return BatchWriter(_publisher(options), options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from plugins.apis.spark.writers import StreamWriter, folder_of

        options = self._write_options(schema, overwrite)
        writer = StreamWriter(folder_of(options, self.options.get("checkpointLocation")), _publisher(options))
        settle("plan")  # Spark plans each micro-batch's write anew, in a worker of its own for that
        return writer

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


def _publisher(options: WriteOptions) -> Publish:
    """Return what publishes the rows that were staged."""
    from plugins.apis.spark.bus_writer import send_epoch
    from plugins.apis.spark.publishing import publish

    return partial(send_epoch, options) if options.address else publish
