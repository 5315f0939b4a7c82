"""How long it takes until receivers ask for a packet that was lost, as a source can measure it."""

from __future__ import annotations

from collections import deque

from plugins.protocols.pgm.sequence import distance

_REMEMBERED = 256
"""Batches of data and SPMs whose times are remembered."""
_MOST = 0.5
"""Seconds of the longest delay that is believed."""
_DOWN, _UP = 1 / 2, 1 / 16
"""Weights of a measurement that is shorter, and longer, than what is known. The delay includes a random
back-off of the receiver that asks first, so that the shortest delays are nearest to the round trip."""


class RequestDelay:
    """The time from the packet that shows a loss to the first NAK: a round trip, and a little more."""

    __slots__ = ("_least", "_seconds", "sent")

    def __init__(self, least: float) -> None:
        self.sent: deque[tuple[int, float]] = deque(maxlen=_REMEMBERED)
        """The last number of each batch of data, and when it was sent; for an SPM the number behind
        its leading edge."""
        self._least = least
        self._seconds: float | None = None

    def measured(self, number: int, now: float) -> float:
        """Take the first NAK for a packet; return the delay, at least ``least``."""
        revealed: float | None = None
        # The packet behind it shows that it is missing, or an SPM: the oldest entry that ends behind it.
        for last, at in reversed(self.sent):
            if distance(number, last) <= 0:
                break
            revealed = at
        # With a number before all that are remembered, the time is not known.
        else:
            revealed = None
        if revealed is not None and now - revealed <= _MOST:
            sample = now - revealed
            if self._seconds is None:
                self._seconds = sample
            else:
                self._seconds += (sample - self._seconds) * (_DOWN if sample < self._seconds else _UP)
        return max(self._least, self._seconds or 0.0)
