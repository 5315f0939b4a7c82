"""How many bytes to ask for in one read: few while the flow is thin, many while it is thick."""

from __future__ import annotations

READ_SIZE = 256 * 1024
"""Bytes asked for in one read of a thick flow.  Fewer cost calls, more leave the cache."""

FIRST_READ_SIZE = 16 * 1024
"""Bytes asked for in one read of a thin flow: a large buffer for a small message costs an mmap and a munmap."""


def next_read_size(size: int, got: int, asked: int) -> int:
    """Return how many bytes to ask for from now on: it was ``size``, and a read of ``asked`` has given ``got``."""
    if got == asked:
        return min(4 * size, READ_SIZE)
    return FIRST_READ_SIZE if got < FIRST_READ_SIZE // 4 else size
