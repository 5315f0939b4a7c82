"""Mailbox: calls that other threads leave for a thread: a pipe that has something, or a command."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from kernel.pipes.doorbell import Doorbell


class Mailbox:
    """Many threads write, one reads.

    A post is one atomic append, and one ring of the bell if the reader sleeps.

    The reading thread calls each item without arguments.  ``posted`` is public so that its owner can test it
    on a hot path.
    """

    __slots__ = ("_at_once", "_posters", "bell", "posted", "rings")

    def __init__(self, bell: Doorbell | None = None) -> None:
        """``bell``: that of a thread of the application, which rings others at once and may leave."""
        self.posted: deque[Callable[[], Any]] = deque()
        self.bell: Doorbell = Doorbell() if bell is None else bell
        self._at_once = bell is not None
        self.rings: list[Doorbell] | None = None
        """Bells that the thread of this mailbox will ring later (``ring_all``); None: it rings at once."""
        # By who posts: this mailbox may be there for a short time only, and threads of the kernel stay.
        self._posters: dict[Mailbox, Callable[[Callable[[], Any]], Any]] = {}

    def post(self, item: Callable[[], Any]) -> None:
        """Append an item, and wake the reading thread if it sleeps.  Any thread."""
        # In this order: the reader sets the flag and then looks at ``posted``. So either the reader sees the
        # item, or we see the flag.
        self.posted.append(item)
        if self.bell.sleeping:
            self.bell.ring()

    def poster_to(self, other: Mailbox) -> Callable[[Callable[[], Any]], Any]:
        """Return a function that posts to ``other``; only the thread of this mailbox may call it.

        A loop rings other threads last, before it sleeps: a thread that is woken earlier would only compete
        for the interpreter's lock.
        """
        # A thread that posts to itself is awake, but its loop may sleep: in the application's trio run
        # the loop is one task, and another one may post.
        if other is self:
            return self.post
        if self._at_once:
            return other.post
        # One for all pipes between two threads: there may be very many pipes, and few threads.
        poster = other._posters.get(self)
        if poster is None:
            poster = other._posters[self] = partial(self._post_from_here, other)
        return poster

    def leave(self) -> None:
        """Nobody reads it any more.  What pipes still post here is dropped with them."""
        # They refer to this mailbox, which only a collection of garbage would free.
        self._posters.clear()

    def _post_from_here(self, other: Mailbox, item: Callable[[], Any]) -> None:
        other.posted.append(item)
        bell = other.bell
        if bell.sleeping:
            if self.rings is None:
                bell.ring()
            else:
                # This thread will ring it at the end of its turn. The flag is cleared now, so that nobody
                # rings it a second time; from here on this thread must not forget to (``ring_all``).
                bell.sleeping = False
                self.rings.append(bell)

    def ring_all(self) -> None:
        """Ring the bells in ``rings``.  This mailbox's thread."""
        if self.rings:
            for bell in self.rings:
                bell.ring()
            self.rings.clear()

    def may_sleep(self) -> bool:
        """Set the flag of the bell, then look at the mailbox once more.

        False: there is something, so do not sleep.

        The reading thread.  The flag stays set in both cases: every later post rings.
        """
        self.bell.sleeping = True
        # Takes the lock of the deque, as the writer's append does. Without the interpreter's lock the flag
        # could otherwise become visible after the look, and the writer and the reader would miss each other.
        self.posted.rotate(0)
        return not self.posted

    def process(self) -> bool:
        """Call what has been posted so far; return whether there was anything.  The reading thread."""
        posted = self.posted
        if not posted:
            return False
        # Only what is here now. A callback may post to its own thread again (``Host.soon``); if that was
        # called in the same turn, descriptors and timers would wait for as long as it goes on.
        for _ in range(len(posted)):
            posted.popleft()()
        return True
