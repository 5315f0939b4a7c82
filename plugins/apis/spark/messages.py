"""Converts rows that Spark writes into messages: checks the columns, and finds the different envelopes.

A journal stores each different envelope of a batch once, in a dictionary, and each row has an index into it.
Arrow batches are columns, so the different combinations of values are found column by column, without a loop
over the rows: each row gets a number, at first 0.  For each column the number is multiplied by the count of
the column's different values, and the index of the row's value is added.  In the end two rows have the same
number if and only if they have the same values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import pyarrow as pa
from pyarrow import compute
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructField, StructType

from plugins.apis.spark.errors import RowError, SparkOptionError
from plugins.protocols.journal_format import tagged_json
from plugins.protocols.journal_format.envelopes import sent_at
from plugins.protocols.journal_format.schema import ENVELOPE_FIELDS, STORED, TIMESTAMP

_DEFAULTS: dict[str, Any] = {
    "engine": "spark",
    "route": "",
    "exchange": "",
    "key": "",
    "priority": 0,
    "persistent": False,
}
_ENVELOPE = tuple(field.name for field in ENVELOPE_FIELDS)
# Without ``sent``.  A journal computes that column from a header or property of a message
# (``journal_format.envelopes``).
_COLUMN_TYPES = {
    **{field.name: field.type for field in ENVELOPE_FIELDS if field.name != "sent"},
    "body": pa.binary(),
}
_NAMES: dict[Any, str] = {
    pa.string(): "string",
    pa.binary(): "string or binary",
    pa.int16(): "smallint",
    pa.int64(): "bigint",
    pa.bool_(): "boolean",
}
"""What Spark calls these types."""
_ADVICE = {
    "body": "use cast, or to_json for a struct or a map",
    "headers": "the text of a JSON object, which to_json makes of a struct or a map",
    "properties": "the text of a JSON object, which to_json makes of a struct or a map",
}
_SENT = (
    ". The journal takes sent from the header timestamp_in_ms (milliseconds) or the property timestamp: "
    "write headers and properties, and sent is the same again"
)

PREPARED = pa.schema([STORED.field(name) for name in ("envelope", "parts", "body")])
"""The columns of messages that have no offset and no time yet."""


def check_columns(schema: StructType) -> None:
    """Raise ``SparkOptionError`` if a DataFrame has wrong columns, or no column ``body``."""
    unknown = [name for name in schema.names if name not in _COLUMN_TYPES]
    if unknown or "body" not in schema.names:
        wrong = f"a message has no column {', '.join(unknown)}" if unknown else "a message needs a body"
        raise SparkOptionError(
            f"{wrong}; the columns of messages are {', '.join(_COLUMN_TYPES)}, and only body is required. "
            "Drop other columns, or put them into the body with to_json"
            + (_SENT if "sent" in unknown else "")
        )
    for field in schema:
        wanted = _COLUMN_TYPES[field.name]
        if not _is_castable(field, wanted):
            raise SparkOptionError(
                f"the column {field.name} has the type {field.dataType.simpleString()}; it must be "
                f"{_NAMES[wanted]}: {_ADVICE.get(field.name, 'use cast')}"
            )


def _is_castable(field: StructField, wanted: Any) -> bool:
    """Return whether a task could convert the values of a column, whatever they are."""
    # Arrow decides by the types alone, so an empty column tells.
    try:
        pa.array([], to_arrow_type(field.dataType)).cast(wanted)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, PySparkException):
        return False
    return True


def prepare(batch: Any, location: str, first: int) -> Any:
    """Return a batch of rows with the columns of ``PREPARED``.  Raises ``RowError``.

    The error names the location ``location`` of the batch, and counts rows from ``first``, its first row
    there.
    """
    columns = {}
    for name in batch.schema.names:
        try:
            columns[name] = batch.column(name).cast(_COLUMN_TYPES[name])
        except pa.ArrowInvalid as error:
            raise RowError(
                f"{location}, rows {first} to {first + batch.num_rows - 1}: {name}: {error}"
            ) from error
    body = columns.pop("body")
    if body.null_count:
        row = compute.index(body.is_null(), True).as_py()
        raise RowError(
            f"{location}, row {first + row}: body is null; a message needs a body, which may be empty"
        )
    # Only the first row of each combination is looked at from here on, mostly a few of ten thousand.
    indices, firsts = _distinct([columns[name] for name in _ENVELOPE if name in columns], batch.num_rows)
    values = {name: column.take(firsts) for name, column in columns.items()}
    tables = {
        name: _tables(values[name], firsts, location, first, name)
        for name in ("headers", "properties")
        if name in values
    }
    if tables:
        values["sent"] = _sent(**tables)
    arrays = [_field(field, values.get(field.name), len(firsts)) for field in ENVELOPE_FIELDS]
    table = pa.StructArray.from_arrays(arrays, fields=list(ENVELOPE_FIELDS))
    return pa.RecordBatch.from_arrays(
        [
            pa.DictionaryArray.from_arrays(indices, table),
            pa.nulls(batch.num_rows, STORED.field("parts").type),
            body,
        ],
        schema=PREPARED,
    )


def _distinct(columns: Sequence[Any], rows: int) -> tuple[Any, Any]:
    """Return the number of each row's combination of values, and the first row of each combination.

    There is at least one row.  Combinations are numbered in the order in which they appear.
    """
    codes = pa.repeat(pa.scalar(0, pa.int64()), rows)
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        codes = compute.add(
            compute.multiply(codes, len(encoded.dictionary)), encoded.indices.cast(pa.int64())
        )
        # Number the combinations again after each column: the products would exceed 64 bits otherwise.
        codes = codes.dictionary_encode().indices.cast(pa.int64())
    # Numbers are given in the order of appearance, so a row is the first of its combination exactly where the
    # highest number so far grows.
    highest = compute.cumulative_max(codes)
    is_first = compute.not_equal(highest.slice(1), highest.slice(0, rows - 1))
    firsts = compute.add(compute.indices_nonzero(is_first), pa.scalar(1, pa.uint64()))
    return codes.cast(pa.int32()), pa.concat_arrays([pa.array([0], pa.uint64()), firsts])


def _field(field: pa.Field, values: Any, count: int) -> Any:
    """Return a column of the envelopes from what Spark gave for it; None: nothing."""
    if values is None:
        return pa.array([_DEFAULTS.get(field.name)] * count, field.type)
    return values.fill_null(_DEFAULTS[field.name]) if field.name in _DEFAULTS else values


def _tables(texts: Any, firsts: Any, location: str, first: int, name: str) -> list[Mapping[str, Any]]:
    """Return the tables that some JSON texts stand for; an empty one for null.  Raises ``RowError``."""
    tables: list[Mapping[str, Any]] = []
    for text, row in zip(texts.to_pylist(), firsts.to_pylist(), strict=True):
        try:
            table = {} if text is None else json.loads(text)
            # Most texts have no tags (``tagged_json.py``).  A replay could not read a wrong one.
            if text is not None and "$" in text:
                table = tagged_json.from_plain(table)
        except (ValueError, TypeError, ArithmeticError, AttributeError):
            table = None
        if not isinstance(table, dict):
            raise RowError(
                f"{location}, row {first + row}: {name} is {text[:80]!r}, which is not a JSON object"
                + (", or has a wrong value behind a name with $" if "$" in text else "")
            )
        tables.append(table)
    return tables


def _sent(headers: Sequence[Mapping[str, Any]] = (), properties: Sequence[Mapping[str, Any]] = ()) -> Any:
    """Return the column ``sent`` of some envelopes, as the journal's engine makes it of the same message."""
    # Either may be missing as a whole.
    tables = zip_longest(headers, properties)
    return pa.array([sent_at(ours, (rest or {}).get("timestamp")) for ours, rest in tables], TIMESTAMP)
