"""Intervals: a set of positions, as sorted ranges that neither overlap nor touch.

A queue's positions are added in order and mostly removed in order.  So there are few ranges whatever the
number of messages, and both ends are found without a search.

A queue from which every other message was taken has very many ranges.  Ranges that are removed at the front
are therefore skipped (``_front``) and cut off later, many at a time: to delete the first item of a list moves
all others, and to purge such a queue would take time in the square of its ranges.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

_FEW = 64
"""So many skipped ranges are not worth cutting off."""


class Intervals:
    """Ranges ``[first, stop)`` of whole numbers."""

    __slots__ = ("_front", "_starts", "_stops")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        self._front = 0
        """Ranges at the front of both lists that were removed."""
        for first, stop in ranges:
            self.add(first, stop)

    def __bool__(self) -> bool:
        return len(self._starts) > self._front

    def __len__(self) -> int:
        return sum(self._stops[self._front :]) - sum(self._starts[self._front :])

    def __repr__(self) -> str:
        return f"Intervals({self.ranges()!r})"

    def ranges(self) -> list[tuple[int, int]]:
        """Return the ranges in order."""
        return list(zip(self._starts[self._front :], self._stops[self._front :], strict=True))

    @property
    def stop(self) -> int:
        """One more than the highest number; 0 if there is none."""
        return self._stops[-1] if self else 0

    def add(self, first: int, stop: int) -> None:
        """Add the numbers from ``first`` up to ``stop``."""
        if first >= stop:
            return
        starts, stops, front = self._starts, self._stops, self._front
        # New positions are the highest ones: the usual case, without a search.
        if front == len(stops) or first > stops[-1]:
            starts.append(first)
            stops.append(stop)
            return
        if first == stops[-1]:
            stops[-1] = stop
            return
        # The ranges from ``low`` up to ``high`` overlap the new one or touch it.  ``bisect_left`` and
        # ``bisect_right`` are chosen so that touching counts.
        low = bisect_left(stops, first, front)
        high = bisect_right(starts, stop, front)
        if low < high:
            first = min(first, starts[low])
            stop = max(stop, stops[high - 1])
        starts[low:high] = [first]
        stops[low:high] = [stop]

    def remove(self, first: int, stop: int) -> None:
        """Remove the numbers from ``first`` up to ``stop``; numbers that are not in the set are ignored."""
        starts, stops, front = self._starts, self._stops, self._front
        if front == len(starts) or first >= stop:
            return
        # From the front: the usual case, as consumers acknowledge in order.
        if first <= starts[front] < stop < stops[front]:
            starts[front] = stop
            return
        # Here touching does not count.  At most the first and the last of these ranges keep a part.
        low = bisect_right(stops, first, front)
        high = bisect_left(starts, stop, front)
        if low >= high:
            return
        stored = []
        if starts[low] < first:
            stored.append((starts[low], first))
        if stop < stops[high - 1]:
            stored.append((stop, stops[high - 1]))
        if low == front:
            # Skip what is gone.  What is left takes the last of the places.
            self._front = low = max(low, high - len(stored))
        starts[low:high] = [start for start, _ in stored]
        stops[low:high] = [end for _, end in stored]
        self._cut_off()

    def _cut_off(self) -> None:
        # Half of the list: then each range is moved about once.
        if self._front > _FEW and self._front * 2 > len(self._starts):
            del self._starts[: self._front], self._stops[: self._front]
            self._front = 0

    def overlaps(self, first: int, stop: int) -> bool:
        """Whether any number from ``first`` up to ``stop`` is in the set."""
        index = bisect_right(self._stops, first, self._front)
        return index < len(self._starts) and self._starts[index] < stop

    def within(self, first: int, stop: int) -> list[tuple[int, int]]:
        """Return what is in the set from ``first`` up to ``stop``, as ranges."""
        starts, stops = self._starts, self._stops
        found = []
        for index in range(bisect_right(stops, first, self._front), len(starts)):
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
        starts, stops = self._starts, self._stops
        low, high = bisect_right(stops, first, self._front), bisect_left(starts, stop, self._front)
        if low >= high:
            return 0
        # All ranges that overlap, less what the first and the last one have outside.
        whole = sum(stops[low:high]) - sum(starts[low:high])
        return whole - max(0, first - starts[low]) - max(0, stops[high - 1] - stop)
