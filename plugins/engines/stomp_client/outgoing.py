"""Outgoing: messages of the routes on their way to the broker.  It lives as long as the engine.

Numbers
    Messages are numbered when they are sent: 1, 2, 3 and so on, over all connections.  The receipt of a
    message is its number, so a receipt of an earlier connection names nothing on this one.  ``_front`` is the
    lowest number without a receipt, and ``_done`` has those behind it that have theirs.

Receipts
    With one receipt for each message the port is told when ``_front`` moves.  With one for each batch a
    receipt stands for all messages before it (option ``receipts``).

A new connection
    The port gives again what was taken from it and is not confirmed (``take_again``).  What needs no
    confirmation is kept here, and is sent again as well.

Refusals
    A broker refuses a message with ERROR, which ends the connection (STOMP 1.2, ERROR).  If ``receipt-id``
    names the message, it is refused to the routes, and the others are sent again.  If not, all that was in
    flight is sent again one by one.  A message that is alone in flight when such an ERROR comes, twice in a
    row, is the one that the broker refuses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kernel.contracts.engine import Port
from kernel.contracts.message import Batch, Buffer
from kernel.hosting.taken_messages import UNTRACKED, Flight, Unsent, forget_done
from plugins.engines.stomp_client.counters import Counters
from plugins.engines.stomp_client.forms import Forms

_MOST_SUSPICIONS = 2
"""Errors without ``receipt-id`` after which the one message in flight counts as refused."""


class Outgoing:
    """The messages that were taken from the port and have no receipt."""

    def __init__(self, in_flight: int, counters: Counters, refused: Callable[[str, str], None]) -> None:
        """``refused``: called with a key and a reason when messages are refused."""
        self.port: Port
        self._most = in_flight
        self._counters = counters
        self._report_refused = refused
        self._waiting = Unsent()
        """What is sent before new messages are taken from the port."""
        self._flights: deque[Flight] = deque()
        self._front = 1
        self._next = 1
        self._done: set[int] = set()
        self._again = 0
        """How many of the next messages were sent on an earlier connection."""
        self._one_by_one = 0
        """How many of the next messages are sent one by one, to find the one that the broker refuses."""
        self._suspicions = 0
        # The connection.
        self._forms: Forms | None = None
        self._each = True
        self.answered_at = 0.0
        """When the last receipt came, or when there was nothing in flight."""

    @property
    def in_flight(self) -> int:
        """Messages that were sent and have no receipt."""
        return self._next - self._front - len(self._done)

    @property
    def unfinished(self) -> int:
        """Messages that were taken from the port and are not done."""
        return self.in_flight + self._waiting.messages()

    # The connection

    def begin(self, forms: Forms, now: float, *, each: bool) -> None:
        """The broker takes messages now.  ``each``: every one has a receipt of its own."""
        self._forms = forms
        self._each = each
        self.answered_at = now
        self._waiting.add_before(self.port.take_again())

    def lost(self) -> None:
        """The connection has ended."""
        self._forms = None
        untracked = list(self._unanswered_untracked())
        # Before ``_front`` moves, since ``in_flight`` is computed from it.
        self._again += self.in_flight
        self._flights.clear()
        self._done.clear()
        # Numbers are not used again: a late receipt of the lost connection must not confirm a message of the
        # next one.
        self._front = self._next
        # The port gives the others again (``take_again``).
        self._waiting = Unsent(untracked + self._waiting.untracked())

    def _unanswered_untracked(self) -> Iterator[tuple[int, Batch]]:
        done = self._done
        for flight in self._flights:
            if flight.position != UNTRACKED:
                continue
            first, batch = flight.first, flight.batch
            if not done and first >= self._front:
                yield UNTRACKED, batch
                continue
            for number in range(max(first, self._front), flight.end):
                # Among them may be one that was refused.
                if number not in done:
                    yield UNTRACKED, batch.slice(number - first, number - first + 1)

    # Publishing

    def pump(self, most: int, now: float) -> tuple[list[Buffer], bool]:
        """Return frames with about ``most`` messages, and whether more can be sent at once."""
        out: list[Buffer] = []
        if self._forms is None:
            return out, False
        if not self.in_flight:
            self.answered_at = now
        while most > 0:
            # One at a time until those that were in flight are through: then an ERROR without a name has one
            # possible cause.
            limit = 1 if self._one_by_one else self._most
            room = min(most, limit - self.in_flight)
            if room <= 0:
                return out, False
            if not self._waiting:
                # While the broker is behind, messages stay in the pipes, where they are limited.
                taken = self.port.take(room)
                if not taken:
                    return out, False
                self._waiting.add(taken)
            position, batch = self._waiting.take(room)
            self._send(out, position, batch)
            most -= len(batch.bodies)
        return out, True

    def _send(self, out: list[Buffer], position: int, batch: Batch) -> None:
        """Send messages, or refuse them."""
        assert self._forms is not None
        form = self._forms.form_of(batch.envelope)
        count = len(batch.bodies)
        flight = Flight(self._next, position, batch)
        self._flights.append(flight)
        self._next = flight.end
        if isinstance(form, str):
            self._refuse(flight, flight.first, flight.end, form)
            self._finish(range(flight.first, flight.end))
            return
        payloads: Sequence[Any] = batch.bodies
        if batch.multipart:
            payloads = [b"".join(parts) for parts in payloads]
        self._counters.messages_out += count
        if self._again:
            resent = min(self._again, count)
            self._again -= resent
            self._counters.messages_resent += resent
        out += form.encode(flight.first, payloads, batch.size, each=self._each)

    # Answers of the broker

    def received(self, numbers: Sequence[int], now: float) -> None:
        """Receipts have come."""
        self.answered_at = now
        self._suspicions = 0
        # A receipt of an earlier connection, or one that nobody has asked for, changes nothing.
        numbers = [number for number in numbers if self._front <= number < self._next]
        if not numbers:
            return
        if not self._each:
            # Its receipt stands for all messages before it.
            numbers = range(self._front, max(numbers) + 1)
        self._finish(numbers)

    def _finish(self, numbers: Sequence[int]) -> None:
        """Note that messages are done, forget them, and confirm them to the port."""
        before = self._front
        done = self._done
        if isinstance(numbers, range) and numbers[0] == before and not done:
            self._front = numbers[-1] + 1
        else:
            done.update(numbers)
            while self._front in done:
                done.remove(self._front)
                self._front += 1
        front = self._front
        if front == before:
            return
        self._one_by_one = max(0, self._one_by_one - (front - before))
        position = forget_done(self._flights, front)
        if position != UNTRACKED:
            self.port.confirm_through(position)

    # Refusals

    def failed(self, number: int | None, reason: str) -> None:
        """An ERROR frame has come.  ``number``: the message that it names; None: it names none."""
        if number is not None and self._front <= number < self._next and number not in self._done:
            self._refuse_number(number, reason)
            return
        count = self.in_flight
        if not count:
            return
        if count == 1 and self._one_by_one:
            self._suspicions += 1
            if self._suspicions >= _MOST_SUSPICIONS:
                self._suspicions = 0
                self._refuse_number(self._front, reason)
            return
        self._one_by_one = max(self._one_by_one, count)

    def _refuse_number(self, number: int, reason: str) -> None:
        for flight in self._flights:
            if flight.first <= number < flight.end:
                self._refuse(flight, number, number + 1, reason)
                break
        self._finish([number])

    def _refuse(self, flight: Flight, first: int, end: int, reason: str) -> None:
        self._counters.messages_refused += end - first
        self._report_refused(flight.batch.envelope.key, reason)
        positions = flight.positions(first, end)
        if positions is not None:
            self.port.refuse(*positions, reason)
