"""Heartbeats (section 4.2.7) in both directions.  The caller passes the time."""

from __future__ import annotations


class Heartbeats:
    """Decides when to send a heartbeat, and when a silent peer counts as lost.

    ``due`` checks whether anything but a heartbeat was sent since the last check.  If not, a heartbeat is
    due, and the next check comes half an interval later.  If something was, it may have been long ago, and
    the next check comes after a quarter.  So a peer waits for us three quarters of an interval at the most.
    Some clients (amqp-client.js) give up a peer that is silent for one, and a timer may be late.
    """

    def __init__(self, silent_intervals: int) -> None:
        """``silent_intervals``: after so many without an octet a peer counts as lost."""
        self._silent_intervals = silent_intervals
        self._interval = 0
        self._next_look = 0.0
        # The owner sets these two by itself, for each chunk, which costs less than two calls.
        self.last_received = 0.0
        """When octets came from the peer: any octet counts as a sign of life."""
        self.sent = 0
        """How often something was sent since the last check.

        If that was anything but heartbeats, the next check needs none.
        """
        self._beats = 0
        """How often of these it was a heartbeat of ours."""

    def start(self, interval: int, now: float) -> None:
        """Begin, with the negotiated interval in seconds; 0: no heartbeats."""
        self._interval = interval
        self._next_look = now + interval / 4
        # The time before the connection was open does not count as silence.
        self.last_received = now

    def stop(self) -> None:
        """Send and expect no more heartbeats."""
        self._interval = 0

    def next_deadline(self) -> float | None:
        """Return when ``due`` or ``peer_is_silent`` may change its answer; None: never."""
        if not self._interval:
            return None
        # Each chunk that is received moves the second time away.  An owner need not set its timer again for
        # that: if it is woken too early, nothing is due, and it asks again.
        return min(self._next_look, self.last_received + self._silent_intervals * self._interval)

    def peer_is_silent(self, now: float) -> bool:
        """Whether the peer counts as lost.  The connection is then closed without close and close-ok."""
        silent = self._silent_intervals * self._interval
        return bool(silent) and now >= self.last_received + silent

    def due(self, now: float) -> bool:
        """Whether a heartbeat has to be sent now."""
        if not self._interval or now < self._next_look:
            return False
        silent = self.sent <= self._beats
        self._next_look = now + self._interval / (2 if silent else 4)
        self.sent = 0
        self._beats = int(silent)
        return silent
