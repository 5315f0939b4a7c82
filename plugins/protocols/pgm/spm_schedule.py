"""When a source sends SPMs: ambient ones while data flows, heartbeats at doubling intervals when it does not (5.1.4-6)."""

from __future__ import annotations


class SpmSchedule:
    """The two timers."""

    __slots__ = ("_ambient", "_ambient_at", "_first", "_heartbeat_at", "_interval", "_most")

    def __init__(self, ambient: float, first: float, most: float) -> None:
        self._ambient = ambient
        self._first = first
        self._most = most
        self._interval = first / 2
        self._ambient_at = self._heartbeat_at = 0.0  # the first one is due at once

    def due(self) -> float:
        """Return when the next SPM has to go."""
        return min(self._ambient_at, self._heartbeat_at)

    def at_once(self, now: float) -> None:
        """Somebody needs one."""
        self._ambient_at = min(self._ambient_at, now)

    def sent_data(self, now: float) -> None:
        """Data was sent: begin again with the shortest heartbeat."""
        self._interval = self._first
        self._heartbeat_at = now + self._first

    def sent_spm(self, now: float) -> None:
        """An SPM was sent."""
        self._ambient_at = now + self._ambient
        if now >= self._heartbeat_at:
            self._interval = min(2 * self._interval, self._most)
            self._heartbeat_at = now + self._interval
