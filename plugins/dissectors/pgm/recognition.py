"""Recognition of PGM packets, and of several packets in one datagram."""

from __future__ import annotations

from collections.abc import Iterator

from plugins.protocols.pgm.checksum import is_intact
from plugins.protocols.pgm.packets import DATA, HEADER, NAMES, ODATA, RDATA

_OPTIONS_RESERVED = 0x3C


def is_pgm(datagram: bytes) -> bool:
    """Whether a datagram looks like PGM: by type, reserved bits of the options byte, and checksum if any."""
    first = next(packets_of(datagram), b"")
    if len(first) < HEADER.size or first[4] not in NAMES or first[5] & _OPTIONS_RESERVED:
        return False
    # Only a packet with a checksum is recognised: the other fields alone are too likely by chance.
    return first[6:8] != b"\0\0" and is_intact(first)


def packets_of(datagram: bytes) -> Iterator[bytes]:
    """Yield the packets of a datagram.

    On the wire a datagram is one packet.  At the interface of a sender, packets that the system will split
    later (UDP_SEGMENT) are still together.
    """
    while datagram:
        size = _size_of_first(datagram)
        yield datagram[:size]
        datagram = datagram[size:]


def _size_of_first(datagram: bytes) -> int:
    """Return the size of the first packet if another of the same source follows, else the whole size."""
    whole = len(datagram)
    # Only data packets are sent together, and two of them need two headers.
    if whole < 2 * DATA.size or datagram[4] not in (ODATA, RDATA):
        return whole
    size = DATA.size + int.from_bytes(datagram[14:16], "big")
    if datagram[5] & 1:
        # The option bit is set: OPT_LENGTH has the size of all options.
        size += int.from_bytes(datagram[DATA.size + 2 : DATA.size + 4], "big")
    # Ports and GSI must be those of the first packet.  Otherwise the size was wrong, or the rest is no
    # packet.
    follows = datagram[size : size + HEADER.size]
    same_source = follows[:4] == datagram[:4] and follows[8:14] == datagram[8:14]
    return size if len(follows) == HEADER.size and same_source else whole
