"""Allocator: makes the C library keep the memory that a turn frees, because the next turn needs it again.

A turn takes a few buffers of 100 KiB and more from ``malloc`` and frees them all.  By default glibc gives
such memory back to the system each time: from 128 KiB on a buffer has a mapping of its own, and the end of a
thread's heap is given back when that much of it is free.  The next turn gets the memory again page by page:
20 to 40 page faults for 500 messages of AMQP, a third of the broker's processor time.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache

MAPPED_FROM = 1 << 20
"""Bytes from which a buffer gets a mapping of its own, and gives it back at once.  glibc itself goes up to 32
MiB: as high as the largest such buffer that it has seen freed."""

KEPT = 1 << 22
"""Bytes that the end of a thread's heap may have free before they are given back."""

# From glibc's ``malloc.h``.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_OF_THE_USER = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


@cache
def keep_freed_memory() -> bool:
    """Set it for this process, once; return whether that was done.

    Not where the user has said something about it in the environment, or where the C library has no
    ``mallopt``.
    """
    if any(name in os.environ for name in _OF_THE_USER):
        return False
    try:
        # ``None``: the libraries that the process itself is linked with. One without ``mallopt`` (musl,
        # macOS) makes this an ``AttributeError``.
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, MAPPED_FROM) and mallopt(_M_TRIM_THRESHOLD, KEPT))
