"""Ranges of integers, first and last, that rise and do not touch."""

from __future__ import annotations

from collections.abc import Sequence

Range = tuple[int, int]


def without(ranges: Sequence[Range], others: Sequence[Range]) -> list[Range]:
    """Return what of ``ranges`` is in none of the ``others``."""
    left = []
    at = 0
    for first, last in ranges:
        while at < len(others) and others[at][1] < first:
            at += 1
        for other_first, other_last in others[at:]:
            if other_first > last:
                break
            if other_first > first:
                left.append((first, other_first - 1))
            first = max(first, other_last + 1)
        if first <= last:
            left.append((first, last))
    return left
