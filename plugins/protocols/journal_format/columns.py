"""Builds the columns of a commit from batches, if possible without a loop over the rows.

Columns are built from buffers where possible.  ``pyarrow.array()`` imports pandas if it is installed, which
is slow.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from plugins.protocols.journal_format.envelopes import Source
from plugins.protocols.journal_format.packing import PackedBodies

Batches: TypeAlias = Sequence[tuple[Any, int, Source]]
"""Each item: a batch, the time at which it was received (microseconds since 1970 UTC), and its source."""

_PREPARED = 65536
"""Rows of the prepared offset columns, from which slices are taken.  Longer columns are built when needed."""
# Prepared once: a slice of it costs nothing, and an addition to it runs in C.
_NUMBERS = pa.Array.from_buffers(pa.int64(), _PREPARED, [None, pa.py_buffer(array("q", range(_PREPARED)))])
_PARTS = pa.list_(pa.int32())


def offsets_from(first: int, rows: int) -> pa.Array:
    """Return the column of offsets ``first``, ``first + 1`` … for ``rows`` rows."""
    if rows > _PREPARED:
        return pa.array(range(first, first + rows), pa.int64())
    # Imported when it is used: it takes long, and a reader of few rows never needs it.
    from pyarrow import compute

    return compute.add(_NUMBERS.slice(0, rows), pa.scalar(first, pa.int64()))


def filled(code: str, kind: pa.DataType, values: list[int], counts: list[int], rows: int) -> pa.Array:
    """Return a column in which each of ``values`` is repeated as often as the same item of ``counts`` says.

    ``code`` is the type code of the module ``array``; it must have the width of ``kind``.
    """
    if len(values) == rows:  # each batch has one message
        numbers = array(code, values)
    # All have the same value, as with one envelope: a repetition in C.
    elif values.count(values[0]) == len(values):
        numbers = array(code, values[:1]) * rows
    else:
        numbers = array(code)
        for value, count in zip(values, counts, strict=True):
            # A loop over the batches, not over the messages.
            numbers += array(code, (value,)) * count
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(numbers)])


class OffsetColumns:
    """Builds columns of consecutive offsets.  Most are slices of a longer column that was built before."""

    def __init__(self) -> None:
        self._prepared: tuple[int, Any] = (0, _NUMBERS)

    def make(self, first: int, rows: int) -> pa.Array:
        """Return what ``offsets_from(first, rows)`` returns."""
        start, column = self._prepared
        if rows > _PREPARED:
            return offsets_from(first, rows)
        # Offsets grow from commit to commit, so a prepared column serves several commits.
        if not start <= first <= start + _PREPARED - rows:
            start, column = self._prepared = (first, offsets_from(first, _PREPARED))
        return column.slice(first - start, rows)


class BodyColumns:
    """Builds the columns ``body`` and ``parts`` (the sizes of a message's parts; null for a single part)."""

    def __init__(self) -> None:
        self._stops: tuple[int, Any] = (0, _NUMBERS)

    def make(self, batches: Batches, rows: int) -> tuple[pa.Array, pa.Array]:
        """Return the columns ``parts`` and ``body`` of ``rows`` messages."""
        if any(batch.multipart for batch, _, _ in batches):
            # Rare, and slow: a loop over the messages.
            return _with_parts(batches)
        fragments = [
            self._packed(bodies) if isinstance(bodies, PackedBodies) else pa.array(bodies, pa.binary())
            for bodies in _joined(batch.bodies for batch, _, _ in batches)
        ]
        return pa.nulls(rows, _PARTS), fragments[0] if len(fragments) == 1 else pa.concat_arrays(fragments)

    def _packed(self, bodies: PackedBodies) -> pa.Array:
        """Return a column over the memory of packed bodies, without a copy."""
        count, width = len(bodies), bodies.width
        before, stops = self._stops
        if before != width or len(stops) <= count:
            # A width that is used for the second time gets a long column, of which later calls take slices.
            stops = _multiples(width, max(count + 1, _PREPARED) if before == width else count + 1)
            self._stops = (width, stops)
        # Arrow's binary column is a buffer of bodies and a column of their ends.  For bodies of one width the
        # ends are multiples of it, and a slice from 0 begins at the start of its buffer.
        ends = stops.slice(0, count + 1).buffers()[1]
        return pa.Array.from_buffers(pa.binary(), count, [None, ends, pa.py_buffer(bodies.octets())])


def _multiples(width: int, count: int) -> pa.Array:
    """Return the column 0, ``width``, twice ``width`` … with ``count`` values, as int32."""
    from pyarrow import compute

    return compute.multiply(offsets_from(0, count), pa.scalar(width, pa.int64())).cast(pa.int32())


def _joined(bodies_of_batches: Iterable[Any]) -> list[PackedBodies | list[Any]]:
    """Join neighbouring lists, and neighbouring packed bodies that are adjacent in memory."""
    fragments: list[PackedBodies | list[Any]] = []
    for bodies in bodies_of_batches:
        last = fragments[-1] if fragments else None
        if isinstance(bodies, PackedBodies):
            # The packer fills its buffer from batch to batch, so the bodies of several batches are mostly one
            # block of memory and become one column without a copy.
            joined = last.joined(bodies) if isinstance(last, PackedBodies) else None
            if joined is None:
                fragments.append(bodies)
            else:
                fragments[-1] = joined
        elif isinstance(last, list):
            last += bodies
        else:
            # A copy, since it may be extended; the batch is also in other pipes.
            fragments.append(list(bodies))
    return fragments


def _with_parts(batches: Batches) -> tuple[pa.Array, pa.Array]:
    sizes: list[list[int] | None] = []
    bodies: list[Any] = []
    for batch, _, _ in batches:
        if batch.multipart:
            sizes += [[len(part) for part in parts] for parts in batch.bodies]
            bodies += map(b"".join, batch.bodies)
        else:
            sizes += [None] * len(batch.bodies)
            bodies += batch.bodies
    return pa.array(sizes, _PARTS), pa.array(bodies, pa.binary())
