"""Outgoing: messages of the routes on their way to the broker.  It lives as long as the engine.

Numbers
    Messages are numbered in the order in which they were taken from the port: 0, 1, 2 and so on.  The packet
    identifier of a message follows from its number (``_id_of``), and so does the message from an identifier,
    because no more than ``LAST_ID`` messages are unfinished at any time.  Messages of QoS 0 have numbers,
    too, and send no identifier.

States of a message
    1. *Waiting*, in ``_waiting``: taken from the port, and beyond what may be in flight.
    2. *Sent*, in ``_flights``.  Those that have to be sent again on a new connection are also in ``_again``.
    3. *Released* (QoS 2): PUBREC has come and PUBREL was sent.  Its number is in ``_released``.
    4. *Done*: PUBACK or PUBCOMP has come; with QoS 0 the socket has taken it; or it was refused.

    A message is kept until it is done.  ``_front`` is the lowest number that is not done, and ``_done`` has
    those behind it that are.  The port is told when the front moves.

A new connection
    If the broker still has the session, unfinished messages are sent again under their identifiers, with DUP;
    for those that it has received (QoS 2) PUBREL is sent again (MQTT 5.0, 4.4).  If it has not, they are sent
    as new ones.  So nothing is lost with QoS 1 and 2, and with QoS 2 nothing comes twice while the session
    lasts.

A new engine on an old session
    The engine may have been restarted, and the broker may know identifiers of QoS 2 that this engine does not
    know.  It would take a new message with such an identifier for an old one, and drop it.  So PUBREL goes
    before a message of QoS 2 until the broker has answered one for this identifier (``_stale``).  If the
    connection is lost before that, the message may come twice: it goes with PUBREL again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from kernel.contracts.engine import NOTHING_TAKEN, Port
from kernel.contracts.message import Batch, Buffer
from kernel.hosting.taken_messages import UNTRACKED, Flight, Unsent, forget_done
from plugins.engines.mqtt_client.counters import Counters
from plugins.engines.mqtt_client.forms import Form, Forms
from plugins.protocols.mqtt.packet_types import PacketType
from plugins.protocols.mqtt.publishing import acknowledge, publish_batch
from plugins.protocols.mqtt.reason_codes import FAILED, ReasonCode

LAST_ID = 65_435
"""Packet identifiers up to this are for messages, those above for SUBSCRIBE: the two share one range of
numbers (MQTT 5.0, 2.2.1)."""
_FRUITLESS = 3
"""Connections without an answer after which it is said that a message may be too large for the broker."""


class _Flight(Flight, gc=False):
    """Messages that were sent with one QoS."""

    qos: int


class _Part(msgspec.Struct, gc=False):
    """Messages of a flight that have to be sent again: from one number up to another."""

    flight: _Flight
    first: int
    end: int


class Outgoing:
    """The messages that were taken from the port and are not done."""

    def __init__(self, in_flight: int, counters: Counters, refused: Callable[[str, str], None]) -> None:
        """``refused``: called with a key and a reason when messages are refused."""
        self.port: Port
        self._in_flight = in_flight
        self._counters = counters
        self._report_refused = refused
        self._waiting = Unsent()
        self._flights: deque[_Flight] = deque()
        self._front = 0
        self._next = 0
        self._done: set[int] = set()
        self._released: set[int] = set()
        self._unwritten: list[tuple[int, int]] = []
        """Messages of QoS 0 that the socket has not taken yet: first number, number behind the last."""
        # The connection.
        self._forms: Forms | None = None
        self._again: deque[_Part] = deque()
        self._dup = False
        self._stale: bytearray | None = None
        """By identifier: 1 if the broker may have a message of a former engine under it;
        None: it has none."""
        self._limit = 0
        self._used = 0
        """Messages of QoS 1 and 2 that were sent on this connection and are not acknowledged."""
        self._answers: list[Buffer] = []
        self._front_before = 0
        """``_front`` when the connection was accepted."""
        self._fruitless = 0
        """Connections in a row that have ended without an answer to the oldest message in flight."""
        self.answered_at = 0.0
        """When the broker last acknowledged something, or when there was nothing to acknowledge."""

    @property
    def in_flight(self) -> int:
        """Messages that were sent on this connection and that the broker has to acknowledge."""
        return self._used

    @property
    def unfinished(self) -> int:
        """Messages that were taken from the port and are not done."""
        return self._next - self._front - len(self._done) + self._waiting.messages()

    # The connection

    def begin(self, forms: Forms, limit: int, now: float, *, present: bool, first: bool) -> None:
        """The broker has accepted a connection.

        ``limit``: its receive maximum.  ``present``: whether it has the session.  ``first``: whether this
        engine has had no connection before.
        """
        self._forms = forms
        self._limit = min(limit, self._in_flight)
        self._used = 0
        self._front_before = self._front
        self.answered_at = now
        # Without the session these packets are new ones to the broker, and DUP would be wrong.
        self._dup = present
        if present and first:
            # An octet for each identifier takes 64 KiB, a set of as many numbers 2 MiB and the numbers.
            self._stale = bytearray(b"\1" * (LAST_ID + 1))
        if not present:
            # It knows no identifier any more, so all messages are published anew.
            self._stale = None
            self._released.clear()
        elif self._released:
            numbers = sorted(self._released)
            self._answers.append(acknowledge(PacketType.PUBREL, [_id_of(number) for number in numbers]))
            self._used = len(numbers)
        self._again = deque(self._unfinished_parts())

    def _unfinished_parts(self) -> list[_Part]:
        """Return the messages that are neither done nor released, in order."""
        parts: list[_Part] = []
        answered = self._done | self._released
        for flight in self._flights:
            first, end = max(flight.first, self._front), flight.end
            if not answered:
                parts.append(_Part(flight, first, end))
                continue
            for number in range(first, end):
                if number in answered:
                    continue
                if parts and parts[-1].flight is flight and parts[-1].end == number:
                    parts[-1].end = number + 1
                else:
                    parts.append(_Part(flight, number, number + 1))
        return parts

    def lost(self) -> str:
        """The connection has ended.  Return what may be the cause, or nothing."""
        self._fruitless = self._fruitless + 1 if self._used and self._front == self._front_before else 0
        self._forms = None
        self._again.clear()
        # The next socket takes something else than these.
        self._unwritten.clear()
        self._answers.clear()
        self._used = 0
        return self._why_fruitless() if self._fruitless >= _FRUITLESS else ""

    def _why_fruitless(self) -> str:
        batches = [flight.batch for flight in self._flights if flight.qos]
        if not batches:
            return ""
        largest = max(batches, key=_largest)
        return (
            f"{self._fruitless} connections in a row have ended without an answer to the oldest message; the largest "
            f"message in flight has {_largest(largest)} bytes (key {largest.envelope.key!r}): if that is more than "
            "the broker takes, say so with broker_max_packet_bytes"
        )

    def take_answers(self) -> list[Buffer]:
        """Return what has to be sent to the broker whether or not messages may be."""
        answers, self._answers = self._answers, []
        return answers

    # Publishing

    def pump(self, most: int, now: float) -> tuple[list[Buffer], bool]:
        """Return packets with about ``most`` messages, and whether more can be sent at once."""
        out = self.take_answers()
        if self._forms is None:
            return out, False
        if not self._used:
            self.answered_at = now
        while most > 0:
            sent = self._send_next(out, most)
            if sent is None:
                return out, False
            most -= sent
        return out, True

    def _send_next(self, out: list[Buffer], most: int) -> int | None:
        """Send messages of one batch; return how many messages that were, None: none may be sent."""
        if self._again:
            return self._send_again(out, most)
        if not self._waiting:
            # With the broker's quota used up, messages stay in the pipes, where they are limited.
            wanted = min(most, self._limit - self._used) if self._used else most
            taken = self.port.take(wanted) if wanted > 0 else NOTHING_TAKEN
            if not taken:
                return None
            self._waiting.add(taken)
        assert self._forms is not None
        form = self._forms.form_of(self._waiting[0][1].envelope)
        # With more numbers than identifiers, two unfinished messages could have the same one.
        room = min(most, LAST_ID - (self._next - self._front))
        if not isinstance(form, str) and form.qos:
            room = min(room, self._limit - self._used)
        if room <= 0:
            return None
        position, batch = self._waiting.take(room)
        flight = _Flight(self._next, position, batch, 0 if isinstance(form, str) else form.qos)
        self._flights.append(flight)
        self._next = flight.end
        self._send(out, flight, flight.first, flight.end, form, dup=False)
        return len(batch.bodies)

    def _send_again(self, out: list[Buffer], most: int) -> int | None:
        part = self._again[0]
        flight = part.flight
        assert self._forms is not None
        form = self._forms.form_of(flight.batch.envelope)
        room = most
        if not isinstance(form, str):
            # The broker of this connection may take another maximum QoS than that of the last one.
            flight.qos = form.qos
            if form.qos:
                room = min(room, self._limit - self._used)
        if room <= 0:
            return None
        first, end = part.first, min(part.end, part.first + room)
        if end == part.end:
            self._again.popleft()
        else:
            part.first = end
        self._counters.messages_resent += end - first
        self._send(out, flight, first, end, form, dup=self._dup and flight.qos > 0)
        return end - first

    def _send(
        self, out: list[Buffer], flight: _Flight, first: int, end: int, form: Form | str, *, dup: bool
    ) -> None:
        """Send messages ``first`` up to ``end`` of a flight, or refuse them."""
        if isinstance(form, str):
            self._refuse(flight, first, end, form)
            return
        batch = flight.batch
        payloads: Sequence[Any] = batch.bodies
        if end - first < len(payloads):
            payloads = payloads[first - flight.first : end - flight.first]
        if batch.multipart:
            payloads = [b"".join(parts) for parts in payloads]
        largest = form.largest
        if (batch.width or batch.size) > largest and (longest := max(map(len, payloads))) > largest:
            if end - first > 1:
                # One by one: the others go out.
                for number in range(first, end):
                    self._send(out, flight, number, number + 1, form, dup=dup)
                return
            self._refuse(
                flight,
                first,
                end,
                f"a message of {longest} bytes; the broker takes up to {largest} with this topic: raise its "
                "maximum packet size",
            )
            return
        count = end - first
        self._counters.messages_out += count
        if not form.qos:
            out += publish_batch(form.prefix(dup=False), payloads, (), batch.width)
            # QoS 0 has no acknowledgement. It is done when the socket has taken it (``written``).
            self._unwritten.append((first, end))
            return
        self._used += count
        ids = _ids_of(first, end)
        stale = self._stale
        if stale is not None and form.qos == 2 and (old := [number for number in ids if stale[number]]):
            out.append(acknowledge(PacketType.PUBREL, old))
        out += publish_batch(form.prefix(dup=dup), payloads, ids, batch.width)

    def written(self) -> None:
        """The socket has taken all packets: messages of QoS 0 are done."""
        if self._unwritten:
            unwritten, self._unwritten = self._unwritten, []
            for first, end in unwritten:
                self._finish(range(first, end))
            self._confirm()

    # Answers of the broker

    def acknowledged(self, kind: PacketType, ids: Sequence[int], code: int, reason: str, now: float) -> None:
        """PUBACK, PUBREC or PUBCOMP has come.  ``reason``: what the code says."""
        self.answered_at = now
        if kind is PacketType.PUBREC:
            self._received(ids, code, reason)
            return
        numbers = self._numbers_of(ids)
        if kind is PacketType.PUBCOMP:
            if self._stale is not None:
                for identifier in ids:
                    if identifier <= LAST_ID:
                        self._stale[identifier] = 0
            # Also with the code "packet identifier not found", which is no error (MQTT 5.0, 4.3.3).
            numbers = [number for number in numbers if number in self._released]
            self._released.difference_update(numbers)
        elif code >= FAILED:
            self._refuse_numbers(numbers, reason)
        elif code == ReasonCode.NO_MATCHING_SUBSCRIBERS:
            self._counters.messages_unmatched += len(numbers)
        self._used = max(0, self._used - len(numbers))
        self._finish(numbers)
        self._confirm()

    def _received(self, ids: Sequence[int], code: int, reason: str) -> None:
        numbers = self._numbers_of(ids)
        if code >= FAILED:
            # The message is done with this; no PUBREL follows (MQTT 5.0, 4.3.3).
            numbers = [number for number in numbers if number not in self._released]
            self._refuse_numbers(numbers, reason)
            self._used = max(0, self._used - len(numbers))
            self._finish(numbers)
            self._confirm()
            return
        if code == ReasonCode.NO_MATCHING_SUBSCRIBERS:
            self._counters.messages_unmatched += len(numbers)
        self._released.update(numbers)
        # Also for identifiers without a message: the broker waits for it, and it is harmless.
        self._answers.append(acknowledge(PacketType.PUBREL, ids))

    def _numbers_of(self, ids: Sequence[int]) -> Sequence[int]:
        """Return the numbers of the messages with these identifiers that are not done."""
        front, end = self._front, self._next
        # The only number from ``front`` on with this identifier among the next ``LAST_ID``, of which all
        # unfinished ones are.
        first = front + (ids[0] - 1 - front) % LAST_ID
        last = first + len(ids)
        # Brokers answer in order (MQTT 5.0, 4.6), so almost always these follow each other.
        if last <= end and not self._done and list(ids) == list(_ids_of(first, last)):
            return range(first, last)
        numbers = [front + (number - 1 - front) % LAST_ID for number in ids if number <= LAST_ID]
        # A broker that acknowledges something twice, or what was never sent, changes nothing.
        return [number for number in dict.fromkeys(numbers) if number < end and number not in self._done]

    def _finish(self, numbers: Sequence[int]) -> None:
        """Note that messages are done."""
        if isinstance(numbers, range) and numbers and numbers[0] == self._front and not self._done:
            self._front = numbers[-1] + 1
            return
        done = self._done
        done.update(numbers)
        while self._front in done:
            done.remove(self._front)
            self._front += 1

    def _confirm(self) -> None:
        """Forget messages that are done, and confirm them to the port."""
        position = forget_done(self._flights, self._front)
        if position != UNTRACKED:
            self.port.confirm_through(position)

    # Refusals

    def _refuse_numbers(self, numbers: Sequence[int], reason: str) -> None:
        """The broker has refused messages: find them, and refuse them to the routes."""
        left = set(numbers)
        for flight in self._flights:
            for number in sorted(left.intersection(range(flight.first, flight.end))):
                left.discard(number)
                self._refuse_one(flight, number, number + 1, reason)
            if not left:
                break

    def _refuse(self, flight: _Flight, first: int, end: int, reason: str) -> None:
        """Refuse messages that cannot be sent."""
        self._refuse_one(flight, first, end, reason)
        self._finish(range(first, end))
        self._confirm()

    def _refuse_one(self, flight: _Flight, first: int, end: int, reason: str) -> None:
        self._counters.messages_refused += end - first
        self._report_refused(flight.batch.envelope.key, reason)
        positions = flight.positions(first, end)
        if positions is not None:
            self.port.refuse(*positions, reason)


def _id_of(number: int) -> int:
    return number % LAST_ID + 1


def _ids_of(first: int, end: int) -> Sequence[int]:
    """Return the packet identifiers of consecutive messages."""
    start = _id_of(first)
    if start + end - first <= LAST_ID + 1:
        return range(start, start + end - first)
    return [_id_of(number) for number in range(first, end)]


def _largest(batch: Batch) -> int:
    bodies = batch.bodies
    return batch.width or max(sum(map(len, body)) if batch.multipart else len(body) for body in bodies)
