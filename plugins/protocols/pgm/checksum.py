"""The Internet checksum of a PGM packet: from the PGM header on, without a pseudo header (RFC 3208, 8).

The ones' complement sum of 16-bit words is the number that they make together, modulo 65,535: one division of a large
integer, in C, rather than a loop over words (1.5 us for 1,400 bytes; a loop in Python takes 30).
"""

from __future__ import annotations

ALL_ONES = 0xFFFF


def ones_sum(data: bytes) -> int:
    """Return the sum of the words of ``data``, modulo 65,535; an odd byte at the end counts as a word's upper half."""
    return int.from_bytes(data + b"\0" if len(data) & 1 else data, "big") % ALL_ONES


def checksum_of(total: int) -> int:
    """Return the checksum that belongs to words of that sum; 0 is sent as all ones, since 0 means none."""
    return ALL_ONES - total % ALL_ONES


def sealed(packet: bytes) -> bytes:
    """Return ``packet``, whose checksum field is zero, with its checksum in it."""
    return packet[:6] + checksum_of(ones_sum(packet)).to_bytes(2, "big") + packet[8:]


def is_intact(packet: bytes) -> bool:
    """Whether the checksum fits: with it, the sum is all ones, which is zero modulo 65,535."""
    return ones_sum(packet) == 0
