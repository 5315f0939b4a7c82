"""Ports that a test chooses itself, because what listens there is killed and started again."""

from __future__ import annotations

import itertools
import os
import socket

_FIRST, _LAST = 20_000, 32_000
"""Below those that the system gives to whoever asks for any port, as other tests do all the time."""
_WORKERS = 16
_SHARE = (_LAST - _FIRST) // _WORKERS

_numbers = itertools.count(os.getpid() * 7)


def free_port() -> int:
    """Return a port that nobody listens on, and that nobody else is given either while nobody does.

    Each process of pytest-xdist has a share of its own, and gives each port once.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = _FIRST + worker % _WORKERS * _SHARE
    for number in itertools.islice(_numbers, _SHARE):
        port = first + number % _SHARE
        if _is_free(port):
            return port
    raise OSError("no port is free")


def _is_free(port: int) -> bool:
    try:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            with socket.socket(type=kind) as sock:
                sock.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True
