"""Congestion feedback of a receiver: its loss rate and what has arrived.

Sections 2.6 and 4 of draft-ietf-rmt-bb-pgmcc-03 (PGMCC).
"""

from __future__ import annotations

from plugins.protocols.pgm.congestion import BITMAP, TICK
from plugins.protocols.pgm.extensions import CongestionData, CongestionFeedback
from plugins.protocols.pgm.sequence import MASK, distance

MEMORY = 65_000 / 65_536
"""Factor of the low-pass filter for the loss rate (2.6)."""
MAX_JUMP = 4096
"""Consecutive losses that are counted at most."""
ALL = (1 << BITMAP) - 1


class Feedback:
    """The feedback of one session. ``address`` identifies us, with 4 or 16 bytes."""

    def __init__(self, address: bytes) -> None:
        self.loss = 0.0
        self.highest: int | None = None
        self.bitmap = 0
        self.elect_at: float | None = None
        """When to offer ourselves as acker."""
        self._address = address
        self._timestamp = 0
        self._at = 0.0

    def note(self, number: int, data: CongestionData, now: float, back_off: float) -> bool:
        """Process an ODATA packet; return whether we are the acker and must acknowledge it now.

        If there is no acker, an acknowledgement is due after ``back_off`` seconds, unless one is elected by
        then (2.3.1).
        """
        # The time of arrival is kept beside the timestamp: ``report`` adds what has passed since, so that a
        # NAK after a long back-off does not look like a long round trip (2.5.1).
        self._timestamp, self._at = data.timestamp, now
        self._arrived(number)
        if any(data.acker):
            self.elect_at = None
            return data.acker == self._address
        # An address of zeros asks for a new acker (2.1.1). All receivers see it at once; a random wait keeps
        # them from answering at once. Later packets without an acker do not restart the wait.
        if self.elect_at is None:
            self.elect_at = now + back_off
        return False

    def _arrived(self, number: int) -> None:
        if self.highest is None:
            self.highest, self.bitmap = number, 1
            return
        ahead = distance(self.highest, number)
        if ahead > 0:
            # The filter of 2.6, one step per packet: every number that was skipped counts as a loss, the
            # packet itself as an arrival. A packet that only came late stays counted as lost.
            for _ in range(min(ahead - 1, MAX_JUMP)):
                self.loss = self.loss * MEMORY + (1 - MEMORY)
            self.loss *= MEMORY
            self.bitmap = (self.bitmap << min(ahead, BITMAP) | 1) & ALL
            self.highest = number
        # A late packet sets its bit: the source may have counted it as lost already, which is harmless.
        elif ahead > -BITMAP:
            self.bitmap |= 1 << -ahead

    def report(self, now: float) -> CongestionFeedback:
        """Return the report that goes with NAKs and acknowledgements.

        Its timestamp is corrected by the time since the packet arrived (2.5.1).
        """
        elapsed = int((now - self._at) * TICK)
        return CongestionFeedback((self._timestamp + elapsed) & MASK, self.loss, self._address)
