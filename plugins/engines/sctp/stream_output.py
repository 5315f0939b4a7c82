"""The sending half of a stream: from the pipes of a port to a stream, as much as its window and its buffer have room for.

What is waited for to be confirmed goes reliably and in order, whatever its envelope says.  Else a message with an ``expiration``
is given up when it has not arrived by then (RFC 3758), and one with a property ``unordered`` may overtake others.
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
from plugins.protocols.backend.refusals import Refusals
from plugins.protocols.sctp.schedule import Outgoing, Terms

BATCH = 64 * 1024
"""About how many bytes are taken from the pipes at once."""
BATCHES_PER_TURN = 8
"""How many a stream may send before its neighbours have their turn."""

_ORDINARY = Terms()
_UNORDERED = Terms(unordered=True)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much may go out on a stream."""

    buffer: int
    """Bytes that may be sent or queued and not acknowledged."""
    window: int | None
    """Bytes that the peer's greeting lets be sent; None: it has told of none."""
    largest: int
    """Bytes of a message that the peer takes."""
    protocol_id: int | None
    """Of ``plain``, whose peer does not confirm: what it has acknowledged counts as confirmed."""


class StreamOutput:
    """What goes out on one stream.

    ``tell(kind, number)`` sends a word to the peer; ``on_refused(why)`` is called when a message is not sent because the peer would
    not take it.
    """

    def __init__(
        self,
        association: AnyAssociation,
        stream: int,
        framing: Framing,
        port: Port,
        limits: Limits,
        *,
        tell: Callable[[Kind, int], Any],
        now: Callable[[], float],
        on_refused: Callable[[str], Any],
    ) -> None:
        self.messages = self.refused = self.given_up = 0
        self._association, self._stream = association, stream
        self._framing = framing
        self._port = port
        self._buffer, self._allowed = limits.buffer, limits.window
        self._protocol_id = limits.protocol_id
        self._tell = tell
        self._now = now
        self._on_refused = on_refused
        self._sent_bytes = 0
        self._units: deque[tuple[bytes, int, Terms, int]] = (
            deque()
        )  # encoded, and not given to the association
        self._under_way: deque[tuple[Outgoing, int]] = deque()  # and how many messages to confirm with it
        self._unacknowledged = 0
        self._body_size = 128
        self._priority = 0
        self._counted = 0  # messages sent that are to be confirmed
        self._confirmed = 0  # of these
        self._expected = 0  # messages taken that are to be confirmed: those sent and those refused
        self._base = 0  # what has to be added to these for the port's position
        self._refusals, self._loose_refusals = Refusals(), Refusals()
        self._refusals.most = self._loose_refusals.most = limits.largest

    def begin(self) -> None:
        """Send again what an earlier conversation left unconfirmed."""
        self._encode(self._port.rewind())
        self._push()

    def go_on(self) -> bool:
        """Take from the pipes what there is room for; True: there is more to be taken in another turn."""
        port = self._port
        for _ in range(BATCHES_PER_TURN):
            self._push()
            if self._units or not self._has_room():
                return False
            taken = port.take(BATCH // self._body_size or 1)
            if not taken.batches:
                return False
            self._encode(taken)
        self._push()
        return port.has_input()

    def next_expiry(self) -> float | None:
        """When the next that is under way may be given up, which makes room."""
        return self._under_way[0][0].terms.expires if self._under_way else None

    def is_idle(self) -> bool:
        """Whether the peer has all that was taken."""
        return not self._units and not self._under_way

    # ------------------------------------------------------------------ out

    def _has_room(self) -> bool:
        return self._unacknowledged < self._buffer and (
            self._allowed is None or self._sent_bytes < self._allowed
        )

    def _encode(self, taken: Taken) -> None:
        counted = taken.position is not None
        if taken.position is not None:
            self._expected += taken.count
            self._base = taken.position - self._expected
        refusals = self._refusals if counted else self._loose_refusals
        size = 0
        for batch in taken.batches:
            kept = refusals.sift(batch, self._counted)
            size += batch.size
            if self._protocol_id is not None and not all(map(len, kept.bodies)):
                self._encode_without_empty(kept, refusals, counted=counted)
            elif kept.bodies:
                self._encode_batch(kept, counted=counted)
        self._body_size = size // max(taken.count, 1) + 1
        if refusals.news:
            self.refused += len(refusals.news)
            self._on_refused(refusals.news[0])
            refusals.news.clear()
            self._tell_port()

    def _encode_without_empty(self, batch: Batch, refusals: Refusals, *, counted: bool) -> None:
        for at in range(len(batch.bodies)):
            one = batch.slice(at, at + 1)
            if one.size:
                self._encode_batch(one, counted=counted)
            else:
                refusals.refuse(one, self._counted, "an empty message; one of SCTP has a byte at least")

    def _encode_batch(self, batch: Batch, *, counted: bool) -> None:
        count = len(batch.bodies)
        self.messages += count
        self._counted += count if counted else 0
        if batch.envelope.priority != self._priority:
            self._priority = batch.envelope.priority
            self._association.rank_stream(self._stream, priority=-self._priority)
        terms = _ORDINARY if counted else self._terms(batch.envelope)
        plain = self._protocol_id is not None
        kind = self._protocol_id if self._protocol_id is not None else Kind.COUNTED if counted else Kind.UNIT
        for unit in self._framing.encode(batch, droppable=terms is not _ORDINARY):
            if plain or len(unit) <= FRAGMENT:
                self._units.append((unit, kind, terms, int(plain and counted)))
                continue
            last = (len(unit) - 1) // FRAGMENT * FRAGMENT
            for at in range(0, last, FRAGMENT):
                self._units.append((unit[at : at + FRAGMENT], Kind.FRAGMENT, _ORDINARY, 0))
            self._units.append((unit[last:], kind, _ORDINARY, 0))

    def _terms(self, envelope: Envelope) -> Terms:
        """Return how messages under this envelope go when nobody waits for them to be confirmed."""
        unordered = envelope.properties.get("unordered") is True
        if envelope.expiration is None:
            return _UNORDERED if unordered else _ORDINARY
        return Terms(unordered=unordered, expires=self._now() + envelope.expiration / 1000)

    def _push(self) -> None:
        """Hand units to the association while there is room."""
        units, association = self._units, self._association
        while units and self._has_room():
            unit, kind, terms, count = units.popleft()
            if terms.expires is not None and terms.expires <= self._now():
                self.given_up += 1
                continue
            self._sent_bytes += len(unit)
            self._unacknowledged += len(unit)
            self._under_way.append((association.send(self._stream, unit, kind, terms), count))

    # ------------------------------------------------------------------ back

    def reap(self) -> None:
        """Forget what the peer has, or does not wait for any more."""
        under_way = self._under_way
        confirmed = given_up = 0
        while under_way:
            outgoing, count = under_way[0]
            if outgoing.abandoned:
                given_up += 1
            elif not outgoing.is_acknowledged():
                break
            under_way.popleft()
            self._unacknowledged -= len(outgoing.data)
            confirmed += count
        if given_up:
            self.given_up += given_up
            self._tell(Kind.SENT, self._sent_bytes)
        if confirmed:
            self._confirmed += confirmed
            self._tell_port()

    def on_window(self, allowed: int) -> None:
        """The peer lets so many bytes be sent altogether."""
        if self._allowed is None or allowed < self._allowed:
            raise RemoteProtocolError(f"a window of {allowed} after {self._allowed}")
        self._allowed = allowed

    def on_confirm(self, count: int) -> None:
        """The peer's destinations have so many of the messages that were counted."""
        if count > self._counted:
            raise RemoteProtocolError(f"a confirmation of {count}; {self._counted} were sent")
        self._confirmed = count
        self._tell_port()

    def _tell_port(self) -> None:
        self._port.confirm_through(self._base + self._refusals.confirmed(self._confirmed))
