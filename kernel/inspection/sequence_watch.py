"""Which numbers of a sequence were seen: the holes in it, and what came again."""

from __future__ import annotations

from enum import Enum

from kernel.inspection.latest import Latest

HOLES = 10_000
"""So many single missing numbers are remembered; what is older counts as missing for good."""


class Seen(Enum):
    """What a number is to those before it."""

    NEW = "higher than all before"
    LATE = "one that was missing"
    AGAIN = "seen before"


class SequenceWatch:
    """A sequence of so many bits, which wraps around."""

    def __init__(self, bits: int = 32) -> None:
        self.missing: int = 0
        """Numbers between the first and the highest that were not seen."""
        self._half = 1 << (bits - 1)
        self._mask = (1 << bits) - 1
        self._first = 0
        self._highest: int | None = None
        self._holes: Latest[int, bool] = Latest(HOLES)

    def see(self, number: int) -> Seen:
        """Take the next number as it is on the wire."""
        if self._highest is None:
            self._highest = self._first = number
            return Seen.NEW
        whole = self.unwrapped(number)
        ahead = whole - self._highest
        if ahead > 0:
            self.missing += ahead - 1
            for hole in range(max(self._highest + 1, whole - HOLES), whole):
                self._holes.put(hole, True)
            self._highest = whole
            return Seen.NEW
        if self._holes.pop(whole):
            self.missing -= 1
            return Seen.LATE
        return Seen.LATE if whole < self._first else Seen.AGAIN

    def unwrapped(self, number: int) -> int:
        """Return the integer nearest to the highest that has these bits."""
        highest = self._highest or 0
        return highest + ((number - highest + self._half) & self._mask) - self._half
