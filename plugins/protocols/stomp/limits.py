"""Limits: how much of everything a peer may send in one frame (STOMP 1.2, Size Limits)."""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a frame may have at most."""

    headers: int = 256
    """Header lines."""
    header_line: int = 16_384
    """Octets of one header line, or of the command."""
    header_block: int = 65_536
    """Octets of all lines in front of the body."""
    body: int = 134_217_728
    """Octets of the body."""
