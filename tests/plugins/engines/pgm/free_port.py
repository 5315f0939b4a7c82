"""A port that nobody has."""

from __future__ import annotations

import socket


def free_port() -> int:
    """Of UDP on the loopback interface, and most likely of TCP as well."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
