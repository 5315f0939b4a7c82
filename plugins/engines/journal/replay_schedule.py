"""The schedule of a replay: when each batch is due, and which position is reached.

Without clock and port.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from kernel.contracts.message import Batch

_MICROSECONDS = 1_000_000


class ReplaySchedule:
    """A queue of batches, due at the intervals at which they were received.

    The intervals are divided by ``speed``; 0: all batches are due at once.

    The first batch is due when it is first asked for; all other due times count from there.
    """

    def __init__(self, speed: float) -> None:
        self.sent = 0
        """The number of messages that ``due`` has returned."""
        self.waiting = 0
        """The number of messages that it has not returned yet."""
        self.waiting_bytes = 0
        """The bytes of their bodies."""
        self._speed = speed
        self._batches: deque[tuple[int, Batch]] = deque()
        self._marks: deque[tuple[int, int]] = deque()
        """Pairs (count, offset): after ``count`` messages everything before ``offset`` has been replayed."""
        self._began: float | None = None
        self._first = 0

    def add(self, batches: Sequence[tuple[int, Batch]], end: int) -> None:
        """Append batches, each with its time in microseconds; ``end`` is the offset after them."""
        self._batches.extend(batches)
        self.waiting += sum(len(batch.bodies) for _, batch in batches)
        self.waiting_bytes += sum(batch.size for _, batch in batches)
        # Also without batches: rows that were left out are done when all messages before them are.
        self._marks.append((self.sent + self.waiting, end))

    def due(self, now: float, most: int) -> list[Batch]:
        """Return the batches that are due at ``now`` (seconds).

        The batch that reaches ``most`` messages is the last one.
        """
        batches: list[Batch] = []
        while self._batches and most > 0:
            # Only whole batches are sent, so it may be more than ``most`` messages.
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
        """Return the time at which the next batch is due (on the clock of ``now``); None if there is none."""
        if not self._batches:
            return None
        if not self._speed:
            return now
        ts = self._batches[0][0]
        # Counted from the first message that is sent, not from the start of the engine: reading ahead takes
        # time.
        if self._began is None:
            self._began, self._first = now, ts
        # From the beginning and not from the batch before: otherwise each delay would shift all that follows.
        return self._began + (ts - self._first) / _MICROSECONDS / self._speed

    def position(self, count: int) -> int | None:
        """Return the offset before which all is done after ``count`` messages; None if it has not changed."""
        offset = None
        while self._marks and self._marks[0][0] <= count:
            offset = self._marks.popleft()[1]
        return offset
