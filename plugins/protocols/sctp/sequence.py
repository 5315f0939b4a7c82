"""Sequence numbers on the wire have 16 or 32 bits and wrap around; inside they are plain integers that do not.

That makes comparing, sorting and counting them what it looks like (RFC 9260, 1.6 is needed here only).
"""

from __future__ import annotations

MASK16 = 0xFFFF
MASK32 = 0xFFFF_FFFF


def unwrapped(wire: int, near: int, mask: int = MASK32) -> int:
    """Return the integer nearest to ``near`` whose lower bits, as many as ``mask`` has, are ``wire``."""
    half = (mask >> 1) + 1
    return near + ((wire - near + half) & mask) - half
