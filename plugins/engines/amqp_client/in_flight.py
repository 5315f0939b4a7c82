"""In flight: messages that were published and are not confirmed yet.

Two numberings meet here.  The server numbers messages by delivery tag, in the order in which they were
published on the channel.  The port numbers them by position, in the order in which they were taken from it.
The two differ as soon as the server has refused a message and it was published again: it then has a new tag
and its old position.

The server may answer in any order, but the port is told in order: ``confirm_through(position)`` says that
everything up to it is done.  What is done behind a gap waits in ``_done_after_gap`` until the gap is closed.
If the channel ends before that, ``Port.take_again`` gives these messages again, and they are published twice.

Why not ``Port.confirm_only``, with which the port would do this work, and these messages would not be
published twice?  It looks through everything that the port gave out since the gap.  A server can leave one
message unanswered for long while it answers others, as a quorum queue without a leader does.  With 8,000
messages behind the gap, each answer then takes 200 us instead of 5.
"""

from __future__ import annotations

from collections import deque

import msgspec

from kernel.contracts.message import Batch
from kernel.hosting.taken_messages import UNTRACKED


class Flight(msgspec.Struct, gc=False):
    """A batch with consecutive delivery tags, and the position of its first message."""

    first_tag: int
    position: int
    batch: Batch

    def cut(self, start: int, stop: int) -> Flight:
        """Return the messages from index ``start`` to ``stop``."""
        # UNTRACKED is 0, and stays so for a part.
        position = self.position and self.position + start
        return Flight(self.first_tag + start, position, self.batch.slice(start, stop))


class InFlight:
    """Delivery tags and positions of one channel, from its opening to its end."""

    def __init__(self) -> None:
        self.count = 0
        """Messages that the server has neither confirmed nor refused."""
        self._flights: deque[Flight] = deque()
        self._next_tag = 1
        self._taken = 0
        """The position of the last message that was taken and has to be confirmed."""
        self._done = 0
        """The position up to which everything is done."""
        self._done_after_gap: dict[int, int] = {}
        """Ranges that are done behind a gap: first position to last position."""

    def expect(self, first: int, last: int) -> None:
        """Positions ``first`` to ``last`` were taken from the port and have to be confirmed."""
        # Positions only grow, but they may jump: ``Port.take_again`` gives new ones, and the port also counts
        # messages of routes without confirmation.
        if first != self._taken + 1:
            # What is done before the jump is confirmed already or was given again.
            self._done_after_gap.clear()
            self._done = first - 1
        self._taken = last

    def add(self, batch: Batch, position: int) -> None:
        """Add a batch that was published just now."""
        size = len(batch.bodies)
        self._flights.append(Flight(self._next_tag, position, batch))
        self._next_tag += size
        self.count += size

    def untracked(self) -> int:
        """Return how many of the messages in flight need no confirmation to the port."""
        return sum(len(flight.batch.bodies) for flight in self._flights if flight.position == UNTRACKED)

    def only(self) -> Flight | None:
        """Return the message in flight if there is exactly one, else None."""
        return self._flights[0] if self.count == 1 else None

    def answered(self, first: int, last: int, multiple: bool) -> list[Flight]:
        """Remove and return what the server has answered: tags ``first`` to ``last``.

        With ``multiple``: all tags up to ``last`` (0: all).
        """
        # Tag 0 stands for all messages so far (basic.ack, field delivery-tag).
        if multiple:
            first, last = 0, last or self._next_tag - 1
        found: list[Flight] = []
        before: list[Flight] = []
        while self._flights and self._flights[0].first_tag <= last:
            flight = self._flights.popleft()
            size = len(flight.batch.bodies)
            # The answer may begin and end inside a flight.  The parts that it does not cover stay in flight.
            start = min(max(first - flight.first_tag, 0), size)
            stop = min(last + 1 - flight.first_tag, size)
            if start:
                before.append(flight if start == size else flight.cut(0, start))
            if start < stop:
                found.append(flight if stop - start == size else flight.cut(start, stop))
                self.count -= stop - start
            # The rest of this flight has later tags than the answer, and so have all flights behind it.
            if max(start, stop) < size:
                self._flights.appendleft(flight.cut(stop, size))
                break
        self._flights.extendleft(reversed(before))
        return found

    def complete(self, position: int, count: int) -> int:
        """Note that ``count`` messages from ``position`` on are done.

        Return the position up to which everything is done.
        """
        # ``position`` is behind ``_done`` if the same message is answered twice, or if the port has started
        # anew.
        if count and position > self._done:
            self._done_after_gap[position] = position + count - 1
            while (last := self._done_after_gap.pop(self._done + 1, None)) is not None:
                self._done = last
        return self._done
