"""The sender's buffer of units for retransmission.

It has all unconfirmed units, and confirmed ones as far as there is room: a receiver that reconnects may need
them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice

import msgspec


class Unit(msgspec.Struct, frozen=True, gc=False):
    """A unit that was sent."""

    number: int
    data: bytes
    messages: int
    """Number of messages of the feed up to the end of this unit."""


class UnitBuffer:
    """Units in the order of their numbers, without gaps, of at most ``most`` bytes."""

    def __init__(self, most: int) -> None:
        self.next = 0
        """The number of the next unit."""
        self.confirmed = 0
        """The first number that is not confirmed."""
        self.messages_confirmed = 0
        self._most = most
        self._units: deque[Unit] = deque()
        self._bytes = self._unconfirmed_bytes = 0
        self._messages = 0

    @property
    def first(self) -> int:
        """The oldest number in the buffer."""
        return self.next - len(self._units)

    @property
    def full(self) -> bool:
        """Whether so many bytes are unconfirmed that nothing may be added."""
        return self._unconfirmed_bytes >= self._most

    def add(self, data: bytes, messages: int) -> Unit:
        """Number and store a unit, which completes so many messages."""
        self._messages += messages
        unit = Unit(self.next, data, self._messages)
        self.next += 1
        self._units.append(unit)
        self._bytes += len(data)
        self._unconfirmed_bytes += len(data)
        self._trim()
        return unit

    def confirm(self, number: int) -> None:
        """Confirm all units before ``number``."""
        if number <= self.confirmed:
            return
        # Numbers are consecutive, so that a number's place in the queue is its distance from the first one.
        for unit in islice(self._units, self.confirmed - self.first, number - self.first):
            self._unconfirmed_bytes -= len(unit.data)
            # The count up to the last confirmed unit: units have any number of messages, and parts of a batch
            # have 0.
            self.messages_confirmed = unit.messages
        self.confirmed = number
        self._trim()

    def since(self, number: int) -> Iterator[Unit]:
        """Yield the units from ``number`` on, which must be in the buffer."""
        return islice(self._units, number - self.first, None)

    def _trim(self) -> None:
        units = self._units
        # Only confirmed units may leave. They stay as long as there is room, for a receiver that has lost its
        # connection: while it is away, units are confirmed without it.
        while self._bytes > self._most and units and units[0].number < self.confirmed:
            self._bytes -= len(units.popleft().data)
