"""Round trips: measured, smoothed, and turned into timeouts, as RFC 6298 does it for TCP."""

from __future__ import annotations

GRAIN = 0.0005
"""Seconds: half of the shortest interval that is computed."""


class RoundTrip:
    """The time from a request to its answer."""

    __slots__ = ("_variation", "smoothed")

    def __init__(self) -> None:
        self.smoothed: float | None = None
        """Seconds; None until there was an answer."""
        self._variation = 0.0

    def measured(self, seconds: float) -> None:
        """Take a measurement of a request that was made once."""
        if self.smoothed is None:
            self.smoothed = seconds
            self._variation = seconds / 2
        else:
            # RFC 6298, 2.3: the variation first, as it needs the old mean.
            self._variation += (abs(self.smoothed - seconds) - self._variation) / 4
            self.smoothed += (seconds - self.smoothed) / 8

    def timeout(self, otherwise: float, most: float) -> float:
        """Return how long an answer may take, in seconds; ``otherwise`` until something was measured."""
        if self.smoothed is None:
            return otherwise
        return min(most, 2 * self.smoothed + max(4 * self._variation, 2 * GRAIN))

    def spread(self, factor: float, most: float) -> float:
        """Return ``factor`` round trips in seconds, at most ``most``.

        ``most`` until something was measured.
        """
        return most if self.smoothed is None else min(most, max(factor * self.smoothed, 2 * GRAIN))
