"""Pseudo-random numbers from a seed (splitmix64), since a protocol has no generator of its own."""

from __future__ import annotations

_MASK = (1 << 64) - 1


class Chance:
    """A sequence of numbers that is the same for the same seed."""

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def below(self, limit: float) -> float:
        """Return a number from 0 (included) to ``limit`` (excluded)."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & _MASK
        return ((mixed ^ mixed >> 31) >> 11) / (1 << 53) * limit
