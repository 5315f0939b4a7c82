"""Which TSNs have arrived, and which are missing (RFC 9260, 3.3.4)."""

from __future__ import annotations

from bisect import bisect_right

from plugins.protocols.sctp.sequence import MASK16

_MAX_RANGES = 1000
"""Ranges of TSNs above the cumulative one.

A chunk that would open one more is dropped, and retransmitted by the peer; without a limit, a peer that sends
every second TSN would make each lookup and each SACK long.
"""


class Received:
    """All TSNs up to ``cumulative``, and some ranges above it. TSNs do not wrap here (see ``sequence``)."""

    def __init__(self, first: int) -> None:
        self.cumulative = first - 1
        self._starts: list[int] = []
        self._ends: list[int] = []

    def has_gaps(self) -> bool:
        return bool(self._starts)

    def highest(self) -> int:
        return self._ends[-1] if self._ends else self.cumulative

    def knows(self, tsn: int) -> bool:
        if tsn <= self.cumulative:
            return True
        at = bisect_right(self._starts, tsn) - 1
        return at >= 0 and tsn <= self._ends[at]

    def add(self, tsn: int) -> bool:
        """Record a new TSN; return False if it would open more gaps than are stored."""
        # The common case, without a search.
        if tsn == self.cumulative + 1:
            self.advance(tsn)
            return True
        at = bisect_right(self._starts, tsn)
        joins_left = at > 0 and self._ends[at - 1] == tsn - 1
        joins_right = at < len(self._starts) and self._starts[at] == tsn + 1
        if joins_left and joins_right:
            self._ends[at - 1] = self._ends[at]
            del self._starts[at], self._ends[at]
        elif joins_left:
            self._ends[at - 1] = tsn
        elif joins_right:
            self._starts[at] = tsn
        # Further ahead a gap block could not name the TSN: it would never be acknowledged.
        elif len(self._starts) < _MAX_RANGES and tsn - self.cumulative <= MASK16:
            self._starts.insert(at, tsn)
            self._ends.insert(at, tsn)
        else:
            return False
        return True

    def advance(self, cumulative: int) -> None:
        """Take all TSNs up to ``cumulative`` as received, and those that follow without a gap."""
        self.cumulative = max(self.cumulative, cumulative)
        # The gap may have been the last one in front of ranges that have arrived.
        while self._starts and self._starts[0] <= self.cumulative + 1:
            self.cumulative = max(self.cumulative, self._ends[0])
            del self._starts[0], self._ends[0]

    def ranges(self) -> int:
        return len(self._starts)

    def gaps(self, most: int) -> tuple[tuple[int, int], ...]:
        """Return the first ``most`` ranges as gap blocks: offsets from ``cumulative``, which have 16 bits."""
        near = zip(self._starts[:most], self._ends[:most], strict=True)
        base = self.cumulative
        # A range may grow beyond 16 bits when its right end is extended.
        return tuple((start - base, min(end - base, MASK16)) for start, end in near if start - base <= MASK16)
