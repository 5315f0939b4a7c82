"""CRC32c over a packet whose checksum field is zero (RFC 9260, 6.8 and appendix A).

The library google-crc32c computes it where it is installed (the extra ``sctp``): 0.2 us for 1,200 bytes. Else
it is computed in Python, which takes some 100 us.
"""

from __future__ import annotations

from collections.abc import Callable

_POLYNOMIAL = 0x82F6_3B78
_ZERO = b"\0\0\0\0"


def _table() -> tuple[int, ...]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (_POLYNOMIAL if number & 1 else 0)
        table.append(number)
    return tuple(table)


_TABLE = _table()


def extended_in_python(crc: int, data: bytes) -> int:
    """Continue a CRC32c with more data, without a library."""
    table = _TABLE
    crc ^= 0xFFFF_FFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFF_FFFF


def _best() -> Callable[[int, bytes], int]:
    try:
        from google_crc32c import extend, implementation
    except ImportError:
        return extended_in_python
    return extend if implementation == "c" else extended_in_python


extended = _best()


def crc32c(data: bytes) -> int:
    """Return the CRC32c of ``data``."""
    return extended(0, data)


def sealed(head: bytes, chunks: bytes) -> bytes:
    """Return a packet of the eight bytes before the checksum and the chunks.

    The checksum's lowest byte is first.
    """
    crc = extended(extended(0, head + _ZERO), chunks)
    return b"".join((head, crc.to_bytes(4, "little"), chunks))


def is_intact(packet: bytes) -> bool:
    """Whether the packet's checksum is correct."""
    crc = extended(extended(0, packet[:8] + _ZERO), packet[12:])
    return crc == int.from_bytes(packet[8:12], "little")
