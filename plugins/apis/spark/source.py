"""The data source ``kernel``: Spark creates it first, and asks it for readers and writers.

Every worker process of Spark imports this module, so it imports the modules for writing only when rows are
written.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from plugins.apis.spark.batch_reader import BatchReader, PushdownReader
from plugins.apis.spark.columns import named_columns
from plugins.apis.spark.errors import SparkOptionError
from plugins.apis.spark.options import ReadOptions, WriteOptions, names_several
from plugins.apis.spark.several_streams import SeveralStreams
from plugins.apis.spark.stream_reader import StreamReader
from plugins.apis.spark.workers import freeze_loaded

if TYPE_CHECKING:
    from plugins.apis.spark.writers import Publish


class KernelDataSource(DataSource):
    """The format ``kernel`` of ``read``, ``readStream``, ``write`` and ``writeStream``.

    An object for each DataFrame.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        # Spark creates each DataFrame in one worker process and plans it in another, and both would collect
        # garbage after it (``workers.py``).
        freeze_loaded("describe")

    @classmethod
    def name(cls) -> str:
        return "kernel"

    def schema(self) -> StructType:
        # Not called if the user gives a schema.
        several = names_several(self.options.get("path", ""), self.options.get("paths", ""))
        return named_columns(self.options.get("columns", ""), several=several)

    def reader(self, schema: StructType) -> BatchReader:
        options = ReadOptions.parse(self.options)
        # A reader that has ``pushFilters`` is an error in a session without filter pushdown, so that such a
        # reader is used only if the user says that the session has it.
        return (PushdownReader if options.pushdown else BatchReader)(schema, options)

    def streamReader(self, schema: StructType) -> StreamReader | SeveralStreams:
        options = ReadOptions.parse(self.options)
        return (SeveralStreams if options.several else StreamReader)(schema, options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from plugins.apis.spark.writers import BatchWriter

        options = self._write_options(schema, overwrite)
        if options.token and options.address and not (options.staging or options.deduplicate):
            raise SparkOptionError(
                "a write to a running kernel remembers its token in the directory of the option staging: give "
                "that option, too, or no token; or give deduplicate, if the kernel's routes lead to a broker"
            )
        if options.deduplicate and not options.token:
            raise SparkOptionError(
                "with deduplicate the broker knows a batch write by its token: give the option token"
            )
        return BatchWriter(_publisher(options), options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from plugins.apis.spark.writers import StreamWriter, folder_of

        options = self._write_options(schema, overwrite)
        writer = StreamWriter(folder_of(options, self.options.get("checkpointLocation")), _publisher(options))
        # Spark plans the write of each micro-batch again, in a separate worker: the garbage collection after
        # it was the largest part of what a micro-batch cost in Python.
        freeze_loaded("plan")
        return writer

    def _write_options(self, schema: StructType, overwrite: bool) -> WriteOptions:
        from plugins.apis.spark.messages import check_columns

        if overwrite:
            raise SparkOptionError(
                "the format kernel only appends messages: use mode('append'), or for a stream "
                "outputMode('append')"
            )
        check_columns(schema)
        return WriteOptions.parse(self.options)


class PushdownDataSource(KernelDataSource):
    """The same for sessions with filter pushdown.

    Spark refuses its reader in sessions without that setting.
    """

    def reader(self, schema: StructType) -> BatchReader:
        return PushdownReader(schema, ReadOptions.parse(self.options))


def _publisher(options: WriteOptions) -> Publish:
    """Return the function that publishes staged rows."""
    from plugins.apis.spark.bus_writer import send_epoch
    from plugins.apis.spark.publishing import publish

    return partial(send_epoch, options) if options.address else publish
