"""Record batches of a journal back into batches of messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyarrow import compute

from kernel.contracts.message import Batch, Envelope, batch_of
from plugins.protocols.journal_format.envelopes import fields_of

_REMEMBERED = 10_000

TimedBatch = tuple[int, Batch]
"""When it was received (microseconds), and the messages."""


class StoredBatches:
    """Makes batches of what is stored.  Equal envelopes become one object, so that messages of one flow are seen as such."""

    def __init__(self) -> None:
        self._envelopes: dict[tuple[Any, ...], Envelope] = {}
        self._dictionary: pa.StructArray | None = None
        self._of_dictionary: list[Envelope] = []

    def of(self, stored: pa.RecordBatch) -> list[TimedBatch]:
        """Return the messages of a record batch: a batch for each stretch of one envelope and one time."""
        if not stored.num_rows:
            return []
        column = stored.column("envelope")
        stamps = stored.column("ts").cast(pa.int64())
        borders = _borders(column.indices, stamps)
        first = pa.array(borders, pa.int64())
        envelopes = self._table(column.dictionary)
        numbers, times = column.indices.take(first).to_pylist(), stamps.take(first).to_pylist()
        bodies = stored.column("body").to_pylist()
        parts = stored.column("parts")
        spans = zip(times, numbers, borders, [*borders[1:], len(bodies)], strict=True)
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
        """Return the envelopes of a batch; most batches have those of the one before."""
        if self._dictionary is None or not dictionary.equals(self._dictionary):
            self._dictionary = dictionary
            self._of_dictionary = [self._envelope(row) for row in dictionary.to_pylist()]
        return self._of_dictionary

    def _envelope(self, row: dict[str, Any]) -> Envelope:
        values = tuple(row.values())
        envelope = self._envelopes.get(values)
        if envelope is None:
            if len(self._envelopes) >= _REMEMBERED:
                self._envelopes.clear()
            envelope = self._envelopes[values] = Envelope(**fields_of(row))
        return envelope


def _borders(*columns: pa.Array) -> list[int]:
    """Return where a new batch begins: at 0, and wherever one of these columns, which are not empty, changes."""
    count = len(columns[0])
    changes = None
    for column in columns:
        here = compute.not_equal(column.slice(1), column.slice(0, count - 1))
        changes = here if changes is None else compute.or_(changes, here)
    return [0, *compute.add(compute.indices_nonzero(changes), 1).to_pylist()]


def _divided(bodies: list[bytes], sizes: Sequence[list[int] | None], envelope: Envelope) -> list[Batch]:
    """Return batches of single-part messages, and of multi-part ones, in order."""
    batches: list[Batch] = []
    for body, size in zip(bodies, sizes, strict=True):
        multipart = size is not None
        message: Any = body if size is None else _split(body, size)
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
