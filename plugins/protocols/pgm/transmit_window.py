"""The transmit window: the packets that a source can repair (RFC 3208, 3.3 and appendix F)."""

from __future__ import annotations

from collections import deque

from plugins.protocols.pgm.sequence import after, distance

AGE_GRAIN = 0.01
"""Seconds within which packets share one age, that of the first: an entry per packet would cost more than the
precision is worth."""


class TransmitWindow:
    """Packets from ``trail`` to ``lead``, both included; bounded in packets, bytes and seconds."""

    __slots__ = ("_most", "_most_bytes", "_seconds", "ages", "bytes", "lead", "packets", "trail")

    def __init__(self, first: int, most: int, most_bytes: int, seconds: float) -> None:
        self.trail = first
        self.lead = after(first, -1)
        self._most = most
        self._most_bytes = most_bytes
        self._seconds = seconds
        self.packets: dict[int, bytes] = {}
        """Those that can be repaired, by number."""
        self.bytes = 0
        """Their bytes."""
        self.ages: deque[tuple[int, float]] = deque()
        """Numbers, and when the packets from there on were sent."""

    def __len__(self) -> int:
        return len(self.packets)

    def get(self, number: int) -> bytes | None:
        """Return a packet, or None if it is not in the window."""
        return self.packets.get(number)

    def add(self, packet: bytes) -> None:
        """Add the packet after ``lead``; the oldest leave if there is no room."""
        self.lead = lead = after(self.lead)
        # A dictionary and not a list: numbers wrap, and NAKs ask for single ones.
        self.packets[lead] = packet
        self.bytes += len(packet)
        if len(self.packets) > self._most or self.bytes > self._most_bytes:
            self._shrink()

    def leaves_for(self, size: int) -> int:
        """Return how many packets leave if one of ``size`` bytes is added: 0, 1, or more than 1 as 2."""
        if len(self.packets) < self._most and self.bytes + size <= self._most_bytes:
            return 0
        oldest = self.packets.get(self.trail, b"")
        return 1 if oldest and self.bytes + size - len(oldest) <= self._most_bytes else 2

    def stamp(self, now: float) -> None:
        """Record the time of the packets that are added next."""
        ages = self.ages
        if not ages or now - ages[-1][1] > AGE_GRAIN:
            ages.append((after(self.lead), now))

    def expire(self, now: float) -> None:
        """Remove packets that are too old."""
        ages = self.ages
        while ages and ages[0][1] <= now - self._seconds:
            ages.popleft()
            # A stamp is the age of all packets up to the next stamp, or up to the leading edge.
            self._drop_before(ages[0][0] if ages else after(self.lead))

    def next_expiry(self) -> float | None:
        """Return when ``expire`` will remove something, or None."""
        return self.ages[0][1] + self._seconds if self.ages else None

    def _shrink(self) -> None:
        # One packet always stays, also if it alone exceeds the bytes: the last packet must be repairable.
        while len(self.packets) > self._most or (self.bytes > self._most_bytes and len(self.packets) > 1):
            self._drop_before(after(self.trail))

    def _drop_before(self, number: int) -> None:
        while distance(self.trail, number) > 0:
            packet = self.packets.pop(self.trail, None)
            if packet is not None:
                self.bytes -= len(packet)
            self.trail = after(self.trail)
