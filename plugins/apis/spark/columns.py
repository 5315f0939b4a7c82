"""The columns of a feed with the types of Spark.  The data itself is passed as Arrow batches."""

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
"""All columns, with Spark's types.

Columns that are never null are declared so: Spark then omits its null checks, a twentieth of its work."""


JOURNAL = "journal"
"""The column that no journal has: the directory in which the row is."""
WITH_JOURNAL = StructType([*SCHEMA, StructField(JOURNAL, StringType(), False)])
"""All columns of a table of several journals."""


def named_columns(names: str, *, several: bool = False) -> StructType:
    """Return the schema with these columns, separated by commas, in this order; empty: all.

    ``several``: all means with the journal.  Raises ``SparkOptionError`` for a name that is no column.
    """
    if not names.strip():
        return WITH_JOURNAL if several else SCHEMA
    wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in WITH_JOURNAL.names:
            raise SparkOptionError(
                f"the option columns names {name!r}, and a feed has no such column; it has: "
                f"{', '.join(WITH_JOURNAL.names)}"
            )
    return StructType([WITH_JOURNAL[name] for name in wanted])


def wanted_columns(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of the columns in the user's schema.

    Spark does not tell a Python source which columns a query uses, so the user's schema selects them.

    Raises ``SparkOptionError`` for a column that a feed does not have, or has with another type, or that is
    declared NOT NULL and may be null.
    """
    known_fields = {field.name: field for field in WITH_JOURNAL}
    for field in schema:
        found = known_fields.get(field.name)
        if found is None or found.dataType != field.dataType:
            known = ", ".join(map(_told, WITH_JOURNAL))
            raise SparkOptionError(f"a feed has no column `{_told(field)}`; it has: {known}")
        if found.nullable and not field.nullable:
            raise SparkOptionError(f"column `{_told(field)}` may be null: leave out NOT NULL")
    # Spark compares this with its own schema, including whether a column may be null.
    fields = pa.schema([*ROWS, pa.field(JOURNAL, pa.string())])
    return pa.schema([fields.field(field.name).with_nullable(field.nullable) for field in schema])


def _told(field: StructField) -> str:
    return f"{field.name} {field.dataType.simpleString()}"
