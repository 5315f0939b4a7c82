"""A window that grows with what the path carries.

A window of fixed size carries no more than its bytes in each round trip. TCP's receivers therefore grow their
windows to twice what arrives in a round trip (dynamic right-sizing, Linux's ``tcp_rcv_space_adjust``), and so
does this: as long as more than half of the window passes within a round trip, it doubles. Where the path, the
source or the destination is slow, it stays small.
"""

from __future__ import annotations

import math
from collections.abc import Callable

INITIAL = 256 * 1024
"""Bytes of a window at first, or its limit if that is less."""


class GrowingWindow:
    """The size of a window. It never shrinks.

    ``most`` is its limit. ``round_trip`` returns the seconds of a round trip; None, and no growth,
    while they are not known.
    """

    __slots__ = ("_most", "_now", "_round_trip", "_since", "size")

    def __init__(self, most: int, now: Callable[[], float], round_trip: Callable[[], float | None]) -> None:
        self.size = min(INITIAL, most)
        self._most = most
        self._now = now
        self._round_trip = round_trip
        self._since = -math.inf

    def half_passed(self) -> None:
        """Record that bytes for half of the window have passed since the last call."""
        if self.size == self._most:
            return
        now, round_trip = self._now(), self._round_trip()
        if round_trip is not None and now - self._since < round_trip:
            self.size = min(2 * self.size, self._most)
        self._since = now
