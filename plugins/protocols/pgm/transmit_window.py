"""Transmit window: the packets that a source can send again (RFC 3208, 3.3 and appendix F)."""

from __future__ import annotations

from collections import deque

from plugins.protocols.pgm.sequence import after, distance

AGE_GRAIN = 0.01
"""Seconds: packets that are added within them are of one age, that of the first."""


class TransmitWindow:
    """From ``trail`` to ``lead``, both included.  Bounded in packets, bytes and seconds.

    The age is kept of packets that were added within ``AGE_GRAIN`` together.
    """

    __slots__ = ("_ages", "_bytes", "_most", "_most_bytes", "_packets", "_seconds", "lead", "trail")

    def __init__(self, first: int, most: int, most_bytes: int, seconds: float) -> None:
        self.trail = first
        self.lead = after(first, -1)
        self._most = most
        self._most_bytes = most_bytes
        self._seconds = seconds
        self._packets: dict[int, bytes] = {}
        self._bytes = 0
        self._ages: deque[tuple[int, float]] = deque()

    def __len__(self) -> int:
        return len(self._packets)

    def get(self, number: int) -> bytes | None:
        """Return a packet; None when it is not here, or here no longer."""
        return self._packets.get(number)

    def add(self, packet: bytes) -> None:
        """Add the next packet, whose number is the one after ``lead``; the oldest leave for it."""
        self.lead = lead = after(self.lead)
        self._packets[lead] = packet
        self._bytes += len(packet)
        if len(self._packets) > self._most or self._bytes > self._most_bytes:
            self._shrink()

    def stamp(self, now: float) -> None:
        """What is added next is added at ``now``."""
        ages = self._ages
        if not ages or now - ages[-1][1] > AGE_GRAIN:
            ages.append((after(self.lead), now))

    def expire(self, now: float) -> None:
        """Let go of what is too old."""
        ages = self._ages
        while ages and ages[0][1] <= now - self._seconds:
            ages.popleft()
            self._drop_before(ages[0][0] if ages else after(self.lead))

    def next_expiry(self) -> float | None:
        """Return when ``expire`` will find something."""
        return self._ages[0][1] + self._seconds if self._ages else None

    def _shrink(self) -> None:
        while len(self._packets) > self._most or (self._bytes > self._most_bytes and len(self._packets) > 1):
            self._drop_before(after(self.trail))

    def _drop_before(self, number: int) -> None:
        while distance(self.trail, number) > 0:
            packet = self._packets.pop(self.trail, None)
            if packet is not None:
                self._bytes -= len(packet)
            self.trail = after(self.trail)
