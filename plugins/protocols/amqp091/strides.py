"""Strides: blocks of messages that have the same size, and probably begin with the same octets."""

from __future__ import annotations

FIRST_BLOCK = 16
"""Messages in the first block that is verified at once.  After each success the next block is twice as
large."""
LARGEST_BLOCK = 1 << 16
"""Octets of a block at most: the bodies that are cut should still be in the cache when they are compared."""


def count_repeats(data: bytes, position: int, prefix: bytes, stride: int, count: int) -> int:
    """Estimate by bisection how many of ``count`` messages have the prefix, if the flow changes only once."""
    starts = data.startswith
    if starts(prefix, position + (count - 1) * stride):
        return count
    low = 0
    while low < count - 1:
        middle = (low + count) // 2
        if starts(prefix, position + (middle - 1) * stride):
            low = middle
        else:
            count = middle
    return low
