"""Rates: so many a second, counted in a bucket that drains."""

from __future__ import annotations


class Bucket:
    """So many a second on the average, and as many as that at once.

    It may be overdrawn, since what has come has come: then the next have to wait until that is made up for.
    """

    __slots__ = ("_level", "_rate", "_since")

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._level = max(rate, 1.0)
        self._since = now

    def take(self, count: int, now: float) -> float:
        """Take what has come out of the bucket; return how many seconds nothing more should."""
        self._fill(now)
        self._level -= count
        return max(0.0, -self._level / self._rate)

    def take_one(self, now: float) -> bool:
        """Take one out, if there is one."""
        self._fill(now)
        if self._level < 1:
            return False
        self._level -= 1
        return True

    def _fill(self, now: float) -> None:
        most = max(self._rate, 1.0)
        self._level = min(most, self._level + (now - self._since) * self._rate)
        self._since = now
