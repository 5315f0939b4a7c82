"""Token bucket: how a rate is kept (RFC 3208, 5.1.2)."""

from __future__ import annotations

import math

PRECISION = 1e-3
"""Of a token: a clock that counts microseconds may be as far off."""


class TokenBucket:
    """So many tokens a second, of which ``burst`` may be saved up.

    Whoever finds at least one may spend more than there are; the debt is waited off.
    """

    __slots__ = ("_at", "_burst", "_rate", "tokens")

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._at = -math.inf
        self.tokens = burst

    def fill(self, now: float) -> float:
        """Return how many there are at ``now``; none or fewer: wait."""
        if now > self._at:
            self.tokens = min(self._burst, self.tokens + self._rate * (now - self._at))
            self._at = now
        return self.tokens

    def has_one(self, now: float) -> bool:
        """Whether there is one at ``now``, within the precision of time."""
        return self.fill(now) >= 1 - PRECISION

    def ready_at(self) -> float:
        """Return when there will be one, as of the last ``fill``."""
        return self._at if self.tokens >= 1 - PRECISION else self._at + (1 - self.tokens) / self._rate
