"""Heartbeats (section 4.2.7), both directions, without a clock of their own."""

from __future__ import annotations


class Heartbeats:
    """When to send a heartbeat, and when to give a silent peer up.

    Every half interval it is looked whether anything was written since the last look; if not, a
    heartbeat goes out.  So the peer never waits longer than one interval, and two may pass before a
    peer is given up.
    """

    def __init__(self) -> None:
        self._interval = 0
        self._next_look = 0.0
        self._last_received = 0.0
        self._sent = False

    def start(self, interval: int, now: float) -> None:
        """Begin, with the negotiated interval in seconds; 0: no heartbeats."""
        self._interval = interval
        self._next_look = now + interval / 2
        self._last_received = now

    def stop(self) -> None:
        """Nothing is due any more."""
        self._interval = 0

    def received(self, now: float) -> None:
        """Any octet from the peer counts."""
        self._last_received = now

    def sent(self) -> None:
        """Something was written."""
        self._sent = True

    def next_deadline(self) -> float | None:
        """When to look again."""
        if not self._interval:
            return None
        return min(self._next_look, self._last_received + 2 * self._interval)

    def peer_is_silent(self, now: float) -> bool:
        """Whether two intervals have passed without an octet."""
        return bool(self._interval) and now >= self._last_received + 2 * self._interval

    def due(self, now: float) -> bool:
        """Whether a heartbeat is to be sent now."""
        if not self._interval or now < self._next_look:
            return False
        self._next_look = now + self._interval / 2
        silent = not self._sent
        self._sent = False
        return silent
