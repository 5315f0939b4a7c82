"""Spinning: how a thread that waits for an answer looks again for a moment before it sleeps.

A sleeping thread takes some 20 us to wake, and a core that sleeps longer still.  An answer that comes sooner
than that is received at once by a thread that has not gone to sleep.  But looking takes the processor from
others, and a peer that shares it cannot answer meanwhile.  So ``SpinningPoll`` looks only while that pays: if
nothing came in time, it sleeps at once in the next wait, then in the next two, four, up to ``MOST_RESTS``
waits, until it tries again.  A thread whose waits are long so spends a thousandth of a moment for each.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import TypeAlias

Poll: TypeAlias = Callable[[float], "list[tuple[int, int]]"]
"""Waits for so many milliseconds at most, -1 for ever; returns what is ready."""

MOMENT = 60e-6
"""Seconds for which it looks.  A peer that has gone to sleep answers within it, if its core is free."""
MOST_RESTS = 1024
_DONT_WAIT = socket.MSG_DONTWAIT


class _Spinning:
    """When to look before the sleep."""

    __slots__ = ("_always", "_moment", "_rests", "_rests_next")

    def __init__(self, always: float) -> None:
        self._always = bool(always)
        self._moment = always or MOMENT
        self._rests = 0
        """How many of the next waits sleep at once."""
        self._rests_next = 1
        """How many that will be after the next look for nothing."""

    def _in_vain(self) -> None:
        if not self._always:
            self._rests = self._rests_next
            self._rests_next = min(2 * self._rests_next, MOST_RESTS)


class SpinningPoll(_Spinning):
    """``poll``, with a look for a moment before it sleeps."""

    __slots__ = ("_poll",)

    def __init__(self, poll: Poll, always: float = 0.0) -> None:
        """``always``: for so many seconds before every sleep; 0: for ``MOMENT``, while that pays."""
        super().__init__(always)
        self._poll = poll

    def __call__(self, milliseconds: float) -> list[tuple[int, int]]:
        """Wait."""
        poll = self._poll
        # Who does not want to wait gets an answer at once.
        if 0 <= milliseconds < 1:
            return poll(milliseconds)
        if self._rests:
            self._rests -= 1
            return poll(milliseconds)
        # What is there already says nothing about a look: on a core that both share the peer may have
        # answered within the system call that sent.
        ready = poll(0)
        if ready:
            return ready
        clock = time.perf_counter
        until = clock() + self._moment
        while clock() < until:
            ready = poll(0)
            if ready:
                self._rests_next = 1
                return ready
        self._in_vain()
        return poll(milliseconds)


class SpinningRead(_Spinning):
    """``recv`` of a socket that blocks, with a look for a moment before it sleeps, while that pays."""

    __slots__ = ("_recv",)

    def __init__(self, recv: Callable[..., bytes]) -> None:
        super().__init__(0.0)
        self._recv = recv

    def __call__(self, size: int) -> bytes:
        """Read at most ``size`` bytes."""
        recv = self._recv
        if self._rests:
            self._rests -= 1
            return recv(size)
        until = 0.0
        while True:
            try:
                data = recv(size, _DONT_WAIT)
            except BlockingIOError:
                now = time.perf_counter()
                until = until or now + self._moment
                if now >= until:
                    break
            else:
                # As above: not if it was there already.
                if until:
                    self._rests_next = 1
                return data
        self._in_vain()
        return recv(size)
