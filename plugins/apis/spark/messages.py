"""Rows that Spark writes become messages: their columns checked, and what they have in common found.

A journal stores an envelope once a batch for each different one.  Rows come in columns, so the different ones are found
column by column, and no row is looked at by itself.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyarrow import compute
from pyspark.sql.types import StructType

from plugins.apis.spark.errors import RowError, SparkOptionError
from plugins.protocols.journal_format.schema import ENVELOPE_FIELDS, STORED

_DEFAULTS: dict[str, Any] = {
    "engine": "spark",
    "route": "",
    "exchange": "",
    "key": "",
    "priority": 0,
    "persistent": False,
}
_NULLABLE = ("reply_to", "expiration", "content_type", "headers", "properties")
_ENVELOPE = tuple(field.name for field in ENVELOPE_FIELDS)
_TAKEN = {
    **{field.name: field.type for field in ENVELOPE_FIELDS if field.name != "sent"},
    "body": pa.binary(),
}

PREPARED = pa.schema([STORED.field(name) for name in ("envelope", "parts", "body")])
"""A batch of messages that have no offset and no time yet."""


def check_columns(schema: StructType) -> None:
    """Raise ``SparkOptionError`` if a DataFrame has columns that no message has, or no body."""
    unknown = [name for name in schema.names if name not in _TAKEN]
    if unknown or "body" not in schema.names:
        wrong = f"a message has no {', '.join(unknown)}" if unknown else "a message needs a body"
        raise SparkOptionError(
            f"{wrong}; the columns of messages are {', '.join(_TAKEN)} (all but body may be missing; others can be dropped, or put "
            "into the body with to_json)"
        )
    if "headers" in schema.names and schema["headers"].dataType.typeName() != "string":
        raise SparkOptionError("headers are the text of a JSON object: to_json makes it of a map or a struct")


def prepare(batch: Any, place: str, first: int) -> Any:
    """Return a batch of rows in the columns of ``PREPARED``.

    ``place`` and ``first`` (the number of the first row there) are for ``RowError``.
    """
    columns = {}
    for name in batch.schema.names:
        try:
            columns[name] = batch.column(name).cast(_TAKEN[name])
        except pa.ArrowInvalid as error:
            raise RowError(
                f"{place}, rows {first} to {first + batch.num_rows - 1}: {name}: {error}"
            ) from error
    body = columns.pop("body")
    if body.null_count:
        row = compute.index(body.is_null(), True).as_py()
        raise RowError(f"{place}, row {first + row}: body is null; a message has one, which may be empty")
    indices, firsts = _different([columns[name] for name in _ENVELOPE if name in columns], batch.num_rows)
    arrays = [_field(field, columns.get(field.name), firsts) for field in ENVELOPE_FIELDS]
    table = pa.StructArray.from_arrays(arrays, fields=list(ENVELOPE_FIELDS))
    for name in ("headers", "properties"):
        if name in columns:
            _check_json(columns[name].take(firsts), firsts, place, first, name)
    return pa.RecordBatch.from_arrays(
        [
            pa.DictionaryArray.from_arrays(indices, table),
            pa.nulls(batch.num_rows, STORED.field("parts").type),
            body,
        ],
        schema=PREPARED,
    )


def _different(columns: Sequence[Any], rows: int) -> tuple[Any, Any]:
    """Return for each of one or more rows which of the different combinations it has, and for each of these its first row."""
    codes = pa.repeat(pa.scalar(0, pa.int64()), rows)
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        codes = compute.add(
            compute.multiply(codes, len(encoded.dictionary)), encoded.indices.cast(pa.int64())
        )
        codes = codes.dictionary_encode().indices.cast(pa.int64())  # small again, in the order of appearance
    highest = compute.cumulative_max(codes)
    is_first = compute.not_equal(highest.slice(1), highest.slice(0, rows - 1))
    firsts = compute.add(compute.indices_nonzero(is_first), pa.scalar(1, pa.uint64()))
    return codes.cast(pa.int32()), pa.concat_arrays([pa.array([0], pa.uint64()), firsts])


def _field(field: pa.Field, column: Any, firsts: Any) -> Any:
    if column is None:
        return pa.array([_DEFAULTS.get(field.name)] * len(firsts), field.type)
    values = column.take(firsts)
    return values if field.name in _NULLABLE else values.fill_null(_DEFAULTS[field.name])


def _check_json(texts: Any, firsts: Any, place: str, first: int, name: str) -> None:
    for text, row in zip(texts.to_pylist(), firsts.to_pylist(), strict=True):
        if text is None:
            continue
        try:
            good = isinstance(json.loads(text), dict)
        except ValueError:
            good = False
        if not good:
            raise RowError(f"{place}, row {first + row}: {name} is {text[:80]!r}, which is not a JSON object")
