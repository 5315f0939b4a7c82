"""A pool of page-aligned buffers for encoded commits.

Buffers are reused because new memory from the system costs more than writing to it: a quarter of a
microsecond for a page of 4 KiB, and on a virtual machine up to nine (2026-11-21).
"""

from __future__ import annotations

import mmap

PAGE = 4096
"""Bytes.  Direct I/O reads and writes whole pages, at multiples of this in the file and in memory."""

_FREE_BUFFERS = 2
"""The pool keeps at most two free buffers: while one commit is written to the disk, the next one is
encoded."""

_LARGEST = 4 << 20
"""Largest buffer in bytes that the pool keeps."""


class BufferPool:
    """Gives out buffers and takes them back, in any thread."""

    def __init__(self) -> None:
        self._free: list[mmap.mmap] = []

    def take(self, size: int) -> memoryview:
        """Return ``size`` bytes that begin at a page boundary.  Their contents are undefined."""
        try:
            # Two threads may be here: one takes, another gives back.  A list's ``pop`` and ``append`` are
            # atomic.
            buffer = self._free.pop()
        except IndexError:
            buffer = None
        # A buffer that is too small is dropped.  Sizes of commits are similar, so that is rare.
        if buffer is None or len(buffer) < size:
            # Anonymous memory begins at a page boundary, which ``bytearray`` does not promise; direct I/O
            # needs it.
            buffer = mmap.mmap(
                -1, max(-size % PAGE + size, 1 << 20), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
            )
        return memoryview(buffer)[:size]

    def give_back(self, memory: memoryview) -> None:
        """Take back the buffer of which ``memory`` is any part.  Nobody may use it after this call."""
        # A slice of a memoryview refers to the same object as the view that was given out.
        buffer = memory.obj
        if isinstance(buffer, mmap.mmap) and len(buffer) <= _LARGEST and len(self._free) < _FREE_BUFFERS:
            self._free.append(buffer)
