"""Taken messages: what a client engine has taken from its port, until the server has answered.

A port numbers what is taken from it by position, and wants to be told the position up to which all is done.
A server answers by numbers of its own protocol.  So each batch keeps the position of its first message, on
its way through two places: ``Unsent``, while more is in flight than may be, and then a ``Flight``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TypeVar

import msgspec

from kernel.contracts.engine import Taken
from kernel.contracts.message import Batch

UNTRACKED = 0
"""The position of messages that need not be confirmed to the port, because no incoming route confirms."""
PART_SIZE = 1024
"""Messages.  A longer batch is cut into parts of this length.  It is sent a few messages at a time, and each
time the rest is copied: better that of a part than of all."""


class Unsent(deque[tuple[int, Batch]]):
    """Batches that wait to be sent, each with the position of its first message."""

    def add(self, taken: Taken, *, whole: int = PART_SIZE) -> None:
        """Append what was taken.  Batches of up to ``whole`` messages are not cut."""
        self += _parts(taken, whole)

    def add_before(self, taken: Taken) -> None:
        """Put what was taken before all the rest."""
        self.extendleft(reversed(list(_parts(taken, PART_SIZE))))

    def take(self, most: int) -> tuple[int, Batch]:
        """Remove and return the first batch, or its first ``most`` messages if it has more."""
        position, batch = self.popleft()
        size = len(batch.bodies)
        if size > most:
            # The rest stays in front: the order of the messages of a source does not change.
            self.appendleft((position and position + most, batch.slice(most, size)))
            batch = batch.slice(0, most)
        return position, batch

    def messages(self) -> int:
        """Return how many messages there are.  Any thread."""
        # A copy: the thread of the engine may change it meanwhile.
        return sum(len(batch.bodies) for _, batch in list(self))

    def untracked(self) -> list[tuple[int, Batch]]:
        """Return those that the port does not give again, because nobody waits for their confirmation."""
        return [part for part in self if part[0] == UNTRACKED]


class Flight(msgspec.Struct, gc=False):
    """A batch that was sent, the number of its first message, and the position of that."""

    first: int
    position: int
    batch: Batch

    @property
    def end(self) -> int:
        """The number behind its last message."""
        return self.first + len(self.batch.bodies)

    def positions(self, first: int, end: int) -> tuple[int, int] | None:
        """Return the positions of the messages from number ``first`` up to ``end``, the last one included.

        None: nobody waits for them.
        """
        if self.position == UNTRACKED:
            return None
        start = self.position - self.first
        return start + first, start + end - 1


F = TypeVar("F", bound=Flight)


def forget_done(flights: deque[F], front: int) -> int:
    """Remove flights of which all messages have numbers below ``front``, which are done.

    Return the position up to which all is done; ``UNTRACKED``: the port need not be told.
    """
    position = UNTRACKED
    while flights and flights[0].first < front:
        flight = flights[0]
        done = flight.positions(flight.first, min(front, flight.end))
        if done is not None:
            position = done[1]
        if flight.end > front:
            break
        flights.popleft()
    return position


def _parts(taken: Taken, whole: int) -> Iterator[tuple[int, Batch]]:
    """Yield what was taken in parts, each with the position of its first message."""
    position = UNTRACKED if taken.position is None else taken.position - taken.count + 1
    for batch in taken.batches:
        size = len(batch.bodies)
        if size <= whole:
            yield position, batch
        else:
            for start in range(0, size, PART_SIZE):
                yield position and position + start, batch.slice(start, start + PART_SIZE)
        position = position and position + size
