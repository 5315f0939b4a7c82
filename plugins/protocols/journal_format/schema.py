"""The columns of a journal: as they are stored (``STORED``), and as readers see them (``ROWS``)."""

from __future__ import annotations

import pyarrow as pa

VERSION = 1
"""The version of the format, in the header of every index and in the schema of every segment."""

TIMESTAMP = pa.timestamp("us", tz="UTC")

ENVELOPE_FIELDS: tuple[pa.Field, ...] = (
    pa.field("engine", pa.string()),
    pa.field("route", pa.string()),
    pa.field("exchange", pa.string()),
    pa.field("key", pa.string()),
    pa.field("reply_to", pa.string()),
    # Wider than AMQP's octet; what does not fit is under ``$exact`` in the properties.
    pa.field("priority", pa.int16()),
    pa.field("persistent", pa.bool_()),
    pa.field("expiration", pa.int64()),
    pa.field("sent", TIMESTAMP),
    pa.field("content_type", pa.string()),
    # JSON text and not a map: tables of AMQP are nested and typed (decision 5).
    pa.field("headers", pa.string()),
    pa.field("properties", pa.string()),
)
"""The columns of an envelope.  Each commit has a dictionary with one row for each different envelope."""

STORED = pa.schema(
    [
        pa.field("offset", pa.int64()),
        pa.field("ts", TIMESTAMP),
        # Four bytes for each row, and each different envelope once.
        pa.field("envelope", pa.dictionary(pa.int32(), pa.struct(ENVELOPE_FIELDS))),
        pa.field("parts", pa.list_(pa.int32())),
        pa.field("body", pa.binary()),
    ],
    metadata={"kernel.journal.version": str(VERSION)},
)
"""The columns of a commit in a segment."""

ROWS = pa.schema(
    [
        STORED.field("offset"),
        STORED.field("ts"),
        *ENVELOPE_FIELDS,
        STORED.field("parts"),
        STORED.field("body"),
    ]
)
"""The columns that readers see: one row per message, with the fields of its envelope as separate columns."""

NEVER_NULL = frozenset(
    ("offset", "ts", "engine", "route", "exchange", "key", "priority", "persistent", "body")
)
"""Columns that have a value in every row.  All fields of ``ROWS`` are declared nullable nevertheless."""

STORED_BYTES: bytes = STORED.serialize().to_pybytes()
"""The schema message at the beginning of every segment's data file."""


def without_envelope(columns: list[str]) -> bool:
    """Return whether none of these columns of ``ROWS`` comes from the envelope."""
    return not any(field.name in columns for field in ENVELOPE_FIELDS)
