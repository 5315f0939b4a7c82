"""Converts the record batches of a journal into batches of messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyarrow import compute

from kernel.contracts.message import Batch, Envelope, batch_of
from plugins.protocols.journal_format.envelopes import fields_of

_CACHED_ENVELOPES = 10_000
"""Envelopes that are cached; when there are more, the cache is cleared."""

TimedBatch = tuple[int, Batch]
"""The time at which messages were received (microseconds since 1970 UTC), and the messages."""


class StoredBatches:
    """Converts stored batches; for one thread.

    Equal envelopes become one object: the kernel compares envelopes by identity to recognise messages of one
    flow.  ``exchange``: what all envelopes get as their exchange; None: their own.
    """

    def __init__(self, exchange: str | None = None) -> None:
        self._changed = {} if exchange is None else {"exchange": exchange}
        self._envelopes: dict[tuple[Any, ...], Envelope] = {}
        self._dictionary: pa.StructArray | None = None
        self._of_dictionary: list[Envelope] = []

    def of(self, stored: pa.RecordBatch) -> list[TimedBatch]:
        """Return the messages: a batch for each sequence of rows with equal envelope and time."""
        if not stored.num_rows:
            return []
        column = stored.column("envelope")
        stamps = stored.column("ts").cast(pa.int64())
        borders = _borders(column.indices, stamps)
        # Only the rows at the borders are converted to Python objects, apart from the bodies.
        first = pa.array(borders, pa.int64())
        envelopes = self._table(column.dictionary)
        numbers, times = column.indices.take(first).to_pylist(), stamps.take(first).to_pylist()
        bodies = stored.column("body").to_pylist()
        parts = stored.column("parts")
        spans = zip(times, numbers, borders, [*borders[1:], len(bodies)], strict=True)
        # No message has several parts: the usual case, in which a batch is a slice of the list of bodies.
        if parts.null_count == len(parts):
            batches = []
            for ts, number, start, stop in spans:
                these = bodies[start:stop]
                batches.append((ts, batch_of(these, envelopes[number])))
            return batches
        sizes = parts.to_pylist()
        return [
            (ts, batch)
            for ts, number, start, stop in spans
            for batch in _divided(bodies[start:stop], sizes[start:stop], envelopes[number])
        ]

    def _table(self, dictionary: pa.StructArray) -> list[Envelope]:
        """Return the envelopes of a dictionary.  Most batches have the dictionary of the previous one."""
        # Arrow compares the buffers, which is much faster than converting the dictionary.
        if self._dictionary is None or not dictionary.equals(self._dictionary):
            self._dictionary = dictionary
            self._of_dictionary = [self._envelope(row) for row in dictionary.to_pylist()]
        return self._of_dictionary

    def _envelope(self, row: dict[str, Any]) -> Envelope:
        # All values as the key, and not the object of Arrow, which is another one for each commit.
        values = tuple(row.values())
        envelope = self._envelopes.get(values)
        if envelope is None:
            if len(self._envelopes) >= _CACHED_ENVELOPES:
                self._envelopes.clear()
            envelope = self._envelopes[values] = Envelope(**{**fields_of(row), **self._changed})
        return envelope


def _borders(*columns: pa.Array) -> list[int]:
    """Return the rows at which a new batch begins.

    These are row 0, and each row that differs from the one before in any column.  The columns are not empty.
    """
    count = len(columns[0])
    changes = None
    for column in columns:
        # Each row with the one before it, for the whole column at once.
        changed = compute.not_equal(column.slice(1), column.slice(0, count - 1))
        changes = changed if changes is None else compute.or_(changes, changed)
    return [0, *compute.add(compute.indices_nonzero(changes), 1).to_pylist()]


def _divided(bodies: list[bytes], sizes: Sequence[list[int] | None], envelope: Envelope) -> list[Batch]:
    """Divide messages of one envelope into batches of single-part and of multi-part messages, in order."""
    batches: list[Batch] = []
    for body, size in zip(bodies, sizes, strict=True):
        multipart = size is not None
        message: Any = body if size is None else _split(body, size)
        # A batch has either single-part or multi-part messages.
        if batches and batches[-1].multipart is multipart:
            batches[-1].bodies.append(message)  # type: ignore[attr-defined]
            batches[-1].size += len(body)
        else:
            batches.append(Batch([message], len(body), envelope, multipart))
    return batches


def _split(body: bytes, sizes: list[int]) -> tuple[bytes, ...]:
    parts = []
    at = 0
    for size in sizes:
        parts.append(body[at : at + size])
        at += size
    return tuple(parts)
