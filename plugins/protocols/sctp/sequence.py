"""Serial numbers: they wrap at 16 or 32 bits on the wire, and are plain integers that never wrap inside.

So they are compared, sorted and subtracted as they look, and serial number arithmetic (RFC 9260, 1.6) is
needed in this file only.
"""

from __future__ import annotations

MASK16 = 0xFFFF
MASK32 = 0xFFFF_FFFF


def unwrapped(wire: int, near: int, mask: int = MASK32) -> int:
    """Return the integer nearest to ``near`` whose low bits, as many as ``mask`` has, are ``wire``."""
    half = (mask >> 1) + 1
    return near + ((wire - near + half) & mask) - half
