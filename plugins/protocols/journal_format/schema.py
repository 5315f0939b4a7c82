"""What a journal holds: the columns as they are stored, and as readers see them."""

from __future__ import annotations

import pyarrow as pa

VERSION = 1
"""Of the format; in the header of every index and in the schema of every segment."""

TIMESTAMP = pa.timestamp("us", tz="UTC")

ENVELOPE_FIELDS: tuple[pa.Field, ...] = (
    pa.field("engine", pa.string()),
    pa.field("route", pa.string()),
    pa.field("exchange", pa.string()),
    pa.field("key", pa.string()),
    pa.field("reply_to", pa.string()),
    pa.field("priority", pa.int16()),
    pa.field("persistent", pa.bool_()),
    pa.field("expiration", pa.int64()),
    pa.field("sent", TIMESTAMP),
    pa.field("content_type", pa.string()),
    pa.field("headers", pa.string()),
    pa.field("properties", pa.string()),
)
"""What messages of one batch have in common; stored once a batch for each different envelope."""

STORED = pa.schema(
    [
        pa.field("offset", pa.int64()),
        pa.field("ts", TIMESTAMP),
        pa.field("envelope", pa.dictionary(pa.int32(), pa.struct(ENVELOPE_FIELDS))),
        pa.field("parts", pa.list_(pa.int32())),
        pa.field("body", pa.binary()),
    ],
    metadata={"kernel.journal.version": str(VERSION)},
)
"""A batch in a segment."""

ROWS = pa.schema(
    [
        STORED.field("offset"),
        STORED.field("ts"),
        *ENVELOPE_FIELDS,
        STORED.field("parts"),
        STORED.field("body"),
    ]
)
"""A batch as readers see it: one row a message, the envelope's fields as columns of their own."""

NEVER_NULL = frozenset(
    ("offset", "ts", "engine", "route", "exchange", "key", "priority", "persistent", "body")
)
"""Columns that have a value in every row; ``ROWS`` does not say so, for what reads all columns alike."""

STORED_BYTES: bytes = STORED.serialize().to_pybytes()
"""The schema message that a segment begins with."""


def without_envelope(columns: list[str]) -> bool:
    """Whether these columns of ``ROWS`` need no look at envelopes."""
    return not any(field.name in columns for field in ENVELOPE_FIELDS)
