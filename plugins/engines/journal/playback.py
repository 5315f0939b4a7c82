"""Playback: when which batch is due, and what position that makes.  Knows no clock and no port: it is asked."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from kernel.contracts.message import Batch

_MICROSECONDS = 1_000_000


class Playback:
    """Batches in order, as far apart as they were recorded, divided by ``speed``; 0: all at once."""

    def __init__(self, speed: float) -> None:
        self.sent = 0
        """Messages that ``due`` has returned."""
        self.waiting = 0
        """Messages that it has not."""
        self.waiting_bytes = 0
        """Of their bodies."""
        self._speed = speed
        self._batches: deque[tuple[int, Batch]] = deque()
        self._marks: deque[tuple[int, int]] = deque()
        """After how many messages everything before which offset has been played."""
        self._began: float | None = None
        self._first = 0

    def add(self, batches: Sequence[tuple[int, Batch]], end: int) -> None:
        """Put batches, each with its time in microseconds, behind those that are here; ``end`` is the offset after them."""
        self._batches.extend(batches)
        self.waiting += sum(len(batch.bodies) for _, batch in batches)
        self.waiting_bytes += sum(batch.size for _, batch in batches)
        self._marks.append((self.sent + self.waiting, end))

    def due(self, now: float, most: int) -> list[Batch]:
        """Return the batches that are due at ``now``, with about ``most`` messages."""
        batches: list[Batch] = []
        while self._batches and most > 0:
            due = self.next_due(now)
            if due is None or due > now:
                break
            batch = self._batches.popleft()[1]
            count = len(batch.bodies)
            most -= count
            self.sent += count
            self.waiting -= count
            self.waiting_bytes -= batch.size
            batches.append(batch)
        return batches

    def next_due(self, now: float) -> float | None:
        """Return when the next batch is due; None: there is none.  The first one is due at once."""
        if not self._batches:
            return None
        if not self._speed:
            return now
        ts = self._batches[0][0]
        if self._began is None:
            self._began, self._first = now, ts
        return self._began + (ts - self._first) / _MICROSECONDS / self._speed

    def position(self, count: int) -> int | None:
        """Return before which offset everything is done when ``count`` messages are; None: before none that is new."""
        offset = None
        while self._marks and self._marks[0][0] <= count:
            offset = self._marks.popleft()[1]
        return offset
