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
from plugins.protocols.journal_format.schema import NEVER_NULL, ROWS

_SPARK_TYPES: dict[Any, DataType] = {
    pa.int64(): LongType(),
    pa.int16(): ShortType(),
    pa.bool_(): BooleanType(),
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.timestamp("us", tz="UTC"): TimestampType(),
    pa.list_(pa.int32()): ArrayType(IntegerType()),
}
SCHEMA = StructType(
    [StructField(field.name, _SPARK_TYPES[field.type], field.name not in NEVER_NULL) for field in ROWS]
)
"""All columns, as Spark calls them.  Whether a value of a column that is never null is null it does not ask, a twentieth of its work."""


def wanted_columns(schema: StructType) -> pa.Schema:
    """Return the columns that the user asked for, as Spark wants them; it never prunes a Python source by itself.

    Raises ``SparkOptionError`` for a column that a feed has not, or has with another type, or not in every row.
    """
    there = {field.name: field for field in SCHEMA}
    for field in schema:
        found = there.get(field.name)
        if found is None or found.dataType != field.dataType:
            known = ", ".join(map(_told, SCHEMA))
            raise SparkOptionError(f"a feed has no column `{_told(field)}`; it has: {known}")
        if found.nullable and not field.nullable:
            raise SparkOptionError(f"column `{_told(field)}` may be null: leave out NOT NULL")
    return pa.schema([ROWS.field(field.name).with_nullable(field.nullable) for field in schema])


def _told(field: StructField) -> str:
    return f"{field.name} {field.dataType.simpleString()}"
