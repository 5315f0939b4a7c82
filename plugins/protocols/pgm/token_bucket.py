"""Token bucket: how a rate is kept (RFC 3208, 5.1.2)."""

from __future__ import annotations

import math

PRECISION = 1e-3
"""Part of a token that may be missing: a clock that counts microseconds can be wrong by as much."""


class TokenBucket:
    """Gains ``rate`` tokens a second, and holds ``burst`` of them at most.

    A caller that finds at least one token may spend more than there are. The count is then negative, and the
    next caller waits until it is positive again. So no packet waits for an exact fit, and the rate is kept on
    average.
    """

    __slots__ = ("_burst", "_rate", "at", "tokens")

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self.at = -math.inf
        """When ``tokens`` was right."""
        self.tokens = burst

    def fill(self, now: float) -> float:
        """Return the number of tokens at ``now``. Zero or less means: wait."""
        if now > self.at:
            self.tokens = self.at_time(now)
            self.at = now
        return self.tokens

    def at_time(self, now: float) -> float:
        """Return what ``fill`` would return, and change nothing."""
        # A clock that goes back must not take tokens away.
        if now <= self.at:
            return self.tokens
        return min(self._burst, self.tokens + self._rate * (now - self.at))

    def has_one(self, now: float) -> bool:
        """Whether there is one at ``now``, within the precision of time."""
        return self.fill(now) >= 1 - PRECISION

    def ready_at(self) -> float:
        """Return when there will be one, as of the last ``fill``."""
        return self.at if self.tokens >= 1 - PRECISION else self.at + (1 - self.tokens) / self._rate
