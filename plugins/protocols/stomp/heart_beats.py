"""Heart-beats in both directions (STOMP 1.2, Heart-beating).  The caller passes the time, in seconds."""

from __future__ import annotations

from typing import NamedTuple

from plugins.protocols.stomp.errors import Fault
from plugins.protocols.stomp.frames import HEART_BEAT

_LONGEST_NUMBER = 10
_SILENT_INTERVALS = 2
"""After so many intervals without an octet a peer counts as lost: the error margin of the specification."""


class Offer(NamedTuple):
    """The header ``heart-beat``: milliseconds, 0 for none."""

    can_send: int
    wants: int

    @classmethod
    def of(cls, text: str | None) -> Offer:
        """Read the header; None: it is missing, which means 0,0.  Raises ``Fault``."""
        if text is None:
            return cls(0, 0)
        numbers = [number.strip() for number in text.split(",")]
        if len(numbers) != 2 or not all(map(_is_number, numbers)):
            raise Fault("Invalid header", f"heart-beat must be two numbers, and not {text[:80]!r}")
        return cls(int(numbers[0]), int(numbers[1]))

    def answer(self, least: int) -> Offer:
        """Return a server's offer: what the client wants and can do, but no interval below ``least``.

        ``least`` is in milliseconds; 0: no heart-beats at all.
        """
        if not least:
            return Offer(0, 0)
        # Crosswise: what the client wants is what the server has to be able to send.
        return Offer(
            max(self.wants, least) if self.wants else 0, max(self.can_send, least) if self.can_send else 0
        )

    def __str__(self) -> str:
        return f"{self.can_send},{self.wants}"


def _is_number(text: str) -> bool:
    # ``isascii``: there are digits of other scripts.
    return text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER


def interval(sender: int, receiver: int) -> float:
    """Return the seconds between heart-beats in one direction; 0: there are none."""
    # STOMP 1.2, Heart-beating: the larger number counts, and 0 at one side means none.
    return max(sender, receiver) / 1000 if sender and receiver else 0.0


class HeartBeats:
    """Decides when to send a heart-beat, and when a silent peer counts as lost.

    Every third of an interval ``due`` checks whether anything was sent since the last check.  So the peer
    gets something in each interval, although timers are late.
    """

    def __init__(self) -> None:
        self._sends_every = 0.0
        self._receives_every = 0.0
        self._next_check = 0.0
        self._last_received = 0.0
        self._sent = 0
        """Octets that were sent before the last check, and the heart-beat that it asked for."""

    def start(self, ours: Offer, theirs: Offer, now: float) -> None:
        """Begin with what both sides have said in CONNECT and CONNECTED."""
        self._sends_every = interval(ours.can_send, theirs.wants)
        self._receives_every = interval(theirs.can_send, ours.wants)
        self._next_check = now + self._sends_every / 3
        self._last_received = now

    def stop(self) -> None:
        """Send and expect no more heart-beats."""
        self._sends_every = self._receives_every = 0.0

    def received(self, now: float) -> None:
        """Octets came from the peer; any octet is a sign of life."""
        self._last_received = now

    def next_deadline(self) -> float | None:
        """Return when ``due`` or ``peer_is_silent`` may change its answer; None: never."""
        times = []
        if self._sends_every:
            times.append(self._next_check)
        if self._receives_every:
            times.append(self._last_received + _SILENT_INTERVALS * self._receives_every)
        return min(times, default=None)

    def peer_is_silent(self, now: float) -> bool:
        """Whether the peer counts as lost."""
        silent = _SILENT_INTERVALS * self._receives_every
        return bool(silent) and now >= self._last_received + silent

    def due(self, now: float, sent: int) -> bool:
        """Whether a heart-beat has to be sent now; ``sent``: how many octets were sent so far."""
        if not self._sends_every or now < self._next_check:
            return False
        self._next_check = now + self._sends_every / 3
        silent = sent <= self._sent
        # The heart-beat itself counts among the octets that were sent by the next check. Without it the peer
        # would get one in every second check only.
        self._sent = sent + len(HEART_BEAT) if silent else sent
        return silent
