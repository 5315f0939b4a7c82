"""Doorbell: wakes a reading thread that sleeps.  For a thread that is awake it costs no system call.

The reader sets ``sleeping`` *before* its last look at what it waits for.  The writer appends first and looks
at the flag afterwards.  In any order of events, either the reader sees the item or the writer sees the flag.
The reader's part is in ``Mailbox.may_sleep``.  On one core a ring and the wait for it take 1.2 us
(two threads that ring each other, ``taskset -c 1``); to wake a core that sleeps takes 30.
"""

from __future__ import annotations

import logging
import os
import select
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_log = logging.getLogger(__name__)

_ONE = (1).to_bytes(8, "little")
_LONGEST = 3600.0
"""Seconds of the longest wait.  ``poll`` takes at most 2**31 - 1 ms, which is 24 days."""


class Doorbell:
    """An eventfd (a pipe where the system has none) that is written only for a sleeping reader."""

    __slots__ = ("_left", "_poll", "_read_fd", "_write_fd", "instead", "on_ring", "sleeping", "waiting")

    def __init__(self) -> None:
        self.sleeping: bool = False
        self.waiting: bool = False
        """Whether the reader is in ``wait``."""
        self.on_ring: Callable[[], Any] | None = None
        """A further callback for each ring, called by the thread that rings; what it raises is logged."""
        self.instead: Callable[[], Any] | None = None
        """What a ring calls instead of writing the descriptor: for a reader that does not sleep on it."""
        if hasattr(os, "eventfd"):
            self._read_fd = self._write_fd = os.eventfd(0, os.EFD_CLOEXEC)
        else:  # macOS
            self._read_fd, self._write_fd = os.pipe()
            os.set_blocking(self._write_fd, False)
        self._left: list[int] = []
        """What is still to be closed: by the reader, if it was in ``wait``."""
        self._poll = select.poll()
        self._poll.register(self._read_fd, select.POLLIN)

    def fileno(self) -> int:
        """Return the descriptor, which is readable from a ring until ``clear``; -1 when closed."""
        return self._read_fd

    def ring(self) -> None:
        """Wake the reader.  Any thread; does nothing on a closed bell."""
        # First: writers that come now see that the reader was rung for, and save the system call.
        self.sleeping = False
        # Once: the reader may leave at this moment.
        instead = self.instead
        if instead is not None:
            _call(instead)
            return
        try:
            os.write(self._write_fd, _ONE)
        except BlockingIOError:
            # The counter of the eventfd, or the pipe, is full. It is readable then, so the reader wakes.
            pass
        except OSError:
            # Closed between the writer's look at the flag and this call. Nobody has to be woken any more.
            pass
        on_ring = self.on_ring
        if on_ring is not None:
            _call(on_ring)

    def ring_ahead(self) -> bool:
        """Wake a reader that sleeps in ``wait``, for what will be there when it runs; whether it slept.

        A reader that is told in another way is not: its descriptor or its callback says that something has
        come.  Any thread.
        """
        if self.sleeping and self.waiting and self.on_ring is None:
            self.ring()
            return True
        return False

    def wait(self, timeout: float | None) -> bool:
        """Sleep until rung, at most ``timeout`` seconds.  The caller has set ``sleeping`` and looked again.

        False: not rung.  This may be before ``timeout`` if that is very long.  A bell that is
        closed counts as rung.
        """
        self.waiting = True
        try:
            # -1: what the poll has is the number that was closed.
            if (
                timeout is not None
                and self._read_fd != -1
                and not self._poll.poll(min(max(timeout, 0), _LONGEST) * 1000)
            ):
                self.sleeping = False
                return False
            # Without a time limit this read itself is what sleeps: one system call instead of two. An eventfd
            # gives 8 bytes at once; 4096 empty a pipe after many rings.
            os.read(self._read_fd, 4096)
        except OSError:
            # A kernel that closes rings the threads of its callers, and then closes their bells. A caller may
            # be on its way to sleep at that time. It finds in its mailbox what it was rung for.
            if self._read_fd != -1:
                raise
        finally:
            self.waiting = False
            # Behind it, as ``close`` looks at the flag last.
            if self._left:
                self._close_left()
        self.sleeping = False
        return True

    def clear(self) -> None:
        """Forget that the bell was rung."""
        if self._poll.poll(0):
            self.silence()

    def silence(self) -> None:
        """Forget that the bell was rung; only for a bell that was rung, otherwise this waits."""
        try:
            os.read(self._read_fd, 4096)
        except OSError:
            # Closed, as in ``wait``.
            if self._read_fd != -1:
                raise

    def forked(self) -> None:
        """This process is a child that was forked: wake none of its parent's threads.

        The descriptors stay open, since others may know their numbers (``fileno``).
        """
        self._read_fd = self._write_fd = -1
        self.on_ring = self.instead = None

    def close(self) -> None:
        """Close the descriptors.  The reader's thread, or another one at the end.

        A reader that is in ``wait`` is woken, and closes them itself: it may just be about to ask the system,
        and a number that was closed could be that of another file by then.
        """
        fds = {self._read_fd, self._write_fd} - {-1}
        if self.waiting and fds:
            # Full: then it is readable.
            with suppress(BlockingIOError):
                os.write(self._write_fd, _ONE)
        # Before they are closed: another thread may be about to ring. With the old number it could write into
        # a file that was opened in the meantime.
        self._read_fd = self._write_fd = -1
        self._left += fds
        if not self.waiting:
            self._close_left()

    def _close_left(self) -> None:
        while self._left:
            try:
                fd = self._left.pop()
            except IndexError:
                # The other thread was faster.
                return
            os.close(fd)


def _call(callback: Callable[[], Any]) -> None:
    try:
        callback()
    except Exception:
        # A fault of the application must not end the thread of the kernel that rings.
        _log.exception("a callback on arrival failed")
