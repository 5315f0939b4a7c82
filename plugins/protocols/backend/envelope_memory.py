"""Envelopes that are sent once and then referred to by number, for both directions.

Both sides count the bytes of the maps that have a number.  The sender (``SentEnvelopes``) stays within the
limits that the receiver has announced in its greeting: it removes the envelope that was used longest ago.
The receiver (``KnownEnvelopes``) ends the connection if the sender exceeds the limits.
"""

from __future__ import annotations

from collections import OrderedDict

from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import PLAIN, Envelope
from plugins.protocols.backend.frames import CONTROL_LIMIT, Control, control_frame
from plugins.protocols.backend.greeting import decode_envelope, encode_readable_envelope

NUMBER = 4
"""Bytes of an envelope number."""


class SentEnvelopes:
    """The envelopes that the peer remembers for us."""

    __slots__ = ("_bytes", "_free", "_known", "_most", "most_bytes", "numbers")

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self.most_bytes: int = most_bytes
        """Bytes of the maps that the peer remembers together."""
        self.numbers: dict[Envelope, int | None] = {PLAIN: None}
        """The numbers of the envelopes that the peer remembers; None for the empty one, which has none."""
        self._bytes = 0
        self._known: OrderedDict[Envelope, tuple[int, int]] = OrderedDict()
        """Envelope to its number and its size in bytes, the least recently used first."""
        self._free: list[int] = []

    def activate(self, envelope: Envelope) -> list[bytes]:
        """Return the frames that make this envelope apply to what follows.

        Raises ``ValueError`` if the envelope is larger than the limits or cannot be encoded.
        """
        if envelope is PLAIN:
            return [control_frame(Control.USE)]
        known = self._known
        found = known.get(envelope)
        if found is not None:
            # The order of the dict is the order of use: the first one is the one to remove.
            known.move_to_end(envelope)
            return [control_frame(Control.USE, found[0].to_bytes(NUMBER, "big"))]
        encoded = encode_readable_envelope(envelope)
        size = len(encoded)
        if size > self.most_bytes or size + NUMBER > CONTROL_LIMIT:
            raise ValueError("an envelope that is larger than the peer remembers")
        frames = self._make_room(size)
        # Numbers are used from 0 on without gaps, so they stay below what the peer allows.
        number = self._free.pop() if self._free else len(known)
        known[envelope] = number, size
        self.numbers[envelope] = number
        self._bytes += size
        frames.append(control_frame(Control.ENVELOPE, number.to_bytes(NUMBER, "big") + encoded))
        return frames

    def room(self) -> int:
        """Return how many more envelopes the peer can remember; their bytes are not looked at."""
        return self._most - len(self._known)

    def _make_room(self, size: int) -> list[bytes]:
        """Free numbers until ``size`` bytes fit; return the frames that make the peer forget these envelopes.

        The number that is freed last needs no frame: the caller gives it to the new envelope.
        """
        known = self._known
        freed: list[int] = []
        while known and (len(known) >= self._most or self._bytes + size > self.most_bytes):
            envelope, (number, gone) = known.popitem(last=False)
            del self.numbers[envelope]
            self._bytes -= gone
            freed.append(number)
        # The last one freed is the first that ``pop`` returns.  The ENVELOPE that gives it anew makes the
        # peer forget the old one.
        self._free += freed
        return [control_frame(Control.ENVELOPE, number.to_bytes(NUMBER, "big")) for number in freed[:-1]]


class KnownEnvelopes:
    """The envelopes that we remember for the peer."""

    __slots__ = ("_bytes", "_known", "_most", "_most_bytes")

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0
        self._known: dict[int, tuple[Envelope, int]] = {}

    def learn(self, payload: bytes) -> Envelope | None:
        """Process the payload of an ENVELOPE; return the envelope that applies from now on.

        Return None if the frame only removes an envelope.  Raises ``RemoteProtocolError``.
        """
        number = int.from_bytes(payload[:NUMBER], "big")
        if len(payload) < NUMBER or number >= self._most:
            raise RemoteProtocolError(f"envelope number {number}; we remember {self._most}")
        # The old envelope of this number is removed before the limit is checked, as the sender counts it.
        self._bytes -= self._known.pop(number, (PLAIN, 0))[1]
        size = len(payload) - NUMBER
        if not size:
            return None
        if self._bytes + size > self._most_bytes:
            raise RemoteProtocolError(
                f"an envelope of {size} bytes after {self._bytes}; envelope_bytes is {self._most_bytes}"
            )
        envelope = decode_envelope(payload[NUMBER:])
        self._known[number] = envelope, size
        self._bytes += size
        return envelope

    def use(self, payload: bytes) -> Envelope:
        """Process the payload of a USE; return the envelope that applies from now on.

        Raises ``RemoteProtocolError`` for an unknown number.
        """
        if not payload:
            return PLAIN
        # No more than these bytes: Python refuses to write numbers of over 4,300 digits into a message.
        number = int.from_bytes(payload[:NUMBER], "big")
        found = self._known.get(number) if len(payload) == NUMBER else None
        if found is None:
            raise RemoteProtocolError(f"use of envelope {number}, which was never sent")
        return found[0]

    def numbered(self, number: int) -> Envelope | None:
        """Return the envelope of a number; None if there is none."""
        found = self._known.get(number)
        return found[0] if found is not None else None
