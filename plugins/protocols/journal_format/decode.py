"""Decodes commits into rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyarrow import ipc

from plugins.protocols.journal_format.commit import commit_crc, find_check, message_size, written_crc
from plugins.protocols.journal_format.index import Entry
from plugins.protocols.journal_format.schema import ENVELOPE_FIELDS, ROWS, STORED

_ENVELOPE_NAMES = frozenset(field.name for field in ENVELOPE_FIELDS)
_FEW = 4096
"""Largest number of envelopes among which ``_spread`` checks whether all have the same value of a field."""
_SHORT = 256
"""Largest average size in bytes of a field that is cached as a column of ``_MANY`` equal values."""
_MANY = 1 << 14
"""Rows of these cached columns."""
_BROKEN = (pa.ArrowException, OSError, EOFError, ValueError)


def rows_schema(columns: Sequence[str] | None) -> pa.Schema:
    """Return a schema with these columns of ``ROWS``, in this order; None: all columns."""
    return ROWS if columns is None else pa.schema([ROWS.field(name) for name in columns])


def stored_batches(stream: Any, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Decode a schema message and the commits after it; ``columns`` are names of ``ROWS``, None: all.

    Only the stored columns that these need are decoded.
    """
    # Without a copy: the columns are views of ``stream``, which lives as long as they do.
    return iter(ipc.open_stream(pa.py_buffer(stream), options=_options(columns)))


def flat(stored: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a stored batch as rows with the columns of ``schema``, which are some of ``ROWS``."""
    arrays = []
    envelopes = None
    for name in schema.names:
        if name not in _ENVELOPE_NAMES:
            arrays.append(stored.column(name))
            continue
        envelopes = envelopes if envelopes is not None else stored.column("envelope")
        # The envelope of each row is in the dictionary; each field of it becomes a column of its own.
        arrays.append(_spread(envelopes.dictionary.field(name), envelopes.indices))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _spread(values: pa.Array, indices: pa.Array) -> pa.Array:
    """Return the value of an envelope field for each row.

    If all envelopes have the same value, the column is a slice of a cached one: no lookup per row.
    """
    rows = len(indices)
    if values.null_count == len(values):
        return _repeated(None, values.type).slice(0, rows) if rows <= _MANY else pa.nulls(rows, values.type)
    if rows <= _MANY and _may_be_one(values):
        # The first and the last are equal, so all of them may be.  One comparison of buffers decides it.
        shared = _repeated(values[0].as_py(), values.type)
        if values.equals(shared.slice(0, len(values))):
            return shared.slice(0, rows)
    return values.take(indices)


def _may_be_one(values: pa.Array) -> bool:
    """Return whether all values may be equal, so that it is worth to compare them all.

    This test costs several times less than one of Arrow's compute functions, which would run for each field
    and batch.
    """
    # With many envelopes, or long values, comparing them all would cost more than the look-up.
    few = len(values) <= _FEW and values.nbytes <= _SHORT * len(values)
    return few and bool(values[0].equals(values[-1]))


@lru_cache(maxsize=64)
def _repeated(value: Any, kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), _MANY)


def _options(columns: Sequence[str] | None) -> ipc.IpcReadOptions:
    if columns is None:
        return ipc.IpcReadOptions()
    # Arrow does not even decompress what is not wanted.
    wanted = {"envelope" if name in _ENVELOPE_NAMES else name for name in columns}
    return ipc.IpcReadOptions(included_fields=sorted(STORED.get_field_index(name) for name in wanted))


def commit_at(data: pa.Buffer, position: int, schema: bytes) -> Entry | None:
    """Return the index entry of the commit that begins at ``position``; None if no whole, undamaged one does.

    The index is not needed: a commit contains its own length and its own CRC.
    """
    try:
        # The dictionary message, and then the record batch message behind it.
        length = message_size(data, position)
        length += message_size(data, position + length)
        commit = data.slice(position, length)
        check_at = find_check(commit)
        crc = commit_crc(commit, check_at)
        # A slice beyond the end of the data is shorter.
        if commit.size != length or crc != written_crc(commit, check_at):
            return None
        # The CRC is right, so this is a commit as it was written; only the rows are needed now.
        (record_batch,) = stored_batches(schema + commit.to_pybytes())
    except _BROKEN:
        return None
    return entry_of(record_batch, position, length, crc, check_at)


def entry_of(record_batch: pa.RecordBatch, position: int, length: int, crc: int, check_at: int) -> Entry:
    """Return the index entry of a stored batch."""
    from pyarrow import compute

    ts = compute.min_max(record_batch.column("ts").cast(pa.int64()))
    return Entry(
        offset=record_batch.column("offset")[0].as_py(),
        position=position,
        length=length,
        rows=record_batch.num_rows,
        crc=crc,
        # Not known from here, and of no use for readers: the Arrow message says how it is compressed.
        flags=0,
        min_ts=ts["min"].as_py(),
        max_ts=ts["max"].as_py(),
        envelopes=len(record_batch.column("envelope").dictionary),
        check_at=check_at,
    )
