"""What the system knows of a TCP connection.  Linux."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

_UNACKED = struct.Struct("=8x4x4x4x4xI")
"""``tcpi_unacked`` of ``struct tcp_info`` (linux/tcp.h): eight octets, and four numbers before it."""


def unacknowledged(connected: socket.socket) -> int:
    """Return how many packets were sent whose arrival the system of the peer has not acknowledged."""
    info = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _UNACKED.size)
    return int(_UNACKED.unpack(info)[0])


def looks_until_acknowledged(connected: socket.socket, look: Callable[[], object]) -> int:
    """Return how often ``look`` was called until all was acknowledged."""
    looks = 0
    while unacknowledged(connected):
        look()
        looks += 1
    return looks
