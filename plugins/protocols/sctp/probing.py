"""The largest packet that a path carries: HEARTBEATs, filled up by PAD (RFC 4820), that are answered or not (RFC 8899, 5 and 6.2).

Sizes are those of SCTP's packets, common header included.  What is sent before an answer has come is no larger than what is known
to pass.  A carrier should have IP not fragment a packet that ``is_probe``, and all others if it must.
"""

from __future__ import annotations

from plugins.protocols.sctp import chunks, packets
from plugins.protocols.sctp.chunks import Plain, Type
from plugins.protocols.sctp.options import SctpOptions

_LINKS = (9000, 4352, 1500, 1492, 1400)
"""MTUs that are common."""
_OVERHEAD = 48
"""Bytes of IPv6 and UDP."""
_TRIES = 3
"""Probes of one size that may be lost (MAX_PROBES)."""
_PAUSE = 600.0
"""Seconds until larger packets are tried again (PMTU_RAISE_TIMER)."""
_BLACK_HOLE = 2
"""Time-outs in a row after which large packets are taken for lost because they are large."""
_KIND = packets.HEADER.size
"""Where a packet has the type of its first chunk."""


def is_probe(packet: bytes) -> bool:
    """Whether IP should rather drop a packet of ours than fragment it."""
    if len(packet) <= _KIND or packet[_KIND] != Type.HEARTBEAT:
        return False
    at = _KIND + int.from_bytes(packet[14:16], "big")
    at += -at % 4
    return packet[at : at + 1] == bytes((Type.PAD,))


class Probing:
    """The search on one path."""

    def __init__(self, options: SctpOptions) -> None:
        self.size = options.packet_size
        """Of the largest packet that may be sent."""
        self.due: float | None = None
        """When the next probe goes, or one is taken for lost."""
        self._least = options.packet_size
        most = max(options.packet_most, self._least) & ~3
        sizes = {most, *(link - _OVERHEAD for link in _LINKS)}
        self._sizes = sorted((size for size in sizes if self._least < size <= most), reverse=True)
        self._left: list[int] = []
        """Sizes that are still to be tried, the largest first."""
        self._lost = 0
        self._timeouts = 0
        self._nonce: bytes | None = None

    def begin(self, now: float) -> None:
        """Look for larger packets."""
        self._left = [size for size in self._sizes if size > self.size]
        self._lost = 0
        self._nonce = None
        self.due = now if self._left else None

    def stop(self) -> None:
        self.due = None

    def next(self, heartbeat: bytes, nonce: bytes, rto: float, now: float) -> bytes:
        """Return the chunks of the packet that is due: ``heartbeat``, which has ``nonce``, filled up; nothing without one."""
        if self._nonce is not None:  # it was not answered
            self._nonce = None
            self._lost += 1
            if self._lost == _TRIES:
                self._lost = 0
                del self._left[0]
                if not self._left:
                    self.due = now + _PAUSE
                    return b""
        elif not self._left:
            self.begin(now)
        if not self._left:
            return b""
        self._nonce = nonce
        self.due = now + rto
        filling = self._left[0] - packets.HEADER.size - len(heartbeat) - 4
        return heartbeat + chunks.encode(Plain(Type.PAD, bytes(filling)))

    def answered(self, nonce: bytes, now: float) -> bool:
        """Take note of an answer; return whether it was one to a probe."""
        if self._nonce is None or nonce != self._nonce:
            return False
        self._nonce = None
        self.size = self._left[0]
        self._left.clear()
        self._timeouts = 0
        self.due = now + _PAUSE
        return True

    def progressed(self) -> None:
        """Something was acknowledged."""
        self._timeouts = 0

    def timed_out(self, now: float) -> None:
        """Nothing was acknowledged for a whole time-out: maybe packets are too large by now (RFC 8899, 4.3)."""
        self._timeouts += 1
        if self._timeouts >= _BLACK_HOLE and self.size > self._least:
            self.size = self._least
            self._nonce = None
            self._left.clear()
            self.due = now + _PAUSE
