"""Mailbox: what other threads want of this one: pipes that have something, and commands."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from kernel.pipes.doorbell import Doorbell


class Mailbox:
    """Many writers, one reading thread; a post is one atomic append and, for a sleeper, one ring.

    An item is called by the reading thread with no arguments: a command, or the ``ready`` method of
    whatever has news.  ``posted`` is public so that its owner can test it in a hot path.
    """

    __slots__ = ("bell", "posted")

    def __init__(self) -> None:
        self.posted: deque[Callable[[], Any]] = deque()
        self.bell = Doorbell()

    def post(self, item: Callable[[], Any]) -> None:
        """Leave an item.  Any thread."""
        self.posted.append(item)
        if self.bell.sleeping:
            self.bell.ring()

    def process(self) -> bool:
        """Call what has been posted so far; return whether there was anything.  The reading thread."""
        posted = self.posted
        if not posted:
            return False
        for _ in range(len(posted)):
            posted.popleft()()
        return True
