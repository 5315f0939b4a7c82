"""In flight: what was published and is not confirmed yet.

The server counts messages by delivery tag, in the order in which they were sent to it; the port counts
them by *place*, in the order in which they were taken.  The two differ as soon as the server has refused one
and it was sent again.  The port is told of confirmations in its own order: of a place when all before are done.
"""

from __future__ import annotations

from collections import deque

import msgspec

from kernel.contracts.message import Batch

NOWHERE = -1
"""The place of messages of which the port does not want to hear again: no route in confirms."""


class Flight(msgspec.Struct, gc=False):
    """A batch under consecutive tags, and its first message's place."""

    first_tag: int
    place: int
    batch: Batch

    def cut(self, start: int, stop: int) -> Flight:
        """Return a part of it."""
        place = self.place if self.place == NOWHERE else self.place + start
        return Flight(self.first_tag + start, place, self.batch.slice(start, stop))


class InFlight:
    """Tags and places of one channel, from its opening to its end."""

    def __init__(self) -> None:
        self.count = 0
        """Messages that the server has not answered for."""
        self._flights: deque[Flight] = deque()
        self._next_tag = 1
        self._next_place = 0
        self._settled = 0
        self._early: dict[int, int] = {}
        """What is done behind a gap: from which place to which."""

    def new_place(self, count: int) -> int:
        """Return the place of the first of ``count`` messages that were taken."""
        place = self._next_place
        self._next_place += count
        return place

    def add(self, batch: Batch, place: int) -> None:
        """A batch is published."""
        size = len(batch.bodies)
        self._flights.append(Flight(self._next_tag, place, batch))
        self._next_tag += size
        self.count += size

    def forget_places(self) -> None:
        """The port does not want to hear of any of these again."""
        for flight in self._flights:
            flight.place = NOWHERE
        self._early.clear()
        self._settled = self._next_place

    def nobodys(self) -> int:
        """Return how many messages are in flight for which nobody waits."""
        return sum(len(flight.batch.bodies) for flight in self._flights if flight.place == NOWHERE)

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

    def settle(self, place: int, count: int) -> int:
        """These places are done; return how many more the port may be told of."""
        if place == NOWHERE or not count:
            return 0
        self._early[place] = place + count
        before = self._settled
        while (stop := self._early.pop(self._settled, None)) is not None:
            self._settled = stop
        return self._settled - before
