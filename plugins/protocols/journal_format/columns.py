"""Columns of a commit, made without a look at each row wherever its batch says it all.

From buffers where it can be: pyarrow's ``array()`` imports pandas, if that is installed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from plugins.protocols.journal_format.envelopes import Source
from plugins.protocols.journal_format.packing import PackedBodies

Batches: TypeAlias = Sequence[tuple[Any, int, Source]]
"""Batches, when they came, and where from."""

_COUNTING = 65536
_NUMBERS = pa.Array.from_buffers(pa.int64(), _COUNTING, [None, pa.py_buffer(array("q", range(_COUNTING)))])
_PARTS = pa.list_(pa.int32())


def offsets_from(first: int, rows: int) -> pa.Array:
    """Return the column of offsets of so many rows."""
    if rows > _COUNTING:
        return pa.array(range(first, first + rows), pa.int64())
    from pyarrow import compute

    return compute.add(_NUMBERS.slice(0, rows), pa.scalar(first, pa.int64()))


def filled(code: str, kind: pa.DataType, values: list[int], counts: list[int], rows: int) -> pa.Array:
    """Return each of these numbers as often as its count says.  ``code``: of ``array``."""
    if len(values) == rows:  # batches of one
        numbers = array(code, values)
    elif values.count(values[0]) == len(values):
        numbers = array(code, values[:1]) * rows
    else:
        numbers = array(code)
        for value, count in zip(values, counts, strict=True):
            numbers += array(code, (value,)) * count
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(numbers)])


class OffsetColumns:
    """Makes columns of offsets that follow each other: parts of what was counted before, in most cases."""

    def __init__(self) -> None:
        self._counted: tuple[int, Any] = (0, _NUMBERS)

    def make(self, first: int, rows: int) -> pa.Array:
        """Return ``offsets_from``."""
        start, column = self._counted
        if rows > _COUNTING:
            return offsets_from(first, rows)
        if not start <= first <= start + _COUNTING - rows:
            start, column = self._counted = (first, offsets_from(first, _COUNTING))
        return column.slice(first - start, rows)


class BodyColumns:
    """Makes the two columns of bodies: the sizes of parts (null for a message of a single part), and the bytes."""

    def __init__(self) -> None:
        self._stops: tuple[int, Any] = (0, _NUMBERS)

    def make(self, batches: Batches, rows: int) -> tuple[pa.Array, pa.Array]:
        """Return both."""
        if any(batch.multipart for batch, _, _ in batches):
            return _with_parts(batches)
        pieces = [
            self._packed(piece) if isinstance(piece, PackedBodies) else pa.array(piece, pa.binary())
            for piece in _pieces(batch.bodies for batch, _, _ in batches)
        ]
        return pa.nulls(rows, _PARTS), pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)

    def _packed(self, bodies: PackedBodies) -> pa.Array:
        """Return what lies side by side as it lies."""
        count, width = len(bodies), bodies.width
        before, stops = self._stops
        if before != width or len(stops) <= count:
            # the second time more of them, to be sliced from then on
            stops = _multiples(width, max(count + 1, _COUNTING) if before == width else count + 1)
            self._stops = (width, stops)
        places = stops.slice(0, count + 1).buffers()[1]
        return pa.Array.from_buffers(pa.binary(), count, [None, places, pa.py_buffer(bodies.octets())])


def _multiples(width: int, count: int) -> pa.Array:
    """Return 0, ``width``, twice ``width`` ..., in 31 bits."""
    from pyarrow import compute

    return compute.multiply(offsets_from(0, count), pa.scalar(width, pa.int64())).cast(pa.int32())


def _pieces(bodies_of_batches: Iterable[Any]) -> list[PackedBodies | list[Any]]:
    """Put together what can be."""
    pieces: list[PackedBodies | list[Any]] = []
    for bodies in bodies_of_batches:
        last = pieces[-1] if pieces else None
        if isinstance(bodies, PackedBodies):
            joined = last.joined(bodies) if isinstance(last, PackedBodies) else None
            if joined is None:
                pieces.append(bodies)
            else:
                pieces[-1] = joined
        elif isinstance(last, list):
            last += bodies
        else:
            pieces.append(list(bodies))
    return pieces


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
