"""Which numbers of a sequence were seen: gaps and repetitions."""

from __future__ import annotations

from enum import Enum

from kernel.contracts.dissecting.latest import Latest

HOLES = 10_000
"""Missing numbers that are remembered. Older ones stay counted as missing."""


class Seen(Enum):
    """What a number is, compared with earlier ones."""

    NEW = "higher than all before"
    LATE = "fills a gap"
    AGAIN = "seen before"


class SequenceWatch:
    """A sequence of so many bits, which wraps."""

    def __init__(self, bits: int = 32) -> None:
        self.missing: int = 0
        """Numbers between the first and the highest that were not seen."""
        self._half = 1 << (bits - 1)
        self._mask = (1 << bits) - 1
        self._first = 0
        self._highest: int | None = None
        self._holes: Latest[int, bool] = Latest(HOLES)

    def see(self, number: int) -> Seen:
        """Process the next number as it is on the wire."""
        if self._highest is None:
            self._highest = self._first = number
            return Seen.NEW
        whole = self.unwrapped(number)
        ahead = whole - self._highest
        if ahead > 0:
            self.missing += ahead - 1
            # A forged number may be half of the sequence ahead; only the last HOLES are remembered.
            for hole in range(max(self._highest + 1, whole - HOLES), whole):
                self._holes.put(hole, True)
            self._highest = whole
            return Seen.NEW
        if self._holes.pop(whole):
            self.missing -= 1
            return Seen.LATE
        # The capture began in the middle: a number before the first one was not seen, and does not count as
        # missing.
        return Seen.LATE if whole < self._first else Seen.AGAIN

    def unwrapped(self, number: int) -> int:
        """Return the integer nearest to the highest number that has these low bits."""
        highest = self._highest or 0
        return highest + ((number - highest + self._half) & self._mask) - self._half
