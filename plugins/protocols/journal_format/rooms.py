"""Rooms: memory to put commits into, used again and again.

What is new from the system costs more than filling it: a page of 4 KiB a quarter of a microsecond, and on a virtual machine up
to nine (2026-11-21).
"""

from __future__ import annotations

import mmap

PAGE = 4096
"""Bytes.  What is written around the system's cache begins and ends at multiples of this, in the file and in memory."""

_KEPT = 2
"""Rooms: one that is written to the disk, and one that is filled."""

_LARGEST = 4 << 20
"""Bytes of a room that is kept."""


class Rooms:
    """Gives memory, and takes it back, from whichever thread."""

    def __init__(self) -> None:
        self._free: list[mmap.mmap] = []

    def take(self, size: int) -> memoryview:
        """Return ``size`` bytes of memory at the beginning of a page, with anything in them."""
        try:
            room = self._free.pop()
        except IndexError:
            room = None
        if room is None or len(room) < size:
            room = mmap.mmap(
                -1, max(-size % PAGE + size, 1 << 20), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
            )
        return memoryview(room)[:size]

    def give_back(self, memory: memoryview) -> None:
        """Take back the memory that any part of what was taken is in; nobody may look at it any more."""
        room = memory.obj
        if isinstance(room, mmap.mmap) and len(room) <= _LARGEST and len(self._free) < _KEPT:
            self._free.append(room)
