"""Captures that tests write: packets of IP, without a link around them."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from plugins.protocols.pgm.checksum import checksum_of, ones_sum

LINKTYPE_RAW = 101
_IP = Struct(">BBHHHBBH4s4s")
_MICROSECONDS = 1_000_000


def pcap(packets: Iterable[tuple[float, int, bytes, bytes, bytes]]) -> bytes:
    """Return a capture of packets: seconds, IP's protocol number, source, destination (IPv4), and what IP carries."""
    written = [Struct("=IHHiIII").pack(0xA1B2C3D4, 2, 4, 0, 0, 65_535, LINKTYPE_RAW)]
    for number, (time, protocol, source, destination, payload) in enumerate(packets):
        size = _IP.size + len(payload)
        head = _IP.pack(0x45, 0, size, number & 0xFFFF, 0x4000, 1, protocol, 0, source, destination)
        head = head[:10] + checksum_of(ones_sum(head)).to_bytes(2, "big") + head[12:]
        seconds, microseconds = divmod(round(time * _MICROSECONDS), _MICROSECONDS)
        written += [Struct("=IIII").pack(seconds, microseconds, size, size), head, payload]
    return b"".join(written)
