"""Intervals: a set of positions, as sorted ranges that neither overlap nor touch.

A queue's positions are added in order and mostly removed in order.  So there are few ranges whatever the
number of messages, and both ends are found without a search.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable


class Intervals:
    """Ranges ``[first, stop)`` of whole numbers."""

    __slots__ = ("starts", "stops")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self.starts: list[int] = []
        self.stops: list[int] = []
        for first, stop in ranges:
            self.add(first, stop)

    def __bool__(self) -> bool:
        return bool(self.starts)

    def __len__(self) -> int:
        return sum(self.stops) - sum(self.starts)

    def __repr__(self) -> str:
        return f"Intervals({self.ranges()!r})"

    def ranges(self) -> list[tuple[int, int]]:
        """Return the ranges in order."""
        return list(zip(self.starts, self.stops, strict=True))

    def add(self, first: int, stop: int) -> None:
        """Add the numbers from ``first`` up to ``stop``."""
        if first >= stop:
            return
        starts, stops = self.starts, self.stops
        # New positions are the highest ones: the usual case, without a search.
        if not stops or first > stops[-1]:
            starts.append(first)
            stops.append(stop)
            return
        if first == stops[-1]:
            stops[-1] = stop
            return
        # The ranges from ``low`` up to ``high`` overlap the new one or touch it.  ``bisect_left`` and
        # ``bisect_right`` are chosen so that touching counts.
        low = bisect_left(stops, first)
        high = bisect_right(starts, stop)
        if low < high:
            first = min(first, starts[low])
            stop = max(stop, stops[high - 1])
        starts[low:high] = [first]
        stops[low:high] = [stop]

    def remove(self, first: int, stop: int) -> None:
        """Remove the numbers from ``first`` up to ``stop``; numbers that are not in the set are ignored."""
        starts, stops = self.starts, self.stops
        if not starts or first >= stop:
            return
        # From the front: the usual case, as consumers acknowledge in order.
        if first <= starts[0] < stop < stops[0]:
            starts[0] = stop
            return
        # Here touching does not count.  At most the first and the last of these ranges keep a part.
        low = bisect_right(stops, first)
        high = bisect_left(starts, stop)
        if low >= high:
            return
        stored = []
        if starts[low] < first:
            stored.append((starts[low], first))
        if stop < stops[high - 1]:
            stored.append((stop, stops[high - 1]))
        starts[low:high] = [start for start, _ in stored]
        stops[low:high] = [end for _, end in stored]

    def overlaps(self, first: int, stop: int) -> bool:
        """Whether any number from ``first`` up to ``stop`` is in the set."""
        index = bisect_right(self.stops, first)
        return index < len(self.starts) and self.starts[index] < stop

    def within(self, first: int, stop: int) -> list[tuple[int, int]]:
        """Return what is in the set from ``first`` up to ``stop``, as ranges."""
        starts, stops = self.starts, self.stops
        found = []
        for index in range(bisect_right(stops, first), len(starts)):
            if starts[index] >= stop:
                break
            found.append((max(first, starts[index]), min(stop, stops[index])))
        return found

    def missing(self, first: int, stop: int) -> list[tuple[int, int]]:
        """Return what is not in the set from ``first`` up to ``stop``, as ranges."""
        gaps = []
        for start, end in self.within(first, stop):
            if first < start:
                gaps.append((first, start))
            first = end
        if first < stop:
            gaps.append((first, stop))
        return gaps

    def count(self, first: int, stop: int) -> int:
        """Return how many numbers from ``first`` up to ``stop`` are in the set."""
        starts, stops = self.starts, self.stops
        low, high = bisect_right(stops, first), bisect_left(starts, stop)
        if low >= high:
            return 0
        # All ranges that overlap, less what the first and the last one have outside.
        whole = sum(stops[low:high]) - sum(starts[low:high])
        return whole - max(0, first - starts[low]) - max(0, stops[high - 1] - stop)
