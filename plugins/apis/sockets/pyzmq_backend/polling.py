"""zmq_poll: wait for sockets and for descriptors."""

from __future__ import annotations

import errno
import math
import select
import time
from collections.abc import Sequence
from typing import Any

from plugins.apis.sockets.pyzmq_backend.core import POLLERR, POLLIN, POLLOUT, Core
from plugins.apis.sockets.pyzmq_backend.errors import failure, translating
from plugins.apis.sockets.pyzmq_backend.socket import Socket

_POLLPRI = 8
_SYSTEM = ((POLLIN, select.POLLIN), (POLLOUT, select.POLLOUT), (_POLLPRI, select.POLLPRI))
"""Flags of pyzmq, and those of the system."""
_BROKEN = select.POLLERR | select.POLLHUP | select.POLLNVAL


@translating
def zmq_poll(sockets: Sequence[tuple[Any, int]], timeout: int = -1) -> list[tuple[Any, int]]:
    """Wait ``timeout`` milliseconds until one can do what is asked for; return all that can."""
    deadline = math.inf if timeout is None or timeout < 0 else time.monotonic() + timeout / 1000
    cores: list[tuple[Socket, Core, int]] = []
    descriptors: list[tuple[int, int]] = []
    for each, flags in sockets:
        if isinstance(each, Socket):
            if each._closed or each._core.closed:
                raise failure(errno.ENOTSOCK)
            cores.append((each, each._core, int(flags)))
        else:
            if not isinstance(each, int) and not hasattr(each, "fileno"):
                raise TypeError(f"a socket, a descriptor or what has fileno() is expected, not {each!r}")
            descriptors.append((each if isinstance(each, int) else each.fileno(), int(flags)))
    while True:
        found: list[tuple[Any, int]] = [
            (socket, events) for socket, core, flags in cores if (events := core.events() & flags)
        ]
        found += _ready(descriptors)
        left = deadline - time.monotonic()
        if found or left <= 0:
            return found
        _sleep([core for _, core, _ in cores], descriptors, left)


def _ready(descriptors: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    if not descriptors:
        return []
    waiting = _registered(descriptors)
    found = []
    for descriptor, system in waiting.poll(0):
        flags = sum(ours for ours, theirs in _SYSTEM if system & theirs)
        found.append((descriptor, flags | (POLLERR if system & _BROKEN else 0)))
    return found


def _registered(descriptors: Sequence[tuple[int, int]]) -> select.poll:
    wanted: dict[int, int] = {}
    for descriptor, flags in descriptors:
        system = sum(theirs for ours, theirs in _SYSTEM if flags & ours)
        wanted[descriptor] = wanted.get(descriptor, 0) | system
    waiting = select.poll()
    for descriptor, system in wanted.items():
        waiting.register(descriptor, system)
    return waiting


def _sleep(cores: Sequence[Core], descriptors: Sequence[tuple[int, int]], seconds: float) -> None:
    """Sleep until something was posted to a socket, or a descriptor is ready."""
    waiting = _registered(descriptors)
    begun: list[Core] = []
    try:
        for core in cores:
            core.begin_wait()
            begun.append(core)
        # One that has something ends the look.
        if all(core.arm() for core in cores):
            for core in cores:
                waiting.register(core.waiting.fileno(), select.POLLIN)
            waiting.poll(None if seconds == math.inf else max(0.0, seconds * 1000))
    finally:
        for core in begun:
            core.end_wait()
