"""Waiting: how a handshake waits for its socket, in a task of trio or in a thread that blocks.

The handshakes (``tls.py``, ``web_socket.py``) are written once, as coroutines.  They wait only through a
``Waits``.  An engine's handshake is part of a task and passes ``InTrio``.  A direct channel has no trio:
``finish`` runs the same coroutine to its end in the calling thread, with ``InThread``, whose methods block
and so never suspend the coroutine.
"""

from __future__ import annotations

import math
import select
import time
from collections.abc import Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, TypeVar

import trio

from kernel.hosting.uninterrupted import UNINTERRUPTED

T = TypeVar("T")


class TooSlow(Exception):
    """What ``Waits.limit`` raises when the time is over."""


class Waits(Protocol):
    """How to wait."""

    def limit(self, seconds: float) -> AbstractContextManager[None]:
        """Limit the time of all waits inside the block together.  ``TooSlow`` if it is over."""
        ...

    async def readable(self, descriptor: int) -> None:
        """Wait until a descriptor is readable."""
        ...

    async def writable(self, descriptor: int) -> None:
        """Wait until a descriptor is writable."""
        ...


class InTrio:
    """Lets other tasks run meanwhile."""

    @contextmanager
    def limit(self, seconds: float) -> Iterator[None]:
        """Cancel the block when the time is over."""
        try:
            with trio.fail_after(seconds):
                yield
        except trio.TooSlowError:
            raise TooSlow from None

    async def readable(self, descriptor: int) -> None:
        """Suspend the task."""
        await trio.lowlevel.wait_readable(descriptor)

    async def writable(self, descriptor: int) -> None:
        """Suspend the task."""
        await trio.lowlevel.wait_writable(descriptor)


class InThread:
    """Blocks the calling thread.  For ``finish``."""

    def __init__(self) -> None:
        self._deadline = math.inf

    @contextmanager
    def limit(self, seconds: float) -> Iterator[None]:
        """Let the waits of the block raise when the time is over."""
        self._deadline = time.monotonic() + seconds
        try:
            yield
        finally:
            self._deadline = math.inf

    async def readable(self, descriptor: int) -> None:
        """Block the thread."""
        self._wait(descriptor, select.POLLIN)

    async def writable(self, descriptor: int) -> None:
        """Block the thread."""
        self._wait(descriptor, select.POLLOUT)

    def _wait(self, descriptor: int, event: int) -> None:
        # ``poll`` and not ``select``: it has no limit for the number of a descriptor.  An error of the socket
        # also ends the wait.  The read or write that follows raises it.
        poll = select.poll()
        poll.register(descriptor, event)
        # ``poll`` returns at the deadline of the whole handshake, however many waits it consists of.
        left = None if self._deadline == math.inf else max(self._deadline - time.monotonic(), 0) * 1000
        with UNINTERRUPTED.sleeping():
            ready = poll.poll(left)
        if not ready:
            raise TooSlow


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits only with ``InThread``; return its result."""
    try:
        # Runs to the end: nothing in it suspends, because the methods of ``InThread`` block.
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    # It has suspended, so it waits for a loop that this thread does not have.
    coroutine.close()
    raise RuntimeError(f"{coroutine!r} waits for something else than InThread, so a thread cannot run it")
