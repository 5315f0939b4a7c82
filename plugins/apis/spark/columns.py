"""The columns of a feed: as Spark declares them.  Arrow carries them as the journal has them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from plugins.apis.spark.errors import SparkOptionError
from plugins.protocols.journal_format.schema import ROWS

_SPARK_TYPES: dict[Any, DataType] = {
    pa.int64(): LongType(),
    pa.int16(): ShortType(),
    pa.bool_(): BooleanType(),
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.timestamp("us", tz="UTC"): TimestampType(),
    pa.list_(pa.int32()): ArrayType(IntegerType()),
}
SCHEMA = StructType([StructField(field.name, _SPARK_TYPES[field.type]) for field in ROWS])
"""All columns, as Spark calls them."""


def wanted_columns(schema: StructType) -> list[str]:
    """Return the names in a ``StructType`` that the user asked for; Spark itself never prunes a Python source.

    Raises ``SparkOptionError`` for a column that a feed has not, or has with another type.
    """
    there = {field.name: field.dataType for field in SCHEMA}
    for field in schema:
        if there.get(field.name) != field.dataType:
            known = ", ".join(map(_told, SCHEMA))
            raise SparkOptionError(f"a feed has no column `{_told(field)}`; it has: {known}")
    return schema.names


def _told(field: StructField) -> str:
    return f"{field.name} {field.dataType.simpleString()}"
