"""Reassembly of units that were cut into fragments (OPT_FRAGMENT; RFC 3208, 9.2)."""

from __future__ import annotations

from plugins.protocols.pgm.extensions import Fragment


class Reassembly:
    """The unit under way of one source.  Fragments come in order; what is not complete when another begins is dropped."""

    __slots__ = ("_dropped", "_first", "_most", "_parts", "_size", "_taken")

    def __init__(self, most: int) -> None:
        self._most = most
        self._parts: list[bytes] = []
        self._first: int | None = None
        self._size = self._taken = 0
        self._dropped = 0

    def take(self, fragment: Fragment, data: bytes) -> bytes | None:
        """Take a fragment; return the unit if it is complete now."""
        if fragment.offset == 0:
            self.reset()
            if fragment.size > self._most:
                self._dropped += 1
                return None
            self._first, self._size = fragment.first, fragment.size
        elif (fragment.first, fragment.offset, fragment.size) != (self._first, self._taken, self._size):
            self.reset()
            return None
        self._parts.append(data)
        self._taken += len(data)
        if self._taken < self._size:
            return None
        unit = b"".join(self._parts)
        complete = self._taken == self._size
        self._parts.clear()
        self._first = None
        self._dropped += not complete
        return unit if complete else None

    def reset(self) -> None:
        """What follows does not belong to what came before."""
        if self._first is not None:
            self._dropped += 1
            self._first = None
            self._parts.clear()
        self._taken = 0

    def take_dropped(self) -> int:
        """Return how many units were dropped since: too large, or not all there."""
        dropped, self._dropped = self._dropped, 0
        return dropped
