"""Sequence numbers of 32 bits that wrap, compared within half of their space (RFC 3208, 3.2)."""

from __future__ import annotations

MASK = 0xFFFF_FFFF
_HALF = 0x8000_0000


def after(number: int, count: int = 1) -> int:
    """Return the number ``count`` steps on; a negative count goes back."""
    return (number + count) & MASK


def distance(first: int, second: int) -> int:
    """Return how far ``second`` is ahead of ``first``, from -2**31 to 2**31 - 1."""
    return ((second - first + _HALF) & MASK) - _HALF


def span(first: int, last: int) -> list[int]:
    """Return the numbers from ``first`` to ``last``, both included; an empty list if ``last`` is behind."""
    return [(first + step) & MASK for step in range(distance(first, last) + 1)]
