"""How many random courses a test tries: seeds of simulations, and examples of hypothesis.

``KERNEL_SEEDS`` says how many times as many as in CI: 0.1 in ``make quick``, 0.25 in ``make test``, 10 for a night.  A course is the same
for the same seed, so a run with more of them finds what a run with fewer has missed, and repeats it.
"""

from __future__ import annotations

import os

FACTOR = float(os.environ.get("KERNEL_SEEDS", "1"))


def many(first: int, count: int) -> range:
    """Return ``count`` seeds from ``first``, or ``KERNEL_SEEDS`` times as many."""
    return range(first, first + _times(count))


def in_groups(seeds: range, size: int) -> list[range]:
    """Divide seeds into groups for one test each: a test that is too short costs more than it tests."""
    return [seeds[at : at + size] for at in range(0, len(seeds), size)]


def examples(count: int = 100) -> int:
    """Return hypothesis' ``max_examples`` for a test that usually has ``count``."""
    return _times(count)


def spread(values: range) -> range:
    """Return all values, or with a factor below one every n-th of them."""
    return values[:: max(round(1 / FACTOR), 1)]


def _times(count: int) -> int:
    return max(round(count * FACTOR), 1)
