"""In flight: what was published and is not confirmed yet.

The server counts messages by delivery tag, in the order in which they were sent to it; the port numbers them by position,
in the order in which they were taken.  The two differ as soon as the server has refused one and it was sent again.  The
port is told of confirmations in its own order: of a position when all before it are done.
"""

from __future__ import annotations

from collections import deque

import msgspec

from kernel.contracts.message import Batch

NOWHERE = 0
"""The position of messages of which the port does not want to hear again: no route in confirms."""


class Flight(msgspec.Struct, gc=False):
    """A batch under consecutive tags, and the port's position of its first message."""

    first_tag: int
    position: int
    batch: Batch

    def cut(self, start: int, stop: int) -> Flight:
        """Return a part of it."""
        position = self.position and self.position + start
        return Flight(self.first_tag + start, position, self.batch.slice(start, stop))


class InFlight:
    """Tags and positions of one channel, from its opening to its end."""

    def __init__(self) -> None:
        self.count = 0
        """Messages that the server has not answered for."""
        self._flights: deque[Flight] = deque()
        self._next_tag = 1
        self._taken = 0
        """The position of the last message taken that somebody waits for."""
        self._done = 0
        """The position up to which all is done."""
        self._early: dict[int, int] = {}
        """What is done behind a gap: its first position and its last."""

    def expect(self, first: int, last: int) -> None:
        """The port waits for what was taken: positions ``first`` to ``last``."""
        if (
            first != self._taken + 1
        ):  # in between nobody waited: then all before was confirmed, or counts no more
            self._early.clear()
            self._done = first - 1
        self._taken = last

    def add(self, batch: Batch, position: int) -> None:
        """A batch is published."""
        size = len(batch.bodies)
        self._flights.append(Flight(self._next_tag, position, batch))
        self._next_tag += size
        self.count += size

    def nobodys(self) -> int:
        """Return how many messages are in flight for which nobody waits."""
        return sum(len(flight.batch.bodies) for flight in self._flights if flight.position == NOWHERE)

    def only(self) -> Flight | None:
        """Return what is in flight if that is a single message."""
        return self._flights[0] if self.count == 1 else None

    def answered(self, first: int, last: int, multiple: bool) -> list[Flight]:
        """Take out what the server has answered for: all up to ``last`` (0: all), or ``first`` to ``last``."""
        if multiple:
            first, last = 0, last or self._next_tag - 1
        found: list[Flight] = []
        before: list[Flight] = []
        while self._flights and self._flights[0].first_tag <= last:
            flight = self._flights.popleft()
            size = len(flight.batch.bodies)
            start = min(max(first - flight.first_tag, 0), size)
            stop = min(last + 1 - flight.first_tag, size)
            if start:
                before.append(flight if start == size else flight.cut(0, start))
            if start < stop:
                found.append(flight if stop - start == size else flight.cut(start, stop))
                self.count -= stop - start
            if max(start, stop) < size:
                self._flights.appendleft(flight.cut(stop, size))
                break
        self._flights.extendleft(reversed(before))
        return found

    def settle(self, position: int, count: int) -> int:
        """``count`` messages from ``position`` on are done; return the position up to which all are."""
        if count and position > self._done:
            self._early[position] = position + count - 1
            while (last := self._early.pop(self._done + 1, None)) is not None:
                self._done = last
        return self._done
