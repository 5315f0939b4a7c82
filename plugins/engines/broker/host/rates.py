"""Rates: limits on events a second (token bucket)."""

from __future__ import annotations


class Bucket:
    """A token bucket: ``rate`` events a second on average, and as many at once.

    ``take`` may overdraw it, for messages that have arrived already; then the next ones have to wait longer.
    """

    __slots__ = ("_level", "_rate", "_since")

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        # At least one, or a bucket for less than one event a second would never have enough for one.
        self._level = max(rate, 1.0)
        self._since = now

    def take(self, count: int, now: float) -> float:
        """Count events that have happened; return for how many seconds no more should be read."""
        self._fill(now)
        self._level -= count
        # Below zero by what came too early: so many seconds until it is zero again.
        return max(0.0, -self._level / self._rate)

    def take_one(self, now: float) -> bool:
        """Count one event if the rate allows it; return whether it does."""
        self._fill(now)
        if self._level < 1:
            return False
        self._level -= 1
        return True

    def _fill(self, now: float) -> None:
        most = max(self._rate, 1.0)
        self._level = min(most, self._level + (now - self._since) * self._rate)
        self._since = now
