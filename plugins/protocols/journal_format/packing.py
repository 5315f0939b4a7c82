"""Packing: small bodies of one size are copied side by side as soon as they come, and let go.

Who takes messages has them at hand; whoever encodes them milliseconds later, on another core, finds each one anew, and
meanwhile their memory could not be used again.  Side by side they are a column already.  For messages of 100 bytes (2026-11-21)
packing takes 10 ns, making a column of single bodies later 65 ns, and memory that is used again at once as much again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from kernel.contracts.loan import lend
from kernel.contracts.message import Batch

WORTH_PACKING = 64
"""Messages: a batch of fewer is left as it is."""

LARGEST_PACKED = 512
"""Bytes of a body: larger ones are few, and copied twice cost more than they save."""

_ROOM = 1 << 20
_KEPT = 8


class PackedBodies(Sequence[bytes]):
    """Bodies of ``width`` bytes side by side in memory."""

    __slots__ = ("_count", "_memory", "_start", "width")

    def __init__(self, memory: memoryview, start: int, count: int, width: int) -> None:
        self._memory = memory
        """The same for all bodies in one room, which is in use as long as this is."""
        self._start = start
        self._count = count
        self.width = width

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> PackedBodies: ...
    def __getitem__(self, at: int | slice) -> bytes | PackedBodies:
        if isinstance(at, slice):
            start, stop, step = at.indices(self._count)
            if step != 1:
                raise ValueError("packed bodies are cut in one piece")
            return PackedBodies(
                self._memory, self._start + start * self.width, max(stop - start, 0), self.width
            )
        begin = self._start + range(self._count)[at] * self.width
        return bytes(self._memory[begin : begin + self.width])

    def octets(self) -> memoryview:
        """All of them, one behind the other."""
        return self._memory[self._start : self._start + self._count * self.width]

    def joined(self, following: PackedBodies) -> PackedBodies | None:
        """These and those as one, if ``following`` are of the same width and come next in memory."""
        end = self._start + self._count * self.width
        if following._memory is not self._memory or following._start != end or following.width != self.width:
            return None
        return PackedBodies(self._memory, self._start, self._count + following._count, self.width)


class Packer:
    """Packs batches, into memory that is used again as soon as nobody holds what is in it.  One thread."""

    def __init__(self) -> None:
        self._free: list[bytearray] = []
        self._memory = memoryview(b"")
        self._used = 0

    def pack(self, batch: Batch) -> Batch:
        """Return the batch with its bodies packed, or as it is."""
        bodies: Any = batch.bodies
        width = batch.width
        if not 0 < width <= LARGEST_PACKED or len(bodies) < WORTH_PACKING:
            return batch
        start, end = self._used, self._used + batch.size
        if end > len(self._memory):
            self._memory = self._room(batch.size)
            start, end = 0, batch.size
        self._memory[start:end] = b"".join(bodies)
        self._used = end
        return Batch(
            PackedBodies(self._memory, start, len(bodies), width), batch.size, batch.envelope, False, width
        )

    def _room(self, size: int) -> memoryview:
        """Return memory that nobody uses; it is for others again when the last reference to just this view is gone."""
        self._memory = memoryview(b"")  # perhaps the last reference to the one before
        try:
            room = self._free.pop()
        except IndexError:
            room = bytearray(_ROOM)
        if len(room) < size:
            room = bytearray(size)
        return lend(room, lambda: self._give_back(room))

    def _give_back(self, room: bytearray) -> None:
        """Any thread."""
        if len(self._free) < _KEPT:
            self._free.append(room)
