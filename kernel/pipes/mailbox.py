"""Mailbox: what other threads ask of this one: to read a pipe that has something, or to run a command."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from kernel.pipes.doorbell import Doorbell


class Mailbox:
    """Many writers, one reading thread; a post is one atomic append and, for a sleeper, one ring.

    An item is called by the reading thread with no arguments: a command, or the ``ready`` method of
    whatever has news.  ``posted`` is public so that its owner can test it in a hot path.
    """

    __slots__ = ("bell", "posted", "rings")

    def __init__(self) -> None:
        self.posted: deque[Callable[[], Any]] = deque()
        self.bell: Doorbell = Doorbell()
        self.rings: list[Doorbell] | None = None
        """Bells that the thread of this mailbox has still to ring (``ring_all``); None: it rings at once."""

    def post(self, item: Callable[[], Any]) -> None:
        """Leave an item.  Any thread."""
        self.posted.append(item)
        if self.bell.sleeping:
            self.bell.ring()

    def poster_to(self, other: Mailbox) -> Callable[[Callable[[], Any]], Any]:
        """Return what posts to ``other`` from the thread of this mailbox.

        A loop rings other threads last, when it is about to sleep: a thread that is woken earlier would only
        fight it for the interpreter's lock.  To itself a thread just appends: no synchronisation of any sort.
        """
        if other is self:
            return self.posted.append
        return partial(self._post_from_here, other)

    def _post_from_here(self, other: Mailbox, item: Callable[[], Any]) -> None:
        other.posted.append(item)
        bell = other.bell
        if bell.sleeping:
            if self.rings is None:
                bell.ring()
            else:
                bell.sleeping = False  # nobody else need ring it: this thread will, at the end of its turn
                self.rings.append(bell)

    def ring_all(self) -> None:
        """Ring the bells that were put off.  This mailbox's thread."""
        if self.rings:
            for bell in self.rings:
                bell.ring()
            self.rings.clear()

    def may_sleep(self) -> bool:
        """Set the flag of the bell, then look once more; False: there is something, so do not sleep.

        The reading thread.  The flag stays set either way: whoever posts from now on rings.
        """
        self.bell.sleeping = True
        # Takes the lock of the deque, as the writer's append does.  Without the interpreter's lock the flag could
        # otherwise become visible after the look, and the writer and the reader would miss each other.
        self.posted.rotate(0)
        return not self.posted

    def process(self) -> bool:
        """Call what has been posted so far; return whether there was anything.  The reading thread."""
        posted = self.posted
        if not posted:
            return False
        for _ in range(len(posted)):
            posted.popleft()()
        return True
