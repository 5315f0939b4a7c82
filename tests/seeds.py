"""Seeds of random courses that a test tries."""

from __future__ import annotations

import os

FACTOR = int(os.environ.get("KERNEL_SEEDS", "1"))
"""How many times as many seeds as usual.  A course is the same for the same seed, so that a run finds what has changed."""


def many(first: int, count: int) -> range:
    """Return ``count`` seeds from ``first``, or ``KERNEL_SEEDS`` times as many."""
    return range(first, first + count * FACTOR)
