"""Path MTU discovery with probe packets: HEARTBEAT plus PAD (RFC 4820; RFC 8899, 5 and 6.2).

Sizes are those of SCTP packets, common header included. Data packets are never larger than what is known to
pass. The host should let IP drop a packet that ``is_probe`` rather than fragment it, and may let it fragment
all others.
"""

from __future__ import annotations

from plugins.protocols.sctp import chunks, packets
from plugins.protocols.sctp.chunks import Plain, Type
from plugins.protocols.sctp.options import SctpOptions

_LINKS = (9000, 4352, 1500, 1492, 1400)
"""Common MTUs."""
_OVERHEAD = 48
"""Bytes of the IPv6 and UDP headers."""
_TRIES = 3
"""Probes of one size that are lost before a smaller size is tried (MAX_PROBES)."""
_PAUSE = 600.0
"""Seconds until larger packets are tried again (PMTU_RAISE_TIMER)."""
_BLACK_HOLE = 2
"""Consecutive timeouts after which the path MTU is assumed to have shrunk (black hole detection)."""
_KIND = packets.HEADER.size
"""Offset of the type of a packet's first chunk."""


def is_probe(packet: bytes) -> bool:
    """Whether IP should drop this packet rather than fragment it."""
    # Recognized by what it consists of, so that the host needs no list of probes: no other packet has a PAD
    # behind a HEARTBEAT.
    if len(packet) <= _KIND or packet[_KIND] != Type.HEARTBEAT:
        return False
    at = _KIND + int.from_bytes(packet[14:16], "big")
    at += -at % 4
    return packet[at : at + 1] == bytes((Type.PAD,))


class Probing:
    """The search for the path MTU of one path."""

    def __init__(self, options: SctpOptions) -> None:
        self.size = options.packet_size
        """Bytes of the largest packet that may be sent."""
        self.due: float | None = None
        """When the next probe is sent, or the outstanding one counts as lost."""
        self._least = options.packet_size
        # The sizes of known links, not a binary search: each size that is too large costs three timeouts.
        most = max(options.packet_size_max, self._least) & ~3
        sizes = {most, *(link - _OVERHEAD for link in _LINKS)}
        self._sizes = sorted((size for size in sizes if self._least < size <= most), reverse=True)
        self._left: list[int] = []
        """Sizes to try, the largest first."""
        self._lost = 0
        self.timeouts = 0
        """Consecutive timeouts of data."""
        self._nonce: bytes | None = None

    def begin(self, now: float) -> None:
        """Start to search for larger packets."""
        self._left = [size for size in self._sizes if size > self.size]
        self._lost = 0
        self._nonce = None
        self.due = now if self._left else None

    def stop(self) -> None:
        self.due = None

    def next(self, heartbeat: bytes, nonce: bytes, rto: float, now: float) -> bytes:
        """Return the chunks of the probe that is due, or nothing.

        ``heartbeat`` is a HEARTBEAT chunk with ``nonce``; a PAD chunk fills the packet.
        """
        # The last probe was not answered.
        if self._nonce is not None:
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
        # No back-off: the loss of a probe is no sign of congestion, and is not counted as an error of the
        # path.
        self.due = now + rto
        # Four bytes are the head of the PAD chunk.
        filling = self._left[0] - packets.HEADER.size - len(heartbeat) - 4
        return heartbeat + chunks.encode(Plain(Type.PAD, bytes(filling)))

    def answered(self, nonce: bytes, now: float) -> bool:
        """Process a HEARTBEAT ACK; return whether it answers a probe."""
        if self._nonce is None or nonce != self._nonce:
            return False
        self._nonce = None
        # The largest size is tried first, so that the first answer ends the search.
        self.size = self._left[0]
        self._left.clear()
        self.timeouts = 0
        self.due = now + _PAUSE
        return True

    def progressed(self) -> None:
        """Record an acknowledgement of data: packets of the current size pass."""
        self.timeouts = 0

    def timed_out(self, now: float) -> None:
        """Record a timeout.

        After several in a row, packets may have become too large for the path (RFC 8899, 4.3).
        """
        self.timeouts += 1
        # A single timeout is usually congestion. The smallest size needs no suspicion: every path carries it.
        if self.timeouts >= _BLACK_HOLE and self.size > self._least:
            self.size = self._least
            self._nonce = None
            self._left.clear()
            self.due = now + _PAUSE
