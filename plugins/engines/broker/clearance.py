"""Clearance: forgets the messages of a queue that was purged or deleted, a share at a time.

A queue may have millions of messages, and to free them, or to note each in the log, takes about a microsecond
a message.  The queue is empty at once; what is done for its former messages is divided over many turns, so
that all others are served in between.

The first share is forgotten at once, so that a small queue needs no later turn.  What is left is forgotten
before the store closes.  If the process is killed before, durable messages that are left come back.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plugins.engines.broker.backlog import Item
    from plugins.engines.broker.broker import Broker
    from plugins.engines.broker.queue import Queue

SHARE = 4096
"""Items of a backlog in a turn: a few milliseconds."""
PAUSE = 0.0005
"""Seconds between two shares, in which others are served."""


class Clearance:
    """Items that were taken out of the backlog of ``queue``."""

    __slots__ = ("_broker", "_items", "_queue", "called_at")

    def __init__(self, broker: Broker, queue: Queue, items: deque[Item]) -> None:
        self.called_at: float | None = None
        self._broker = broker
        self._queue = queue
        self._items = items

    def begin(self, now: float) -> None:
        """Forget the first share, and arrange for the others."""
        self._broker.clearances[self] = None
        self.handle_timeout(now)

    def handle_timeout(self, now: float) -> None:
        """Forget another share."""
        self._forget(SHARE)
        if self._items:
            self._broker.call_at(now + PAUSE, self)

    def finish(self) -> None:
        """Forget all that is left."""
        self.called_at = None
        self._forget(len(self._items))

    def detach(self, queue: Queue) -> None:
        """Forget the pages of this queue, which has been deleted.

        A page is registered with the segments that it is in, so that the compactor finds it.  The log is
        about to forget them.
        """
        if queue is self._queue:
            for item in self._items:
                if item.batch is None:
                    item.detach()
            self._items = deque(item for item in self._items if item.batch is not None)

    def _forget(self, count: int) -> None:
        queue, items = self._queue, self._items
        for _ in range(min(count, len(items))):
            item = items.popleft()
            # Of a queue that was deleted the log knows already that all messages are gone.
            if not queue.deleted:
                queue.forget(item)
        if not items:
            self._broker.clearances.pop(self, None)
