"""The sending half of a stream: from a port's pipes to an SCTP stream, as far as its window and buffer allow.

Messages that are to be confirmed go reliably and in order, whatever their envelope says. Otherwise a message
with an ``expiration`` is abandoned when it has not arrived by then (RFC 3758), and one with a property
``unordered`` may overtake others.

Counting. A message is taken from the port, encoded into units, handed to the association, acknowledged by the
peer's SCTP, and (with ``backend``) confirmed by the peer's destinations. ``_counted`` and ``_confirmed``
count messages that are to be confirmed within this conversation; refused ones are added by ``Refusals``, and
``_base`` makes a position of the port from the sum.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from kernel.contracts.engine import Port, Taken
from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import Batch, Envelope
from plugins.engines.sctp.any_association import AnyAssociation
from plugins.engines.sctp.framing import FRAGMENT, Framing, Kind
from plugins.engines.sctp.growing_window import GrowingWindow
from plugins.protocols.backend.refusals import Refusals
from plugins.protocols.sctp.schedule import Outgoing, Terms

BATCH = 64 * 1024
"""Bytes, roughly, that are taken from the pipes at once."""
BATCHES_PER_TURN = 8
"""Batches that a stream may send before its neighbours have their turn."""

_ORDINARY = Terms()
_UNORDERED = Terms(unordered=True)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a stream."""

    buffer: GrowingWindow
    """Bytes that may be queued or unacknowledged."""
    window: int | None
    """Bytes that the peer's greeting allows; None: there is no such window (``plain``)."""
    largest: int
    """Bytes of the largest message that the peer accepts."""
    protocol_id: int | None
    """Payload protocol identifier of ``plain``.

    Such a peer does not confirm: what its SCTP acknowledges counts as confirmed.
    """


class StreamOutput:
    """The output of one stream.

    ``send_control(kind, number)`` sends a control message to the peer; ``on_refused(why)`` is called when a
    message is not sent because the peer would not accept it.
    """

    def __init__(
        self,
        association: AnyAssociation,
        stream: int,
        framing: Framing,
        port: Port,
        limits: Limits,
        *,
        send_control: Callable[[Kind, int], Any],
        now: Callable[[], float],
        on_refused: Callable[[str], Any],
    ) -> None:
        self.messages = self.refused = self.abandoned = 0
        self._association, self._stream = association, stream
        self._framing = framing
        self._port = port
        self._buffer, self._allowed = limits.buffer, limits.window
        self._protocol_id = limits.protocol_id
        self._send_control = send_control
        self._now = now
        self._on_refused = on_refused
        self.sent_bytes = 0
        self.acknowledged = 0
        """Bytes that were acknowledged since the last look at the size of the buffer."""
        self._units: deque[tuple[bytes, int, Terms, int]] = deque()
        """Encoded user messages that the association does not have yet."""
        self.in_flight: deque[tuple[Outgoing, int]] = deque()
        """User messages that the association has, each with the number of messages that its acknowledgement
        confirms."""
        self.unacknowledged = 0
        self._body_size = 128
        self._priority = 0
        self._counted = 0
        """Messages sent that are to be confirmed."""
        self._confirmed = 0
        """How many of these are confirmed."""
        self._expected = 0
        """Messages taken that are to be confirmed: sent and refused ones."""
        self._base = 0
        """The port's position minus ``_expected``."""
        # Two: refusals of messages that need no confirmation must not move the count of the others.
        self._refusals, self._loose_refusals = Refusals(), Refusals()
        self._refusals.most = self._loose_refusals.most = limits.largest

    def begin(self) -> None:
        """Send again what an earlier conversation left unconfirmed."""
        # Before anything new is taken, so that the order of the messages stays.
        self._encode(self._port.take_again())
        self._push()

    def send(self) -> bool:
        """Take from the pipes what there is room for.

        Return whether there is more to take in another turn.
        """
        port = self._port
        for _ in range(BATCHES_PER_TURN):
            self._push()
            # Units that wait here were taken already: nothing is taken from the pipes while they are in the
            # way.
            if self._units or not self._has_room():
                return False
            # Pipes count messages, limits count bytes: the size of the last batch's messages converts one to
            # the other.
            taken = port.take(BATCH // self._body_size or 1)
            if not taken.batches:
                return False
            self._encode(taken)
        self._push()
        return port.has_input()

    def next_expiry(self) -> float | None:
        """Return when the first message in flight may be abandoned, which makes room."""
        return self.in_flight[0][0].terms.expires if self.in_flight else None

    def sends_at_once(self, size: int) -> bool:
        """Whether an ordinary message of ``size`` bytes need not wait behind others."""
        plain = self._protocol_id is not None
        return (
            not self._units
            and not self._priority
            and self._has_room()
            and size <= self._refusals.most
            # A user message has at least one byte.
            and (size > 0 or not plain)
        )

    def acknowledges_the_only(self, message: Outgoing, size: int) -> bool:
        """Whether this is the only message in flight, and nothing follows if it is acknowledged."""
        in_flight = self.in_flight
        return (
            len(in_flight) == 1
            and in_flight[0][0] is message
            and not in_flight[0][1]
            and self.acknowledged + size < self._buffer.size // 2
        )

    def is_idle(self) -> bool:
        """Whether everything that was taken is acknowledged."""
        return not self._units and not self.in_flight

    # ------------------------------------------------------------------ out

    def _has_room(self) -> bool:
        # May be exceeded by one unit, so that a unit larger than the window can be sent at all.
        return self.unacknowledged < self._buffer.size and (
            self._allowed is None or self.sent_bytes < self._allowed
        )

    def _encode(self, taken: Taken) -> None:
        counted = taken.position is not None
        if taken.position is not None:
            self._expected += taken.count
            self._base = taken.position - self._expected
        refusals = self._refusals if counted else self._loose_refusals
        size = 0
        for batch in taken.batches:
            size += batch.size
            # A user message has at least one byte (RFC 9260, 6.2: DATA without data is answered with ABORT).
            if self._protocol_id is not None and not all(map(len, batch.bodies)):
                self._encode_refusing_empty(batch, refusals, counted=counted)
                continue
            accepted = refusals.sift(batch, self._counted)
            if accepted.bodies:
                self._encode_batch(accepted, counted=counted)
        self._body_size = size // max(taken.count, 1) + 1
        # Refused messages are confirmed in their turn: a gap in the count would stop all behind it.
        if refusals.news:
            self.refused += len(refusals.news)
            self._on_refused(refusals.news[0].reason)
            if counted:
                for number, reason in refusals.news:
                    # ``number`` is counted from the beginning of the conversation, like ``_expected``.
                    self._port.refuse(self._base + number, self._base + number, reason)
            refusals.news.clear()
            self._confirm_at_port()

    def _encode_refusing_empty(self, batch: Batch, refusals: Refusals, *, counted: bool) -> None:
        for at in range(len(batch.bodies)):
            one = batch.slice(at, at + 1)
            if one.size:
                accepted = refusals.sift(one, self._counted)
                if accepted.bodies:
                    self._encode_batch(accepted, counted=counted)
            else:
                refusals.refuse(one, self._counted, "an empty message; an SCTP message has at least one byte")

    def _encode_batch(self, batch: Batch, *, counted: bool) -> None:
        count = len(batch.bodies)
        self.messages += count
        self._counted += count if counted else 0
        if batch.envelope.priority != self._priority:
            self._priority = batch.envelope.priority
            # The stream has one priority, that of the last message; with us a higher number is more urgent,
            # in the scheduler a lower one.
            self._association.rank_stream(self._stream, priority=-self._priority)
        # What is to be confirmed must neither be abandoned nor overtake: CONFIRM is a count, in the order of
        # the stream.
        terms = _ORDINARY if counted else self._terms(batch.envelope)
        plain = self._protocol_id is not None
        kind = self._protocol_id if self._protocol_id is not None else Kind.COUNTED if counted else Kind.UNIT
        # Messages that may be lost one by one are put into small units, since a unit is lost as a whole.
        for unit in self._framing.encode(batch, droppable=terms is not _ORDINARY):
            if plain or len(unit) <= FRAGMENT:
                self._units.append((unit, kind, terms, int(plain and counted)))
                continue
            # The parts go reliably and in order whatever the terms: a part that was abandoned would leave the
            # others without an end.
            last = (len(unit) - 1) // FRAGMENT * FRAGMENT
            for at in range(0, last, FRAGMENT):
                self._units.append((unit[at : at + FRAGMENT], Kind.FRAGMENT, _ORDINARY, 0))
            self._units.append((unit[last:], kind, _ORDINARY, 0))

    def _terms(self, envelope: Envelope) -> Terms:
        """Return the delivery terms of messages under this envelope that are not to be confirmed."""
        unordered = envelope.properties.get("unordered") is True
        if envelope.expiration is None:
            return _UNORDERED if unordered else _ORDINARY
        return Terms(unordered=unordered, expires=self._now() + envelope.expiration / 1000)

    def _push(self) -> None:
        """Hand units to the association while there is room."""
        units, association = self._units, self._association
        while units and self._has_room():
            unit, kind, terms, count = units.popleft()
            # Not handed over at all: it costs neither the peer's window nor a FORWARD-TSN.
            if terms.expires is not None and terms.expires <= self._now():
                self.abandoned += 1
                continue
            # Counted when the association has it, abandoned or not: the peer counts the same (SENT).
            self.sent_bytes += len(unit)
            self.unacknowledged += len(unit)
            self.in_flight.append((association.send(self._stream, unit, kind, terms), count))

    # ------------------------------------------------------------------ back

    def collect_acknowledged(self) -> None:
        """Forget units that are acknowledged or abandoned.

        The peer is told of abandoned ones: they count against its window.
        """
        in_flight = self.in_flight
        confirmed = abandoned = 0
        before = self.unacknowledged
        while in_flight:
            outgoing, count = in_flight[0]
            if outgoing.abandoned:
                abandoned += 1
            # In the order of sending. A unit that was acknowledged early waits for those before it, as
            # ``plain`` confirms by count.
            elif not outgoing.is_acknowledged():
                break
            in_flight.popleft()
            self.unacknowledged -= len(outgoing.data)
            confirmed += count
        self.acknowledged += before - self.unacknowledged
        if self.acknowledged >= self._buffer.size // 2:
            self.acknowledged = 0
            self._buffer.half_passed()
        if abandoned:
            self.abandoned += abandoned
            self._send_control(Kind.SENT, self.sent_bytes)
        if confirmed:
            self._confirmed += confirmed
            self._confirm_at_port()

    def on_window(self, allowed: int) -> None:
        """Process WINDOW: the peer allows so many bytes altogether.

        Raises ``RemoteProtocolError`` if that is less than before.
        """
        if self._allowed is None or allowed < self._allowed:
            raise RemoteProtocolError(f"WINDOW of {allowed} after {self._allowed}")
        self._allowed = allowed

    def on_confirm(self, count: int) -> None:
        """Process CONFIRM: the peer's destinations have so many of the counted messages.

        Raises ``RemoteProtocolError``.
        """
        if count > self._counted:
            raise RemoteProtocolError(f"CONFIRM of {count} messages; {self._counted} were sent")
        self._confirmed = count
        self._confirm_at_port()

    def _confirm_at_port(self) -> None:
        self._port.confirm_through(self._base + self._refusals.confirmed(self._confirmed))
