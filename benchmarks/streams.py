"""Bare connections: blocking sockets for clients that measure brokers, not clients."""

from __future__ import annotations

import socket

READ_BYTES = 1 << 18
_WRITE_BYTES = 1 << 18


def opened(address: str) -> socket.socket:
    """Return a connected socket."""
    host, _, port = address.rpartition("/")[2].partition(":")
    sock = socket.create_connection((host, int(port)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


class Stream:
    """A connection."""

    room = bytearray(READ_BYTES)
    """All connections read into it, so that many of them need little memory: one looks at it at once."""

    def __init__(self, address: str) -> None:
        self.socket = opened(address)
        # A block of messages is written without waiting for the broker to read it.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _WRITE_BYTES)

    def read(self) -> bytes:
        """Read once."""
        data = self.socket.recv(READ_BYTES)
        if not data:
            raise EOFError("the broker hung up")
        return data

    def read_exactly(self, size: int) -> bytes:
        """Read so many octets."""
        data = self.socket.recv(size, socket.MSG_WAITALL)
        if len(data) < size:
            raise EOFError("the broker hung up")
        return data

    def read_into_room(self) -> int:
        """Read once into ``room``; return how many octets."""
        read = self.socket.recv_into(self.room)
        if not read:
            raise EOFError("the broker hung up")
        return read
